"""Recognises guarded reads, ``where(0 <= i - 1 and i - 1 < n, X[clamp(i - 1)], 0)``: padded copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from einturnip.ir.dtypes import I64
from einturnip.ir.einsum import Einsum, Index
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarConst

Interval: TypeAlias = tuple[int, int]
_LEAST, _MOST = -(1 << 62), 1 << 62


def guarded(einsum: Einsum, expr: Scalar) -> tuple[int, Scalar] | None:
    """Return the operand of a guarded read and its fill; None for any other expression.

    The fill replaces the operand exactly where one of its indices is clamped.
    """
    tests: list[Scalar] = []
    fill: Scalar | None = None
    while isinstance(expr, ScalarCall) and expr.op == "where":
        test, expr, other = expr.arguments
        if fill is not None and repr(fill) != repr(other):  # 0.0 == -0.0
            return None
        fill = other
        tests.append(test)
    if fill is None or not isinstance(expr, OperandRef) or fill.dtype != einsum.dtypes[expr.slot]:
        return None
    inside = _inside(einsum, expr.slot)
    wanted: dict[int, Interval] = {}
    for test in tests:
        for atom in _atoms(test):
            found = _interval(atom)
            if found is None:
                return None
            label, (lo, hi) = found
            a, b = wanted.get(label, (0, einsum.bounds[label]))
            wanted[label] = max(a, lo), min(b, hi)
    return (expr.slot, fill) if inside is not None and inside == wanted else None


def _inside(einsum: Einsum, slot: int) -> dict[int, Interval] | None:
    """Return, by label, where no clamped index is clamped; None if an index depends on several labels."""
    found: dict[int, Interval] = {}
    for axis, size in zip(einsum.accesses[slot], einsum.operand_shape(slot), strict=True):
        if isinstance(axis, Index) and axis.clamped:
            if len(axis.terms) != 1 or axis.modulus:
                return None
            ((label, c),) = axis.terms
            lo, hi = _solve(c, axis.offset, 0, size * axis.divisor)
            a, b = found.get(label, (0, einsum.bounds[label]))
            found[label] = max(a, lo), min(b, hi)
    return found


def _solve(c: int, offset: int, least: int, end: int) -> Interval:
    """Return the x with ``least <= c x + offset < end``."""
    if c > 0:
        return -((offset - least) // c), -((offset - end) // c)
    return (offset - end) // -c + 1, (offset - least) // -c + 1


def _atoms(test: Scalar) -> Iterator[Scalar]:
    if isinstance(test, ScalarCall) and test.op == "and":
        for argument in test.arguments:
            yield from _atoms(argument)
    else:
        yield test


def _interval(atom: Scalar) -> tuple[int, Interval] | None:
    """Return the range where a test of one label against a number holds."""
    if not isinstance(atom, ScalarCall) or atom.op not in ("ge", "lt"):
        return None
    index, bound = atom.arguments
    if not isinstance(bound, ScalarConst) or not isinstance(bound.value, int):
        return None
    edge = bound.value
    if isinstance(index, ScalarCall) and index.op == "floordiv":
        index, divisor = index.arguments
        if not isinstance(divisor, ScalarConst) or not isinstance(divisor.value, int) or divisor.value <= 0:
            return None
        edge *= divisor.value
    found = _affine(index)
    if found is None or len(found[0]) != 1:
        return None
    ((label, c),) = found[0].items()
    return label, _solve(c, found[1], edge, _MOST) if atom.op == "ge" else _solve(c, found[1], _LEAST, edge)


def _affine(expr: Scalar) -> tuple[dict[int, int], int] | None:
    """Return coefficients by label, and offset; None if not affine."""
    match expr:
        case ScalarConst(value=int() as value):
            return {}, value
        case LabelValue(position=position):
            return {position: 1}, 0
        case ScalarCall(op="neg", arguments=(x,)):
            return _affine(ScalarCall("sub", (ScalarConst(0, I64), x), I64))
        case ScalarCall(op="add" | "sub" | "mul" as op, arguments=(x, y)):
            a, b = _affine(x), _affine(y)
            if a is None or b is None or (op == "mul" and a[0] and b[0]):
                return None
            if op == "mul":
                factor, other = (a[1], b) if not a[0] else (b[1], a)
                return {p: factor * c for p, c in other[0].items() if factor * c}, factor * other[1]
            sign = 1 if op == "add" else -1
            terms = {p: a[0].get(p, 0) + sign * b[0].get(p, 0) for p in {**a[0], **b[0]}}
            return {p: c for p, c in terms.items() if c}, a[1] + sign * b[1]
        case _:
            return None
