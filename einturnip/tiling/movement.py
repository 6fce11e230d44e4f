"""Bytes that a decomposition moves between kernel calls, counted as in EinDecomp.

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
    """Bytes of one node's calls: join operands, aggregation, and repartitioned operands."""

    join: int
    aggregate: int
    repartition: int

    @property
    def total(self) -> int:
        """The sum of all three."""
        return self.join + self.aggregate + self.repartition

    def __add__(self, other: Movement) -> Movement:
        """Return the bytes of both together."""
        return Movement(self.join + other.join, self.aggregate + other.aggregate, self.repartition + other.repartition)


def movement(decomposition: Decomposition, node: int) -> Movement:
    """Return the bytes that a node moves; inputs move none, concatenations move their pieces once."""
    made = decomposition.graph.nodes[node]
    if isinstance(made, InputNode):
        return Movement(0, 0, 0)
    here = _chosen(decomposition, node)
    repartitioned = 0
    for operand, required in zip(made.operands, here.required, strict=True):
        if not isinstance(decomposition.graph.nodes[operand], InputNode):
            there = _chosen(decomposition, operand)
            repartitioned += int(repartition(there.made, required, there.itemsize)[0, 0])
    if isinstance(made, ConcatNode):
        return Movement(0, 0, int(here.join[0]) + repartitioned)
    return Movement(int(here.join[0]), int(here.aggregate[0]), repartitioned)


def moved(decomposition: Decomposition) -> Movement:
    """Return the bytes that the whole graph moves."""
    nodes = (movement(decomposition, i) for i in range(len(decomposition.graph.nodes)))
    return sum(nodes, Movement(0, 0, 0))


def _chosen(decomposition: Decomposition, node: int) -> NodeTilings:
    """Return the tiling that the decomposition has chosen, as the only candidate."""
    partitioning = decomposition.partitionings[node]
    tiles = np.array(partitioning.tiles, np.int64).reshape(1, -1)
    return node_tilings(decomposition.graph.nodes[node], decomposition.graph, tiles)
