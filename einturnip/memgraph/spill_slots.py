"""Slots of the spill files: one per spilled value, reused when the value is released.

Each device spills to a file of its own, so that no op of one device waits for bytes that another spilled. During
placement the files begin SPACING bytes apart; at the end they follow one another in one range of offsets.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from einturnip.memgraph.columns import OpColumns
from einturnip.memgraph.types import DISK

SPACING = 1 << 46
"""More bytes than one device spills; with 65,536 devices the offsets still fit 63 bits."""


def spill_files(devices: int, arenas: int, granule: int) -> list[SpillSlots]:
    """Return the spill file of each arena: one for each device, or one for all arenas of one device."""
    if devices == 1:
        return [SpillSlots(granule)] * arenas
    return [SpillSlots(granule, k * SPACING) for k in range(devices)]


def join_spill_files(ops: OpColumns, files: list[SpillSlots]) -> int:
    """Let the files follow one another in one range of offsets; return its size."""
    if len({id(slots) for slots in files}) == 1:
        return files[0].nbytes
    sizes = np.array([slots.nbytes for slots in files])
    begins = np.cumsum(sizes) - sizes
    for flat in (ops.read, ops.write):
        rows = np.frombuffer(flat, np.int64).reshape(-1, 4)
        spilled = rows[:, 0] == DISK
        rows[spilled, 1] = begins[rows[spilled, 1] // SPACING] + rows[spilled, 1] % SPACING
    return int(sizes.sum())


class SpillSlots:
    """Slots in a file that grows as needed; ``nbytes`` is its final size, ``begin`` its first offset."""

    def __init__(self, granule: int, begin: int = 0) -> None:
        self.granule, self.begin = granule, begin
        self.nbytes = 0
        self._slots: dict[int, tuple[int, int]] = {}
        self._users: dict[int, list[int]] = {}
        self._free: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {}

    def take(self, v: int, size: int) -> tuple[int, tuple[int, ...]]:
        """Allocate a slot for ``v``; return its offset and the ops that must end before it is written."""
        heap = self._free.get(size)
        if heap:
            _, offset, deps = heappop(heap)
        else:
            offset, deps = self.begin + self.nbytes, ()
            self.nbytes += size
        self._slots[v] = offset, size
        self._users[v] = []
        return offset, deps

    def offset(self, v: int) -> int:
        """Return the offset of ``v`` in the file."""
        return self._slots[v][0]

    def written_by(self, v: int, op: int) -> None:
        """Record that ``op`` writes the slot of ``v``."""
        self._users[v] = [op]

    def read_by(self, v: int, op: int) -> None:
        """Record that ``op`` reads the slot of ``v``."""
        self._users[v].append(op)

    def release(self, v: int) -> None:
        """Free the slot of ``v``."""
        offset, size = self._slots.pop(v)
        users = self._users.pop(v)
        heappush(self._free.setdefault(size, []), (max(users), offset, tuple(users)))
