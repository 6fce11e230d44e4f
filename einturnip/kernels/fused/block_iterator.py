"""Iterates over the blocks of a region's tile, without the parts that a mask leaves idle.

A part is idle if it changes no state.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from einturnip.ir.einsum import Box
from einturnip.ir.region import Region
from einturnip.ir.scalar import labels_of
from einturnip.kernels.fused.block_layout import state_labels, tiled_labels
from einturnip.kernels.mask import ConditionValues, LabelMask

# The ends of a block that a mask leaves idle are cut off in grains: minimum points of a grain, maximum grains of a
# block.
_GRAIN, _GRAINS = 16, 8
# Strips of a block: minimum rows, since each strip packs right sides again, and maximum number.
_STRIP, _STRIPS = 128, 4
_MAX_STRIP_SHARE = 0.9  # a block is cut into strips if they have at most this share of its points
_MAX_CACHED = 256  # positions along the mask whose blocks are cached


class BlockIterator:
    """Iterates over tiles in blocks of given extents.

    A block that the border of the mask crosses is cut into strips of rows, each without its idle ends. Of a causal
    mask, blocks cover little more than half of the points.
    """

    def __init__(self, region: Region, blocks: Sequence[int], mask: LabelMask) -> None:
        self.region, self.blocks, self.mask = region, tuple(blocks), mask
        mask_labels = {p for c in mask.conditions for p in labels_of(c)}
        self._masked_labels = sorted(mask_labels | {*region.aggregated})
        # Strips along a label that a state lacks would all fold into the same state, so these labels are not cut.
        self._cut_labels = sorted((mask_labels & tiled_labels(region) & state_labels(region)) - region.whole)
        self._cached: dict[Box, tuple[tuple[Box, ConditionValues], ...]] = {}

    def rows(self, tile: Box) -> Iterator[Box]:
        """Yield the blocks of the output, each over the tile's full range of the streamed labels."""
        labels = range(self.region.n_out)
        for ends in itertools.product(*[self._ends(tile, p) for p in labels]):
            yield (*ends, *tile[len(labels) :])

    def streamed(self, box: Box) -> tuple[tuple[Box, ConditionValues], ...]:
        """Return the blocks along the streamed labels of an output block, with their condition values.

        Strips of one block are adjacent.
        """
        if any(lo == hi for lo, hi in box):
            return ()
        ends = [self._ends(box, p) for p in self.region.aggregated]
        if not self.mask.conditions:
            return tuple(self._product(box, ends, ()))
        key = tuple([box[p] for p in self._masked_labels])
        if key not in self._cached:
            spans = tuple(
                [(tuple([b[p] for p in self._masked_labels]), decided) for b, decided in self._bisect(box, ends)]
            )
            self._cached = {key: spans} if len(self._cached) >= _MAX_CACHED else {**self._cached, key: spans}
        found = []
        for span, decided in self._cached[key]:
            block = [*box]
            for p, end in zip(self._masked_labels, span, strict=True):
                block[p] = end
            found.append((tuple(block), decided))
        return tuple(found)

    def _ends(self, box: Box, label: int) -> list[tuple[int, int]]:
        lo, hi = box[label]
        step = max(1, self.blocks[label])
        return [(n, min(n + step, hi)) for n in range(lo, hi, step)]

    def _grains(self, label: int, count: int) -> int:
        """Return a block's extent along a label divided by ``count``, in whole grains."""
        return max(_GRAIN, -(-self.blocks[label] // (count * _GRAIN)) * _GRAIN)

    def _product(
        self, box: Box, ends: Sequence[Sequence[tuple[int, int]]], decided: ConditionValues
    ) -> Iterator[tuple[Box, ConditionValues]]:
        """Yield all blocks with the same condition values."""
        begin, stop = self.region.aggregated.start, self.region.aggregated.stop
        for found in itertools.product(*ends):
            yield (*box[:begin], *found, *box[stop:]), decided

    def _bisect(self, box: Box, ends: list[list[tuple[int, int]]]) -> Iterator[tuple[Box, ConditionValues]]:
        """Yield blocks with their condition values, decided for all blocks at once or else for each half."""
        begin, stop = self.region.aggregated.start, self.region.aggregated.stop
        hull = (*box[:begin], *[(found[0][0], found[-1][1]) for found in ends], *box[stop:])
        decided = self.mask.evaluate(hull)
        if self.mask.is_idle_where(decided):
            return
        divisible = next((i for i, found in enumerate(ends) if len(found) > 1), None)
        if None not in decided:
            yield from self._product(box, ends, decided)
        elif divisible is None:
            yield from self._strips(hull)
        else:
            half = len(ends[divisible]) // 2
            for part in (ends[divisible][:half], ends[divisible][half:]):
                yield from self._bisect(box, [*ends[:divisible], part, *ends[divisible + 1 :]])

    def _strips(self, box: Box) -> Iterator[tuple[Box, ConditionValues]]:
        """Yield a block that the border of the mask crosses, as strips if they have clearly fewer points."""
        trimmed = self._trimmed(box)
        if trimmed is None:
            return
        found = [trimmed]
        if self._cut_labels:
            longest = max(self._cut_labels, key=lambda p: trimmed[p][1] - trimmed[p][0])
            lo, hi = trimmed[longest]
            step = max(_STRIP, self._grains(longest, _STRIPS))
            parts = [_with_range(trimmed, longest, n, min(n + step, hi)) for n in range(lo, hi, step)]
            strips = [strip for part in parts if (strip := self._trimmed(part)) is not None]
            found = strips if sum(map(_points, strips)) <= _MAX_STRIP_SHARE * _points(trimmed) else found
        for block in found:
            yield block, self.mask.evaluate(block)

    def _trimmed(self, box: Box) -> Box | None:
        """Return a block without its idle ends along streamed labels; None if it is idle."""
        if self.mask.is_idle(box):
            return None
        for p in self.region.aggregated:
            (lo, hi), grain = box[p], self._grains(p, _GRAINS)

            def idle(begin: int, end: int, box: Box = box, p: int = p) -> bool:
                return self.mask.is_idle(_with_range(box, p, begin, end))

            begins = range(lo, hi, grain)
            lo = begins[bisect_left(begins[1:], True, key=lambda begin: not idle(begins[0], begin))]
            ends = [*range(lo + grain, hi, grain), hi]
            hi = ends[bisect_left(ends[:-1], True, key=lambda end: idle(end, ends[-1]))]
            box = _with_range(box, p, lo, hi)
        return box


def extents_of(box: Box) -> tuple[int, ...]:
    """Return the points of a box by label."""
    return tuple([hi - lo for lo, hi in box])


def _with_range(box: Box, label: int, begin: int, end: int) -> Box:
    return (*box[:label], (begin, end), *box[label + 1 :])


def _points(box: Box) -> int:
    return math.prod(extents_of(box))
