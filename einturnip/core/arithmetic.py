"""Scalar expressions put together so that ones and zeros fold: what a derivative leaves standing is what it needs."""

from __future__ import annotations

import numpy as np

from einturnip.core.dtypes import DType
from einturnip.core.reference import evaluate_scalar
from einturnip.core.scalar import Call, Cast, Const, Scalar


def constant(value: complex, dtype: DType) -> Const:
    """A number as a Python value of the dtype's own kind."""
    match dtype.kind:
        case "c":
            return Const(complex(value), dtype)
        case "f":
            return Const(float(value.real), dtype)
        case "b":
            return Const(bool(value), dtype)
        case _:
            return Const(int(value.real), dtype)


def is_number(expr: Scalar, value: int) -> bool:
    """True for the number ``value`` as a constant."""
    return isinstance(expr, Const) and expr.value == value


def times(a: Scalar, b: Scalar) -> Scalar:
    """``a * b``; a zero that stands in the program makes it zero, whatever the other is."""
    if is_number(a, 0) or is_number(b, 1):
        return a
    if is_number(b, 0) or is_number(a, 1):
        return b
    if is_number(a, -1) or is_number(b, -1):
        return negated(b if is_number(a, -1) else a)
    return _folded(Call("mul", (a, b), a.dtype))


def divided(a: Scalar, b: Scalar) -> Scalar:
    """``a / b``."""
    return a if is_number(a, 0) or is_number(b, 1) else _folded(Call("div", (a, b), a.dtype))


def added(a: Scalar, b: Scalar) -> Scalar:
    """``a + b``."""
    if is_number(a, 0):
        return b
    return a if is_number(b, 0) else _folded(Call("add", (a, b), a.dtype))


def subtracted(a: Scalar, b: Scalar) -> Scalar:
    """``a - b``."""
    if is_number(b, 0):
        return a
    return negated(b) if is_number(a, 0) else _folded(Call("sub", (a, b), a.dtype))


def negated(a: Scalar) -> Scalar:
    """``-a``."""
    if isinstance(a, Call) and a.op == "neg":
        return a.arguments[0]
    return a if is_number(a, 0) else _folded(Call("neg", (a,), a.dtype))


def selected(condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    """``where(condition, yes, no)``."""
    if isinstance(condition, Const):
        return yes if condition.value else no
    return yes if yes == no else Call("where", (condition, yes, no), yes.dtype)


def converted(expr: Scalar, dtype: DType) -> Scalar:
    """``expr`` as ``dtype``."""
    if expr.dtype == dtype:
        return expr
    return constant(expr.value, dtype) if isinstance(expr, Const) else Cast(expr, dtype)


def _folded(expr: Call) -> Scalar:
    """The number that an operator gives for numbers."""
    if not all(isinstance(a, Const) for a in expr.arguments):
        return expr
    with np.errstate(all="ignore"):
        return Const(evaluate_scalar(expr, (), (), ()).item(), expr.dtype)
