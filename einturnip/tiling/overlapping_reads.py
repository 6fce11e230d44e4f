"""Inputs whose parts are copied from their tiles, because neighbouring parts overlap."""

from __future__ import annotations

from einturnip.cost.working_set import copies_tiles
from einturnip.eingraph.types import EinsumNode, InputNode
from einturnip.tiling.types import Decomposition


def overlapping_inputs(d: Decomposition) -> frozenset[int]:
    """Return the inputs whose parts are assembled from tiles, so that shared data is read once."""
    found: set[int] = set()
    for node, part in zip(d.graph.nodes, d.partitionings, strict=True):
        if isinstance(node, EinsumNode) and not node.einsum.plain:
            for operand in set(node.operands) - found:
                if isinstance(d.graph.nodes[operand], InputNode):
                    slots = [slot for slot, o in enumerate(node.operands) if o == operand]
                    if copies_tiles(node.einsum, slots, part.tiles):
                        found.add(operand)
    return frozenset(found)
