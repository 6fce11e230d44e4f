"""Aggregation operators: commutative monoids with a state, each a row of one table.

An aggregation folds the join's values over a range. Its state has one or more components, each an array over the
output's labels; ``identity`` is the state of an empty range, ``combine`` is associative and commutative, ``finalize``
turns a state into the result. Sums of tiles combine in any order, which is what lets a schedule be free.

All other modules read the table: typing, the reference, rewriting, derivatives, kernels for every device, editors. They
choose what is special, as the matrix product for a plain sum, by the fields of a row, never by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from einturnip.ir.dtypes import BOOL, F64, I64, U64, DType
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst

Combine = Literal["add", "mul", "max", "min", "or", "and", "first_max", "first_min", "log_add", "pick"]
"""How two states combine. A scalar operator folds one component; the others have their own states:

- ``first_max``, ``first_min``: (best value, flat index over the aggregated labels); ties go to the lowest index.
- ``log_add``: (m, sum of exp(x - m)), where m is the maximum so far.
- ``pick``: at most one value counts; a bitwise or of the bytes, whose identity is all zeros.
"""

Lift = Callable[[Scalar], Scalar]
Finalize = Callable[[tuple[Scalar, ...], Scalar], Scalar]
Slope = Callable[[Scalar, Scalar, Scalar], Scalar]


@dataclass(frozen=True, slots=True)
class Monoid:
    """One aggregation of the language: the row from which everything about it is derived.

    ``about``: documentation in Markdown, for pages and completion.

    ``result``: the result's dtype for values of a dtype: ``value`` the same, ``wide`` that of a sum (64 bits for
    integers), ``inexact`` that of a mean (f64 for integers), ``index`` i64.

    ``slope``: the derivative of the result by one lifted value x (the chain rule adds that of ``lift``), as a function
    of x, the result y and the number of values n; or the name of a rule of ``eingraph.autodiff.weights``; None where it
    is 0 everywhere.

    ``values``: the values it takes: ``real`` all but complex numbers, ``bool`` conditions only.

    ``lift``: what is folded of each value, in the accumulator's dtype; the values themselves if None. Equations apply
    it to their join (``Aggregation.of_lifted``): rewriting, derivatives and kernels know the folded values only.

    ``finalize``: the result of a state's components and the number n of values; the first component if None.

    ``shifts``: adding c to each lifted value adds c to the result.

    ``conditions``: the row that is used instead of this one where the values are conditions.
    """

    name: str
    about: str
    combine: Combine
    result: Literal["value", "wide", "inexact", "index"]
    slope: Slope | Literal["quotient", "shares", "others"] | None
    values: Literal["any", "real", "bool"] = "any"
    lift: Lift | None = None
    finalize: Finalize | None = None
    shifts: bool = False
    conditions: str = ""

    @property
    def accumulates(self) -> bool:
        """True if a program can request the dtype of the state."""
        return self.values != "bool" and self.result != "index" and self.combine != "pick"

    @property
    def counts(self) -> bool:
        """True if ``finalize`` reads n.

        Where n depends on data, as in sums by key, it is a component of the state.
        """
        return self.finalize is not None and _finalize_reads_number(self.finalize)

    @property
    def slope_counts(self) -> bool:
        """True if ``slope`` is a function that reads n."""
        return callable(self.slope) and _slope_reads_number(self.slope)


@cache
def _finalize_reads_number(finalize: Finalize) -> bool:
    state = OperandRef(0, F64), OperandRef(1, F64)
    few, many = (finalize(state, ScalarConst(n, F64)) for n in (2.0, 3.0))
    return few != many


@cache
def _slope_reads_number(slope: Slope) -> bool:
    few, many = (slope(OperandRef(0, F64), OperandRef(1, F64), ScalarConst(n, F64)) for n in (2.0, 3.0))
    return few != many


def _one(x: Scalar, y: Scalar, n: Scalar) -> Scalar:
    return ScalarConst(1.0 + 0j if x.dtype.kind == "c" else 1.0, x.dtype)


def _softmax(x: Scalar, y: Scalar, n: Scalar) -> Scalar:
    return ScalarCall("exp", (ScalarCall("sub", (x, y), x.dtype),), x.dtype)


def _quotient(state: tuple[Scalar, ...], n: Scalar) -> Scalar:
    return ScalarCall("div", (state[0], n), n.dtype)


def _log_of_sum(state: tuple[Scalar, ...], n: Scalar) -> Scalar:
    top, total = state
    empty = ScalarCall("eq", (total, ScalarConst(0.0, top.dtype)), BOOL)
    positive = ScalarCall("where", (empty, ScalarConst(1.0, top.dtype), total), top.dtype)
    return ScalarCall("add", (top, ScalarCall("log", (positive,), top.dtype)), top.dtype)


def _index(state: tuple[Scalar, ...], n: Scalar) -> Scalar:
    return state[1]


_FIRST = "; over several labels the flat index; -1 for none."
# fmt: off
_ROWS = (
    Monoid("sum", "`sum[i] X[i]`: the sum over i; 0 over an empty range. It takes the whole product after it.",
           "add", "wide", _one),
    Monoid("prod", "`prod[i] X[i]`: the product over i; 1 over an empty range.", "mul", "wide", "others"),
    Monoid("max", "`max[i] X[i]`: the maximum over i; -inf over an empty range. `max(a, b)`: the larger.",
           "max", "value", "shares", "real", shifts=True, conditions="any"),
    Monoid("min", "`min[i] X[i]`: the minimum over i; inf over an empty range. `min(a, b)`: the smaller.",
           "min", "value", "shares", "real", shifts=True, conditions="all"),
    Monoid("any", "`any[i] c[i]`: whether it holds for some i.", "or", "value", None, "bool"),
    Monoid("all", "`all[i] c[i]`: whether it holds for every i.", "and", "value", None, "bool"),
    Monoid("mean", "`mean[i] X[i]`: the mean over i; nan over an empty range.",
           "add", "inexact", "quotient", finalize=_quotient, shifts=True),
    Monoid("logsumexp", "`logsumexp[i] X[i]`: log(sum[i] exp(X[i])), without overflow.",
           "log_add", "inexact", _softmax, "real", finalize=_log_of_sum, shifts=True),
    Monoid("argmax", "`argmax[i] X[i]`: the first i with the maximal X" + _FIRST,
           "first_max", "index", None, "real", finalize=_index),
    Monoid("argmin", "`argmin[i] X[i]`: the first i with the minimal X" + _FIRST,
           "first_min", "index", None, "real", finalize=_index),
)
# fmt: on
# ``pick`` is internal: a key excludes all values but at most one, which is the result.
MONOIDS = {row.name: row for row in (*_ROWS, Monoid("pick", "", "pick", "value", _one))}
AGGREGATIONS = tuple(row.name for row in _ROWS)
_COMPARING = frozenset({"max", "min", "first_max", "first_min"})
_SCALED = frozenset({"log_add"})  # a maximum, and a sum that depends on it


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation operator applied to join values of dtype ``value``.

    ``state``: dtypes of the state's components. ``result``: dtype of the finished result.
    """

    op: str
    value: DType
    state: tuple[DType, ...]
    result: DType

    @property
    def row(self) -> Monoid:
        """Its row of the table."""
        return MONOIDS[self.op]

    @property
    def combine(self) -> Combine:
        """How two states combine."""
        return MONOIDS[self.op].combine

    def of_lifted(self) -> Aggregation:
        """The operator over values that are lifted already: a sum of squares is the sum of them.

        Its row is one without a lift if the table has one that folds alike, so that both are the same computation.
        """
        row = self.row
        alike = (plain.name for plain in MONOIDS.values() if plain.lift is None and _fold(plain) == _fold(row))
        return replace(self, op=next(alike, self.op), value=self.state[0])

    @property
    def identity(self) -> tuple[bool | int | float, ...]:
        """The state of an empty range, one Python number a component."""
        match self.combine:
            case "mul" | "and":
                first: bool | int | float = 1
            case "max" | "first_max":
                first = _extreme(self.state[0], lowest=True)
            case "min" | "first_min":
                first = _extreme(self.state[0], lowest=False)
            case "log_add":
                first = -math.inf
            case _:
                first = 0
        return (first, *((-1 if self.indexed else 0,) * (len(self.state) - 1)))

    @property
    def finalize_is_identity(self) -> bool:
        """True where the single component of the state is the result."""
        return self.row.finalize is None and self.state == (self.result,)

    def finished(self, extents: Iterable[int]) -> Scalar:
        """The result before its cast, as an expression whose operands are the components of the state.

        ``extents``: of the aggregated labels; their product is the number of values where the state does not count.
        """
        state, first = tuple(OperandRef(k, dtype) for k, dtype in enumerate(self.state)), self.state[0]
        finalize = self.row.finalize
        if finalize is None:
            return state[0]
        if self.row.counts and len(state) == 2:
            return finalize(state, ScalarCast(state[1], first))
        count = math.prod(extents)
        return finalize(state, ScalarConst(complex(count) if first.kind == "c" else float(count), first))

    @property
    def is_sum(self) -> bool:
        """True where the state is the sum of the folded values, and the result is the state."""
        row = self.row
        return row.combine == "add" and row.finalize is None

    @property
    def is_mean(self) -> bool:
        """True where the result is the sum of the folded values divided by their number."""
        return self.row.finalize is _quotient

    @property
    def is_linear(self) -> bool:
        """True where agg(c * x) = c * agg(x) for the folded values x, and agg is additive."""
        return self.is_sum or self.is_mean

    @property
    def bounds(self) -> int:
        """1 where the result is at least each folded value, as a maximum is; -1 at most; else 0."""
        row = self.row
        return {"max": 1, "min": -1}.get(row.combine, 0) if row.finalize is None else 0

    @property
    def idempotent(self) -> bool:
        """True where folding a value twice changes nothing."""
        return self.combine in _COMPARING or self.combine in ("or", "and")

    @property
    def indexed(self) -> bool:
        """True where the state includes the index of its value."""
        return self.combine in ("first_max", "first_min")

    @property
    def rounds(self) -> bool:
        """True where each value added rounds, so that long folds need partial results."""
        return (self.combine == "add" or self.scaled) and self.state[0].is_inexact

    @property
    def scaled(self) -> bool:
        """True where the state is a maximum and a sum that is scaled when the maximum grows."""
        return self.combine in _SCALED


def _fold(row: Monoid) -> tuple[object, ...]:
    """The computation on lifted values by which two rows are compared."""
    return row.combine, row.finalize, row.slope


def _extreme(dtype: DType, lowest: bool) -> bool | int | float:
    if dtype.kind == "b":
        return not lowest
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return int(info.min if lowest else info.max)
    return -math.inf if lowest else math.inf


def aggregation(op: str, value: DType, accumulator: DType | None = None, keyed: bool = False) -> Aggregation:
    """Return the operator ``op`` over values of dtype ``value``.

    ``accumulator`` is a dtype that the program requested.

    ``keyed``: the number of values depends on data, so that a mean must count them.

    Source: NumPy 2's dtype rules for the reductions of the same names; f16 and bf16 accumulate in f32.
    """
    row = MONOIDS[op]
    value = BOOL if row.values == "bool" else value
    asked = accumulator if row.accumulates else None
    result = asked or _result(row, value)
    exact = row.result in ("value", "index") and asked is None  # nothing is rounded, so nothing must be wide
    first = value if exact else result.accumulator
    second = I64 if row.result == "index" or (row.counts and keyed) else first if row.combine in _SCALED else None
    return Aggregation(op, value, (first,) if second is None else (first, second), result)


def _result(row: Monoid, value: DType) -> DType:
    match row.result:
        case "wide":
            return {"b": I64, "i": I64, "u": U64}.get(value.kind, value)
        case "inexact":
            return value if value.is_inexact else F64
        case "index":
            return I64
        case _:
            return value
