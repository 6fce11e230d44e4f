"""DeviceKind: the interface of a kind of device, and the CPU's. DeviceChoice: the devices of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from einturnip.core.process_resources import available_memory
from einturnip.kernels.select import Mode, planned_workspace_nbytes

if TYPE_CHECKING:
    from einturnip.cost.machine import Machine
    from einturnip.devices.protocol import Device
    from einturnip.ir.region import Space


class DeviceKind:
    """A kind of device, such as ``cuda``.

    A value of ``--device`` is its name, numbers of devices, and one of its ``options``, as in ``cuda:0,1+tf32``.
    ``max_devices``: maximum that one run can use; 0 if devices have no numbers. ``on_host``: the threads of the process
    run the plan, and ``open`` is not called.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    max_devices: ClassVar[int] = 1
    on_host: ClassVar[bool] = False

    def choose(self, numbers: Sequence[int], option: str, word: str) -> DeviceChoice:
        """Return the devices with these numbers. ``word``: the value of ``--device``, for messages.

        Raises:
            DeviceError: there are no such devices; the message says what helps.
        """
        first, *further = numbers or [0]
        return DeviceChoice(self, first, option=option, further=tuple(further))

    def automatic(self) -> DeviceChoice | str:
        """Return the device for ``--device auto``, or why there is none."""
        return ""

    def findings(self) -> Iterator[tuple[str, str]]:
        """Yield (name, text) of each line about devices of this kind in ``einturnip doctor``."""
        yield from ()

    def reported_numbers(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the devices' numbers in reports."""
        return numbers

    def machine(self, host: Machine, chosen: DeviceChoice) -> Machine:
        """Return the rates that price plans for these devices. ``host``: the rates of this machine's CPU."""
        return replace(host, compute=chosen.name, workers=host.workers * len(chosen.numbers))

    def arena_nbytes(self, numbers: Sequence[int]) -> int:
        """Return the bytes that a run can use on each device if no budget is stated."""
        return available_memory() // 4 // len(numbers)

    def library_nbytes(self, budget: int) -> int:
        """Return the bytes of a device's budget that its libraries need in addition to the arena."""
        return 0

    def workspace_nbytes(self, space: Space, extents: tuple[int, ...], mode: Mode, compiled: bool) -> int:
        """Return a kernel's bytes of workspace. ``compiled``: the host compiles kernels to machine code."""
        return planned_workspace_nbytes(space, extents, mode, compiled)

    def open(self, chosen: DeviceChoice, arenas: Sequence[int], pinned: int) -> Sequence[Device]:
        """Open the devices. ``arenas``: the bytes of each one's arena.

        The first one has the ``pinned`` bytes of all.

        Raises:
            DeviceError: a device cannot be opened.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices of a run: the CPU, or one or more devices of another kind.

    ``number``: of the first device. ``why``: why ``auto`` chose the CPU, or which device it chose. ``option``: one of
    the kind's options. ``library``: bytes of each device's budget for its libraries, in addition to the arena.
    ``further``: numbers of further devices; one that is named twice counts as two devices, whose arenas share its
    memory.
    """

    kind: DeviceKind
    number: int = 0
    why: str = ""
    option: str = ""
    library: int = 0
    further: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all devices."""
        return self.number, *self.further

    @property
    def names(self) -> tuple[str, ...]:
        """The unique names of the devices in reports."""
        numbers = tuple(self.kind.reported_numbers(self.numbers))
        before = (numbers[:k].count(number) for k, number in enumerate(numbers))
        named = [(f"{self.kind.name}:{n}", again) for n, again in zip(numbers, before, strict=True)]
        return tuple(f"{name}.{again}" if again else name for name, again in named)

    @property
    def description(self) -> str:
        """The name, with the reason if ``auto`` chose the device."""
        return f"{self.name}: {self.why}" if self.why else self.name

    @property
    def name(self) -> str:
        """The name of all devices together in reports."""
        return f"{self.kind.name}:{','.join(map(str, self.kind.reported_numbers(self.numbers)))}"

    def link_bytes(self, moved: Mapping[str, int]) -> dict[str, int]:
        """Return the bytes moved over each link, by its name in reports.

        ``moved``: bytes by direction: ``in`` and ``out`` for files, ``host in`` and ``host out`` for host memory, and
        ``across`` for other devices.
        """
        name = self.name
        links = {"in": f"disk->{name}", "out": f"{name}->disk"}
        if not self.kind.on_host:
            links |= {"host in": f"host->{name}", "host out": f"{name}->host"}
        if self.further:
            links["across"] = f"{name}->{name}"
        return {link: moved.get(direction, 0) for direction, link in links.items()}


class CpuKind(DeviceKind):
    """The CPU: the threads of the process run the plan in its memory."""

    name = "cpu"
    max_devices = 0
    on_host = True

    def machine(self, host: Machine, chosen: DeviceChoice) -> Machine:
        """See DeviceKind."""
        return host


CPU = CpuKind()
ON_CPU = DeviceChoice(CPU)
