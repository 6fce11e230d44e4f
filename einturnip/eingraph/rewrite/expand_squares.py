"""Squared distances as contractions, for who asks for it: sum (a - b)^2 = sum a^2 + sum b^2 - 2 sum a b.

A matrix product is much faster than a join of differences. What it costs is digits: with K terms and the unit
roundoff u, the result is off by up to about (K + 4) u (sum a^2 + sum b^2), however small it is, where the sum of
differences is off by (K + 2) u times itself. Points that nearly meet lose all their digits. So the program has to be
run with ``exact=False`` for it.
"""

from __future__ import annotations

from dataclasses import replace

from einturnip.eingraph.builder import GraphBuilder, LabelSpace, NodeDraft
from einturnip.eingraph.interning import EinsumInterner
from einturnip.eingraph.rewrite.sharing import drop_dead, simplify, with_operands
from einturnip.eingraph.types import NO_HINTS, EinGraph, EinsumNode
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst


def expand_squares(graph: EinGraph, forms: EinsumInterner) -> EinGraph:
    """The graph with sums of squared differences of rows and columns as matrix products. Not below 0."""
    assembly = GraphBuilder(node.name for node in graph.nodes)
    ids: list[int] = []
    for node in graph.nodes:
        moved = with_operands(node, ids)
        drafts = None
        if isinstance(moved, EinsumNode) and isinstance(moved.einsum, Einsum) and moved.hints == NO_HINTS:
            drafts = forms.once(_expanded, id(moved.einsum), moved.einsum)
        if drafts is None or not isinstance(moved, EinsumNode):
            ids.append(assembly.add(moved))
        else:
            ids.append(assembly.place([forms.draft(d) for d in drafts], moved.operands, moved.name, moved.line))
    if len(assembly.nodes) == len(graph.nodes):
        return graph
    outputs = tuple((name, ids[node]) for name, node in graph.outputs)
    return simplify(drop_dead(replace(graph, nodes=tuple(assembly.nodes), outputs=outputs)), forms)


def _expanded(einsum: Einsum) -> list[NodeDraft] | None:
    """The drafts of a sum of squared differences, where each side lacks a label of the output; else None."""
    gap = _squared(einsum.join)
    op = einsum.aggregation
    if gap is None or op is None or op.op != "sum" or einsum.keys or op.state not in ((F32,), (F64,)):
        return None
    if op.state != (op.result,) or not einsum.aggregated or not all(map(_is_operand, gap.arguments)):
        return None
    space = LabelSpace.over(einsum)
    join = space.substitute(gap, einsum.accesses, range(len(einsum.accesses)))
    assert isinstance(join, ScalarCall)
    out, bound = range(einsum.n_out), einsum.aggregated
    sides = [space.labels_in(side) for side in join.arguments]
    if any(not set(bound) <= own or set(out) <= own for own in sides) or set(out) - sides[0] - sides[1]:
        return None
    total = aggregation("sum", join.dtype)
    squares = []
    for side, own in zip(join.arguments, sides, strict=True):
        kept = [p for p in out if p in own]
        number = space.emit(kept, bound, ScalarCall("mul", (side, side), join.dtype), total, "square")
        squares.append(space.operand(number, tuple(kept)))
    number = space.emit(out, bound, ScalarCall("mul", join.arguments, join.dtype), total, "product")
    twice = ScalarCall("mul", (space.operand(number, tuple(out)), ScalarConst(2, join.dtype)), join.dtype)
    both = ScalarCall("sub", (ScalarCall("add", (squares[0], squares[1]), join.dtype), twice), join.dtype)
    space.emit(out, (), ScalarCall("max", (both, ScalarConst(0, join.dtype)), join.dtype), None, "")
    return space.drafts.nodes


def _squared(expr: Scalar) -> ScalarCall | None:
    """The difference of which a join is the square."""
    match expr:
        case ScalarCall("pow", (ScalarCall("sub", _, _) as gap, ScalarConst(int() | float() as n, _)), _) if n == 2:
            return gap
        case ScalarCall("mul", (ScalarCall("sub", _, _) as gap, other), _) if gap == other:
            return gap
    return None


def _is_operand(expr: Scalar) -> bool:
    while isinstance(expr, ScalarCast):
        expr = expr.argument
    return isinstance(expr, OperandRef)
