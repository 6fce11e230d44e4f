"""Arena allocator of the builder, and the smallest arena for a task graph.

An arena consists of segments in address order, each free or held by a value.

Each free segment lists the ops that must end before it is written again. Adjacent free segments are merged only when a
request needs them together: a merged segment waits for the newest op of all its parts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from einturnip.core.distinct import sorted_distinct
from einturnip.core.units import LINE_NBYTES
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import (
    CLOSE_FIT,
    MAX_DEPS_PER_SEGMENT,
    MAX_FREE_RUNS,
    MAX_NEIGHBOURS,
    READS_AT_ONCE,
    ROWS_AT_ONCE,
)

Ints = NDArray[np.int64]
FREE = -1


class Segment:
    """Bytes [offset, offset + size), held by ``value`` or FREE.

    ``deps``: ops that must end before the bytes are written again. ``exact``: each of them used the first byte.
    ``required``: the subset of ``deps`` that later ops must wait for in any case.
    """

    __slots__ = ("deps", "exact", "newest", "next", "offset", "prev", "size", "required", "value")

    def __init__(self, offset: int, size: int, deps: tuple[int, ...] = (), required: tuple[int, ...] = ()) -> None:
        self.offset = offset
        self.size = size
        self.value = FREE
        self.deps = deps
        self.required = required
        self.newest = deps[0] if len(deps) == 1 else max(deps, default=-1)
        self.exact = False
        self.prev: Segment | None = None
        self.next: Segment | None = None

    @property
    def has_many_deps(self) -> bool:
        """True if ``deps`` is so long that one op waits for all of them on behalf of the ops next to it."""
        return len(self.deps) > MAX_DEPS_PER_SEGMENT

    @property
    def certain_deps(self) -> tuple[int, ...]:
        """Ops that any op writing the segment's first bytes must wait for."""
        return self.deps if self.exact or self.has_many_deps else self.required

    @property
    def possible_deps(self) -> tuple[int, ...]:
        """Ops that it must wait for only if they share bytes with it."""
        return () if self.exact or self.has_many_deps else self.deps


class Arena:
    """``capacity`` bytes from offset ``begin``, allocated in multiples of ``granule``.

    Values of at most half ``largest`` go to the far end of free bytes, so that large values find contiguous bytes.
    """

    def __init__(self, capacity: int, granule: int, largest: int = 0, begin: int = 0) -> None:
        self.granule = granule
        self.largest = largest
        self.capacity = capacity // granule * granule
        self.free_nbytes = self.capacity
        self.peak = 0
        self.begin, self.end = begin, begin + self.capacity
        self.head = Segment(begin, self.capacity)
        self._free: dict[int, list[tuple[int, int, int, Segment]]] = {}
        self._sizes: list[int] = []  # keys of _free, sorted
        self._runs: list[tuple[int, int, Segment]] = []
        self._allocated: list[int] = []  # offsets of held segments, sorted
        self._ends: dict[int, int] = {}  # end of each held segment, by offset
        self._added = 0
        self._add_free(self.head)

    def rounded(self, nbytes: int) -> int:
        """Return ``nbytes`` rounded up to whole granules."""
        return max(1, -(-nbytes // self.granule)) * self.granule

    def rounded_all(self, nbytes: Ints) -> Ints:
        """Return each of ``nbytes`` rounded up to whole granules."""
        return np.maximum(1, -(-nbytes // self.granule)) * self.granule

    def __iter__(self) -> Iterator[Segment]:
        """Return the segments in the order of their offsets."""
        seg: Segment | None = self.head
        while seg is not None:
            yield seg
            seg = seg.next

    def take(self, size: int, value: int, far: bool = False) -> Segment | None:
        """Allocate ``size`` bytes for ``value``; None if no free run is large enough.

        Prefers, among the segments that fit closely, the one whose newest dependency is oldest; then the smallest that
        is large enough; then a run of adjacent segments. This order keeps small values out of large segments. A larger
        segment is cut at its front, or at its end with ``far``.
        """
        best: Segment | None = None
        sizes = self._sizes
        at = bisect_left(sizes, size)
        while at < len(sizes) and (best is None or sizes[at] < CLOSE_FIT * size):
            seg = self._top(sizes[at])
            if seg is None:
                continue  # the list of this size was empty and has been deleted
            if best is None or seg.newest < best.newest:
                best = seg
            at += 1
        if best is None and self.free_nbytes >= size:
            best = self._merge_run(size)
        return None if best is None else self._assign(best, size, value, far or 2 * size <= self.largest)

    def take_at(self, offset: int, size: int, value: int) -> Segment:
        """Allocate the free bytes [offset, offset + size)."""
        run = [seg for seg in self if seg.offset < offset + size and offset < seg.offset + seg.size]
        seg = run[0] if len(run) == 1 else self._merge(run)
        if offset > seg.offset:
            self._add_free(self._split_front(seg, offset - seg.offset))
        return self._assign(seg, size, value, False)

    def collapse_deps(self, seg: Segment, op: int) -> None:
        """Let the free remainder of a has_many_deps segment wait for ``op`` alone.

        ``op`` was placed in the other part of that segment and waited for all dependencies of both parts.
        """
        for rest in (seg.prev, seg.next) if seg.has_many_deps else ():
            if rest is not None and rest.value == FREE and rest.deps is seg.deps:
                rest.deps = rest.required = (op,)
                rest.newest, rest.exact = op, False
                self._add_free(rest)

    def release(self, seg: Segment, deps: tuple[int, ...], exact: bool, required: tuple[int, ...] = ()) -> None:
        """Free a held segment; ``deps`` must end before its bytes are written again."""
        seg.exact = exact
        seg.value = FREE
        seg.deps, seg.required = deps, required
        seg.newest = deps[0] if len(deps) == 1 else max(deps, default=-1)
        self.free_nbytes += seg.size
        del self._allocated[bisect_left(self._allocated, seg.offset)]
        del self._ends[seg.offset]
        self._add_free(seg)

    def cheapest_eviction(
        self, size: int, cost: Callable[[int], float | None], around: Segment | None = None
    ) -> tuple[float, list[int]] | None:
        """Find ``size`` contiguous bytes that are cheapest to evict.

        Return their cost and the values to evict. ``cost`` returns the cost per byte of evicting a value, or None if it
        cannot be evicted. With ``around`` only that segment and at most MAX_NEIGHBOURS neighbours on either side are
        considered.
        """
        if around is not None and around.size >= size:  # large enough alone
            alone = cost(around.value)
            return None if alone is None else (alone * around.size, [around.value])
        best: tuple[float, list[int]] | None = None
        run: list[tuple[int, float, int]] = []
        total, price = 0, 0.0
        for seg in self if around is None else _neighbours(around, size):
            nbytes, value = seg.size, seg.value
            c = 0.0 if value == FREE else cost(value)
            if c is None:
                run, total, price = [], 0, 0.0
                continue
            c *= nbytes
            run.append((nbytes, c, value))
            total, price = total + nbytes, price + c
            while total - run[0][0] >= size:
                dropped = run.pop(0)
                total, price = total - dropped[0], price - dropped[1]
            if total >= size and (best is None or price < best[0]):
                best = price, [v for _, _, v in run if v != FREE]
        return best

    def _top(self, size: int) -> Segment | None:
        """Return the free segment of ``size`` bytes whose newest dependency is oldest; drop stale entries."""
        heap = self._free[size]
        while heap:
            newest, offset, _, seg = heap[0]
            if seg.value == FREE and seg.size == size and seg.offset == offset and seg.newest == newest:
                return seg
            heappop(heap)
        del self._free[size]
        del self._sizes[bisect_left(self._sizes, size)]
        return None

    def _add_free(self, seg: Segment) -> None:
        self._added += 1
        heap = self._free.get(seg.size)
        if heap is None:
            heap = self._free[seg.size] = []
            insort(self._sizes, seg.size)
        heappush(heap, (seg.newest, seg.offset, self._added, seg))
        before, after = seg.prev, seg.next
        if (before is not None and before.value == FREE) or (after is not None and after.value == FREE):
            heappush(self._runs, (-self._run_nbytes(seg), self._added, seg))

    def _run_nbytes(self, seg: Segment) -> int:
        """Return the total bytes of the run of free segments that contains ``seg``."""
        at = bisect_left(self._allocated, seg.offset)
        start = self._ends[self._allocated[at - 1]] if at else self.begin
        return (self._allocated[at] if at < len(self._allocated) else self.end) - start

    def _assign(self, seg: Segment, size: int, value: int, far: bool) -> Segment:
        """Give ``size`` bytes of a free segment to ``value``; the rest stays free with the same dependencies."""
        seg.value = value
        self.free_nbytes -= size
        if seg.size > size and far:
            self._add_free(self._split_front(seg, seg.size - size))
        elif seg.size > size:
            rest = Segment(seg.offset + size, seg.size - size, seg.deps, seg.required)
            rest.prev, rest.next = seg, seg.next
            if seg.next is not None:
                seg.next.prev = rest
            seg.next = rest
            seg.size = size
            self._add_free(rest)
        insort(self._allocated, seg.offset)
        self._ends[seg.offset] = seg.offset + size
        if seg.offset + size - self.begin > self.peak:
            self.peak = seg.offset + size - self.begin
        return seg

    def _split_front(self, seg: Segment, size: int) -> Segment:
        """Split off the first ``size`` bytes as a segment."""
        front = Segment(seg.offset, size, seg.deps, seg.required)
        front.exact, seg.exact = seg.exact, False
        front.prev, front.next = seg.prev, seg
        if seg.prev is None:
            self.head = front
        else:
            seg.prev.next = front
        seg.prev = front
        seg.offset += size
        seg.size -= size
        return front

    def _merge_run(self, size: int) -> Segment | None:
        """Merge adjacent free segments of at least ``size`` bytes.

        Of a few runs, the one with the oldest dependency.
        """
        if not self._has_run(size):
            return None
        tops = sorted([seg for s in tuple(self._sizes) if (seg := self._top(s)) is not None], key=_newest)
        starts = list(islice((seg for seg in tops if self._run_nbytes(seg) >= size), MAX_FREE_RUNS))
        while not starts and self._runs and -self._runs[0][0] >= size:
            _, _, seg = heappop(self._runs)
            if seg.value != FREE:
                continue
            total = self._run_nbytes(seg)
            if total > seg.size:
                self._added += 1
                heappush(self._runs, (-total, self._added, seg))
            if total >= size:
                starts.append(seg)
        if not starts:
            return None
        return self._merge(min((_oldest_part(_around(seg, size), size) for seg in starts), key=itemgetter(0))[1])

    def _has_run(self, size: int) -> bool:
        """Return whether some run of adjacent free segments holds ``size`` bytes.

        Each run was recorded when its last segment was freed; outdated records are corrected here.
        """
        while self._runs and -self._runs[0][0] >= size:
            _, _, seg = self._runs[0]
            total = self._run_nbytes(seg) if seg.value == FREE else 0
            if total >= size:
                return True
            heappop(self._runs)
            if total > seg.size:
                self._added += 1
                heappush(self._runs, (-total, self._added, seg))
        return False

    def merge_all(self) -> None:
        """Merge all segments of an empty arena into one."""
        self._add_free(self._merge(list(self)))

    def _merge(self, run: list[Segment]) -> Segment:
        first, *others = run
        first.deps = tuple(sorted({d for s in run for d in s.deps}))
        first.required = tuple(sorted({d for s in run for d in s.required}))
        first.exact = False
        first.newest = max(first.deps, default=-1)
        for s in others:
            first.size += s.size
            s.size = 0
            s.value = FREE - 1  # marks a merged segment; _top drops its entry in the free lists
            first.next = s.next
            if s.next is not None:
                s.next.prev = first
        return first


def _newest(seg: Segment) -> int:
    return seg.newest


def _neighbours(seg: Segment, size: int) -> list[Segment]:
    """Return a segment with at most MAX_NEIGHBOURS neighbours on each side, up to ``size`` bytes."""
    left: list[Segment] = []
    right: list[Segment] = []
    at, total = seg.prev, seg.size
    while at is not None and total < size and len(left) < MAX_NEIGHBOURS:
        left.append(at)
        total += at.size
        at = at.prev
    at, total = seg.next, seg.size
    while at is not None and total < size and len(right) < MAX_NEIGHBOURS:
        right.append(at)
        total += at.size
        at = at.next
    return [*reversed(left), seg, *right]


def _around(seg: Segment, size: int) -> list[Segment]:
    """Return the free segments around a free one, in address order, up to ``size`` bytes on each side."""
    left, right, total = seg, [seg], 0
    while total < size and left.prev is not None and left.prev.value == FREE:
        left = left.prev
        total += left.size
    total = 0
    while total < size and right[-1].next is not None and right[-1].next.value == FREE:
        right.append(right[-1].next)
        total += right[-1].size
    found = []
    while left is not seg:
        found.append(left)
        assert left.next is not None
        left = left.next
    return found + right


def _oldest_part(run: list[Segment], size: int) -> tuple[int, list[Segment]]:
    """Return the contiguous part of a run with ``size`` bytes whose newest dependency is oldest."""
    best: tuple[int, list[Segment]] = max(s.newest for s in run), run
    first, total = 0, 0
    for last, seg in enumerate(run):
        total += seg.size
        while total - run[first].size >= size:
            total -= run[first].size
            first += 1
        if total >= size:
            part = run[first : last + 1]
            newest = max(s.newest for s in part)
            if newest < best[0] or (newest == best[0] and len(part) < len(best[1])):
                best = newest, part
    return best


def min_capacity(tasks: TaskGraph) -> int:
    """Return the largest working set of a task: operands, result and workspace, each in whole cache lines."""
    return largest_working_set(tasks)[1]


def largest_working_set(tasks: TaskGraph) -> tuple[int, int]:
    """Return the task with the largest working set, and the bytes of the set; (-1, 0) without tasks."""
    lines = np.maximum(1, -(-tasks.value_nbytes // LINE_NBYTES))
    scratch = -(-tasks.workspace // LINE_NBYTES)
    made = (tasks.kind != TaskKind.STORE) & (tasks.kind != TaskKind.LOAD)
    task, largest, start, n = -1, 0, 0, len(tasks)
    while start < n:
        fit = int(np.searchsorted(tasks.read_ptr, tasks.read_ptr[start] + READS_AT_ONCE, "right")) - 1
        stop = min(max(start + 1, fit), start + ROWS_AT_ONCE, n)
        ends = tasks.read_ptr[start : stop + 1]
        user = np.concatenate([np.repeat(np.arange(stop - start), np.diff(ends)), np.flatnonzero(made[start:stop])])
        value = np.concatenate([tasks.read[ends[0] : ends[-1]], tasks.value[start:stop][made[start:stop]]])
        pairs = sorted_distinct(user * np.int64(tasks.n_values) + value)  # a value that a task reads twice counts once
        used = np.bincount(pairs // tasks.n_values, lines[pairs % tasks.n_values], stop - start)
        used += scratch[start:stop]
        if task < 0 or used.max() > largest:
            task, largest = start + int(used.argmax()), int(used.max())
        start = stop
    return task, largest * LINE_NBYTES
