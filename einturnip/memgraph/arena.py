"""The arena as the builder sees it: segments in address order, each free or held, with the ops that must end first.

Free segments are not merged when they are freed but when a request needs a run of them: a merged one would wait for
the newest op of all its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

FREE = -1
# Runs of free segments that are looked at for one request.
MOST_RUNS = 4


class Segment:
    """Bytes [offset, offset + size). ``value`` holds it, or FREE; ``deps`` must end before it is written again."""

    __slots__ = ("deps", "newest", "next", "offset", "prev", "size", "value")

    def __init__(self, offset: int, size: int, deps: tuple[int, ...] = ()) -> None:
        self.offset = offset
        self.size = size
        self.value = FREE
        self.deps = deps
        self.newest = max(deps, default=-1)
        self.prev: Segment | None = None
        self.next: Segment | None = None


class Arena:
    """``capacity`` bytes handed out in multiples of ``granule``."""

    def __init__(self, capacity: int, granule: int) -> None:
        self.granule = granule
        self.capacity = capacity // granule * granule
        self.free_nbytes = self.capacity
        self.peak = 0
        self.head = Segment(0, self.capacity)
        self._free: dict[int, list[tuple[int, int, int, Segment]]] = {}
        self._runs: list[tuple[int, int, Segment]] = []
        self._offers = 0
        self._offer(self.head)

    def rounded(self, nbytes: int) -> int:
        """Bytes that a request of ``nbytes`` takes."""
        return max(1, -(-nbytes // self.granule)) * self.granule

    def __iter__(self) -> Iterator[Segment]:
        seg: Segment | None = self.head
        while seg is not None:
            yield seg
            seg = seg.next

    def take(self, size: int, value: int) -> Segment | None:
        """A free segment of ``size`` bytes: of those large enough, the one whose newest op is oldest; else a run."""
        best: Segment | None = None
        for s in sorted(self._free):
            if s < size:
                continue
            seg = self._top(s)
            if seg is not None and (best is None or seg.newest < best.newest):
                best = seg
        if best is None and self.free_nbytes >= size:
            best = self._merge_run(size)
        return None if best is None else self._hold(best, size, value)

    def release(self, seg: Segment, deps: tuple[int, ...]) -> None:
        """Make a held segment free; ``deps`` must end before its bytes are written again."""
        seg.value = FREE
        seg.deps = deps
        seg.newest = max(deps, default=-1)
        self.free_nbytes += seg.size
        self._offer(seg)

    def windows(self, size: int, cost: Callable[[int], float | None]) -> list[int] | None:
        """Values to evict so that ``size`` contiguous bytes are free, at the least ``cost`` (None: may not go)."""
        best: tuple[float, list[int]] | None = None
        run: list[tuple[int, float, int]] = []
        total, price = 0, 0.0
        for seg in self:
            c = 0.0 if seg.value == FREE else cost(seg.value)
            if c is None:
                run, total, price = [], 0, 0.0
                continue
            run.append((seg.size, c, seg.value))
            total, price = total + seg.size, price + c
            while total - run[0][0] >= size:
                total, price = total - run[0][0], price - run[0][1]
                run.pop(0)
            if total >= size and (best is None or price < best[0]):
                best = price, [v for _, _, v in run if v != FREE]
        return None if best is None else best[1]

    def _top(self, size: int) -> Segment | None:
        """The oldest free segment of exactly ``size`` bytes; entries that are no longer so are dropped."""
        heap = self._free[size]
        while heap:
            newest, offset, _, seg = heap[0]
            if seg.value == FREE and seg.size == size and seg.offset == offset and seg.newest == newest:
                return seg
            heappop(heap)
        del self._free[size]
        return None

    def _offer(self, seg: Segment) -> None:
        self._offers += 1
        heappush(self._free.setdefault(seg.size, []), (seg.newest, seg.offset, self._offers, seg))
        run = _run_of(seg)
        if len(run) > 1:
            heappush(self._runs, (-sum(s.size for s in run), self._offers, seg))

    def _hold(self, seg: Segment, size: int, value: int) -> Segment:
        """Give ``size`` bytes of a free segment to ``value``; the rest stays free with the same deps."""
        if seg.size > size:
            rest = Segment(seg.offset + size, seg.size - size, seg.deps)
            rest.prev, rest.next = seg, seg.next
            if seg.next is not None:
                seg.next.prev = rest
            seg.next = rest
            seg.size = size
            self._offer(rest)
        seg.value = value
        self.free_nbytes -= size
        self.peak = max(self.peak, seg.offset + size)
        return seg

    def _merge_run(self, size: int) -> Segment | None:
        """Merge adjacent free segments that are large enough: of a few such runs, the one whose newest op is oldest."""
        best: tuple[int, list[Segment]] | None = None
        seen: list[tuple[int, int, Segment]] = []
        found = 0
        while self._runs and -self._runs[0][0] >= size and found < MOST_RUNS:
            _, _, seg = heappop(self._runs)
            if seg.value != FREE:
                continue
            run = _run_of(seg)
            total = sum(s.size for s in run)
            if len(run) > 1:
                self._offers += 1
                seen.append((-total, self._offers, seg))
            if total < size:
                continue
            found += 1
            newest, part = _oldest_part(run, size)
            if best is None or newest < best[0]:
                best = newest, part
        for entry in seen:
            heappush(self._runs, entry)
        return None if best is None else self._merge(best[1])

    def merge_all(self) -> None:
        """Make one free segment of an arena in which nothing is held."""
        self._offer(self._merge(list(self)))

    def _merge(self, run: list[Segment]) -> Segment:
        first, *others = run
        first.deps = tuple(sorted({d for s in run for d in s.deps}))
        first.newest = max(first.deps, default=-1)
        for s in others:
            first.size += s.size
            s.size = 0
            s.value = FREE - 1  # no longer a segment; its entry in the free lists is dropped when met
            first.next = s.next
            if s.next is not None:
                s.next.prev = first
        return first


def _run_of(seg: Segment) -> list[Segment]:
    """The free segments around a free one, in address order."""
    while seg.prev is not None and seg.prev.value == FREE:
        seg = seg.prev
    run = [seg]
    while run[-1].next is not None and run[-1].next.value == FREE:
        run.append(run[-1].next)
    return run


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
