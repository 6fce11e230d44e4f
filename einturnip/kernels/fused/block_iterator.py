"""The blocks in which a region's tile is walked, without what a mask leaves out."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from einturnip.ir.region import Region
from einturnip.ir.scalar import labels_of
from einturnip.kernels.fused.space import state_labels, tiled_labels
from einturnip.kernels.mask import ConditionValues, LabelMask

Box = tuple[tuple[int, int], ...]

_GRAIN, _GRAINS = 16, 8  # what a mask leaves out is cut off in whole grains, of which a block has so many at most
_STRIP, _STRIPS = 128, 4  # rows of a strip at least, for which right sides are packed anew; strips of a block
_LESS = 0.9  # of a block's points: strips that have more are not worth their calls
_KEPT = 256  # places of blocks along masks that are remembered


class BlockIterator:
    """The walk over tiles in blocks of given extents.

    A block that the mask cuts is walked in strips of rows, each without the ends that add nothing: under a causal mask
    not much more than half of it.
    """

    def __init__(self, region: Region, blocks: Sequence[int], mask: LabelMask) -> None:
        self.region, self.blocks, self.mask = region, tuple(blocks), mask
        hung = {p for c in mask.conditions for p in labels_of(c)}
        self._masked = sorted(hung | {*region.aggregated})
        # A state that lacks a label would have each of that label's strips folded into it.
        self._cut = sorted((hung & tiled_labels(region) & state_labels(region)) - region.whole)
        self._kept: dict[Box, tuple[tuple[Box, ConditionValues], ...]] = {}

    def rows(self, tile: Box) -> Iterator[Box]:
        """The blocks of the output, each over all that the tile has of the streamed labels."""
        labels = range(self.region.n_out)
        for ends in itertools.product(*[self._ends(tile, p) for p in labels]):
            yield (*ends, *tile[len(labels) :])

    def streamed(self, box: Box) -> tuple[tuple[Box, ConditionValues], ...]:
        """The blocks of a block of the output, along the streamed labels; with each what it decides of the conditions.

        Of some there are strips; those of one block follow each other.
        """
        if any(lo == hi for lo, hi in box):
            return ()
        ends = [self._ends(box, p) for p in self.region.aggregated]
        if not self.mask.conditions:
            return tuple(self._of(box, ends, ()))
        key = tuple([box[p] for p in self._masked])
        if key not in self._kept:
            spans = tuple([(tuple([b[p] for p in self._masked]), held) for b, held in self._decided(box, ends)])
            self._kept = {key: spans} if len(self._kept) >= _KEPT else {**self._kept, key: spans}
        found = []
        for span, held in self._kept[key]:
            block = [*box]
            for p, end in zip(self._masked, span, strict=True):
                block[p] = end
            found.append((tuple(block), held))
        return tuple(found)

    def _ends(self, box: Box, label: int) -> list[tuple[int, int]]:
        lo, hi = box[label]
        step = max(1, self.blocks[label])
        return [(n, min(n + step, hi)) for n in range(lo, hi, step)]

    def _grains(self, label: int, count: int) -> int:
        """The ``count``-th part of a block along a label, in whole grains."""
        return max(_GRAIN, -(-self.blocks[label] // (count * _GRAIN)) * _GRAIN)

    def _of(
        self, box: Box, ends: Sequence[Sequence[tuple[int, int]]], held: ConditionValues
    ) -> Iterator[tuple[Box, ConditionValues]]:
        """All blocks, of which the same is known."""
        begin, stop = self.region.aggregated.start, self.region.aggregated.stop
        for found in itertools.product(*ends):
            yield (*box[:begin], *found, *box[stop:]), held

    def _decided(self, box: Box, ends: list[list[tuple[int, int]]]) -> Iterator[tuple[Box, ConditionValues]]:
        """What is decided of many blocks together is asked once; of others, of one half and the other."""
        begin, stop = self.region.aggregated.start, self.region.aggregated.stop
        hull = (*box[:begin], *[(found[0][0], found[-1][1]) for found in ends], *box[stop:])
        held = self.mask.held(hull)
        if self.mask.idles(held):
            return
        several = next((i for i, found in enumerate(ends) if len(found) > 1), None)
        if None not in held:
            yield from self._of(box, ends, held)
        elif several is None:
            yield from self._strips(hull)
        else:
            half = len(ends[several]) // 2
            for part in (ends[several][:half], ends[several][half:]):
                yield from self._decided(box, [*ends[:several], part, *ends[several + 1 :]])

    def _strips(self, box: Box) -> Iterator[tuple[Box, ConditionValues]]:
        """A block that the mask cuts, in strips where these have less to do."""
        whole = self._trimmed(box)
        if whole is None:
            return
        found = [whole]
        if self._cut:
            longest = max(self._cut, key=lambda p: whole[p][1] - whole[p][0])
            lo, hi = whole[longest]
            step = max(_STRIP, self._grains(longest, _STRIPS))
            parts = [_placed(whole, longest, n, min(n + step, hi)) for n in range(lo, hi, step)]
            strips = [strip for part in parts if (strip := self._trimmed(part)) is not None]
            found = strips if sum(map(_points, strips)) <= _LESS * _points(whole) else found
        for block in found:
            yield block, self.mask.held(block)

    def _trimmed(self, box: Box) -> Box | None:
        """A block without those ends along streamed labels that add nothing; None where all of it adds nothing."""
        if self.mask.idle(box):
            return None
        for p in self.region.aggregated:
            (lo, hi), grain = box[p], self._grains(p, _GRAINS)

            def idle(begin: int, end: int, box: Box = box, p: int = p) -> bool:
                return self.mask.idle(_placed(box, p, begin, end))

            begins = range(lo, hi, grain)
            lo = begins[bisect_left(begins[1:], True, key=lambda begin: not idle(begins[0], begin))]
            ends = [*range(lo + grain, hi, grain), hi]
            hi = ends[bisect_left(ends[:-1], True, key=lambda end: idle(end, ends[-1]))]
            box = _placed(box, p, lo, hi)
        return box


def _placed(box: Box, label: int, begin: int, end: int) -> Box:
    return (*box[:label], (begin, end), *box[label + 1 :])


def _points(box: Box) -> int:
    return math.prod(hi - lo for lo, hi in box)
