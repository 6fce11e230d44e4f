"""``--device``: which device a word asks for, and opening it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from einturnip.core.errors import BindError, DeviceError
from einturnip.devices.limits import available_memory
from einturnip.devices.probe import driver, probe
from einturnip.devices.protocol import Device
from einturnip.devices.simulated import SimulatedDevice, drawn

WORDS = "auto, cpu, cuda, cuda:1 or sim"
SHARE = 0.9
"""Of a GPU's free memory, what a run takes where no budget is stated: a context and modules come beside it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device: the CPU, GPU ``number``, or a simulated one with delays drawn from the seed ``number``.

    ``why``: why ``auto`` took the CPU, or which GPU it took.
    """

    kind: Literal["cpu", "cuda", "sim"] = "cpu"
    number: int = 0
    why: str = ""

    @property
    def name(self) -> str:
        """As reports name it."""
        return f"{self.kind}:{0 if self.kind != 'cuda' else self.number}"


def check(word: str) -> None:
    """Refuse a word that names no device, whatever this machine has.

    Raises:
        BindError: it is none. DeviceError: several GPUs, which are not supported yet.
    """
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?|sim(:\d+)?", word):
        return
    if re.fullmatch(r"cuda:\d+(,\d+)+", word):
        raise DeviceError(
            f"--device {word}: a run on several GPUs is not supported yet. help: name one, --device cuda:{word[5:6]}"
        )
    raise BindError(f"'{word}' is no device. help: {WORDS}")


def choose(word: str) -> Chosen:
    """The device that a word asks for; ``auto`` is the first GPU that can be used, else the CPU.

    Raises:
        BindError, DeviceError: there is none such, and what would help.
    """
    check(word)
    kind, _, number = word.partition(":")
    if kind == "cpu":
        return Chosen()
    if kind == "sim":
        return Chosen("sim", int(number or 0))
    if kind == "auto" and driver():  # so that most machines load nothing
        return Chosen(why=driver())
    found = probe()
    if kind == "auto":
        if not found.gpus:
            return Chosen(why=found.reason())
        return Chosen("cuda", found.gpus[0].number, f"{found.gpus[0].name}, the first that can be used")
    if not found.gpus:
        raise DeviceError(f"--device {word}: {found.reason()}")
    wanted = int(number or found.gpus[0].number)
    if wanted not in {gpu.number for gpu in found.gpus}:
        there = ", ".join(f"cuda:{gpu.number} ({gpu.name})" for gpu in found.gpus)
        raise DeviceError(f"--device {word}: there is no such GPU. help: there are {there}")
    return Chosen("cuda", wanted)


def arena_nbytes(chosen: Chosen) -> int:
    """Bytes that a run may take of a device where no budget is stated."""
    if chosen.kind == "cuda":
        return int(SHARE * next(gpu.free_nbytes for gpu in probe().gpus if gpu.number == chosen.number))
    return available_memory() // 4


def open_device(chosen: Chosen, arena: int, pinned: int) -> Device:
    """A device with an arena and pinned memory of so many bytes.

    Raises:
        DeviceError: it cannot be had.
    """
    if chosen.kind == "cuda":
        from einturnip.devices.cuda.device import open_cuda

        return open_cuda(chosen.number, arena, pinned)
    return SimulatedDevice(chosen.name, arena, pinned, drawn(chosen.number))
