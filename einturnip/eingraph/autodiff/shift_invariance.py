"""Proves that a loss does not depend on a maximum: a softmax is unchanged when its scores are shifted.

``exp(x - max x)`` divided by its sum depends on x alone, so the derivative through the maximum is 0. Computed term by
term it would be 0 up to rounding and would cost a comparison for each score.

The proof tracks degrees. With m the maximum and v free of m, values of the form ``v + c*m`` or ``v * exp(d*m)`` keep
that form through the operators below, and they do not depend on m where c or d is 0.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from einturnip.eingraph.types import EinsumNode, Node
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst


@dataclass(frozen=True, slots=True)
class ShiftDegree:
    """``v + by*m``, or ``v * exp(by*m)`` if ``scales``; ``axes`` are its axes that are axes of m."""

    scales: bool
    by: float
    axes: tuple[int, ...] = ()


_FREE = ShiftDegree(False, 0.0)


class _OtherDependence(Exception):
    """Raised for a value that depends on m in another form."""


def is_shift_invariant(
    nodes: Sequence[Node], users: Mapping[int, Sequence[int]], ends: Container[int], number: int
) -> bool:
    """True where the loss provably does not depend on the value of node ``number``, a maximum or minimum.

    ``ends``: the nodes by which the loss depends on this graph.
    Equal nodes, which are not shared yet, are treated as one node.
    """
    node = nodes[number]
    if not isinstance(node, EinsumNode) or not isinstance(node.einsum, Einsum) or number not in users:
        return False
    if node.einsum.aggregation is None or not node.einsum.aggregation.bound_sign:
        return False
    same = [k for k in users if k == number or _is_same(node, nodes[k])]
    if any(k in ends for k in same):
        return False
    known = {k: ShiftDegree(False, 1.0, tuple(range(len(node.shape)))) for k in same}
    waiting = {user for k in same for user in users[k]}
    try:
        while waiting:
            user = min(waiting)
            waiting.remove(user)
            found = _degree(nodes[user], known)
            if found.by:
                if user in ends:
                    return False
                known[user] = found
                waiting |= set(users.get(user, ()))
    except _OtherDependence:
        return False
    return True


def _is_same(node: EinsumNode, other: Node) -> bool:
    """True for the same einsum over the same operands, regardless of label names."""
    if not isinstance(other, EinsumNode) or other.operands != node.operands or not isinstance(other.einsum, Einsum):
        return False
    return replace(other.einsum, labels=node.einsum.labels) == node.einsum


def _degree(node: Node, known: Mapping[int, ShiftDegree]) -> ShiftDegree:
    """How a node depends on m."""
    if not isinstance(node, EinsumNode) or not isinstance(node.einsum, Einsum) or node.einsum.keys:
        raise _OtherDependence
    einsum = node.einsum
    slots: dict[int, ShiftDegree] = {}
    labels: set[tuple[int, ...]] = set()
    for slot, operand in enumerate(node.operands):
        if operand in known:
            access = einsum.accesses[slot]
            at = tuple(index for axis in known[operand].axes if isinstance(index := access[axis], int))
            if len(at) != len(known[operand].axes) or len(set(at)) != len(at):
                raise _OtherDependence
            labels.add(at)
            slots[slot] = known[operand]
    found = _of(einsum.join, slots)
    if not found.by:
        return _FREE
    if len(labels) != 1 or not all(p < einsum.n_out for p in min(labels)):
        raise _OtherDependence
    operator = einsum.aggregation
    if operator is not None and not (operator.is_linear if found.scales else operator.row.shift_equivariant):
        raise _OtherDependence
    return ShiftDegree(found.scales, found.by, min(labels))


def _of(expr: Scalar, slots: Mapping[int, ShiftDegree]) -> ShiftDegree:
    """How a scalar expression depends on m."""
    match expr:
        case OperandRef(slot, _):
            return slots.get(slot, _FREE)
        case ScalarCast(argument, dtype):
            inner = _of(argument, slots)
            return inner if not inner.by or dtype.is_float else _unknown()
        case ScalarCall("where", (condition, yes, no), _):
            if _of(condition, slots).by:
                raise _OtherDependence
            return _either(yes, no, slots)
        case ScalarCall(op, arguments, _):
            return _applied(op, arguments, [_of(a, slots) for a in arguments])
    return _FREE


def _unknown() -> ShiftDegree:
    raise _OtherDependence


def _either(yes: Scalar, no: Scalar, slots: Mapping[int, ShiftDegree]) -> ShiftDegree:
    """The degree of ``where(c, yes, no)``: 0 has any scale, and an infinity absorbs any shift."""
    a, b = _of(yes, slots), _of(no, slots)
    for found, other in ((a, no), (b, yes)):
        if isinstance(other, ScalarConst) and found.by and (other.value == 0 if found.scales else _is_infinite(other)):
            return found
    return a if (a.by, a.scales) == (b.by, b.scales) or a.by == b.by == 0 else _unknown()


def _is_infinite(number: ScalarConst) -> bool:
    return isinstance(number.value, float) and math.isinf(number.value)


def _applied(op: str, arguments: Sequence[Scalar], degrees: Sequence[ShiftDegree]) -> ShiftDegree:
    first = degrees[0]
    if not any(d.by for d in degrees):
        return _FREE
    scale = all(d.scales or not d.by for d in degrees)
    shift = not any(d.scales and d.by for d in degrees)
    match op:
        case "neg":
            return ShiftDegree(first.scales, first.by if first.scales else -first.by)
        case "exp" if shift:
            return ShiftDegree(True, first.by)
        case "log" if scale:
            return ShiftDegree(False, first.by)
        case "add" | "sub" if shift:
            return ShiftDegree(False, first.by + (degrees[1].by if op == "add" else -degrees[1].by))
        case "add" | "sub" if scale and first.by == degrees[1].by:
            return first
        case "mul" | "div" if scale:
            return ShiftDegree(True, first.by + (degrees[1].by if op == "mul" else -degrees[1].by))
        case "mul" | "div" if (
            shift and isinstance(other := arguments[1], ScalarConst) and isinstance(other.value, float)
        ):
            if op == "div" and other.value == 0:
                raise _OtherDependence
            return ShiftDegree(False, first.by * other.value if op == "mul" else first.by / other.value)
        case "mul" if shift and isinstance(other := arguments[0], ScalarConst) and isinstance(other.value, float):
            return ShiftDegree(False, degrees[1].by * other.value)
        case _:
            raise _OtherDependence
