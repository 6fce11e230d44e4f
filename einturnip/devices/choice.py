"""``--device``: which device a word asks for, and opening it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from einturnip.core.errors import BindError, DeviceError
from einturnip.core.process_limits import available_memory
from einturnip.devices.probe import driver, probe
from einturnip.devices.protocol import Device
from einturnip.devices.simulated import SimulatedDevice, drawn
from einturnip.devices.streams import VirtualStreams

WORDS = "auto, cpu, cuda, cuda:1, cuda:1+tf32, sim, or several as in cuda:0,1 and sim:7,8"
MOST_DEVICES = 16
SHARE = 0.9
"""Of a GPU's free memory, what a run takes where no budget is stated: a context and modules come beside it."""
LIBRARY_NBYTES = 4 * (32 << 20)
"""Of a GPU's budget, what cuBLAS works in on four streams: what NVIDIA advises for its newest GPUs."""
LIBRARY_SHARE = 32
"""Of a small budget no more than one part in so many is cuBLAS's; it then takes kernels that need less."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device: the CPU, GPU ``number``, or a simulated one with delays drawn from the seed ``number``.

    ``why``: why ``auto`` took the CPU, or which GPU it took. ``tf32``: products of f32 may round their factors to 10
    bits. ``library``: bytes of the budget in which cuBLAS works, beside the arena. ``beside``: numbers of further
    devices of the kind; a GPU that is named twice stands for two devices, whose arenas share its memory.
    """

    kind: Literal["cpu", "cuda", "sim"] = "cpu"
    number: int = 0
    why: str = ""
    tf32: bool = False
    library: int = 0
    beside: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all its devices."""
        return self.number, *self.beside

    @property
    def names(self) -> tuple[str, ...]:
        """As reports name its devices, each differently."""
        if self.kind != "cuda":
            return tuple(f"{self.kind}:{k}" for k in range(len(self.numbers)))
        before = (self.numbers[:k].count(number) for k, number in enumerate(self.numbers))
        return tuple(
            f"cuda:{n}.{again}" if again else f"cuda:{n}" for n, again in zip(self.numbers, before, strict=True)
        )

    @property
    def told(self) -> str:
        """In words: the device, and why it was taken where ``auto`` took it."""
        return f"{self.name}: {self.why}" if self.why else self.name

    @property
    def name(self) -> str:
        """As reports name it, or all its devices together."""
        numbers = self.numbers if self.kind == "cuda" else range(len(self.numbers))
        return f"{self.kind}:{','.join(map(str, numbers))}"

    def link_bytes(self, moved: Mapping[str, int]) -> dict[str, int]:
        """Bytes by link, from those moved in and out, and of them those between a device and host memory or another."""
        if self.kind == "cpu":
            return {"disk->cpu:0": moved["in"], "cpu:0->disk": moved["out"]}
        name = self.name
        ways = {"in": f"disk->{name}", "out": f"{name}->disk", "host in": f"host->{name}", "host out": f"{name}->host"}
        if self.beside:
            ways["across"] = f"{name}->{name}"
        return {link: moved.get(way, 0) for way, link in ways.items()}


def check(word: str) -> None:
    """Refuse a word that names no device, whatever this machine has.

    Raises:
        BindError: it is none, or names more devices than one run takes.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+(,\d+)*)?(\+tf32)?|sim(:\d+(,\d+)*)?", word):
        raise BindError(f"'{word}' is no device. help: {WORDS}")
    if word.count(",") >= MOST_DEVICES:
        raise BindError(f"--device {word}: one run takes {MOST_DEVICES} devices at most. help: name fewer")


def choose(word: str) -> DeviceChoice:
    """The device that a word asks for; ``auto`` is the first GPU that can be used, else the CPU.

    Raises:
        BindError, DeviceError: there is none such, and what would help.
    """
    check(word)
    plain, _, tf32 = word.partition("+")
    kind, _, text = plain.partition(":")
    numbers = [int(number) for number in text.split(",")] if text else []
    if kind == "cpu":
        return DeviceChoice()
    if kind == "sim":
        return DeviceChoice("sim", numbers[0] if numbers else 0, beside=tuple(numbers[1:]))
    if kind == "auto" and driver():  # so that most machines load nothing
        return DeviceChoice(why=driver())
    found = probe()
    if kind == "auto":
        if not found.gpus:
            return DeviceChoice(why=found.reason())
        return DeviceChoice("cuda", found.gpus[0].number, f"{found.gpus[0].name}, the first that can be used")
    if not found.gpus:
        raise DeviceError(f"--device {word}: {found.reason()}")
    wanted = numbers or [found.gpus[0].number]
    if not {*wanted} <= {gpu.number for gpu in found.gpus}:
        there = ", ".join(f"cuda:{gpu.number} ({gpu.name})" for gpu in found.gpus)
        raise DeviceError(f"--device {word}: there is no such GPU. help: there are {there}")
    return DeviceChoice("cuda", wanted[0], tf32=bool(tf32), beside=tuple(wanted[1:]))


def arena_nbytes(chosen: DeviceChoice) -> int:
    """Bytes that a run may take of a device, of each of several, where no budget is stated."""
    numbers = chosen.numbers
    if chosen.kind == "cuda":
        free = {gpu.number: gpu.free_nbytes for gpu in probe().gpus}
        return int(SHARE * min(free[number] // numbers.count(number) for number in numbers))
    return available_memory() // 4 // len(numbers)


def within(chosen: DeviceChoice, memory: int | None, arena: int | None) -> tuple[DeviceChoice, int]:
    """The device with cuBLAS's part set aside, within the memory stated or beside the arena stated; and the arena."""
    if arena is None and memory is None:
        memory = arena_nbytes(chosen)
    budget = memory if arena is None else arena
    assert budget is not None
    library = min(LIBRARY_NBYTES, budget // LIBRARY_SHARE) if chosen.kind == "cuda" else 0
    return replace(chosen, library=library), budget - library if arena is None else budget


def open_devices(chosen: DeviceChoice, arena: int, pinned: int) -> Sequence[Device]:
    """A device, or several of a kind, with an arena of so many bytes each; the first has the pinned memory of all.

    Raises:
        DeviceError: one cannot be had.
    """
    if chosen.kind == "cuda":
        return _open_cuda(chosen, arena, pinned)
    streams = VirtualStreams(drawn(",".join(map(str, chosen.numbers)) if chosen.beside else chosen.number))
    return [SimulatedDevice(name, arena, 0 if k else pinned, streams, k) for k, name in enumerate(chosen.names)]


def _open_cuda(chosen: DeviceChoice, arena: int, pinned: int) -> Sequence[Device]:
    from einturnip.devices.cuda.device import open_cuda

    found: list[Device] = []
    try:
        for number, name in zip(chosen.numbers, chosen.names, strict=True):
            others = sorted({*chosen.numbers} - {number})
            own = 0 if found else pinned
            found.append(open_cuda(number, arena, own, chosen.library, chosen.tf32, name, others))
    except DeviceError:
        for device in found:
            device.close()
        raise
    return found
