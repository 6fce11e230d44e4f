"""Slots of the spill file: one per spilled value, reused when the value is released."""

from __future__ import annotations

from heapq import heappop, heappush


class SpillSlots:
    """Slots in a file that grows as needed; ``nbytes`` is its final size."""

    def __init__(self, granule: int) -> None:
        self.granule = granule
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
            offset, deps = self.nbytes, ()
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
