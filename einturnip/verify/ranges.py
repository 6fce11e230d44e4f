"""What the bytes of one memory hold while the ops are walked: disjoint ranges, found by address."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

# A block of the sorted list is cut in two at twice this length.
BLOCK = 512


class HeldRange:
    """Bytes [start, stop): the value they hold, whole or in part, who wrote and who read it.

    ``before``: who had to end before the first of ``writers``; kept for units, whose other ops need it too.
    """

    __slots__ = ("before", "readers", "start", "stop", "unit", "value", "whole", "writers")

    def __init__(self, start: int, stop: int, value: int, writer: int) -> None:
        self.start, self.stop, self.value = start, stop, value
        self.writers = [writer]
        self.readers: list[int] = []
        self.before: list[int] = []
        self.unit = -1
        self.whole = True

    def rest(self, start: int, stop: int) -> HeldRange:
        """What is left of it after other bytes were written."""
        left = HeldRange(start, stop, self.value, -1)
        left.writers, left.readers, left.before = list(self.writers), list(self.readers), self.before
        left.whole = False
        return left


class _Starts:
    """Sorted numbers, in blocks: to add one costs no more when there are many."""

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
        # The first block stays: there is always one to look in.
        if not block and i:
            del self.blocks[i], self.firsts[i]

    def around(self, start: int) -> Iterator[int]:
        """The last number that is no more than ``start``, and all after it."""
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
        self.at: dict[int, HeldRange] = {}
        self._starts = _Starts()

    def overlapping(self, start: int, stop: int) -> list[HeldRange]:
        """The ranges that share a byte with [start, stop), by address."""
        same = self.at.get(start)
        if same is not None and same.stop == stop:
            return [same]
        found = []
        for s in self._starts.around(start):
            if s >= stop:
                break
            held = self.at[s]
            if held.stop > start:
                found.append(held)
        return found

    def put(self, new: HeldRange, old: list[HeldRange]) -> None:
        """Lay ``new`` over the ranges ``old``, which are all that it overlaps."""
        if len(old) == 1 and old[0].start == new.start and old[0].stop == new.stop:
            self.at[new.start] = new
            return
        for held in old:
            del self.at[held.start]
            self._starts.remove(held.start)
        for held in old:
            if held.start < new.start:
                self._insert(held.rest(held.start, new.start))
            if held.stop > new.stop:
                self._insert(held.rest(new.stop, held.stop))
        self._insert(new)

    def _insert(self, held: HeldRange) -> None:
        self.at[held.start] = held
        self._starts.add(held.start)
