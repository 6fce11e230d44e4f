"""Opens the sites of a run: devices of one kind, and the CPU if it is a site too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import available_memory
from einturnip.core.units import PAGE_NBYTES, format_size
from einturnip.devices.kind import CPU, DeviceChoice
from einturnip.devices.protocol import Device


def open_sites(chosen: DeviceChoice, arenas: Sequence[int], pinned: int, workers: int) -> Sequence[Device]:
    """Open the sites of a run, the CPU last.

    The CPU's arena is pinned memory of the first device, which the streams of all devices can copy.

    ``arenas``, ``pinned``: see ``DeviceKind.open``. ``workers``: compute threads of the CPU.

    Raises:
        CapacityError: the host has too little free memory. DeviceError: a device cannot be opened.
    """
    if not chosen.host:
        return chosen.kind.open(chosen, arenas, pinned)
    begin, free = -(-pinned // PAGE_NBYTES) * PAGE_NBYTES, available_memory()
    if begin + arenas[-1] > free:
        raise CapacityError(
            f"the arena of the site {CPU.name} takes {format_size(arenas[-1])} of host memory, and {format_size(free)} "
            "are free. help: state less for the last site, as in --memory 8GiB,2GiB",
            begin + arenas[-1],
        )
    devices = [*chosen.kind.open(replace(chosen, host=False), arenas[:-1], begin + arenas[-1])]
    try:
        return [*devices, chosen.kind.open_host(devices, CPU.name, devices[0].pinned[begin:], workers)]
    except BaseException:
        for device in devices:
            device.close()
        raise
