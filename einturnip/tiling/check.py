"""Proves a decomposition: tiles cover each node's bounds once, and blocks are over its output labels."""

from __future__ import annotations

from einturnip.core.errors import InternalError
from einturnip.eingraph.types import ConcatNode, EinsumNode
from einturnip.ir.region import Region
from einturnip.tiling.label_classes import label_bounds
from einturnip.tiling.types import Decomposition


def check(decomposition: Decomposition) -> None:
    """Prove the decomposition.

    Raises:
        InternalError: naming the node at fault.
    """
    graph = decomposition.graph
    if len(decomposition.partitionings) != len(graph.nodes):
        raise InternalError("a node has no partitioning")
    for node, part, block in zip(graph.nodes, decomposition.partitionings, decomposition.blocks, strict=True):
        bounds = label_bounds(node)
        if part.bounds != bounds or len(part.tiles) != len(bounds) or any(t < 1 for t in part.tiles):
            raise InternalError(f"the tiles of {node.name!r} do not cover it")
        if isinstance(node, ConcatNode) and any(list(p.axes) != sorted(set(p.axes)) for p in node.pieces):
            raise InternalError(f"a piece of {node.name!r} has its axes in another order")
        inner = node.einsum.whole if isinstance(node, EinsumNode) and isinstance(node.einsum, Region) else frozenset()
        if any(part.tiles[p] < bounds[p] for p in inner):
            raise InternalError(f"{node.name!r} is tiled along a label internal to its region")
        if isinstance(node, EinsumNode) and (block is None or len(block.tiles) != node.einsum.n_out):
            raise InternalError(f"the blocks of {node.name!r} are not over its output's labels")
