"""What a decomposition moves between kernel calls, in bytes, as EinDecomp counts it.

Source: EinDecomp (Bourgeois et al., 2024), whose counts of elements are bytes here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from einturnip.decomp.cost import operand_nbytes, output_nbytes
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.eingraph.types import ConcatNode, EinsumNode, InputNode


@dataclass(frozen=True, slots=True)
class Movement:
    """Bytes that one node's kernel calls take in (join), hand to aggregation, and take from tiles cut otherwise."""

    join: int
    aggregate: int
    repartition: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.join + self.aggregate + self.repartition


def movement(decomposition: Decomposition, node: int) -> Movement:
    """The bytes that node ``node`` moves; an input moves none of its own, and pieces put together are moved once."""
    made = decomposition.graph.nodes[node]
    if isinstance(made, InputNode):
        return Movement(0, 0, 0)
    if isinstance(made, ConcatNode):
        return Movement(0, 0, math.prod(made.shape) * made.dtype.itemsize)
    einsum, cut = made.einsum, decomposition.partitionings[node]
    tiles = tuple(min(t, b) for t, b in zip(cut.tiles, cut.bounds, strict=True))
    calls = math.prod(cut.counts)
    parts = math.prod(cut.counts[einsum.n_out :])
    join = calls * sum(operand_nbytes(einsum, slot, tiles) for slot in range(len(einsum.accesses)))
    aggregate = calls // parts * (parts - 1) * output_nbytes(einsum, tiles) if parts else 0
    return Movement(
        join, aggregate, sum(_repartition(decomposition, made, cut, slot) for slot in range(len(made.operands)))
    )


def _repartition(decomposition: Decomposition, made: EinsumNode, cut: Partitioning, slot: int) -> int:
    """(|tile| + |tile'|) for each tile of the common refinement; nothing where producer and consumer cut alike.

    Nor where the operand is an input: of a file any part can be read.
    """
    if isinstance(decomposition.graph.nodes[made.operands[slot]], InputNode):
        return 0
    before = decomposition.output(made.operands[slot])
    extents = made.einsum.operand_extents(slot, cut.tiles)
    after = Partitioning(before.bounds, tuple(max(1, n) for n in extents))
    if before.counts == after.counts:
        return 0
    itemsize = made.einsum.dtypes[slot].itemsize
    sizes = sum(math.prod(min(t, b) for t, b in zip(p.tiles, p.bounds, strict=True)) for p in (before, after))
    return sizes * itemsize * math.prod(map(max, before.counts, after.counts))
