"""Joins as products: splitting into factors and divisors, rebuilding, widening to the accumulator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import DType
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.ir.simplify import converted


@dataclass(frozen=True, slots=True)
class FactoredProduct:
    """``alpha * factors / divisors``, all of one dtype; ``alpha`` is a Python number."""

    alpha: int | float | complex
    factors: tuple[Scalar, ...]
    divisors: tuple[Scalar, ...]
    dtype: DType


def split_product(join: Scalar) -> FactoredProduct:
    """Flatten a tree of ``mul``, ``div`` and ``neg`` into one product; any other expression is a factor."""
    alpha: int | float | complex = 1
    factors: list[Scalar] = []
    divisors: list[Scalar] = []
    stack = [(join, False)]
    while stack:
        expr, below = stack.pop()
        match expr:
            case ScalarCall("mul", (a, b), _):
                stack += [(b, below), (a, below)]
            case ScalarCall("div", (a, b), _):
                stack += [(b, not below), (a, below)]
            case ScalarCall("neg", (a,), _):
                alpha = -alpha
                stack.append((a, below))
            case ScalarConst(value, _) if not below or value != 0:
                alpha = alpha / value if below else alpha * value
            case _:
                (divisors if below else factors).append(expr)
    return FactoredProduct(alpha, tuple(factors), tuple(divisors), join.dtype)


def multiply(factors: Iterable[Scalar], dtype: DType) -> Scalar:
    """The product of the factors from left to right; 1 for none."""
    terms = list(factors)
    return (
        reduce(lambda a, b: ScalarCall("mul", (a, b), dtype), terms)
        if terms
        else ScalarConst(python_number(1, dtype), dtype)
    )


def scaled(expr: Scalar, alpha: int | float | complex) -> Scalar:
    """``expr * alpha``, or ``expr`` itself for 1."""
    return (
        expr
        if alpha == 1
        else ScalarCall("mul", (expr, ScalarConst(python_number(alpha, expr.dtype), expr.dtype)), expr.dtype)
    )


def divided(expr: Scalar, divisors: Iterable[Scalar]) -> Scalar:
    """``expr`` divided by each divisor, one after another."""
    return reduce(lambda a, b: ScalarCall("div", (a, b), a.dtype), divisors, expr)


def python_number(value: bool | int | float | complex, dtype: DType) -> bool | int | float | complex:
    """Convert a number to the Python type of the dtype's kind; integers wrap around as they do in arrays."""
    match dtype.kind:
        case "b":
            return bool(value)
        case "i" | "u":
            half = 0 if dtype.kind == "u" else 1 << (8 * dtype.itemsize - 1)
            return (int(value.real) + half) % (1 << 8 * dtype.itemsize) - half
        case "f":
            return float(value.real)
        case "c":
            return complex(value)


def widen(join: Scalar, aggregation: Aggregation) -> tuple[Scalar, Aggregation]:
    """Apply the lift; convert the factors of a sum's products, not the products, to the wide dtype.

    A contraction of f16 then multiplies and adds in f32, as matrix units do, and no product overflows. An aggregation's
    lift is applied to its join in the accumulator's dtype too.
    """
    wide, lift = aggregation.state[0], aggregation.row.lift
    if lift is not None:
        floats = wide.is_inexact and join.dtype.is_inexact
        made = _convert_factors(join, wide) if floats and wide != join.dtype else converted(join, wide)
        return lift(made), aggregation.without_lift()
    if not aggregation.is_linear or wide == join.dtype or not (wide.is_inexact and join.dtype.is_inexact):
        return join, aggregation
    if not (isinstance(join, ScalarCall) and join.op in ("mul", "div", "neg")):
        return join, aggregation
    return _convert_factors(join, wide), replace(aggregation, value=wide)


def _convert_factors(expr: Scalar, wide: DType) -> Scalar:
    if isinstance(expr, ScalarCall) and expr.op in ("mul", "div", "neg"):
        return ScalarCall(expr.op, tuple(_convert_factors(a, wide) for a in expr.arguments), wide)
    return ScalarCast(expr, wide)
