"""The option ``--device``: parses its value, chooses the devices, and divides their memory."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from einturnip.core.errors import BindError
from einturnip.devices import registry
from einturnip.devices.cpu import CPU
from einturnip.devices.kind import DeviceChoice, DeviceKind

MAX_SITES = 1024

_VALUE = re.compile(r"(?P<kind>[a-z]\w*)(:(?P<numbers>\d+(,\d+)*))?(\+(?P<option>\w+))?", re.ASCII)
_SEVERAL = re.compile(r"(?P<kind>[a-z]\w*)(:\d+(,\d+)*)?([,+;][a-z]\w*(:\d+(,\d+)*)?)+", re.ASCII)
"""Values that name a kind more than once, or several kinds."""


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
        kind, numbers, option = _parse(word)
        return kind.choose(numbers, option, word)
    reasons = []
    for name in registry.AUTOMATIC:
        offered = registry.kind_of(name).automatic()
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
    kind = choose(word).kind if word == "auto" else _parse(word)[0]
    return kind.on_host


@cache
def _parse(word: str) -> tuple[DeviceKind, tuple[int, ...], str]:
    """Return the kind, the numbers and the option of a value.

    Raises:
        BindError, DeviceError: as ``check``.
    """
    parts = _VALUE.fullmatch(word)
    kind = None if parts is None else registry.find(parts["kind"])
    several = _SEVERAL.fullmatch(word)
    if several and (parts is None or parts["option"] in registry.names()):
        raise BindError(
            f"--device {word}: the devices of a run are of one kind, and their numbers follow it once. help: "
            f"{several['kind']}:0,1 for two devices"
        )
    if parts is None or kind is None:
        raise BindError(f"'{word}' is not a device. help: {_examples()}")
    numbers = tuple(int(number) for number in (parts["numbers"] or "").split(",") if number)
    option = parts["option"] or ""
    if (numbers and not kind.max_devices) or (option and option not in kind.options):
        raise BindError(f"'{word}' is not a device. help: {_examples()}")
    if len(numbers) > max(1, kind.max_devices):
        raise BindError(f"--device {word}: one run uses at most {kind.max_devices} devices. help: name fewer")
    return kind, numbers, option


def _examples() -> str:
    return f"auto, {', '.join(registry.names())}, or with numbers or an option, as in cuda:1, cuda:0,1 and cuda:1+tf32"


def within(chosen: DeviceChoice, memory: int | None, arena: int | None) -> tuple[DeviceChoice, int]:
    """Divide a device's budget into the memory of its libraries and the arena.

    Returns the device and the arena's bytes.

    A stated ``memory`` contains the libraries' memory; a stated ``arena`` does not.
    """
    if arena is None and memory is None:
        memory = chosen.kind.arena_nbytes(chosen.numbers)
    budget = memory if arena is None else arena
    assert budget is not None
    library = chosen.kind.library_nbytes(budget)
    return replace(chosen, library=library), budget - library if arena is None else budget
