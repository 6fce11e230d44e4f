"""The elementwise functions of the language on single numbers: in double precision, rounded once."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from einturnip.ir.functions import ELEMENTWISE
from einturnip.testing.arithmetic import BOUND, BoundedValue, finite, rounded, to_dtype, unknown
from einturnip.testing.promotion import kind


def _sigmoid(x: float) -> float:
    return 0.0 if x < -700 else 1 / (1 + math.exp(-x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _numpy(function: Callable[[Any], Any]) -> Callable[[float], float]:
    return lambda x: float(function(np.float64(x)))


SMOOTH: dict[str, Callable[[float], float]] = {
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else math.inf if x == 0 else math.nan,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "erf": math.erf,
    "softplus": _softplus,
}
SMOOTH |= {
    name: _numpy(row.numpy) for name, row in ELEMENTWISE.items() if name not in SMOOTH and not row.keeps_integers
}
"""Functions whose result is rounded; those that are not written out are computed by their rows, in f64."""

STEPS: dict[str, Callable[[Any], Any]] = {
    "sign": lambda x: x if x != x else (x > 0) - (x < 0),
    "floor": lambda x: math.floor(x) if finite(x) else x,
    "ceil": lambda x: math.ceil(x) if finite(x) else x,
    "round": lambda x: round(x) if finite(x) else x,
}
"""Functions with jumps: unknown if rounding could cross one."""

FOLDS: dict[str, Callable[[Any], Any]] = {
    "-": lambda x: -x,
    "abs": abs,
    "relu": lambda x: x if x != x else max(x, 0),
    "conj": lambda x: x.conjugate(),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
}
"""Functions that do not increase distances; exact, except the modulus of a complex number."""

_COMPLEX: dict[str, Callable[[complex], complex]] = {
    "exp": cmath.exp,
    "sqrt": cmath.sqrt,
    "sin": cmath.sin,
    "cos": cmath.cos,
}

_CANCELLING = frozenset({"gelu", "silu", "tan"})
"""Functions with an error relative to the argument, because one factor cancels."""


def apply_function(name: str, x: BoundedValue, dtype: str) -> BoundedValue:
    """A function of one argument, which has been converted to ``dtype``'s precision."""
    with np.errstate(all="ignore"):
        if name in FOLDS:
            return _fold(name, x, dtype)
        if name in STEPS:
            return _step(STEPS[name], x, dtype)
        return _smooth(name, x, dtype) if kind(dtype) == "f" else _smooth_complex(name, x, dtype)


def _fold(name: str, x: BoundedValue, dtype: str) -> BoundedValue:
    v = FOLDS[name](x.v)
    if name == "abs" and isinstance(x.v, complex):
        exact = x.slack == 0 and 0 in (x.v.real, x.v.imag)
        return BoundedValue(v) if exact else rounded(v, x.slack, dtype, BOUND[dtype])
    return BoundedValue(to_dtype(v, dtype), x.slack)


def _step(function: Callable[[Any], Any], x: BoundedValue, dtype: str) -> BoundedValue:
    v = to_dtype(function(x.v), dtype)
    if x.slack == 0:
        return BoundedValue(v)
    if math.isinf(x.slack) or not finite(x.v) or function(x.v - x.slack) != function(x.v + x.slack):
        return unknown(v)
    return BoundedValue(v)


def _smooth(name: str, x: BoundedValue, dtype: str) -> BoundedValue:
    function = SMOOTH[name]
    if math.isinf(x.slack) or (math.isinf(x.v) and name in _CANCELLING) or (name == "rsqrt" and x.v == 0):
        return unknown(math.nan)
    y = function(x.v)
    if not finite(x.v) or (not finite(y) and x.slack == 0):
        edge = math.isinf(y) and finite(x.v) and x.v != (-1 if name == "log1p" else 0)
        return unknown(y) if edge else BoundedValue(to_dtype(y, dtype))
    spread = max(abs(function(x.v + side) - y) for side in (x.slack, -x.slack)) if x.slack else 0.0
    if x.slack > 0.25 and name in ("sin", "cos", "tan"):
        return unknown(y)
    floor = abs(x.v) if name in _CANCELLING else 0.0
    return rounded(y, 2 * spread + floor * BOUND[dtype], dtype, BOUND[dtype])


def _smooth_complex(name: str, x: BoundedValue, dtype: str) -> BoundedValue:
    if x.slack or not finite(x.v):
        return unknown(to_dtype(math.nan, dtype))
    try:
        return rounded(_COMPLEX[name](x.v), BOUND[dtype], dtype, BOUND[dtype])
    except (OverflowError, ValueError):
        return unknown(to_dtype(math.nan, dtype))


COMPLEX_FUNCTIONS = frozenset(_COMPLEX)
