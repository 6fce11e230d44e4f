"""The aggregations over a list of values; the slack covers the effects of the order of terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, assert_never

import numpy as np

from einturnip.ir.aggregations import MONOIDS, Combine, aggregation
from einturnip.ir.dtypes import C128, DTYPES, F64
from einturnip.ir.evaluate import evaluate_scalar
from einturnip.ir.scalar import OperandRef, Scalar, ScalarConst
from einturnip.testing.arithmetic import BOUND, PRECISION, BoundedValue, finite, rounded, to_dtype, unit, unknown
from einturnip.testing.promotion import kind, numpy_dtype

ADDING = frozenset(op for op, row in MONOIDS.items() if row.combine == "add")
"""The aggregations whose state is a sum."""


def is_rounded(op: str) -> bool:
    """True where the result is rounded even for small integers."""
    return MONOIDS[op].result == "inexact"


def aggregate_values(op: str, values: Sequence[BoundedValue], source: str, result: str) -> BoundedValue:
    """``op`` over values of dtype ``source`` in flat order, as dtype ``result``."""
    row = MONOIDS[op]
    if row.lift is not None:
        wide = _accumulator(op, source, result)
        values = [_computed(row.lift, x, wide) for x in values]
    if aggregation(op, DTYPES[source]).is_mean:
        return _mean(values, result)
    folded, finalize = _folded(row.combine, values, result), row.finalize
    if finalize is None or row.combine in ("log_add", "first_max", "first_min"):  # folded to the result at once
        return folded
    n = ScalarConst(len(values), DTYPES[result].accumulator)
    return _computed(lambda x: finalize((x,), n), folded, result)


def _accumulator(op: str, source: str, result: str) -> str:
    """The dtype of the state, in which values are lifted; the program may have requested ``result``."""
    operator = aggregation(op, DTYPES[source])
    if operator.result.name != result:
        operator = aggregation(op, DTYPES[source], DTYPES[result])
    return operator.state[0].name


def _folded(combine: Combine, values: Sequence[BoundedValue], result: str) -> BoundedValue:
    match combine:
        case "add":
            return _sum(values, result)
        case "mul":
            return _product(values, result)
        case "log_add":
            return _logsumexp(values, result)
        case "max" | "min":
            return _extreme(values, result, largest=combine == "max")
        case "first_max" | "first_min":
            return _position(values, largest=combine == "first_max")
        case "or" | "and":
            return _condition(values, decisive=combine == "or")
        case "pick":
            raise KeyError(combine)
        case _:
            assert_never(combine)


def _computed(function: Callable[[Scalar], Scalar], x: BoundedValue, dtype: str) -> BoundedValue:
    """An expression of one value of a dtype, computed in double precision; integers are exact."""
    wide = DTYPES[dtype] if kind(dtype) in "iu" else C128 if kind(dtype) == "c" else F64
    expression = function(OperandRef(0, wide))

    def at(v: Any) -> Any:
        with np.errstate(all="ignore"):
            return evaluate_scalar(expression, [np.asarray(v, wide.numpy)], (), ()).item()

    y = at(x.v)
    if kind(dtype) in "iu" or (
        x.slack == 0 and finite(y) and y == int(complex(y).real) and abs(y) <= 2 ** PRECISION[dtype]
    ):
        return BoundedValue(y, x.slack)
    if math.isinf(x.slack) or not finite(x.v):
        return unknown(to_dtype(y, dtype))
    spread = max(abs(at(x.v + side) - y) for side in (x.slack, -x.slack)) if x.slack else 0.0
    return rounded(y, 2 * spread, dtype, BOUND[dtype])


def _is_uncertain(values: Sequence[BoundedValue]) -> bool:
    return any(math.isinf(x.slack) for x in values)


def _sum(values: Sequence[BoundedValue], dtype: str) -> BoundedValue:
    if _is_uncertain(values):
        return unknown(to_dtype(0, dtype))
    if kind(dtype) in "iu":
        return BoundedValue(to_dtype(sum(int(x.v) for x in values), dtype))
    if kind(dtype) == "c":
        return _complex_sum(values, dtype)
    if not all(finite(x.v) for x in values):
        total = float(sum(x.v for x in values))
        made = total != total and not any(x.v != x.v for x in values)
        return unknown(total) if made else BoundedValue(total)
    total, size, slack = _fold_reals([x.v for x in values]) + (sum(x.slack for x in values),)
    if slack == 0 and _is_order_independent([x.v for x in values], dtype) and to_dtype(total, dtype) == total:
        return BoundedValue(total)
    return rounded(total, slack + unit(dtype) * size + _error_growth(values, dtype) * size, dtype, unit(dtype))


def _fold_reals(xs: Sequence[float]) -> tuple[float, float]:
    return math.fsum(xs), math.fsum(abs(x) for x in xs)


def _error_growth(values: Sequence[BoundedValue], dtype: str) -> float:
    """Growth of the rounding error with the number of terms, relative to the sum of magnitudes."""
    return len(values) * 2.0 ** -PRECISION[dtype]


def _is_order_independent(xs: Sequence[float], dtype: str) -> bool:
    """True if every partial sum, in any order, is a multiple of 1/256 that the dtype represents."""
    scaled = [x * 256 for x in xs]
    if not all(float(s).is_integer() for s in scaled):
        return False
    grain = 1 if all(float(x).is_integer() for x in xs) else 256
    return bool(sum(abs(x) for x in xs) * grain <= 2 ** PRECISION[dtype])


def _complex_sum(values: Sequence[BoundedValue], dtype: str) -> BoundedValue:
    if not all(finite(x.v) for x in values):
        return unknown(to_dtype(math.nan, dtype))
    total = complex(math.fsum(x.v.real for x in values), math.fsum(x.v.imag for x in values))
    size, slack = sum(abs(x.v) for x in values), sum(x.slack for x in values)
    parts = [p for x in values for p in (complex(x.v).real, complex(x.v).imag)]
    if slack == 0 and _is_order_independent(parts, dtype):
        return BoundedValue(total)
    return rounded(total, slack + (unit(dtype) + _error_growth(values, dtype)) * size, dtype, unit(dtype))


def _product(values: Sequence[BoundedValue], dtype: str) -> BoundedValue:
    if _is_uncertain(values):
        return unknown(to_dtype(1, dtype))
    if kind(dtype) in "iu":
        return BoundedValue(to_dtype(math.prod(int(x.v) for x in values), dtype))
    if not all(finite(x.v) for x in values):
        return (
            BoundedValue(values[0].v) if len(values) == 1 and kind(dtype) == "f" else unknown(to_dtype(math.nan, dtype))
        )
    total = math.prod(x.v for x in values)
    size = math.prod(abs(x.v) for x in values)
    grown = math.prod(abs(x.v) + x.slack for x in values)
    largest = math.prod(max(abs(x.v), 1.0) for x in values)
    whole = kind(dtype) == "f" and all(float(x.v).is_integer() for x in values)
    if whole and grown == size and largest <= 2 ** PRECISION[dtype]:
        return BoundedValue(total)
    if not finite(total) or largest > 2.0**100 or (dtype == "f16" and largest > 2**15):
        return unknown(to_dtype(total, dtype))
    return rounded(total, grown - size + unit(dtype) * (1 + len(values)) * grown, dtype, unit(dtype))


def _mean(values: Sequence[BoundedValue], dtype: str) -> BoundedValue:
    if not values:
        return BoundedValue(math.nan) if kind(dtype) == "f" else unknown(to_dtype(math.nan, dtype))
    accumulator = {"f16": "f32", "bf16": "f32"}.get(dtype, dtype)
    total = _sum([BoundedValue(to_dtype(x.v, accumulator), x.slack) for x in values], accumulator)
    if math.isinf(total.slack) or not finite(total.v):
        return BoundedValue(to_dtype(total.v, dtype), total.slack)
    size = sum(abs(x.v) for x in values)  # terms may be divided before they are added
    slack = total.slack + (unit(accumulator) + _error_growth(values, accumulator)) * size
    return rounded(total.v / len(values), slack / len(values), dtype, BOUND[dtype])


def _logsumexp(values: Sequence[BoundedValue], dtype: str) -> BoundedValue:
    if _is_uncertain(values):
        return unknown(math.nan)
    if not values:
        return BoundedValue(-math.inf)
    top = max((float(x.v) for x in values), key=lambda v: (v != v, v))
    if not finite(top):
        return BoundedValue(top)
    x = top + math.log(math.fsum(math.exp(float(x.v) - top) for x in values))
    return rounded(x, max(x.slack for x in values) + BOUND[dtype] * (1 + abs(top)), dtype, BOUND[dtype])


def _empty_extreme(dtype: str, largest: bool) -> Any:
    """The result of an empty max (min): the dtype's smallest (largest) number."""
    match kind(dtype):
        case "b":
            return not largest
        case "i" | "u":
            limits = np.iinfo(numpy_dtype(dtype))
            return int(limits.min if largest else limits.max)
        case "f":
            return -math.inf if largest else math.inf
        case _:
            raise TypeError(f"max of {dtype}")


def _extreme(values: Sequence[BoundedValue], dtype: str, largest: bool) -> BoundedValue:
    if _is_uncertain(values):
        return unknown(_empty_extreme(dtype, largest))
    if any(x.v != x.v for x in values):
        return BoundedValue(math.nan)
    if not values:
        return BoundedValue(_empty_extreme(dtype, largest))
    best = (max if largest else min)(x.v for x in values)
    return BoundedValue(best, max(x.slack for x in values) if finite(best) else 0.0)


def _position(values: Sequence[BoundedValue], largest: bool) -> BoundedValue:
    """The first position of the extreme value, NaN before all; -1 if there is none."""
    if not values:
        return BoundedValue(-1)
    if _is_uncertain(values):
        return unknown(0)
    for position, x in enumerate(values):
        if x.v != x.v:
            return BoundedValue(position)
    best = (max if largest else min)(range(len(values)), key=lambda p: (values[p].v, -p if largest else p))
    rivals = [x for p, x in enumerate(values) if p != best and (x.slack or values[best].slack)]
    close = any(
        not finite(x.v) or abs(Fraction(x.v) - Fraction(values[best].v)) <= x.slack + values[best].slack for x in rivals
    )
    return unknown(best) if close else BoundedValue(best)


def _condition(values: Sequence[BoundedValue], decisive: bool) -> BoundedValue:
    """``any`` (``decisive`` true) or ``all``: one certain decisive value determines it."""
    if any(x.v == decisive and x.slack == 0 for x in values):
        return BoundedValue(decisive)
    return unknown(not decisive) if _is_uncertain(values) else BoundedValue(not decisive)
