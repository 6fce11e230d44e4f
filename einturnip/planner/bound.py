"""What no plan could move less of."""

from __future__ import annotations

import math

from einturnip.core.contraction import contraction
from einturnip.core.einsum import Box, Einsum, Index
from einturnip.core.region import Region, Space
from einturnip.decomp.cost import positions
from einturnip.decomp.pieces import points, union_points
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode

# Reads of one tensor by this many different boxes are told apart; of more, the largest counts alone.
MOST_BOXES = 1000


def link_bound(graph: EinGraph, capacity: int) -> dict[str, int]:
    """Bytes that any schedule must move: what is read of inputs, outputs once; for a contraction 2MNK/sqrt(S) elements.

    Source: Smith, Lowery, Langou, van de Geijn (arXiv 1702.02017), after Hong and Kung (1981); S: the arena's elements.
    """
    read = _read_nbytes(graph)
    products: dict[int, int] = {}
    for node in graph.nodes:
        # An operand that is made on the way need never cross the link, so only stored ones are bound by it.
        if isinstance(node, EinsumNode) and all(isinstance(graph.nodes[i], InputNode) for i in node.operands):
            if isinstance(node.einsum, Region):
                continue
            if id(node.einsum) not in products:
                products[id(node.einsum)] = _product_nbytes(node.einsum, capacity)
            read = max(read, products[id(node.einsum)])
    written = sum(math.prod(graph.nodes[i].shape) * graph.nodes[i].dtype.itemsize for _, i in graph.outputs)
    return {"disk->cpu:0": read, "cpu:0->disk": written}


def _product_nbytes(e: Einsum, capacity: int) -> int:
    """The bound of Hong and Kung; 0 where the einsum is no product of two matrices."""
    c = contraction(e) if e.plain else None
    if c is None:
        return 0
    batch, m, n, k = (math.prod(e.bounds[p] for p in group) for group in (c.batch, c.m, c.n, c.k))
    itemsize = c.accumulator.itemsize
    return int(2 * batch * m * n * k / math.sqrt(max(1, capacity / itemsize)) * itemsize)


def _read_nbytes(graph: EinGraph) -> int:
    """What the program must see of its inputs."""
    boxes: dict[int, dict[Box, None]] = {}
    fewest: dict[int, int] = {}
    for node in graph.nodes:
        for slot, operand in enumerate(() if isinstance(node, InputNode) else node.operands):
            if not isinstance(graph.nodes[operand], InputNode):
                continue
            found = boxes.setdefault(operand, {})
            if isinstance(node, ConcatNode):
                found[tuple((0, n) for n in graph.nodes[operand].shape)] = None
            elif isinstance(node, EinsumNode):
                least = _elements(node.einsum, slot)
                box = node.einsum.operand_box(slot, [(0, n) for n in node.einsum.bounds])
                if least == points(box) and len(found) < MOST_BOXES:
                    found[box] = None
                fewest[operand] = max(fewest.get(operand, 0), least)
    return sum(max(union_points(tuple(boxes[i])), fewest.get(i, 0)) * graph.nodes[i].dtype.itemsize for i in boxes)


def _elements(e: Space, slot: int) -> int:
    """The fewest different elements of an operand that a node can read."""
    total = 1
    keys = {key.label: key for key in e.keys}
    for axis, p in enumerate(e.accesses[slot]):
        if isinstance(p, Index):
            lo, hi = p.interval([(0, n) for n in e.bounds], e.shapes[slot][axis])
            total *= min(hi - lo, math.prod(e.bounds[q] for q, _ in p.terms))
        elif p in keys and p >= e.n_out:
            total *= min(e.bounds[p], 1)  # all keys may be the same
        else:
            total *= e.bounds[p]
    if len({p for p in e.accesses[slot] if isinstance(p, int)}) < sum(isinstance(p, int) for p in e.accesses[slot]):
        return min(total, math.prod(e.bounds[p] for p in positions(e.accesses[slot])))
    return total
