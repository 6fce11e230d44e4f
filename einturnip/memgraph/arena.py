"""The arena as the builder sees it: segments in address order, each free or held, with the ops that must end first.

Free segments are not merged when they are freed but when a request needs a run of them: a merged one would wait for
the newest op of all its parts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
FREE = -1
# A free segment that is less than so many times larger than what is asked for fits snugly.
SNUG = 2
# Ops that each part of free bytes waits for; of more, one part alone waits for all.
MOST_BEFORE_PARTS = 64
# Runs of free segments that are looked at for one request.
MOST_RUNS = 4
# Neighbours on either side that are looked at where a few are to be evicted together.
MOST_NEIGHBOURS = 8


class Segment:
    """Bytes [offset, offset + size). ``value`` holds it, or FREE; ``deps`` must end before it is written again.

    ``exact``: the first byte is one that each of ``deps`` touches. ``stands``: those of ``deps`` that stand for others.
    """

    __slots__ = ("deps", "exact", "newest", "next", "offset", "prev", "size", "stands", "value")

    def __init__(self, offset: int, size: int, deps: tuple[int, ...] = (), stands: tuple[int, ...] = ()) -> None:
        self.offset = offset
        self.size = size
        self.value = FREE
        self.deps = deps
        self.stands = stands
        self.newest = deps[0] if len(deps) == 1 else max(deps, default=-1)
        self.exact = False
        self.prev: Segment | None = None
        self.next: Segment | None = None

    @property
    def crowded(self) -> bool:
        """True where many ops end before the first op there, and that before those on the other parts of the bytes."""
        return len(self.deps) > MOST_BEFORE_PARTS

    @property
    def certain(self) -> tuple[int, ...]:
        """Ops that whoever writes its first bytes must wait for."""
        return self.deps if self.exact or self.crowded else self.stands

    @property
    def doubtful(self) -> tuple[int, ...]:
        """Ops that it must wait for if they share bytes with it."""
        return () if self.exact or self.crowded else self.deps


class Arena:
    """``capacity`` bytes handed out in multiples of ``granule``.

    Values of at most half ``largest`` are put at the far end of free bytes, so that large ones find room side by side.
    ``begin``: the offset of its first byte.
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
        self._sizes: list[int] = []  # those of _free, in order
        self._runs: list[tuple[int, int, Segment]] = []
        self._held: list[int] = []  # where held segments begin, in order
        self._ends: dict[int, int] = {}  # where each of them ends
        self._offers = 0
        self._offer(self.head)

    def rounded(self, nbytes: int) -> int:
        """Bytes that a request of ``nbytes`` takes."""
        return max(1, -(-nbytes // self.granule)) * self.granule

    def rounded_all(self, nbytes: Ints) -> Ints:
        """The same for many requests."""
        return np.maximum(1, -(-nbytes // self.granule)) * self.granule

    @property
    def n_held(self) -> int:
        """Number of segments that hold a value."""
        return len(self._held)

    def __iter__(self) -> Iterator[Segment]:
        seg: Segment | None = self.head
        while seg is not None:
            yield seg
            seg = seg.next

    def take(self, size: int, value: int, far: bool = False) -> Segment | None:
        """A free segment of ``size`` bytes: of those that fit snugly the one whose newest op is oldest.

        Else the smallest that is large enough, else a run: small values left in large segments push out large ones.
        Of what is larger the front is taken, or with ``far`` the end.
        """
        best: Segment | None = None
        sizes = self._sizes
        at = bisect_left(sizes, size)
        while at < len(sizes) and (best is None or sizes[at] < SNUG * size):
            seg = self._top(sizes[at])
            if seg is None:
                continue  # no such segment is left: its size has gone
            if best is None or seg.newest < best.newest:
                best = seg
            at += 1
        if best is None and self.free_nbytes >= size:
            best = self._merge_run(size)
        return None if best is None else self._hold(best, size, value, far or 2 * size <= self.largest)

    def take_at(self, offset: int, size: int, value: int) -> Segment:
        """The free bytes [offset, offset + size)."""
        run = [seg for seg in self if seg.offset < offset + size and offset < seg.offset + seg.size]
        seg = run[0] if len(run) == 1 else self._merge(run)
        if offset > seg.offset:
            self._offer(self._part_off_front(seg, offset - seg.offset))
        return self._hold(seg, size, value, False)

    def hand_on(self, seg: Segment, op: int) -> None:
        """What is left beside a crowded segment waits for ``op``, which waited for all that both waited for."""
        for rest in (seg.prev, seg.next) if seg.crowded else ():
            if rest is not None and rest.value == FREE and rest.deps is seg.deps:
                rest.deps = rest.stands = (op,)
                rest.newest, rest.exact = op, False
                self._offer(rest)

    def release(self, seg: Segment, deps: tuple[int, ...], exact: bool, stands: tuple[int, ...] = ()) -> None:
        """Make a held segment free; ``deps`` must end before its bytes are written again."""
        seg.exact = exact
        seg.value = FREE
        seg.deps, seg.stands = deps, stands
        seg.newest = deps[0] if len(deps) == 1 else max(deps, default=-1)
        self.free_nbytes += seg.size
        del self._held[bisect_left(self._held, seg.offset)]
        del self._ends[seg.offset]
        self._offer(seg)

    def window(
        self, size: int, cost: Callable[[int], float | None], around: Segment | None = None
    ) -> tuple[float, list[int]] | None:
        """The least ``cost`` (a byte; None: may not go) of ``size`` contiguous bytes, and the values to evict for it.

        With ``around`` only that segment and a few of its neighbours are looked at.
        """
        if around is not None and around.size >= size:  # it will do alone
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
        """The oldest free segment of exactly ``size`` bytes; entries that are no longer so are dropped."""
        heap = self._free[size]
        while heap:
            newest, offset, _, seg = heap[0]
            if seg.value == FREE and seg.size == size and seg.offset == offset and seg.newest == newest:
                return seg
            heappop(heap)
        del self._free[size]
        del self._sizes[bisect_left(self._sizes, size)]
        return None

    def _offer(self, seg: Segment) -> None:
        self._offers += 1
        heap = self._free.get(seg.size)
        if heap is None:
            heap = self._free[seg.size] = []
            insort(self._sizes, seg.size)
        heappush(heap, (seg.newest, seg.offset, self._offers, seg))
        before, behind = seg.prev, seg.next
        if (before is not None and before.value == FREE) or (behind is not None and behind.value == FREE):
            heappush(self._runs, (-self._run_nbytes(seg), self._offers, seg))

    def _run_nbytes(self, seg: Segment) -> int:
        """Bytes of the free segments around a free one, together."""
        at = bisect_left(self._held, seg.offset)
        start = self._ends[self._held[at - 1]] if at else self.begin
        return (self._held[at] if at < len(self._held) else self.end) - start

    def _hold(self, seg: Segment, size: int, value: int, far: bool) -> Segment:
        """Give ``size`` bytes of a free segment to ``value``; the rest stays free with the same deps."""
        seg.value = value
        self.free_nbytes -= size
        if seg.size > size and far:
            self._offer(self._part_off_front(seg, seg.size - size))
        elif seg.size > size:
            rest = Segment(seg.offset + size, seg.size - size, seg.deps, seg.stands)
            rest.prev, rest.next = seg, seg.next
            if seg.next is not None:
                seg.next.prev = rest
            seg.next = rest
            seg.size = size
            self._offer(rest)
        insort(self._held, seg.offset)
        self._ends[seg.offset] = seg.offset + size
        if seg.offset + size - self.begin > self.peak:
            self.peak = seg.offset + size - self.begin
        return seg

    def _part_off_front(self, seg: Segment, size: int) -> Segment:
        """Make the first ``size`` bytes a segment of their own."""
        front = Segment(seg.offset, size, seg.deps, seg.stands)
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
        """Merge adjacent free segments that are large enough: of a few such runs, the one whose newest op is oldest."""
        if not self._has_run(size):
            return None
        tops = sorted([seg for s in tuple(self._sizes) if (seg := self._top(s)) is not None], key=_newest)
        starts = list(islice((seg for seg in tops if self._run_nbytes(seg) >= size), MOST_RUNS))
        while not starts and self._runs and -self._runs[0][0] >= size:
            _, _, seg = heappop(self._runs)
            if seg.value != FREE:
                continue
            total = self._run_nbytes(seg)
            if total > seg.size:
                self._offers += 1
                heappush(self._runs, (-total, self._offers, seg))
            if total >= size:
                starts.append(seg)
        if not starts:
            return None
        return self._merge(min((_oldest_part(_around(seg, size), size) for seg in starts), key=itemgetter(0))[1])

    def _has_run(self, size: int) -> bool:
        """Whether free segments side by side hold so many bytes; such a run was noted when its last one was freed."""
        while self._runs and -self._runs[0][0] >= size:
            _, _, seg = self._runs[0]
            total = self._run_nbytes(seg) if seg.value == FREE else 0
            if total >= size:
                return True
            heappop(self._runs)
            if total > seg.size:
                self._offers += 1
                heappush(self._runs, (-total, self._offers, seg))
        return False

    def merge_all(self) -> None:
        """Make one free segment of an arena in which nothing is held."""
        self._offer(self._merge(list(self)))

    def _merge(self, run: list[Segment]) -> Segment:
        first, *others = run
        first.deps = tuple(sorted({d for s in run for d in s.deps}))
        first.stands = tuple(sorted({d for s in run for d in s.stands}))
        first.exact = False
        first.newest = max(first.deps, default=-1)
        for s in others:
            first.size += s.size
            s.size = 0
            s.value = FREE - 1  # no longer a segment; its entry in the free lists is dropped when met
            first.next = s.next
            if s.next is not None:
                s.next.prev = first
        return first


def _newest(seg: Segment) -> int:
    return seg.newest


def _neighbours(seg: Segment, size: int) -> list[Segment]:
    """A segment between its neighbours: on either side what makes ``size`` bytes with it, MOST_NEIGHBOURS at most."""
    left: list[Segment] = []
    right: list[Segment] = []
    at, total = seg.prev, seg.size
    while at is not None and total < size and len(left) < MOST_NEIGHBOURS:
        left.append(at)
        total += at.size
        at = at.prev
    at, total = seg.next, seg.size
    while at is not None and total < size and len(right) < MOST_NEIGHBOURS:
        right.append(at)
        total += at.size
        at = at.next
    return [*reversed(left), seg, *right]


def _around(seg: Segment, size: int) -> list[Segment]:
    """The free segments around a free one, in address order, on either side as many as hold ``size`` bytes."""
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
    """Of the contiguous parts of a run that hold ``size`` bytes, the one whose newest op is oldest."""
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
