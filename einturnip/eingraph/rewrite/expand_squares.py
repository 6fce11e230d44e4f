"""Rewrites squared distances to contractions: sum (a - b)^2 = sum a^2 + sum b^2 - 2 sum a b.

A matrix product is much faster than a join of differences, but it loses digits. With K terms and unit roundoff u, its
absolute error is up to about (K + 4) u (sum a^2 + sum b^2), however small the distance is; the sum of differences has
the relative error (K + 2) u. Points that nearly coincide lose all their digits, so the rewrite needs ``exact=False``.
"""

from __future__ import annotations

from dataclasses import replace

from einturnip.eingraph.builder import EinsumInterner, GraphBuilder, LabelSpace, NodeDraft
from einturnip.eingraph.rewrite.sharing import drop_dead, simplify, with_operands
from einturnip.eingraph.types import NO_HINTS, EinGraph, EinsumNode
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32, F64
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst


def expand_squares(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Return the graph with sums of squared differences as matrix products, clamped to 0 from below."""
    assembly = GraphBuilder(node.name for node in graph.nodes)
    ids: list[int] = []
    for node in graph.nodes:
        moved = with_operands(node, ids)
        drafts = None
        if isinstance(moved, EinsumNode) and isinstance(moved.einsum, Einsum) and moved.hints == NO_HINTS:
            drafts = interner.once(_expanded, id(moved.einsum), moved.einsum)
        if drafts is None or not isinstance(moved, EinsumNode):
            ids.append(assembly.add(moved))
        else:
            ids.append(assembly.place([interner.draft(d) for d in drafts], moved.operands, moved.name, moved.line))
    if len(assembly.nodes) == len(graph.nodes):
        return graph
    outputs = tuple((name, ids[node]) for name, node in graph.outputs)
    return simplify(drop_dead(replace(graph, nodes=tuple(assembly.nodes), outputs=outputs)), interner)


def _expanded(einsum: Einsum) -> list[NodeDraft] | None:
    """Drafts for a sum of squared differences whose sides each lack an output label; None for others."""
    difference = _squared(einsum.join)
    op = einsum.aggregation
    if difference is None or op is None or not op.is_sum or einsum.keys or op.state not in ((F32,), (F64,)):
        return None
    if op.state != (op.result,) or not einsum.aggregated or not all(map(_is_operand, difference.arguments)):
        return None
    space = LabelSpace.over(einsum)
    join = space.substitute(difference, einsum.accesses, range(len(einsum.accesses)))
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
    """The difference of which the join is the square; None otherwise."""
    match expr:
        case ScalarCall("pow", (ScalarCall("sub", _, _) as difference, ScalarConst(int() | float() as n, _)), _) if (
            n == 2
        ):
            return difference
        case ScalarCall("mul", (ScalarCall("sub", _, _) as difference, other), _) if difference == other:
            return difference
    return None


def _is_operand(expr: Scalar) -> bool:
    while isinstance(expr, ScalarCast):
        expr = expr.argument
    return isinstance(expr, OperandRef)
