"""Contents of one memory during the sweep: disjoint byte ranges, found by address."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

# A block of the sorted list is split when it reaches twice this length.
BLOCK = 512


class TrackedRange:
    """Bytes [start, stop): their value (``whole`` or a part of it), its writers, and its readers so far.

    ``before``: ops that must precede the first of ``writers``; needed for the other ops of a unit.
    """

    __slots__ = ("before", "readers", "start", "stop", "unit", "value", "whole", "writers")

    def __init__(self, start: int, stop: int, value: int, writer: int) -> None:
        self.start, self.stop, self.value = start, stop, value
        self.writers = [writer]
        self.readers: list[int] = []
        self.before: list[int] = []
        self.unit = -1
        self.whole = True

    def remainder(self, start: int, stop: int) -> TrackedRange:
        """Return the part that remains after other bytes were overwritten."""
        left = TrackedRange(start, stop, self.value, -1)
        left.writers, left.readers, left.before = list(self.writers), list(self.readers), self.before
        left.whole = False
        return left


class _Starts:
    """Sorted numbers in blocks, so that insertion stays cheap when there are many."""

    def __init__(self) -> None:
        self.blocks: list[list[int]] = [[]]
        self.firsts: list[int] = [-(1 << 62)]

    def _block(self, start: int) -> int:
        return bisect_right(self.firsts, start) - 1

    def add(self, start: int) -> None:
        i = self._block(start)
        block = self.blocks[i]
        insort(block, start)
        if len(block) > 2 * BLOCK:
            self.blocks[i : i + 1] = block[:BLOCK], block[BLOCK:]
            self.firsts.insert(i + 1, block[BLOCK])

    def remove(self, start: int) -> None:
        i = self._block(start)
        block = self.blocks[i]
        del block[bisect_left(block, start)]
        # The first block stays, so that there is always one to search.
        if not block and i:
            del self.blocks[i], self.firsts[i]

    def around(self, start: int) -> Iterator[int]:
        """Yield the last number that is not larger than ``start``, and all after it."""
        i = self._block(start)
        j = bisect_right(self.blocks[i], start) - 1
        if j < 0 and i and self.blocks[i - 1]:
            yield self.blocks[i - 1][-1]
        for block in self.blocks[i:]:
            for at in range(max(j, 0), len(block)):
                yield block[at]
            j = 0


class TierRanges:
    """The ranges of one tier."""

    def __init__(self) -> None:
        self.at: dict[int, TrackedRange] = {}
        self._starts = _Starts()

    def overlapping(self, start: int, stop: int) -> list[TrackedRange]:
        """Return the ranges that share a byte with [start, stop), by address."""
        same = self.at.get(start)
        if same is not None and same.stop == stop:
            return [same]
        found = []
        for s in self._starts.around(start):
            if s >= stop:
                break
            tracked = self.at[s]
            if tracked.stop > start:
                found.append(tracked)
        return found

    def put(self, new: TrackedRange, old: list[TrackedRange]) -> None:
        """Replace the bytes of ``new`` in the ranges ``old``, which are all that overlap it."""
        if len(old) == 1 and old[0].start == new.start and old[0].stop == new.stop:
            self.at[new.start] = new
            return
        for tracked in old:
            del self.at[tracked.start]
            self._starts.remove(tracked.start)
        for tracked in old:
            if tracked.start < new.start:
                self._insert(tracked.remainder(tracked.start, new.start))
            if tracked.stop > new.stop:
                self._insert(tracked.remainder(new.stop, tracked.stop))
        self._insert(new)

    def _insert(self, tracked: TrackedRange) -> None:
        self.at[tracked.start] = tracked
        self._starts.add(tracked.start)
