"""One operation on single numbers, in plain Python, with a running bound on the rounding error.

A ``BoundedValue`` is a Python number that its dtype can represent, and ``slack``: the maximum distance of a correct
result, which may be accumulated in another order and rounded differently. Slack 0 requires these bits; infinite slack
means that the language does not define the result (a comparison within the rounding error, an overflow at the limit, a
division by a float zero of unknown sign).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from einturnip.testing.promotion import kind, numpy_dtype

Plain = bool | int | float | complex

PRECISION = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53, "c64": 24, "c128": 53}
"""Bits of the significand."""

BOUND = {"f16": 2**-8, "bf16": 2**-5, "f32": 2**-18, "f64": 2**-44, "c64": 2**-18, "c128": 2**-44}
"""Error bound of one function (exp, /, logsumexp, ...), relative to the magnitude of its operands."""

_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}
_TINIEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 5e-324}


class BoundedValue(NamedTuple):
    """A number, and the maximum distance of a correct result from it."""

    v: Any
    slack: float = 0.0


def unknown(v: Plain) -> BoundedValue:
    """A value that the language does not define, except its dtype."""
    return BoundedValue(v, math.inf)


def to_dtype(x: Plain, dtype: str) -> Any:
    """Convert a Python number to a dtype's value: integers wrap, floats round to nearest."""
    match kind(dtype):
        case "b":
            return bool(x)
        case "i":
            bits = int(dtype[1:])
            return (int(x.real) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        case "u":
            return int(x.real) % (1 << int(dtype[1:]))
        case "f":
            return float(x.real) if dtype == "f64" else _round(float(x.real), dtype)
        case _:
            z = complex(x)
            return z if dtype == "c128" else complex(_round(z.real, "f32"), _round(z.imag, "f32"))


def _round(x: float, dtype: str) -> float:
    with np.errstate(all="ignore"):
        return float(numpy_dtype(dtype).type(x))


def finite(x: Plain) -> bool:
    """True if x is neither infinite nor NaN."""
    return cmath.isfinite(x) if isinstance(x, complex) else isinstance(x, int) or math.isfinite(x)


def unit(dtype: str) -> float:
    """The maximum relative difference of two correct roundings of one value."""
    return 4 * 2.0 ** -PRECISION[dtype]


def rounded(x: Plain, slack: float, dtype: str, relative: float) -> BoundedValue:
    """Round an inexact result to ``dtype``; its own error ``relative * |x|`` is added to the slack."""
    v = to_dtype(x, dtype)
    if math.isinf(slack) or math.isnan(slack):
        return unknown(v)
    if not finite(x):
        return BoundedValue(v) if kind(dtype) == "f" else unknown(v)
    part = "f32" if dtype == "c64" else "f64" if dtype == "c128" else dtype
    slack += relative * abs(x) + 4 * _TINIEST[part]
    if abs(x) + slack >= _LARGEST[part]:
        return unknown(v)
    return BoundedValue(v, slack)


def _exactly(a: Any, b: Any, op: Callable[[Any, Any], Any], result: Any) -> bool:
    """True if a float result of + - * is exact."""
    if isinstance(a, complex) or isinstance(b, complex):
        parts = [p for z in (complex(a), complex(b), complex(result)) for p in (z.real, z.imag)]
        return all(float(p).is_integer() and abs(p) < 2**11 for p in parts[:4]) and all(
            float(p).is_integer() for p in parts[4:]
        )
    return bool(op(Fraction(a), Fraction(b)) == Fraction(result))


def add(a: BoundedValue, b: BoundedValue, dtype: str, sign: int = 1) -> BoundedValue:
    """a + b, or a - b with ``sign=-1``."""
    if kind(dtype) == "b":
        return BoundedValue(a.v or b.v, a.slack + b.slack)
    return _ring(a, b, dtype, (lambda x, y: x + y) if sign > 0 else (lambda x, y: x - y), a.slack + b.slack)


def multiply(a: BoundedValue, b: BoundedValue, dtype: str) -> BoundedValue:
    """a * b."""
    if kind(dtype) == "b":
        return BoundedValue(a.v and b.v, a.slack + b.slack)
    if math.isinf(a.slack) or math.isinf(b.slack):
        return unknown(to_dtype(0, dtype))
    if finite(a.v) and finite(b.v):
        slack = abs(a.v) * b.slack + abs(b.v) * a.slack + a.slack * b.slack
    else:
        crosses = abs(a.v) <= a.slack > 0 or abs(b.v) <= b.slack > 0
        slack = math.inf if crosses else 0.0
    return _ring(a, b, dtype, lambda x, y: x * y, slack)


def _ring(a: BoundedValue, b: BoundedValue, dtype: str, op: Callable[[Any, Any], Any], slack: float) -> BoundedValue:
    if kind(dtype) in "iu":
        return BoundedValue(to_dtype(op(a.v, b.v), dtype), slack)
    x = op(a.v, b.v)
    if math.isinf(a.slack) or math.isinf(b.slack):
        return unknown(to_dtype(x, dtype))
    if not (finite(a.v) and finite(b.v)):
        return (
            BoundedValue(to_dtype(x, dtype))
            if kind(dtype) == "f" and not math.isinf(slack)
            else unknown(to_dtype(x, dtype))
        )
    result = to_dtype(x, dtype)
    if not finite(result):
        return unknown(result)
    return (
        BoundedValue(result) if slack == 0 and _exactly(a.v, b.v, op, result) else rounded(x, slack, dtype, unit(dtype))
    )


def divide(a: BoundedValue, b: BoundedValue, dtype: str, integers: bool) -> BoundedValue:
    """a / b; ``integers``: both were integers, so a zero has no sign."""
    slack = a.slack + b.slack
    if isinstance(a.v, complex) or isinstance(b.v, complex):
        if b.v == 0 or math.isinf(slack) or abs(b.v) <= 2 * b.slack or not (finite(a.v) and finite(b.v)):
            return unknown(complex(math.nan, math.nan))
        q = a.v / b.v
        return rounded(q, (a.slack + abs(q) * b.slack) / (abs(b.v) - b.slack), dtype, BOUND[dtype])
    if math.isinf(slack) or (b.v == 0 and not integers and a.v == a.v) or abs(b.v) <= b.slack > 0:
        return unknown(math.nan)
    if b.v == 0:
        return BoundedValue(math.nan if a.v == 0 or a.v != a.v else math.copysign(math.inf, a.v))
    q = a.v / b.v
    if not finite(q) or not finite(b.v):
        return BoundedValue(q) if not (finite(a.v) and finite(b.v)) else unknown(q)
    if (
        slack == 0
        and math.frexp(b.v)[0] in (0.5, -0.5)
        and Fraction(to_dtype(q, dtype)) == Fraction(a.v) / Fraction(b.v)
    ):
        return BoundedValue(to_dtype(q, dtype))
    return rounded(q, (a.slack + abs(q) * b.slack) / (abs(b.v) - b.slack), dtype, BOUND[dtype])


def floor_divide(a: BoundedValue, b: BoundedValue, dtype: str, remainder: bool) -> BoundedValue:
    """a // b or a % b, rounding down as Python and NumPy do; an integer divided by 0 gives 0."""
    slack = a.slack + b.slack
    if kind(dtype) in "iu":
        v = 0 if b.v == 0 else a.v % b.v if remainder else a.v // b.v
        return BoundedValue(to_dtype(v, dtype), slack)
    if slack or b.v == 0 or not finite(a.v) or not finite(b.v):
        return unknown(math.nan)
    quotient = math.floor(Fraction(a.v) / Fraction(b.v))
    x = Fraction(a.v) - Fraction(b.v) * quotient if remainder else Fraction(quotient)
    v = to_dtype(float(x), dtype)
    return BoundedValue(v) if finite(v) and Fraction(v) == x else rounded(float(x), 0.0, dtype, unit(dtype))


def power(a: BoundedValue, b: BoundedValue, dtype: str) -> BoundedValue:
    """a ^ b."""
    if kind(dtype) in "iu":
        return BoundedValue(to_dtype(pow(a.v, b.v), dtype), a.slack + b.slack) if b.v >= 0 else unknown(0)
    if math.isinf(a.slack + b.slack) or not finite(a.v) or not finite(b.v):
        return unknown(to_dtype(math.nan, dtype))
    if a.v == 0 and (b.v.real <= 0 or b.slack):
        return BoundedValue(to_dtype(1.0, dtype)) if b.v == 0 and b.slack == 0 else unknown(to_dtype(math.nan, dtype))
    try:
        x = pow(a.v, b.v)
    except OverflowError:
        return unknown(to_dtype(math.inf, dtype))
    if isinstance(x, complex) and kind(dtype) == "f":
        return BoundedValue(math.nan) if a.slack + b.slack == 0 else unknown(math.nan)
    v = to_dtype(x, dtype)
    whole = kind(dtype) == "f" and a.slack + b.slack == 0 and float(b.v).is_integer() and 0 <= b.v < 8
    if whole and finite(v) and Fraction(a.v) ** int(b.v) == Fraction(v):
        return BoundedValue(v)
    grown = (abs(a.v) + a.slack) ** abs(b.v) - abs(a.v) ** abs(b.v) if a.slack else 0.0
    if b.slack or (a.slack and (abs(a.v) <= a.slack or b.v.real < 0)):
        return unknown(v)
    return rounded(x, 2 * grown, dtype, BOUND[dtype])


def extreme(a: BoundedValue, b: BoundedValue, largest: bool) -> BoundedValue:
    """max(a, b) or min(a, b); NaN takes precedence."""
    if a.v != a.v or b.v != b.v:
        return BoundedValue(math.nan, math.inf if math.isinf(a.slack + b.slack) else 0.0)
    return BoundedValue((max if largest else min)(a.v, b.v), max(a.slack, b.slack))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


def compare(op: str, a: BoundedValue, b: BoundedValue) -> BoundedValue:
    """One comparison; unknown if rounding could change it."""
    slack = a.slack + b.slack
    holds = bool(_COMPARISONS[op](a.v, b.v))
    unsure = slack > 0 and (math.isinf(slack) or not finite(a.v) or not finite(b.v) or abs(a.v - b.v) <= slack)
    return unknown(holds) if unsure else BoundedValue(holds)


def convert(x: BoundedValue, source: str, target: str) -> BoundedValue:
    """``astype``; a float that the target integer cannot represent is unknown."""
    if source == target:
        return x
    if kind(target) == "b":
        unsure = x.slack > 0 and abs(x.v) <= x.slack
        return unknown(bool(x.v)) if unsure or math.isinf(x.slack) else BoundedValue(bool(x.v))
    if kind(target) in "iu" and kind(source) == "f":
        if not finite(x.v) or math.isinf(x.slack):
            return unknown(0)
        whole = math.trunc(x.v)
        certain = math.trunc(x.v - x.slack) == math.trunc(x.v + x.slack) and to_dtype(whole, target) == whole
        return BoundedValue(whole) if certain else unknown(to_dtype(whole, target))
    v = to_dtype(x.v, target)
    if kind(target) in "iu" or x.slack == 0 or math.isinf(x.slack):
        return BoundedValue(v, math.inf if finite(x.v) and not finite(v) else x.slack)
    return rounded(x.v, x.slack, target, unit(target))
