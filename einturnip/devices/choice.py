"""The option ``--device``: parses its value, chooses devices, and opens them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from einturnip.core.errors import BindError, DeviceError
from einturnip.core.process_limits import available_memory
from einturnip.devices.probe import driver, probe
from einturnip.devices.protocol import Device
from einturnip.devices.simulated import SimulatedDevice, random_delays
from einturnip.devices.streams import VirtualStreams

WORDS = "auto, cpu, cuda, cuda:1, cuda:1+tf32, sim, or several as in cuda:0,1 and sim:7,8"
MAX_DEVICES = {"cuda": 16, "sim": 1024}
DEFAULT_FRACTION = 0.9
"""Fraction of a GPU's free memory for a run without a stated budget; the CUDA context and modules need the rest."""
CUBLAS_NBYTES = 4 * (32 << 20)
"""cuBLAS workspace of four streams, within the GPU's budget; NVIDIA recommends this size for its newest GPUs."""
CUBLAS_DIVISOR = 32
"""The cuBLAS workspace is at most the budget divided by this number; cuBLAS then uses kernels that need less."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices of a run: the CPU, GPUs, or simulated devices.

    ``number``: of a GPU, or the seed of a simulated device's delays.

    ``why``: why ``auto`` chose the CPU, or which GPU it chose. ``tf32``: products of f32 can round their factors to 10
    bits. ``library``: bytes of the budget for cuBLAS's workspace, in addition to the arena. ``further``: numbers of
    further devices of the same kind; a GPU that is named twice counts as two devices, whose arenas share its memory.
    """

    kind: Literal["cpu", "cuda", "sim"] = "cpu"
    number: int = 0
    why: str = ""
    tf32: bool = False
    library: int = 0
    further: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all devices."""
        return self.number, *self.further

    @property
    def names(self) -> tuple[str, ...]:
        """The unique names of the devices in reports."""
        if self.kind != "cuda":
            return tuple(f"{self.kind}:{k}" for k in range(len(self.numbers)))
        before = (self.numbers[:k].count(number) for k, number in enumerate(self.numbers))
        return tuple(
            f"cuda:{n}.{again}" if again else f"cuda:{n}" for n, again in zip(self.numbers, before, strict=True)
        )

    @property
    def description(self) -> str:
        """The name, with the reason if ``auto`` chose the device."""
        return f"{self.name}: {self.why}" if self.why else self.name

    @property
    def name(self) -> str:
        """The name of all devices together in reports."""
        numbers = self.numbers if self.kind == "cuda" else range(len(self.numbers))
        return f"{self.kind}:{','.join(map(str, numbers))}"

    def link_bytes(self, moved: Mapping[str, int]) -> dict[str, int]:
        """Return the bytes moved over each link, by its name in reports.

        ``moved``: bytes by direction: ``in`` and ``out`` for files, ``host in`` and ``host out`` for host memory, and
        ``across`` for other devices.
        """
        if self.kind == "cpu":
            return {"disk->cpu:0": moved["in"], "cpu:0->disk": moved["out"]}
        name = self.name
        links = {"in": f"disk->{name}", "out": f"{name}->disk", "host in": f"host->{name}", "host out": f"{name}->host"}
        if self.further:
            links["across"] = f"{name}->{name}"
        return {link: moved.get(direction, 0) for direction, link in links.items()}


def check(word: str) -> None:
    """Check the syntax of a ``--device`` value, without looking at this machine's devices.

    Raises:
        BindError: it is not a device, or names too many devices.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+(,\d+)*)?(\+tf32)?|sim(:\d+(,\d+)*)?", word):
        raise BindError(f"'{word}' is not a device. help: {WORDS}")
    most = MAX_DEVICES.get(word.partition(":")[0], 1)
    if word.count(",") >= most:
        raise BindError(f"--device {word}: one run uses at most {most} devices. help: name fewer")


def choose(word: str) -> DeviceChoice:
    """Return the devices for a ``--device`` value; ``auto`` is the first usable GPU, else the CPU.

    Raises:
        BindError, DeviceError: there is no such device; the message says what helps.
    """
    check(word)
    plain, _, tf32 = word.partition("+")
    kind, _, text = plain.partition(":")
    numbers = [int(number) for number in text.split(",")] if text else []
    if kind == "cpu":
        return DeviceChoice()
    if kind == "sim":
        return DeviceChoice("sim", numbers[0] if numbers else 0, further=tuple(numbers[1:]))
    if kind == "auto" and driver():  # without a driver, nothing else has to be imported
        return DeviceChoice(why=driver())
    found = probe()
    if kind == "auto":
        if not found.gpus:
            return DeviceChoice(why=found.reason())
        return DeviceChoice("cuda", found.gpus[0].number, f"{found.gpus[0].name}, the first that can be used")
    if not found.gpus:
        raise DeviceError(f"--device {word}: {found.reason()}")
    named = numbers or [found.gpus[0].number]
    if not {*named} <= {gpu.number for gpu in found.gpus}:
        usable = ", ".join(f"cuda:{gpu.number} ({gpu.name})" for gpu in found.gpus)
        raise DeviceError(f"--device {word}: there is no such GPU. help: there are {usable}")
    return DeviceChoice("cuda", named[0], tf32=bool(tf32), further=tuple(named[1:]))


def arena_nbytes(chosen: DeviceChoice) -> int:
    """Return the bytes that a run can use on each device if no budget is stated."""
    numbers = chosen.numbers
    if chosen.kind == "cuda":
        free = {gpu.number: gpu.free_nbytes for gpu in probe().gpus}
        return int(DEFAULT_FRACTION * min(free[number] // numbers.count(number) for number in numbers))
    return available_memory() // 4 // len(numbers)


def within(chosen: DeviceChoice, memory: int | None, arena: int | None) -> tuple[DeviceChoice, int]:
    """Divide a device's budget into cuBLAS's workspace and the arena.

    Returns the device and the arena's bytes.

    A stated ``memory`` contains the workspace; a stated ``arena`` does not.
    """
    if arena is None and memory is None:
        memory = arena_nbytes(chosen)
    budget = memory if arena is None else arena
    assert budget is not None
    library = min(CUBLAS_NBYTES, budget // CUBLAS_DIVISOR) if chosen.kind == "cuda" else 0
    return replace(chosen, library=library), budget - library if arena is None else budget


def open_devices(chosen: DeviceChoice, arena: int, pinned: int) -> Sequence[Device]:
    """Open the devices, each with an arena of ``arena`` bytes.

    The first one has the ``pinned`` bytes of all.

    Raises:
        DeviceError: a device cannot be opened.
    """
    if chosen.kind == "cuda":
        return _open_cuda(chosen, arena, pinned)
    streams = VirtualStreams(random_delays(",".join(map(str, chosen.numbers)) if chosen.further else chosen.number))
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
