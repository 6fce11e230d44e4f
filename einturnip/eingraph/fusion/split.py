"""A node that makes one value of several folds, and more of it: the one value apart, so that a region can end there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from einturnip.eingraph.builder import LabelSpace, StatementDrafts
from einturnip.ir.einsum import Einsum, Index
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, children, labels_of, rewrite, slots_of

Parts = tuple[Einsum, tuple[int, ...], Einsum, tuple[int, ...]]


def split(einsum: Einsum, folds: Mapping[int, Sequence[int]], bounds: Mapping[int, tuple[str, int]]) -> Parts | None:
    """An einsum as a map of folds alone and what reads it; None where other operands come between the folds.

    ``folds``: of each slot that reads a fold, the classes of the fold's labels. ``bounds``: name and size of a class.
    Gives the map, the slots it reads, the rest, and the slots that the rest reads, the map as ``len(accesses)``.
    So an access such as ``[h // 2, h % 2]``, which is none of a fold's own labels, is that of the map's value.
    """
    inner = _least(einsum.join, frozenset(folds))
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


def _least(expr: Scalar, slots: frozenset[int]) -> Scalar:
    """The smallest part of an expression outside which none of the slots is read."""
    for child in children(expr):
        if slots <= slots_of(child):
            others = (c for c in children(expr) if c is not child)
            if not any(slots_of(c) & slots for c in others):
                return _least(child, slots)
    return expr
