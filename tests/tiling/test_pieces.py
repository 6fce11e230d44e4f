"""The visible parts of overlapping pieces and the points of several boxes, compared with counting them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from einturnip.eingraph.types import ConcatNode, EinGraph, InputNode, Node, TensorPiece
from einturnip.ir.dtypes import F64
from einturnip.ir.einsum import Box
from einturnip.taskgraph.check import tiled
from einturnip.tiling.pieces import ConcatPieces, union_points
from einturnip.tiling.types import index

SHAPE = (7, 5)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    found = []
    for n in SHAPE:
        lo = draw(st.integers(0, n - 1))
        found.append((lo, draw(st.integers(lo + 1, n))))
    return tuple(found)


@given(st.lists(boxes(), max_size=20), boxes())
def test_parts_are_what_a_painter_leaves(over: list[Box], need: Box) -> None:
    nodes: list[Node] = [InputNode("base", SHAPE, F64, 1)]
    pieces = [TensorPiece(0, (0, 1), (0, 0))]
    painted = np.zeros(SHAPE, int)
    for number, box in enumerate(over, 1):
        flat = box[0][1] - box[0][0] == 1  # an axis that the piece lacks
        shape = tuple(hi - lo for lo, hi in box)
        nodes.append(InputNode(f"x{number}", shape[1:] if flat else shape, F64, 1))
        pieces.append(TensorPiece(number, (1,) if flat else (0, 1), tuple(lo for lo, _ in box)))
        painted[index(box)] = number
    node = ConcatNode("whole", SHAPE, F64, tuple(pieces), 1)
    parts = ConcatPieces(EinGraph((*nodes, node), (), "hand.ein"), node).parts(need)
    assert tiled([part.box for part in parts], need)
    for part in parts:
        assert (painted[index(part.box)] == part.operand).all()
        assert part.outside(part.within) == part.box


@given(st.lists(boxes(), max_size=12))
def test_points_of_a_union_are_counted_once(some: list[Box]) -> None:
    painted = np.zeros(SHAPE, bool)
    for box in some:
        painted[index(box)] = True
    assert union_points(some) == painted.sum()
    assert tiled(some, tuple((0, n) for n in SHAPE)) == (
        painted.all() and sum((hi - lo) * (b - a) for (lo, hi), (a, b) in some) == painted.size
    )
