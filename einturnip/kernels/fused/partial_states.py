"""The order in which blocks of a region are folded into partial states, and these into the tile's.

A state takes a limited number of additions one after the other, so that rounding errors grow with the logarithm of the
number of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from einturnip.ir.region import Region
from einturnip.kernels.expr.fold import carries_rounded_sums
from einturnip.kernels.fused.block_iterator import Box
from einturnip.kernels.fused.space import sums_products
from einturnip.kernels.mask import ConditionValues
from einturnip.kernels.protocol import Mode

_ADDITIONS_PER_STATE = 64  # additions to one state
_LIBRARY_TERMS = 512  # of a product, which a library adds to the result at once
_TILE_ADDITIONS = 8  # to a state that outlives the call, to which other tiles are added too


class OpenState(NamedTuple):
    """Initialise the partial state of a level."""

    level: int


class FoldBlock(NamedTuple):
    """Fold a block into the state of a level."""

    level: int
    block: Box
    decided: ConditionValues


class CombineStates(NamedTuple):
    """Add the partial state of a level to the state of another."""

    lower: int
    upper: int


StateStep: TypeAlias = OpenState | FoldBlock | CombineStates


@dataclass(frozen=True, slots=True)
class StateLevels:
    """Levels of partial states between a block and the tile's state, which has the level ``partial``.

    ``group``: the blocks that are folded into one state. ``minimum``: the levels that even a single block has.
    """

    partial: int = 0
    group: int = 1
    minimum: int = 0

    def steps(self, blocks: Sequence[tuple[Box, ConditionValues]]) -> Iterator[StateStep]:
        """Yield what is done with the states to fold blocks into the tile's."""
        return self._fold(blocks, self._depth(len(blocks)), self.partial)

    def combinations(self, blocks: int) -> int:
        """Return how often ``steps`` combines states for this number of blocks."""
        return sum(-(-blocks // (self.group * _ADDITIONS_PER_STATE**level)) for level in range(self._depth(blocks)))

    def _depth(self, blocks: int) -> int:
        return min(self.partial, max(self.minimum, _levels(blocks, self.group)))

    def _fold(self, blocks: Sequence[tuple[Box, ConditionValues]], depth: int, into: int) -> Iterator[StateStep]:
        if not depth:
            for block, decided in blocks:
                yield FoldBlock(into, block, decided)
            return
        size, lower = self.group * _ADDITIONS_PER_STATE ** (depth - 1), depth - 1
        for begin in range(0, len(blocks), size):
            yield OpenState(lower)
            yield from self._fold(blocks[begin : begin + size], lower, lower)
            yield CombineStates(lower, into)


def state_levels(region: Region, extents: Sequence[int], blocks: Sequence[int], mode: Mode) -> StateLevels:
    """Return the levels for a tile of ``extents`` in ``blocks``.

    A library that multiplies matrices adds partial sums of a few hundred terms to the state one after the other, so a
    long block with a product counts as many additions.
    """
    if mode == "finalize" or region.of_rows or not carries_rounded_sums(region):
        return StateLevels()
    terms = math.prod(blocks[p] for p in region.aggregated)
    additions = max(1, -(-terms // _LIBRARY_TERMS)) if sums_products(region) else 1
    count = math.prod(-(-extents[p] // max(1, blocks[p])) for p in region.aggregated)
    group = max(1, _ADDITIONS_PER_STATE // additions)
    minimum = int(mode == "accumulate" and additions > 1 and count * additions > _TILE_ADDITIONS)
    return StateLevels(max(minimum, _levels(count, group)), group, minimum)


def _levels(blocks: int, group: int) -> int:
    """Return the number of partial states that this number of blocks needs."""
    levels = 0
    while blocks > (_ADDITIONS_PER_STATE if levels else group):
        blocks, levels = -(-blocks // (_ADDITIONS_PER_STATE if levels else group)), levels + 1
    return levels
