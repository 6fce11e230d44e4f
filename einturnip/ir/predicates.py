"""Interval analysis of conditions over labels: decides them for a box, and specializes joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import evaluate_scalar
from einturnip.ir.scalar import (
    COMPARISONS,
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    ScalarConst,
    children,
    slots_of,
    walk,
)

Interval = tuple[int, int]  # lower and upper bound; the bounds need not be attained
# Integers up to these are exact in each float type (for 16 bits: in both types).
_EXACT = {2: 1 << 8, 4: 1 << 24, 8: 1 << 53}


def conditions(expr: Scalar) -> tuple[Scalar, ...]:
    """The conditions of ``where`` that depend on labels alone."""
    found = [e.arguments[0] for e in walk(expr) if isinstance(e, ScalarCall) and e.op == "where"]
    return tuple(dict.fromkeys(c for c in found if not slots_of(c) and not isinstance(c, ScalarConst)))


def truth(condition: Scalar, box: Sequence[Interval]) -> bool | None:
    """True if a condition holds at every point of a box, False if at none, None if that is unknown.

    ``box``: (start, stop) by label, none empty.
    """
    match condition:
        case ScalarConst(value, _):
            return bool(value)
        case ScalarCall("not", (argument,), _):
            inner = truth(argument, box)
            return None if inner is None else not inner
        case ScalarCall("and" | "or" as op, arguments, _):
            sides = [truth(a, box) for a in arguments]
            if (op == "or") in sides:
                return op == "or"
            return None if None in sides else op == "and"
        case ScalarCall(op, (a, b), _) if op in COMPARISONS:
            left, right = interval(a, box), interval(b, box)
            return None if left is None or right is None else _compared(op, left, right)
        case _:
            return None


def _compared(op: str, a: Interval, b: Interval) -> bool | None:
    """The result of a comparison for all values of two intervals; None if it differs or is unknown."""
    match op:
        case "gt" | "ge":
            return _compared("lt" if op == "gt" else "le", b, a)
        case "lt":
            return True if a[1] < b[0] else False if a[0] >= b[1] else None
        case "le":
            return True if a[1] <= b[0] else False if a[0] > b[1] else None
        case _:
            apart, same = a[1] < b[0] or b[1] < a[0], a == b and a[0] == a[1]
            return None if not apart and not same else same == (op == "eq")


def interval(expr: Scalar, box: Sequence[Interval]) -> Interval | None:
    """Bounds of an expression over labels in a box; None where they are unknown."""
    found: Interval | None
    match expr:
        case ScalarConst(value, dtype):
            whole = not isinstance(value, complex) and value == value and abs(value) < 1 << 62 and value == int(value)
            return (int(value.real), int(value.real)) if whole and dtype.kind != "b" else None
        case LabelValue(position, dtype):
            found = box[position][0], box[position][1] - 1
        case ScalarCast(argument, dtype):
            found = interval(argument, box)
        case ScalarCall(op, arguments, dtype):
            sides = [s for a in arguments if (s := interval(a, box)) is not None]
            found = _computed(op, sides) if len(sides) == len(arguments) else None
        case OperandRef():
            return None
    return found if found is not None and _holds(dtype, found) else None


def _computed(op: str, sides: list[Interval]) -> Interval | None:
    """Interval arithmetic."""
    match op, sides:
        case "add", [a, b]:
            return a[0] + b[0], a[1] + b[1]
        case "sub", [a, b]:
            return a[0] - b[1], a[1] - b[0]
        case "mul", [a, b]:
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "neg", [a]:
            return -a[1], -a[0]
        case "abs", [a]:
            return 0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))
        case ("min" | "max") as op, [a, b]:
            pick = min if op == "min" else max
            return pick(a[0], b[0]), pick(a[1], b[1])
        case "floordiv", [a, b] if b[0] == b[1] > 0:
            return a[0] // b[0], a[1] // b[0]
        case "mod", [a, b] if b[0] == b[1] > 0:
            return (a[0] % b[0], a[1] % b[0]) if a[0] // b[0] == a[1] // b[0] else (0, b[0] - 1)
        case _:
            return None


def _holds(dtype: DType, values: Interval) -> bool:
    """True where a type represents every integer of an interval exactly."""
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return bool(info.min <= values[0] and values[1] <= info.max)
    return dtype.kind == "f" and max(map(abs, values)) <= _EXACT[dtype.itemsize]


def specialized(expr: Scalar, decided: Callable[[Scalar], bool | None], known: Mapping[int, ScalarConst]) -> Scalar:
    """Specialize an expression for decided conditions and constant operands, and fold constants.

    Unchanged subexpressions stay the same objects.
    """
    match expr:
        case OperandRef(slot, _):
            return known.get(slot, expr)
        case ScalarCall("where", (condition, yes, no), _):
            holds = decided(condition)
            if holds is not None:
                return specialized(yes if holds else no, decided, known)
        case ScalarConst() | LabelValue():
            return expr
        case _:
            pass
    before = children(expr)
    after = tuple(specialized(e, decided, known) for e in before)
    if all(a is b for a, b in zip(after, before, strict=True)) and not all(isinstance(e, ScalarConst) for e in after):
        return expr
    return _with(expr, after)


def _with(expr: Scalar, arguments: tuple[Scalar, ...]) -> Scalar:
    """Rebuild an operator with new arguments; constant arguments are folded."""
    assert isinstance(expr, ScalarCast | ScalarCall)
    made = (
        ScalarCast(arguments[0], expr.dtype)
        if isinstance(expr, ScalarCast)
        else ScalarCall(expr.op, arguments, expr.dtype)
    )
    if not all(isinstance(a, ScalarConst) for a in arguments):
        return made
    with np.errstate(all="ignore"):
        return ScalarConst(evaluate_scalar(made, (), (), ()).item(), expr.dtype)


def adds_nothing(einsum: Einsum, join: Scalar) -> bool:
    """True where the join has the identity of its aggregation at every point."""
    aggregation = einsum.aggregation
    if aggregation is None or einsum.keys or not isinstance(join, ScalarConst):
        return False
    if aggregation.indexed or aggregation.combine == "pick":
        return False
    return bool(join.value == aggregation.identity[0])
