"""Derivatives of the scalar functions, as scalar expressions.

``adjoint_of(call, value, g)`` returns for each argument of a call its share of ``g``, the adjoint of the call's value.
For a real loss L and a complex z = x + iy the adjoint is dL/dx + i dL/dy; for a real x it is dL/dx. A holomorphic f
therefore contributes g * conj(f'), and a step against the adjoint is one of steepest descent. At kinks, ``abs`` and
``relu`` have the derivative 0 at 0, and ``min`` and ``max`` divide it equally between equal arguments. ``floor``,
``ceil``, ``round``, ``sign`` and ``//`` have derivative 0.

Source: Kreutz-Delgado, The complex gradient operator and the CR-calculus (arXiv 0906.4835); kinks as in PyTorch.
"""

from __future__ import annotations

from einturnip.ir.dtypes import BOOL, DType
from einturnip.ir.functions import ELEMENTWISE, ElementwiseFunction, call, compared, conjugate, number, real_part
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarConst
from einturnip.ir.simplify import added, constant, converted, divided, is_number, negated, selected, subtracted, times


def recast(expr: Scalar, dtype: DType) -> Scalar:
    """Convert an adjoint back across a cast from ``dtype``.

    For a real ``dtype`` only the real part counts.
    """
    if expr.dtype.kind == "c" and dtype.kind != "c":
        expr = real_part(expr)
    return converted(expr, dtype)


# Operators with derivative 0 in every argument.
_FLAT = frozenset({"floordiv", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"})


def adjoint_of(expr: ScalarCall, value: Scalar, g: Scalar) -> tuple[Scalar | None, ...]:
    """Return each argument's share of the adjoint ``g`` of a call.

    Returns None for zero. ``value`` is the call's value.
    """
    arguments = expr.arguments
    match expr.op:
        case op if op in _FLAT:
            return (None,) * len(arguments)
        case "add":
            return g, g
        case "sub":
            return g, negated(g)
        case "mul":
            a, b = arguments
            return times(g, conjugate(b)), times(g, conjugate(a))
        case "div":
            b = conjugate(arguments[1])
            return divided(g, b), negated(divided(times(g, conjugate(value)), b))
        case "mod":
            return g, negated(times(g, call("floordiv", *arguments)))
        case "pow":
            return _power(arguments[0], arguments[1], value, g)
        case "min" | "max" as op:
            return _extremum(op, expr, g)
        case "where":
            zero = number(0, g)
            return None, selected(arguments[0], g, zero), selected(arguments[0], zero, g)
        case "neg":
            return (negated(g),)
        case op:
            return (_of_function(ELEMENTWISE[op], arguments[0], value, g),)


def _of_function(function: ElementwiseFunction, x: Scalar, value: Scalar, g: Scalar) -> Scalar | None:
    if function.adjoint is not None:
        found = function.adjoint(x, value, g)
        return None if is_number(found, 0) else found
    return None if function.derivative is None else times(g, conjugate(function.derivative(x, value)))


def _power(a: Scalar, b: Scalar, value: Scalar, g: Scalar) -> tuple[Scalar | None, Scalar | None]:
    """a^b: b * a^(b - 1), which is 0 for b = 0; and a^b * log a, which is 0 for a = 0 where b >= 0."""
    zero, one = number(0, a), number(1, a)
    slope: Scalar
    if isinstance(b, ScalarConst):
        less = constant(b.value - 1, b.dtype)
        slope = zero if b.value == 0 else times(b, one if b.value == 1 else a if b.value == 2 else call("pow", a, less))
    else:
        slope = times(b, call("pow", a, subtracted(b, one)))
        slope = selected(compared("eq", b, zero), zero, slope)
    growth = times(value, call("log", a))
    if not (isinstance(a, ScalarConst) and a.value != 0):
        rising = compared("ge", real_part(b) if b.dtype.kind == "c" else b, constant(0, b.dtype.real))
        growth = selected(ScalarCall("and", (compared("eq", a, zero), rising), BOOL), zero, growth)
    return times(g, conjugate(slope)), times(g, conjugate(growth))


def _extremum(op: str, expr: ScalarCall, g: Scalar) -> tuple[Scalar, Scalar]:
    """Divide the adjoint equally among all equal arguments, however binary operators are nested."""
    a, b = expr.arguments
    counts = [_ties(op, side, expr) for side in (a, b)]
    zero, one = number(0, g), number(1, g)
    if all(_is_leaf(op, side) for side in (a, b)):
        half = times(number(0.5, g), g)
        beats = "gt" if op == "max" else "lt"
        shares = [
            selected(compared("eq", x, y), half, selected(compared(beats, x, y), g, zero)) for x, y in ((a, b), (b, a))
        ]
        return shares[0], shares[1]
    total = added(counts[0], counts[1])
    total = call("max", total, one)  # nothing equals NaN
    return divided(times(g, counts[0]), total), divided(times(g, counts[1]), total)


def _is_leaf(op: str, expr: Scalar) -> bool:
    return not (isinstance(expr, ScalarCall) and expr.op == op)


def _ties(op: str, expr: Scalar, extremum: Scalar) -> Scalar:
    """Count the arguments of an extremum that are equal to it."""
    if isinstance(expr, ScalarCall) and expr.op == op:
        a, b = expr.arguments
        return added(_ties(op, a, extremum), _ties(op, b, extremum))
    return selected(compared("eq", expr, extremum), number(1, extremum), number(0, extremum))
