"""``--device``: which device a word asks for, and opening it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from einturnip.core.errors import BindError, DeviceError
from einturnip.devices.limits import available_memory
from einturnip.devices.probe import driver, probe
from einturnip.devices.protocol import Device
from einturnip.devices.simulated import SimulatedDevice, drawn

WORDS = "auto, cpu, cuda, cuda:1, cuda:1+tf32 or sim"
SHARE = 0.9
"""Of a GPU's free memory, what a run takes where no budget is stated: a context and modules come beside it."""
LIBRARY_NBYTES = 4 * (32 << 20)
"""Of a GPU's budget, what cuBLAS works in on four streams: what NVIDIA advises for its newest GPUs."""
LIBRARY_SHARE = 32
"""Of a small budget no more than one part in so many is cuBLAS's; it then takes kernels that need less."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device: the CPU, GPU ``number``, or a simulated one with delays drawn from the seed ``number``.

    ``why``: why ``auto`` took the CPU, or which GPU it took. ``tf32``: products of f32 may round their factors to 10
    bits. ``library``: bytes of the budget in which cuBLAS works, beside the arena.
    """

    kind: Literal["cpu", "cuda", "sim"] = "cpu"
    number: int = 0
    why: str = ""
    tf32: bool = False
    library: int = 0

    @property
    def told(self) -> str:
        """In words: the device, and why it was taken where ``auto`` took it."""
        return f"{self.name}: {self.why}" if self.why else self.name

    @property
    def name(self) -> str:
        """As reports name it."""
        return f"{self.kind}:{0 if self.kind != 'cuda' else self.number}"


def check(word: str) -> None:
    """Refuse a word that names no device, whatever this machine has.

    Raises:
        BindError: it is none. DeviceError: several GPUs, which are not supported yet.
    """
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?(\+tf32)?|sim(:\d+)?", word):
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
    plain, _, tf32 = word.partition("+")
    kind, _, number = plain.partition(":")
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
    return Chosen("cuda", wanted, tf32=bool(tf32))


def arena_nbytes(chosen: Chosen) -> int:
    """Bytes that a run may take of a device where no budget is stated."""
    if chosen.kind == "cuda":
        return int(SHARE * next(gpu.free_nbytes for gpu in probe().gpus if gpu.number == chosen.number))
    return available_memory() // 4


def within(chosen: Chosen, memory: int | None, arena: int | None) -> tuple[Chosen, int]:
    """The device with cuBLAS's part set aside, within the memory stated or beside the arena stated; and the arena."""
    if arena is None and memory is None:
        memory = arena_nbytes(chosen)
    budget = memory if arena is None else arena
    assert budget is not None
    library = min(LIBRARY_NBYTES, budget // LIBRARY_SHARE) if chosen.kind == "cuda" else 0
    return replace(chosen, library=library), budget - library if arena is None else budget


def open_device(chosen: Chosen, arena: int, pinned: int) -> Device:
    """A device with an arena and pinned memory of so many bytes.

    Raises:
        DeviceError: it cannot be had.
    """
    if chosen.kind == "cuda":
        from einturnip.devices.cuda.device import open_cuda

        return open_cuda(chosen.number, arena, pinned, chosen.library, chosen.tf32)
    return SimulatedDevice(chosen.name, arena, pinned, drawn(chosen.number))
