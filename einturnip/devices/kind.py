"""Kinds of devices: their interface, the CPU's, the table of all, and the option ``--device``.

An installed package adds a kind with an entry point of the group ``einturnip.devices``, whose name is the kind's and
whose value is a ``DeviceKind`` object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from einturnip.core import entry_points
from einturnip.core.errors import BindError, DeviceError
from einturnip.core.process_resources import available_memory
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import planned_workspace_nbytes

if TYPE_CHECKING:
    from einturnip.cost.machine import Machine
    from einturnip.devices.protocol import Array, Device
    from einturnip.ir.region import Space
    from einturnip.storage.device_arrays import DeviceArray

GROUP = "einturnip.devices"
AUTOMATIC = ("cuda",)
"""Kinds that ``--device auto`` looks for, in this order, before it takes the CPU."""

# name: (module under devices, its DeviceKind object)
_BUILT_IN = {"cpu": ("kind", "CPU"), "cuda": ("cuda.kind", "CUDA"), "sim": ("simulated", "SIM")}

MAX_SITES = 1024
HOST = "+cpu"
"""End of a ``--device`` value with which the CPU is a site too."""

_VALUE = re.compile(r"(?P<kind>[a-z]\w*)(:(?P<numbers>\d+(,\d+)*))?(\+(?P<option>\w+))?", re.ASCII)
_SEVERAL = re.compile(r"(?P<kind>[a-z]\w*)(:\d+(,\d+)*)?([,+;][a-z]\w*(:\d+(,\d+)*)?)+", re.ASCII)
"""Values that name a kind more than once, or several kinds."""


class DeviceKind:
    """A kind of device, such as ``cuda``.

    A value of ``--device`` is its name, numbers of devices, and one of its ``options``, as in ``cuda:0,1+tf32``.
    ``max_devices``: maximum that one run can use; 0 if devices have no numbers. ``on_host``: the threads of the process
    run the plan, and ``open`` is not called. ``host_kernels``: its kernels are the host's, so it computes the same
    bits.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    max_devices: ClassVar[int] = 1
    on_host: ClassVar[bool] = False
    host_kernels: ClassVar[bool] = False

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
        return replace(host, compute=chosen.name, workers=host.workers * chosen.count)

    def product_flops(self, chosen: DeviceChoice, host: Machine) -> Sequence[float]:
        """Return the operations per second of large products on each device, to be compared with the host's.

        Raises:
            BindError: they are unknown; asks for ``--rates``.
        """
        raise unknown_rates(chosen, chosen.names[0])

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

    def empty(self, number: int, shape: Sequence[int], dtype: Any) -> Any:
        """Return a new array in the memory of a device, for a result.

        Raises:
            BindError: there are no arrays on devices of this kind.
        """
        raise BindError(f"results cannot stay on {self.name}:{number}. help: leave out the arrays on a device")

    def join_callers(self, device: Device, arrays: Sequence[DeviceArray]) -> None:
        """Let all work of an open device wait for the caller's work on these arrays of its memory."""
        raise NotImplementedError

    def open_host(self, devices: Sequence[Device], name: str, arena: Array, workers: int) -> Device:
        """Return the host as a further site of a run on open devices.

        ``arena``: its bytes, which the devices' streams can copy. ``workers``: its compute threads.
        """
        from einturnip.devices.host_site import HostSite  # few runs have one

        return HostSite(name, arena, workers)


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices of a run: the CPU, or one or more devices of another kind, which the CPU may join.

    ``number``: of the first device. ``why``: why ``auto`` chose the CPU, or which device it chose. ``option``: one of
    the kind's options. ``library``: bytes of each device's budget for its libraries, in addition to the arena.
    ``further``: numbers of further devices; one that is named twice counts as two devices, whose arenas share its
    memory. ``host``: the CPU is the last site of the run.
    """

    kind: DeviceKind
    number: int = 0
    why: str = ""
    option: str = ""
    library: int = 0
    further: tuple[int, ...] = ()
    host: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all devices of the kind."""
        return self.number, *self.further

    @property
    def count(self) -> int:
        """The number of sites: devices of the kind, and the CPU if it is one."""
        return len(self.numbers) + self.host

    @property
    def names(self) -> tuple[str, ...]:
        """The unique names of the sites in reports."""
        numbers = tuple(self.kind.reported_numbers(self.numbers))
        before = (numbers[:k].count(number) for k, number in enumerate(numbers))
        named = [(f"{self.kind.name}:{n}", again) for n, again in zip(numbers, before, strict=True)]
        return (*(f"{name}.{again}" if again else name for name, again in named), *([CPU.name] if self.host else []))

    @property
    def description(self) -> str:
        """The name, with the reason if ``auto`` chose the device."""
        return f"{self.name}: {self.why}" if self.why else self.name

    @property
    def name(self) -> str:
        """The name of all devices together in reports."""
        return f"{self.kind.name}:{','.join(map(str, self.kind.reported_numbers(self.numbers)))}{HOST * self.host}"

    def rates(self, host: Machine) -> tuple[float, ...]:
        """Return operations per second of large products on each site; () for sites of one kind.

        Raises:
            BindError: those of the kind are unknown.
        """
        if not self.host:
            return ()
        return (*self.kind.product_flops(self, host), host.gemm_flops * host.workers)

    def link_bytes(self, moved: Mapping[str, int]) -> dict[str, int]:
        """Return the bytes moved over each link, by its name in reports.

        ``moved``: bytes by direction: ``in`` and ``out`` for files, ``host in`` and ``host out`` for host memory, and
        ``across`` for other devices.
        """
        name = self.name
        links = {"in": f"disk->{name}", "out": f"{name}->disk"}
        if not self.kind.on_host:
            links |= {"host in": f"host->{name}", "host out": f"{name}->host"}
        if self.count > 1:
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


def check(word: str) -> None:
    """Check the syntax of a ``--device`` value, without looking at this machine's devices.

    Raises:
        BindError: it is not a device, or names too many devices.
        DeviceError: an installed package registers this kind of device, but its module fails.
    """
    if word != "auto":
        _parse(word)


def choose(word: str) -> DeviceChoice:
    """Return the devices for a ``--device`` value; ``auto`` is the first usable GPU, else the CPU.

    Raises:
        BindError, DeviceError: there is no such device; the message says what helps.
    """
    if word != "auto":
        parsed = _parse(word)
        found = parsed.kind.choose(parsed.numbers, parsed.option, word)
        return replace(found, host=True) if parsed.host else found
    reasons = []
    for name in AUTOMATIC:
        offered = kind_of(name).automatic()
        if isinstance(offered, DeviceChoice):
            return offered
        reasons.append(offered)
    return DeviceChoice(CPU, why="; ".join(reasons))


def of_sites(count: int) -> str:
    """Return the ``--device`` value of a plan for ``count`` sites: simulated devices, or the CPU.

    Raises:
        BindError: the number is not between 1 and MAX_SITES.
    """
    if not 1 <= count <= MAX_SITES:
        raise BindError(f"sites={count}: a plan is for 1 to {MAX_SITES} sites")
    return f"sim:{','.join(map(str, range(count)))}" if count > 1 else "cpu"


def is_on_host(word: str) -> bool:
    """True if the threads of the process run the plan.

    Raises:
        BindError, DeviceError: as ``choose``.
    """
    kind = choose(word).kind if word == "auto" else _parse(word).kind
    return kind.on_host


class _Parsed(NamedTuple):
    """The parts of a ``--device`` value."""

    kind: DeviceKind
    numbers: tuple[int, ...]
    option: str
    host: bool = False


@cache
def _parse(word: str) -> _Parsed:
    """Return the parts of a value.

    Raises:
        BindError, DeviceError: as ``check``.
    """
    if word.endswith(HOST):
        return _with_host(word)
    parts = _VALUE.fullmatch(word)
    kind = None if parts is None else find(parts["kind"])
    several = _SEVERAL.fullmatch(word)
    if several and (parts is None or parts["option"] in names()):
        named = several["kind"] if several["kind"] != CPU.name else "cuda"
        raise BindError(
            f"--device {word}: the devices of a run are of one kind, and their numbers follow it once. help: "
            f"{named}:0,1 for two devices, {named}:0{HOST} for one and the CPU"
        )
    if parts is None or kind is None:
        raise BindError(f"'{word}' is not a device. help: {_examples()}")
    numbers = tuple(int(number) for number in (parts["numbers"] or "").split(",") if number)
    option = parts["option"] or ""
    if (numbers and not kind.max_devices) or (option and option not in kind.options):
        raise BindError(f"'{word}' is not a device. help: {_examples()}")
    if len(numbers) > max(1, kind.max_devices):
        raise BindError(f"--device {word}: one run uses at most {kind.max_devices} devices. help: name fewer")
    return _Parsed(kind, numbers, option)


def _with_host(word: str) -> _Parsed:
    """Return the parts of a value that ends with HOST.

    Raises:
        BindError, DeviceError: as ``check``.
    """
    devices = word.removesuffix(HOST)
    if devices in ("", "auto"):
        raise BindError(f"--device {word}: {HOST} follows the devices that the CPU joins. help: cuda:0{HOST}, or cpu")
    parsed = _parse(devices)
    if parsed.host or parsed.kind.on_host:
        raise BindError(f"--device {word}: the CPU is one site. help: cpu, or cuda:0{HOST} for a GPU and the CPU")
    return parsed._replace(host=True)


def _examples() -> str:
    return f"auto, {', '.join(names())}, or with numbers or an option, as in cuda:1, cuda:0,1 and cuda:1+tf32"


def unknown_rates(chosen: DeviceChoice, name: str) -> BindError:
    """Return the error for devices whose rates are unknown. ``name``: of one of them."""
    example = ",".join(["10"] * len(chosen.numbers) + ["1"])
    return BindError(
        f"how much faster than the CPU {name} computes is not known. help: state the rate of each site, such as "
        f"--rates {example}"
    )


def default_memory(chosen: DeviceChoice) -> list[int]:
    """Return the bytes that a run can use if no budget is stated: one size for each site, or one for all."""
    nbytes = chosen.kind.arena_nbytes(chosen.numbers)
    return [*[nbytes] * len(chosen.numbers), CPU.arena_nbytes((0,))] if chosen.host else [nbytes]


def within(chosen: DeviceChoice, memory: int | None, arena: int | None) -> tuple[DeviceChoice, int]:
    """Divide a device's budget into the memory of its libraries and the arena.

    Returns the device and the arena's bytes.

    A stated ``memory`` contains the libraries' memory; a stated ``arena`` does not.
    """
    budget = memory if arena is None else arena
    assert budget is not None
    library = chosen.kind.library_nbytes(budget)
    return replace(chosen, library=library), budget - library if arena is None else budget


@cache
def find(name: str) -> DeviceKind | None:
    """The kind of device with this name; None if there is none.

    Raises:
        DeviceError: an installed package registers the kind, but its module fails.
    """
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name]
        found: DeviceKind = getattr(import_module(f"einturnip.devices.{module}"), attribute)
        return found
    registered: DeviceKind | None = entry_points.load(GROUP, name, f"devices '{name}'", DeviceError)
    return registered


def kind_of(device: str) -> DeviceKind:
    """The kind of a device by its name in reports, as in ``cuda:0``."""
    found = find(device.partition(":")[0])
    assert found is not None, device
    return found


def kinds_of(compute: str) -> tuple[DeviceKind, ...]:
    """The kinds of a run's sites by the name of all in reports, as in ``cuda:0+cpu``."""
    return (kind_of(compute), CPU) if compute.endswith(HOST) else (kind_of(compute),)


def names() -> tuple[str, ...]:
    """The names of all kinds, those of einturnip first."""
    return (*_BUILT_IN, *(name for name in entry_points.names(GROUP) if name not in _BUILT_IN))


def is_name(word: str) -> bool:
    """True if a kind has this name. No module is loaded."""
    return word in _BUILT_IN or word in entry_points.names(GROUP)
