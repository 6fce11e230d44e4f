"""Which value gives up its bytes: Belady's choice, weighed by the bytes that bringing it back would move.

Source: Belady (1966) for the farthest next use; a value without a copy elsewhere costs a write as well as a read, so
it goes only if it is wanted so much later. A sum that is half made goes last: it would be written again and again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from heapq import heappop, heappush

import numpy as np

from einturnip.eingraph.types import EinsumNode
from einturnip.taskgraph.types import TaskGraph, TaskKind

NEVER = 1 << 60
CANDIDATES = 6
WRITE_WEIGHT = 2.5
HALF_MADE_WEIGHT = 1e6
KEPT_WEIGHT = 1e9  # of what the program wants kept: it goes when nothing else can
DEAR = 1.0  # from this price on a value goes only where nothing else can


class EvictionQueue:
    """Next uses, and the values of each size that no task under way uses, by how late they are wanted again."""

    def __init__(self, tasks: TaskGraph) -> None:
        self._ptr, self._uses = _uses(tasks)
        self._at = self._ptr[:-1]
        self._next = array("q", [NEVER]) * tasks.n_values
        self.pinned = array("i", [-1]) * tasks.n_values  # the latest task under way that uses each value
        self._last_made = _last_made(tasks)
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        self._sizes: list[int] = []  # those of _heaps, in order
        self._kept = _kept(tasks)

    def beside(self) -> EvictionQueue:
        """The same next uses, for the values of another arena."""
        other = copy(self)
        other._heaps, other._sizes = {}, []
        return other

    def pin(self, values: Iterable[int], i: int) -> None:
        """They may not go before task ``i`` is complete."""
        pinned = self.pinned
        for v in values:
            pinned[v] = i

    def used(self, values: Iterable[int], i: int) -> list[int]:
        """Task ``i`` uses these values; returns those that no later one does."""
        place, ptr, uses, wanted = self._at, self._ptr, self._uses, self._next
        last = []
        for v in values:
            at, end = place[v], ptr[v + 1]
            while at < end and uses[at] <= i:
                at += 1
            place[v] = at
            if at < end:
                wanted[v] = uses[at]
            else:
                wanted[v] = NEVER
                last.append(v)
        return last

    def completed(self, v: int, i: int, size: int) -> None:
        """Task ``i``, which uses ``v``, is complete: unless a later one under way does, ``v`` may go."""
        if self.pinned[v] == i and v not in self._kept:
            heap = self._heaps.get(size)
            if heap is None:
                heap = self._heaps[size] = []
                insort(self._sizes, size)
            heappush(heap, (-self._next[v], v))

    def latest(
        self, least_size: int, i: int, completed: int, least_distance: int, evictable: Callable[[int], int]
    ) -> Iterator[int]:
        """Of each size from ``least_size`` on a few values wanted latest, more than ``least_distance`` after ``i``."""
        for size in self._sizes[bisect_left(self._sizes, least_size) :]:
            heap = self._heaps[size]
            aside: list[tuple[int, int]] = []
            while heap and len(aside) < CANDIDATES:
                entry = heap[0]
                v = entry[1]
                if -entry[0] != self._next[v] or self.pinned[v] > completed or not evictable(v):
                    heappop(heap)  # used again since, or gone; it comes back when that use is complete
                    continue
                if -entry[0] - i <= least_distance:
                    break
                aside.append(heappop(heap))
            for entry in aside:
                heappush(heap, entry)
                yield entry[1]

    def price(self, v: int, i: int, completed: int, evictable: Callable[[int], int]) -> float | None:
        """Transfers that evicting a byte of ``v`` costs per task until it is wanted; None where it may not go."""
        state = evictable(v)
        if not state or self.pinned[v] > completed:
            return None
        wanted = self._next[v]
        weight = 1.0 if state == 1 else WRITE_WEIGHT
        if v in self._kept:
            weight *= KEPT_WEIGHT
        elif wanted <= self._last_made[v]:
            weight *= HALF_MADE_WEIGHT
        return weight / max(1, wanted - i)

    def spare(
        self, v: int, i: int, completed: int, least_distance: int, evictable: Callable[[int], int]
    ) -> float | None:
        """As ``price``; None also for what is wanted too soon, or is dear."""
        if self._next[v] - i <= least_distance:
            return None
        price = self.price(v, i, completed, evictable)
        return price if price is None or price < DEAR * WRITE_WEIGHT else None


def _last_made(tasks: TaskGraph) -> array[int]:
    """Of each value the last task that makes or touches it; until then it is half made."""
    makes = np.flatnonzero((tasks.kind != TaskKind.LOAD) & (tasks.kind != TaskKind.STORE)).astype(np.int32)
    last = np.full(tasks.n_values, -1, np.int32)
    np.maximum.at(last, tasks.value[makes], makes)
    return array("i", last.tobytes())


def _kept(tasks: TaskGraph) -> frozenset[int]:
    """Values of the tensors that the program wants kept in memory."""
    nodes = tasks.decomposition.graph.nodes
    keep = [i for i, node in enumerate(nodes) if isinstance(node, EinsumNode) and node.hints.keep]
    return frozenset(np.flatnonzero(np.isin(tasks.value_node, keep)).tolist()) if keep else frozenset()


def _uses(tasks: TaskGraph) -> tuple[array[int], array[int]]:
    """For each value the tasks that use it, in order, as CSR: reads, and the tasks that make or touch it."""
    readers = np.repeat(np.arange(len(tasks), dtype=np.int32), np.diff(tasks.read_ptr))
    makes = np.flatnonzero((tasks.kind != TaskKind.LOAD) & (tasks.kind != TaskKind.STORE)).astype(np.int32)
    values = np.concatenate([tasks.read, tasks.value[makes]])
    users = np.concatenate([readers, makes])
    order = np.lexsort((users, values))
    ptr = np.cumsum(np.bincount(values + 1, minlength=tasks.n_values + 1))
    return array("q", ptr.tobytes()), array("i", users[order].tobytes())
