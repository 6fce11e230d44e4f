"""The table of elementwise functions: the meaning, types, derivative and cost of each.

The language, gradients, kernels, the editor and the tests derive what they know of a function from its row.
CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from einturnip.ir.dtypes import BOOL, DType
from einturnip.ir.operators import Array
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarConst
from einturnip.ir.simplify import added, constant, converted, divided, negated, selected, subtracted, times

Rule: TypeAlias = Callable[[Scalar, Scalar], Scalar]
AdjointRule: TypeAlias = Callable[[Scalar, Scalar, Scalar], Scalar]


@dataclass(frozen=True, slots=True)
class ElementwiseFunction:
    """One scalar function.

    A function whose ``numpy`` is a ufunc and that takes no complex numbers needs the first four fields only.
    ``tests/kernels/test_function_table.py`` says what a row lacks.
    """

    name: str
    # Its documentation in editors: one line that ends with a period.
    doc: str
    # The meaning. Arrays of float16 and bfloat16 are converted to float32 first.
    numpy: Callable[[Array], Any]
    # f'(x) from x and y = f(x), for functions that are holomorphic or take no complex numbers.
    derivative: Rule | None = None
    # For functions that are not holomorphic, instead of f'(x): the adjoint of x from x, y and the adjoint g of y. See
    # ``ir/derivatives.py`` for adjoints of complex numbers. A function with neither rule has derivative 0.
    adjoint: AdjointRule | None = None
    # Whether it takes complex numbers.
    takes_complex: bool = False
    # Whether the result for a complex number is real.
    returns_real: bool = False
    # Whether it takes conditions. Most do, since bool is converted to a float as integers are.
    takes_bool: bool = True
    # Whether the result for an integer is an integer; otherwise integers are converted to floats first.
    keeps_integers: bool = False
    # The kinds of dtypes (b, i, u, f or c, as ``DType.kind``) on which it is the identity, such as floor on integers.
    identity_kinds: str = ""
    # Whether computing it again costs no more than reading a stored result.
    is_cheap: bool = False
    # A formula in other functions, from which the kernels of all devices are made. A run warns when any operation of
    # the formula overflows, divides by zero or is invalid, so an operation must do so only where the function itself is
    # infinite or nan. Both branches of a ``where`` are computed: clamp the argument of each first, as ``_asinh`` does.
    definition: Callable[[Scalar], Scalar] | None = None
    # Whether it has no machine code; NumPy then computes every expression that contains it.
    by_numpy: bool = False
    # The row whose cost, in NumPy and in machine code, predicts the cost of this one until its own is measured.
    priced_as: str = "tanh"

    @property
    def ufunc(self) -> str:
        """The name of the one ufunc that computes it in kernels; "" if it takes several array operations."""
        return self.numpy.__name__ if isinstance(self.numpy, np.ufunc) and self.definition is None else ""

    @property
    def is_measured(self) -> bool:
        """Whether ``doctor --calibrate`` measures the rate of its ufunc, on real floats."""
        return bool(self.ufunc) and "f" not in self.identity_kinds

    def result(self, dtype: DType) -> DType:
        """Return the dtype of the result for an argument of a dtype that the function takes as it is."""
        return dtype.real if self.returns_real else dtype


# --- formulas ---------------------------------------------------------------------------------------------------------


def call(op: str, *arguments: Scalar) -> ScalarCall:
    """Apply an operator that keeps the dtype of its first argument."""
    return ScalarCall(op, arguments, arguments[0].dtype)


def number(value: float, like: Scalar) -> ScalarConst:
    """A constant of the dtype of an expression."""
    return constant(value, like.dtype)


def compared(op: str, a: Scalar, b: Scalar) -> ScalarCall:
    """Compare two values."""
    return ScalarCall(op, (a, b), BOOL)


def conjugate(expr: Scalar) -> Scalar:
    """The complex conjugate; a real expression is returned unchanged."""
    return call("conj", expr) if expr.dtype.kind == "c" else expr


def real_part(expr: Scalar) -> Scalar:
    """The real part of a complex number, in the real type of its size."""
    return ScalarCall("real", (expr,), expr.dtype.real)


def square(x: Scalar) -> Scalar:
    """``x * x``."""
    return times(x, x)


def one_plus(x: Scalar) -> Scalar:
    """``1 + x``."""
    return added(number(1, x), x)


def one_minus(x: Scalar) -> Scalar:
    """``1 - x``."""
    return subtracted(number(1, x), x)


def _reciprocal(x: Scalar) -> Scalar:
    return divided(number(1, x), x)


def _at_most(x: Scalar, limit: float) -> Scalar:
    return call("min", x, number(limit, x))


def _where_above(x: Scalar, limit: float, yes: Scalar, no: Scalar) -> Scalar:
    return selected(compared("gt", x, number(limit, x)), yes, no)


# In double precision, exp(x) - exp(-x) rounds to exp(x) from the first number on, and x * x + 1 to x * x from the
# second number on.
_LARGE_EXPONENT, _LARGE = 30.0, 2.0**28


def _half_exp(a: Scalar) -> Scalar:
    """exp(a) / 2 without an overflow of exp(a) alone."""
    root = call("exp", times(number(0.5, a), a))
    return times(times(number(0.5, a), root), root)


def _log_of_double(x: Scalar) -> Scalar:
    """log(2 x) for x >= 1."""
    return added(call("log", call("max", x, number(1, x))), number(math.log(2), x))


def _sinh(x: Scalar) -> Scalar:
    """sign(x) (e + e / (e + 1)) / 2 with e = expm1(|x|); exp(|x| / 2)^2 / 2 for large x."""
    a = call("abs", x)
    e = call("expm1", _at_most(a, _LARGE_EXPONENT))
    near = times(number(0.5, x), added(e, divided(e, one_plus(e))))
    return times(call("sign", x), _where_above(a, _LARGE_EXPONENT, _half_exp(a), near))


def _cosh(x: Scalar) -> Scalar:
    """(e + 1 / e) / 2 with e = exp(|x|); exp(|x| / 2)^2 / 2 for large x."""
    a = call("abs", x)
    e = call("exp", _at_most(a, _LARGE_EXPONENT))
    near = times(number(0.5, x), added(e, _reciprocal(e)))
    return _where_above(a, _LARGE_EXPONENT, _half_exp(a), near)


def _asinh(x: Scalar) -> Scalar:
    """sign(x) log1p(a + a^2 / (1 + sqrt(1 + a^2))) with a = |x|; log(a) + log(2) for large a."""
    a = call("abs", x)
    near = _at_most(a, _LARGE)
    more = divided(square(near), one_plus(call("sqrt", one_plus(square(near)))))
    return times(call("sign", x), _where_above(a, _LARGE, _log_of_double(a), call("log1p", added(near, more))))


def _acosh(x: Scalar) -> Scalar:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1; log(x) + log(2) for large x."""
    t = subtracted(_at_most(x, _LARGE), number(1, x))
    near = call("log1p", added(t, call("sqrt", times(t, added(t, number(2, x))))))
    return _where_above(x, _LARGE, _log_of_double(x), near)


def _atanh(x: Scalar) -> Scalar:
    """sign(x) log1p(2 a / (1 - a)) / 2 with a = |x|."""
    a = call("abs", x)
    return times(call("sign", x), times(number(0.5, x), call("log1p", divided(added(a, a), one_minus(a)))))


def _log1p_derivative(x: Scalar, _: Scalar) -> Scalar:
    return _reciprocal(one_plus(x))


def _gelu_derivative(x: Scalar, _: Scalar) -> Scalar:
    """Phi(x) + x phi(x), with the normal distribution and its density."""
    below = added(number(0.5, x), times(number(0.5, x), call("erf", times(x, number(math.sqrt(0.5), x)))))
    density = times(number(1 / math.sqrt(2 * math.pi), x), call("exp", times(number(-0.5, x), square(x))))
    return added(below, times(x, density))


def _silu_derivative(x: Scalar, _: Scalar) -> Scalar:
    s = call("sigmoid", x)
    return times(s, added(number(1, x), times(x, one_minus(s))))


def _relu_adjoint(x: Scalar, _: Scalar, g: Scalar) -> Scalar:
    zero = number(0, g)
    return selected(compared("gt", x, zero), g, zero)


def _abs_adjoint(x: Scalar, _: Scalar, g: Scalar) -> Scalar:
    return times(converted(g, x.dtype), call("sign", x))


def _sign_adjoint(x: Scalar, value: Scalar, g: Scalar) -> Scalar:
    """The adjoint of z / |z|: the component of g perpendicular to z, divided by |z|; 0 for real numbers."""
    zero = number(0, x)
    if x.dtype.kind != "c":
        return zero
    size = converted(ScalarCall("abs", (x,), x.dtype.real), x.dtype)
    along = converted(real_part(times(conjugate(value), g)), x.dtype)
    across = divided(subtracted(g, times(value, along)), size)
    return selected(compared("eq", x, zero), zero, across)


def _imag_adjoint(x: Scalar, _: Scalar, g: Scalar) -> Scalar:
    return times(constant(1j if x.dtype.kind == "c" else 0, x.dtype), converted(g, x.dtype))


# --- meaning in NumPy -------------------------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + _erf(x * np.asarray(1 / math.sqrt(2), x.dtype))))


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, np.zeros((), x.dtype)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(np.zeros((), x.dtype), x))


# --- the table --------------------------------------------------------------------------------------------------------

_Row = ElementwiseFunction
_exact = partial(ElementwiseFunction, keeps_integers=True, is_cheap=True, priced_as="abs")
# The functions that take complex numbers and have a derivative here are holomorphic.
ELEMENTWISE: dict[str, ElementwiseFunction] = {
    row.name: row
    for row in (
        _Row("exp", "e to the power of x.", np.exp, lambda x, y: y, takes_complex=True),
        _Row("log", "The natural logarithm.", np.log, lambda x, y: _reciprocal(x), takes_complex=True),
        _Row("log1p", "log(1 + x), exact for small x.", np.log1p, _log1p_derivative, takes_complex=True),
        _Row("expm1", "exp(x) - 1, exact for small x.", np.expm1, lambda x, y: one_plus(y), takes_complex=True),
        _Row("sqrt", "The square root.", np.sqrt, lambda x, y: divided(number(0.5, x), y), takes_complex=True),
        _Row(
            "rsqrt",
            "1 / sqrt(x).",
            lambda x: 1 / np.sqrt(x),
            lambda x, y: times(number(-0.5, x), times(y, square(y))),
            takes_complex=True,
        ),
        _exact(
            "abs",
            "The absolute value; of a complex number its length.",
            np.abs,
            adjoint=_abs_adjoint,
            takes_complex=True,
            returns_real=True,
            identity_kinds="bu",
        ),
        _exact("sign", "-1, 0 or 1.", np.sign, adjoint=_sign_adjoint, takes_complex=True, takes_bool=False),
        _exact("floor", "The next whole number below.", np.floor, identity_kinds="biu"),
        _exact("ceil", "The next whole number above.", np.ceil, identity_kinds="biu"),
        _exact("round", "The nearest whole number, halves to the even one.", np.rint, identity_kinds="biu"),
        _Row("sin", "The sine.", np.sin, lambda x, y: call("cos", x), takes_complex=True, by_numpy=True),
        _Row("cos", "The cosine.", np.cos, lambda x, y: negated(call("sin", x)), takes_complex=True, by_numpy=True),
        _Row("tan", "The tangent.", np.tan, lambda x, y: one_plus(square(y)), takes_complex=True, by_numpy=True),
        _Row("sinh", "The hyperbolic sine.", np.sinh, lambda x, y: call("cosh", x), definition=_sinh),
        _Row("cosh", "The hyperbolic cosine.", np.cosh, lambda x, y: call("sinh", x), definition=_cosh),
        _Row("tanh", "The hyperbolic tangent.", np.tanh, lambda x, y: one_minus(square(y)), takes_complex=True),
        _Row(
            "asinh",
            "The inverse of sinh.",
            np.arcsinh,
            lambda x, y: call("rsqrt", one_plus(square(x))),
            definition=_asinh,
        ),
        _Row(
            "acosh",
            "The inverse of cosh, for x >= 1.",
            np.arccosh,
            lambda x, y: call("rsqrt", times(subtracted(x, number(1, x)), one_plus(x))),
            definition=_acosh,
        ),
        _Row(
            "atanh",
            "The inverse of tanh, for |x| <= 1.",
            np.arctanh,
            lambda x, y: _reciprocal(times(one_minus(x), one_plus(x))),
            definition=_atanh,
        ),
        _Row("sigmoid", "1 / (1 + exp(-x)).", _sigmoid, lambda x, y: times(y, one_minus(y))),
        _exact("relu", "max(x, 0).", _relu, adjoint=_relu_adjoint, takes_bool=False),
        _Row("silu", "x * sigmoid(x).", lambda x: x * _sigmoid(x), _silu_derivative),
        _Row("gelu", "x * (1 + erf(x / sqrt(2))) / 2.", _gelu, _gelu_derivative),
        _Row(
            "erf",
            "The error function.",
            _erf,
            lambda x, y: times(number(2 / math.sqrt(math.pi), x), call("exp", negated(square(x)))),
        ),
        _Row("softplus", "log(1 + exp(x)).", _softplus, lambda x, y: call("sigmoid", x)),
        _exact(
            "conj",
            "The complex conjugate.",
            np.conj,
            adjoint=lambda x, y, g: conjugate(g),
            takes_complex=True,
            identity_kinds="biuf",
        ),
        _exact(
            "real",
            "The real part.",
            np.real,
            adjoint=lambda x, y, g: converted(g, x.dtype),
            takes_complex=True,
            returns_real=True,
            identity_kinds="biuf",
        ),
        _exact(
            "imag",
            "The imaginary part.",
            np.imag,
            adjoint=_imag_adjoint,
            takes_complex=True,
            returns_real=True,
            takes_bool=False,
        ),
    )
}
FUNCTIONS = frozenset(ELEMENTWISE) | {"neg"}
PRICED_AS = {row.ufunc: ELEMENTWISE[row.priced_as].ufunc for row in ELEMENTWISE.values() if row.is_measured}
"""By ufunc that ``doctor --calibrate`` measures, the ufunc that predicts its cost on machines without its own rate."""
