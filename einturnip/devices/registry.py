"""The table of the kinds of devices, by name.

An installed package adds a kind with an entry point of the group ``einturnip.devices``, whose name is the kind's and
whose value is a ``DeviceKind`` object.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from einturnip.core import entry_points
from einturnip.core.errors import DeviceError

if TYPE_CHECKING:
    from einturnip.devices.kind import DeviceKind

GROUP = "einturnip.devices"
AUTOMATIC = ("cuda",)
"""Kinds that ``--device auto`` looks for, in this order, before it takes the CPU."""

# name: (module under devices, its DeviceKind object)
_BUILT_IN = {"cpu": ("cpu", "CPU"), "cuda": ("cuda.kind", "CUDA"), "sim": ("simulated", "SIM")}


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


def names() -> tuple[str, ...]:
    """The names of all kinds, those of einturnip first."""
    return (*_BUILT_IN, *(name for name in entry_points.names(GROUP) if name not in _BUILT_IN))


def is_name(word: str) -> bool:
    """True if a kind has this name. No module is loaded."""
    return word in _BUILT_IN or word in entry_points.names(GROUP)
