"""The order in which the blocks of a region are folded into the tile's state.

At most ADDITIONS_PER_STATE blocks are folded into one state in sequence. More blocks are folded into partial states,
which are then combined: a tree, so that the rounding error grows with the logarithm of the number of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from einturnip.ir.einsum import Box
from einturnip.ir.region import Region
from einturnip.kernels.expr.fold import ADDITIONS_PER_STATE, carries_rounded_sums, partial_levels
from einturnip.kernels.fused.block_layout import sums_products
from einturnip.kernels.mask import ConditionValues
from einturnip.kernels.protocol import Mode

_BLAS_TERMS = 512  # terms of a product that BLAS adds up before it adds the sum to the result
_MAX_TILE_ADDITIONS = 8  # to a state that outlives the call, because other tiles are added to the same state


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
    """Levels of partial states, numbered from 0; the tile's state has the next number, ``partial``.

    ``group``: the number of blocks that are folded into one state of level 0. ``minimum``: the number of levels that
    are used even for a single block.
    """

    partial: int = 0
    group: int = 1
    minimum: int = 0

    def steps(self, blocks: Sequence[tuple[Box, ConditionValues]]) -> Iterator[StateStep]:
        """Yield the steps that fold blocks into the tile's state."""
        return self._fold(blocks, self._depth(len(blocks)), self.partial)

    def combinations(self, blocks: int) -> int:
        """Return the number of ``CombineStates`` among the steps for a number of blocks."""
        return sum(-(-blocks // (self.group * ADDITIONS_PER_STATE**level)) for level in range(self._depth(blocks)))

    def _depth(self, blocks: int) -> int:
        return min(self.partial, max(self.minimum, partial_levels(blocks, self.group, ADDITIONS_PER_STATE)))

    def _fold(self, blocks: Sequence[tuple[Box, ConditionValues]], depth: int, into: int) -> Iterator[StateStep]:
        if not depth:
            for block, decided in blocks:
                yield FoldBlock(into, block, decided)
            return
        size, lower = self.group * ADDITIONS_PER_STATE ** (depth - 1), depth - 1
        for begin in range(0, len(blocks), size):
            yield OpenState(lower)
            yield from self._fold(blocks[begin : begin + size], lower, lower)
            yield CombineStates(lower, into)


def state_levels(region: Region, extents: Sequence[int], blocks: Sequence[int], mode: Mode) -> StateLevels:
    """Return the levels of partial states for a tile of ``extents`` in ``blocks``.

    BLAS adds sums of a few hundred terms to the state in sequence, so a long block with a product counts as several
    additions.
    """
    if mode == "finalize" or region.of_rows or not carries_rounded_sums(region):
        return StateLevels()
    terms = math.prod(blocks[p] for p in region.aggregated)
    additions = max(1, -(-terms // _BLAS_TERMS)) if sums_products(region) else 1
    count = math.prod(-(-extents[p] // max(1, blocks[p])) for p in region.aggregated)
    group = max(1, ADDITIONS_PER_STATE // additions)
    minimum = int(mode == "accumulate" and additions > 1 and count * additions > _MAX_TILE_ADDITIONS)
    return StateLevels(max(minimum, partial_levels(count, group, ADDITIONS_PER_STATE)), group, minimum)
