"""Constructors of scalar expressions that fold zeros and ones, to keep derivatives small."""

from __future__ import annotations

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.ir.operators import OPERATORS, compute, convert
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarCast, ScalarConst


def constant(value: complex, dtype: DType) -> ScalarConst:
    """A number as a Python value of the dtype's own kind."""
    match dtype.kind:
        case "c":
            return ScalarConst(complex(value), dtype)
        case "f":
            return ScalarConst(float(value.real), dtype)
        case "b":
            return ScalarConst(bool(value), dtype)
        case _:
            return ScalarConst(int(value.real), dtype)


def is_number(expr: Scalar, value: int) -> bool:
    """True for the number ``value`` as a constant."""
    return isinstance(expr, ScalarConst) and expr.value == value


def times(a: Scalar, b: Scalar) -> Scalar:
    """``a * b``; a constant zero gives zero, whatever the other factor is."""
    if is_number(a, 0) or is_number(b, 1):
        return a
    if is_number(b, 0) or is_number(a, 1):
        return b
    if is_number(a, -1) or is_number(b, -1):
        return negated(b if is_number(a, -1) else a)
    return _folded(ScalarCall("mul", (a, b), a.dtype))


def divided(a: Scalar, b: Scalar) -> Scalar:
    """``a / b``."""
    return a if is_number(a, 0) or is_number(b, 1) else _folded(ScalarCall("div", (a, b), a.dtype))


def added(a: Scalar, b: Scalar) -> Scalar:
    """``a + b``."""
    if is_number(a, 0):
        return b
    return a if is_number(b, 0) else _folded(ScalarCall("add", (a, b), a.dtype))


def subtracted(a: Scalar, b: Scalar) -> Scalar:
    """``a - b``."""
    if is_number(b, 0):
        return a
    return negated(b) if is_number(a, 0) else _folded(ScalarCall("sub", (a, b), a.dtype))


def negated(a: Scalar) -> Scalar:
    """``-a``."""
    if isinstance(a, ScalarCall) and a.op == "neg":
        return a.arguments[0]
    return a if is_number(a, 0) else _folded(ScalarCall("neg", (a,), a.dtype))


def selected(condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    """``where(condition, yes, no)``."""
    if isinstance(condition, ScalarConst):
        return yes if condition.value else no
    return yes if yes == no else ScalarCall("where", (condition, yes, no), yes.dtype)


def converted(expr: Scalar, dtype: DType) -> Scalar:
    """``expr`` as ``dtype``."""
    if expr.dtype == dtype:
        return expr
    return constant(expr.value, dtype) if isinstance(expr, ScalarConst) else ScalarCast(expr, dtype)


def _folded(expr: ScalarCall) -> Scalar:
    """Evaluate an operator of constants; returns other expressions unchanged."""
    constants = [a for a in expr.arguments if isinstance(a, ScalarConst)]
    if len(constants) < len(expr.arguments):
        return expr
    with np.errstate(all="ignore"):
        values = [convert(np.asarray(a.value), a.dtype) for a in constants]
        return ScalarConst(compute(OPERATORS[expr.op], values, expr.dtype).item(), expr.dtype)
