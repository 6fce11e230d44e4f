"""Eviction policy, and slots of the spill files that evicted values are written to.

Belady's farthest next use, weighted by the bytes that bringing the value back moves. Source: Belady (1966). A value
without a copy in another tier costs a write and a read, so it is evicted only if its next use is correspondingly later.
A partial sum is evicted last: it would be written again and again.

A spilled value has one slot, reused when the value is released. Each device spills to a file of its own, so that no op
of one device waits for bytes that another spilled. During placement the files begin SPACING bytes apart; at the end
they follow one another in one range of offsets.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from heapq import heappop, heappush

import numpy as np

from einturnip.eingraph.types import EinsumNode
from einturnip.memgraph.columns import OpColumns
from einturnip.memgraph.types import DISK
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import EVICTION_CANDIDATES, KEEP_WEIGHT, MAX_SPARE_PRICE, PARTIAL_WEIGHT, WRITE_WEIGHT

NEVER = 1 << 60


class EvictionQueue:
    """Next uses of all values, and the unpinned values of each size ordered by next use."""

    def __init__(self, tasks: TaskGraph) -> None:
        self._ptr, self._uses = _uses(tasks)
        self._at = self._ptr[:-1]
        self._next = array("q", [NEVER]) * tasks.n_values
        self.pinned = array("i", [-1]) * tasks.n_values  # the latest running task that uses each value
        self._last_made = _last_made(tasks)
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        self._sizes: list[int] = []  # keys of _heaps, sorted
        self._keep = _keep(tasks)

    def for_other_arena(self) -> EvictionQueue:
        """Return a queue for the values of another arena that shares the next uses."""
        other = copy(self)
        other._heaps, other._sizes = {}, []
        return other

    def pin(self, values: Iterable[int], i: int) -> None:
        """Keep the values in memory until task ``i`` is complete."""
        pinned = self.pinned
        for v in values:
            pinned[v] = i

    def used(self, values: Iterable[int], i: int) -> list[int]:
        """Record that task ``i`` uses these values; return those that no later task uses."""
        place, ptr, uses, next_use = self._at, self._ptr, self._uses, self._next
        last = []
        for v in values:
            at, end = place[v], ptr[v + 1]
            while at < end and uses[at] <= i:
                at += 1
            place[v] = at
            if at < end:
                next_use[v] = uses[at]
            else:
                next_use[v] = NEVER
                last.append(v)
        return last

    def completed(self, v: int, i: int, size: int) -> None:
        """Make ``v`` evictable after task ``i``, unless a later running task uses it."""
        if self.pinned[v] == i and v not in self._keep:
            heap = self._heaps.get(size)
            if heap is None:
                heap = self._heaps[size] = []
                insort(self._sizes, size)
            heappush(heap, (-self._next[v], v))

    def farthest_next_use(
        self, min_size: int, i: int, completed: int, min_distance: int, evictable: Callable[[int], int]
    ) -> Iterator[int]:
        """Yield a few values per size with the farthest next uses.

        Sizes are at least ``min_size``; next uses come more than ``min_distance`` tasks after ``i``.
        """
        for size in self._sizes[bisect_left(self._sizes, min_size) :]:
            heap = self._heaps[size]
            aside: list[tuple[int, int]] = []
            while heap and len(aside) < EVICTION_CANDIDATES:
                entry = heap[0]
                v = entry[1]
                if -entry[0] != self._next[v] or self.pinned[v] > completed or not evictable(v):
                    heappop(heap)  # stale: used again or evicted since; `completed` adds it again
                    continue
                if -entry[0] - i <= min_distance:
                    break
                aside.append(heappop(heap))
            for entry in aside:
                heappush(heap, entry)
                yield entry[1]

    def price(self, v: int, i: int, completed: int, evictable: Callable[[int], int]) -> float | None:
        """Return the transfers per byte and task that evicting ``v`` costs until its next use; None if pinned."""
        state = evictable(v)
        if not state or self.pinned[v] > completed:
            return None
        next_use = self._next[v]
        weight = 1.0 if state == 1 else WRITE_WEIGHT
        if v in self._keep:
            weight *= KEEP_WEIGHT
        elif next_use <= self._last_made[v]:
            weight *= PARTIAL_WEIGHT
        return weight / max(1, next_use - i)

    def price_if_distant(
        self, v: int, i: int, completed: int, min_distance: int, evictable: Callable[[int], int]
    ) -> float | None:
        """Return `price`, or None if the next use is too near or the price is too high."""
        if self._next[v] - i <= min_distance:
            return None
        price = self.price(v, i, completed, evictable)
        return price if price is None or price < MAX_SPARE_PRICE * WRITE_WEIGHT else None


def _last_made(tasks: TaskGraph) -> array[int]:
    """Return for each value the last task that writes it; until then it is partial."""
    makes = np.flatnonzero((tasks.kind != TaskKind.LOAD) & (tasks.kind != TaskKind.STORE)).astype(np.int32)
    last = np.full(tasks.n_values, -1, np.int32)
    np.maximum.at(last, tasks.value[makes], makes)
    return array("i", last.tobytes())


def _keep(tasks: TaskGraph) -> frozenset[int]:
    """Return the values of tensors with the hint `keep`."""
    nodes = tasks.decomposition.graph.nodes
    keep = [i for i, node in enumerate(nodes) if isinstance(node, EinsumNode) and node.hints.keep]
    return frozenset(np.flatnonzero(np.isin(tasks.value_node, keep)).tolist()) if keep else frozenset()


def _uses(tasks: TaskGraph) -> tuple[array[int], array[int]]:
    """Return, as CSR, the tasks that read or write each value, in order."""
    readers = np.repeat(np.arange(len(tasks), dtype=np.int32), np.diff(tasks.read_ptr))
    makes = np.flatnonzero((tasks.kind != TaskKind.LOAD) & (tasks.kind != TaskKind.STORE)).astype(np.int32)
    values = np.concatenate([tasks.read, tasks.value[makes]])
    users = np.concatenate([readers, makes])
    order = np.lexsort((users, values))
    ptr = np.cumsum(np.bincount(values + 1, minlength=tasks.n_values + 1))
    return array("q", ptr.tobytes()), array("i", users[order].tobytes())


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
