"""What a decomposition moves between kernel calls, in bytes, as EinDecomp counts it.

Source: EinDecomp (Bourgeois et al., 2024, arXiv 2410.02682), whose counts of elements are bytes here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from einturnip.eingraph.types import ConcatNode, InputNode
from einturnip.tiling.node_tilings import NodeTilings, node_tilings, repartition
from einturnip.tiling.types import Decomposition


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

    def __add__(self, other: Movement) -> Movement:
        return Movement(self.join + other.join, self.aggregate + other.aggregate, self.repartition + other.repartition)


def movement(decomposition: Decomposition, node: int) -> Movement:
    """The bytes that node ``node`` moves; an input moves none of its own, and pieces put together are moved once."""
    made = decomposition.graph.nodes[node]
    if isinstance(made, InputNode):
        return Movement(0, 0, 0)
    here = _way(decomposition, node)
    again = 0
    for operand, wanted in zip(made.operands, here.wanted, strict=True):
        if not isinstance(decomposition.graph.nodes[operand], InputNode):
            there = _way(decomposition, operand)
            again += int(repartition(there.made, wanted, there.itemsize)[0, 0])
    if isinstance(made, ConcatNode):
        return Movement(0, 0, int(here.join[0]) + again)
    return Movement(int(here.join[0]), int(here.aggregate[0]), again)


def moved(decomposition: Decomposition) -> Movement:
    """The bytes that the whole graph moves."""
    nodes = (movement(decomposition, i) for i in range(len(decomposition.graph.nodes)))
    return sum(nodes, Movement(0, 0, 0))


def _way(decomposition: Decomposition, node: int) -> NodeTilings:
    """The one way that the decomposition has taken."""
    cut = decomposition.partitionings[node]
    tiles = np.array(cut.tiles, np.int64).reshape(1, -1)
    return node_tilings(decomposition.graph.nodes[node], decomposition.graph, tiles)
