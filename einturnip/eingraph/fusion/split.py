"""Splits a node into its combination of aggregations and the rest, so that a region can end there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from einturnip.eingraph.builder import LabelSpace, StatementDrafts
from einturnip.ir.einsum import Einsum, Index
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, children, labels_of, rewrite, slots_of

Parts = tuple[Einsum, tuple[int, ...], Einsum, tuple[int, ...]]


def split(einsum: Einsum, folds: Mapping[int, Sequence[int]], bounds: Mapping[int, tuple[str, int]]) -> Parts | None:
    """Split an einsum into a map of aggregations and the rest; None where other operands interfere.

    ``folds`` gives, for each slot that reads an aggregation, the classes of its labels; ``bounds`` name and size of
    each class. Returns the map, the slots it reads, the rest, and the slots that the rest reads, the map as
    ``len(accesses)``. An access such as ``[h // 2, h % 2]``, which is not plain, then applies to the map's value.
    """
    inner = _smallest_common(einsum.join, frozenset(folds))
    if isinstance(inner, OperandRef) or labels_of(inner) or slots_of(inner) != set(folds) or einsum.keys:
        return None
    reads: dict[int, int | Index] = {}
    for slot, classes in folds.items():
        for c, index in zip(classes, einsum.accesses[slot], strict=True):
            if reads.setdefault(c, index) != index:
                return None
    order = list(dict.fromkeys(c for classes in sorted(folds.values(), key=len, reverse=True) for c in classes))
    tensors = [(einsum.dtypes[s], einsum.operand_shape(s)) for s in range(len(einsum.accesses))]
    space = LabelSpace(StatementDrafts(tensors), [bounds[c][0] for c in order], [bounds[c][1] for c in order])

    def fold(expr: Scalar) -> Scalar:
        if not isinstance(expr, OperandRef):
            return expr
        return space.operand(expr.slot, tuple(order.index(c) for c in folds[expr.slot]))

    found, slots = space.einsum(range(len(order)), (), rewrite(inner, fold), None)
    whole = LabelSpace(StatementDrafts([*tensors, (found.dtype, found.shape)]), einsum.labels, einsum.bounds)
    value = whole.operand(len(tensors), tuple(reads[c] for c in order))

    def rest(expr: Scalar) -> Scalar:
        match expr:
            case _ if expr == inner:
                return value
            case OperandRef(slot, _):
                return whole.operand(slot, einsum.accesses[slot])
            case ScalarCast(argument, _):
                return replace(expr, argument=rest(argument))
            case ScalarCall(_, arguments, _):
                return replace(expr, arguments=tuple(map(rest, arguments)))
        return expr

    outer, left = whole.einsum(range(einsum.n_out), einsum.aggregated, rest(einsum.join), einsum.aggregation)
    return found, slots, outer, left


def _smallest_common(expr: Scalar, slots: frozenset[int]) -> Scalar:
    """The smallest subexpression outside which none of the slots is read."""
    for child in children(expr):
        if slots <= slots_of(child):
            others = (c for c in children(expr) if c is not child)
            if not any(slots_of(c) & slots for c in others):
                return _smallest_common(child, slots)
    return expr
