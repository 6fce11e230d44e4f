"""Derivatives of the scalar functions, as scalar expressions.

``adjoint_of(call, value, g)`` returns for each argument of a call its share of ``g``, the adjoint of the call's value.
For a real loss L and a complex z = x + iy the adjoint is dL/dx + i dL/dy; for a real x it is dL/dx. A holomorphic f
therefore contributes g * conj(f'), and a step against the adjoint is one of steepest descent. At kinks, ``abs`` and
``relu`` have the derivative 0 at 0, and ``min`` and ``max`` divide it equally between equal arguments. ``floor``,
``ceil``, ``round``, ``sign`` and ``//`` have derivative 0.

Source: Kreutz-Delgado, The complex gradient operator and the CR-calculus (arXiv 0906.4835); kinks as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from einturnip.ir.dtypes import BOOL, C64, C128, F32, F64, DType
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarConst
from einturnip.ir.simplify import added, constant, converted, divided, negated, selected, subtracted, times

_COMPLEX = {F32: C64, F64: C128}

Rule = Callable[[Scalar, Scalar], Scalar]


def call(op: str, *arguments: Scalar) -> ScalarCall:
    """Apply an operator that keeps the dtype of its first argument."""
    return ScalarCall(op, arguments, arguments[0].dtype)


def compared(op: str, a: Scalar, b: Scalar) -> ScalarCall:
    """Compare two values."""
    return ScalarCall(op, (a, b), BOOL)


def conjugate(expr: Scalar) -> Scalar:
    """The complex conjugate; a real expression is returned unchanged."""
    return call("conj", expr) if expr.dtype.kind == "c" else expr


def real_part(expr: Scalar) -> Scalar:
    """The real part of a complex number, in the real type of its size."""
    return ScalarCall("real", (expr,), next(real for real, kind in _COMPLEX.items() if kind == expr.dtype))


def recast(expr: Scalar, dtype: DType) -> Scalar:
    """Convert an adjoint back across a cast from ``dtype``.

    For a real ``dtype`` only the real part counts.
    """
    if expr.dtype.kind == "c" and dtype.kind != "c":
        expr = real_part(expr)
    return converted(expr, dtype)


def _number(value: float, like: Scalar) -> ScalarConst:
    return constant(value, like.dtype)


def _shifted(value: float, sign: int, x: Scalar) -> Scalar:
    """``value + sign * x``."""
    return added(_number(value, x), x) if sign > 0 else subtracted(_number(value, x), x)


def _square(x: Scalar) -> Scalar:
    return times(x, x)


def _gelu(x: Scalar, _: Scalar) -> Scalar:
    """Phi(x) + x phi(x), with the normal distribution and its density."""
    below = added(_number(0.5, x), times(_number(0.5, x), call("erf", times(x, _number(math.sqrt(0.5), x)))))
    density = times(_number(1 / math.sqrt(2 * math.pi), x), call("exp", times(_number(-0.5, x), _square(x))))
    return added(below, times(x, density))


def _silu(x: Scalar, _: Scalar) -> Scalar:
    s = call("sigmoid", x)
    return times(s, added(_number(1, x), times(x, _shifted(1, -1, s))))


def _erf(x: Scalar, _: Scalar) -> Scalar:
    return times(_number(2 / math.sqrt(math.pi), x), call("exp", negated(_square(x))))


# f'(x) in terms of x and y = f(x). The functions that accept complex numbers are holomorphic.
DERIVATIVES: Mapping[str, Rule] = {
    "neg": lambda x, y: _number(-1, x),
    "exp": lambda x, y: y,
    "log": lambda x, y: divided(_number(1, x), x),
    "log1p": lambda x, y: divided(_number(1, x), _shifted(1, 1, x)),
    "expm1": lambda x, y: _shifted(1, 1, y),
    "sqrt": lambda x, y: divided(_number(0.5, x), y),
    "rsqrt": lambda x, y: times(_number(-0.5, x), times(y, _square(y))),
    "sin": lambda x, y: call("cos", x),
    "cos": lambda x, y: negated(call("sin", x)),
    "tan": lambda x, y: _shifted(1, 1, _square(y)),
    "tanh": lambda x, y: _shifted(1, -1, _square(y)),
    "sigmoid": lambda x, y: times(y, _shifted(1, -1, y)),
    "silu": _silu,
    "gelu": _gelu,
    "erf": _erf,
    "softplus": lambda x, y: call("sigmoid", x),
}

# Operators with derivative 0 in every argument.
FLAT = frozenset({"floor", "ceil", "round", "floordiv", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"})


def adjoint_of(expr: ScalarCall, value: Scalar, g: Scalar) -> tuple[Scalar | None, ...]:
    """Return each argument's share of the adjoint ``g`` of a call.

    Returns None for zero. ``value`` is the call's value.
    """
    arguments = expr.arguments
    match expr.op:
        case op if op in FLAT:
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
            zero = _number(0, g)
            return None, selected(arguments[0], g, zero), selected(arguments[0], zero, g)
        case "relu":
            zero = _number(0, g)
            return (selected(compared("gt", arguments[0], zero), g, zero),)
        case "abs" | "sign" | "conj" | "real" | "imag" as op:
            return (_of_complex(op, arguments[0], value, g),)
        case op:
            return (times(g, conjugate(DERIVATIVES[op](arguments[0], value))),)


def _of_complex(op: str, x: Scalar, value: Scalar, g: Scalar) -> Scalar | None:
    """Derivatives of functions that involve the conjugate, and their real counterparts."""
    if x.dtype.kind != "c":
        return {"abs": times(g, call("sign", x)), "sign": None, "imag": None}.get(op, g)
    match op:
        case "conj":
            return conjugate(g)
        case "real":
            return converted(g, x.dtype)
        case "imag":
            return times(constant(1j, x.dtype), converted(g, x.dtype))
        case "abs":
            return times(converted(g, x.dtype), call("sign", x))
        case _:  # z / |z|: only the component perpendicular to z contributes, scaled by 1 / |z|
            size = converted(ScalarCall("abs", (x,), real_part(x).dtype), x.dtype)
            along = converted(real_part(times(conjugate(value), g)), x.dtype)
            across = divided(subtracted(g, times(value, along)), size)
            zero = _number(0, x)
            return selected(compared("eq", x, zero), zero, across)


def _power(a: Scalar, b: Scalar, value: Scalar, g: Scalar) -> tuple[Scalar | None, Scalar | None]:
    """a^b: b * a^(b - 1), which is 0 for b = 0; and a^b * log a, which is 0 for a = 0 where b >= 0."""
    zero, one = _number(0, a), _number(1, a)
    slope: Scalar
    if isinstance(b, ScalarConst):
        less = constant(b.value - 1, b.dtype)
        slope = zero if b.value == 0 else times(b, one if b.value == 1 else a if b.value == 2 else call("pow", a, less))
    else:
        slope = times(b, call("pow", a, subtracted(b, one)))
        slope = selected(compared("eq", b, zero), zero, slope)
    growth = times(value, call("log", a))
    if not (isinstance(a, ScalarConst) and a.value != 0):
        rising = compared("ge", real_part(b) if b.dtype.kind == "c" else b, constant(0, _real(b.dtype)))
        growth = selected(ScalarCall("and", (compared("eq", a, zero), rising), BOOL), zero, growth)
    return times(g, conjugate(slope)), times(g, conjugate(growth))


def _real(dtype: DType) -> DType:
    return next((real for real, kind in _COMPLEX.items() if kind == dtype), dtype)


def _extremum(op: str, expr: ScalarCall, g: Scalar) -> tuple[Scalar, Scalar]:
    """Divide the adjoint equally among all equal arguments, however binary operators are nested."""
    a, b = expr.arguments
    counts = [_ties(op, side, expr) for side in (a, b)]
    zero, one = _number(0, g), _number(1, g)
    if all(_is_leaf(op, side) for side in (a, b)):
        half = times(_number(0.5, g), g)
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
    return selected(compared("eq", expr, extremum), _number(1, extremum), _number(0, extremum))
