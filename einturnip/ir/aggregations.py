"""Aggregation operators: commutative monoids with a state, each a row of one table.

An aggregation folds the values of a join over a range. Its state has one or more components, each an array over the
output's labels: ``identity`` is the state of an empty range, ``combine`` merges two states and is associative and
commutative, ``finalize`` computes the result from a state. So a schedule can compute tiles in any order and combine
their states.

All other modules read the table: typing, the reference, rewriting, derivatives, kernels for every device, editors.
Where they treat an aggregation specially, for example a plain sum as a matrix product, they test the fields of its row,
never its name.
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
"""How two states combine. A scalar operator combines states of one component; the others have their own states:

- ``first_max``, ``first_min``: (best value, flat index over the aggregated labels); ties go to the lowest index.
- ``log_add``: (m, sum of exp(x - m)), where m is the maximum so far.
- ``pick``: at most one value is selected; a bitwise or of the bytes, whose identity is all zeros.
"""

Lift = Callable[[Scalar], Scalar]
Finalize = Callable[[tuple[Scalar, ...], Scalar], Scalar]
Derivative = Callable[[Scalar, Scalar, Scalar], Scalar]
DerivativeRule = Literal["divided_by_count", "equal_shares", "product_of_others"]
"""A derivative that needs further aggregations; see ``eingraph.autodiff.weights``."""


@dataclass(frozen=True, slots=True)
class Monoid:
    """One aggregation of the language: the row from which everything about it is derived.

    ``doc``: documentation in Markdown, for pages and completion.

    ``result``: the dtype of the result: ``value`` that of the values, ``wide`` that of a sum (64 bits for integers),
    ``inexact`` that of a mean (f64 for integers), ``index`` i64.

    ``derivative``: the derivative of the result with respect to one folded value x, as a function of x, the result y
    and the number of values n; or the name of a rule; None if it is 0 everywhere.

    ``values``: the dtypes of values that it accepts: ``any``, ``real`` (all but complex), ``bool``.

    ``lift``: maps each value to the value that is folded, in the accumulator's dtype, which it cannot change (so no row
    folds the real parts of complex values); None for the identity. The lift is applied to the join when an equation is
    built (``Aggregation.without_lift``), so rewriting, derivatives and kernels see folded values only.

    ``finalize``: computes the result from the components of a state and the number of values n; None if the result is
    the first component.

    ``shift_equivariant``: adding c to each folded value adds c to the result.

    ``bool_row``: the name of the row that replaces this one for values of dtype bool.
    """

    name: str
    doc: str
    combine: Combine
    result: Literal["value", "wide", "inexact", "index"]
    derivative: Derivative | DerivativeRule | None
    values: Literal["any", "real", "bool"] = "any"
    lift: Lift | None = None
    finalize: Finalize | None = None
    shift_equivariant: bool = False
    bool_row: str = ""

    @property
    def accumulates(self) -> bool:
        """True if a program can request the dtype of the state."""
        return self.values != "bool" and self.result != "index" and self.combine != "pick"

    @property
    def finalize_reads_count(self) -> bool:
        """True if ``finalize`` reads n.

        Where n depends on data, as in a mean by key, n is a component of the state.
        """
        return self.finalize is not None and _finalize_reads_count(self.finalize)

    @property
    def derivative_reads_count(self) -> bool:
        """True if ``derivative`` is a function that reads n."""
        return callable(self.derivative) and _derivative_reads_count(self.derivative)


@cache
def _finalize_reads_count(finalize: Finalize) -> bool:
    state = OperandRef(0, F64), OperandRef(1, F64)
    few, many = (finalize(state, ScalarConst(n, F64)) for n in (2.0, 3.0))
    return few != many


@cache
def _derivative_reads_count(derivative: Derivative) -> bool:
    few, many = (derivative(OperandRef(0, F64), OperandRef(1, F64), ScalarConst(n, F64)) for n in (2.0, 3.0))
    return few != many


def _one(x: Scalar, y: Scalar, n: Scalar) -> Scalar:
    return ScalarConst(1.0 + 0j if x.dtype.kind == "c" else 1.0, x.dtype)


def _softmax(x: Scalar, y: Scalar, n: Scalar) -> Scalar:
    return ScalarCall("exp", (ScalarCall("sub", (x, y), x.dtype),), x.dtype)


def _mean_of_sum(state: tuple[Scalar, ...], n: Scalar) -> Scalar:
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
    Monoid("prod", "`prod[i] X[i]`: the product over i; 1 over an empty range.", "mul", "wide", "product_of_others"),
    Monoid("max", "`max[i] X[i]`: the maximum over i; -inf over an empty range. `max(a, b)`: the larger.",
           "max", "value", "equal_shares", "real", shift_equivariant=True, bool_row="any"),
    Monoid("min", "`min[i] X[i]`: the minimum over i; inf over an empty range. `min(a, b)`: the smaller.",
           "min", "value", "equal_shares", "real", shift_equivariant=True, bool_row="all"),
    Monoid("any", "`any[i] c[i]`: whether it holds for some i.", "or", "value", None, "bool"),
    Monoid("all", "`all[i] c[i]`: whether it holds for every i.", "and", "value", None, "bool"),
    Monoid("mean", "`mean[i] X[i]`: the mean over i; nan over an empty range.",
           "add", "inexact", "divided_by_count", finalize=_mean_of_sum, shift_equivariant=True),
    Monoid("logsumexp", "`logsumexp[i] X[i]`: log(sum[i] exp(X[i])), without overflow.",
           "log_add", "inexact", _softmax, "real", finalize=_log_of_sum, shift_equivariant=True),
    Monoid("argmax", "`argmax[i] X[i]`: the first i with the maximal X" + _FIRST,
           "first_max", "index", None, "real", finalize=_index),
    Monoid("argmin", "`argmin[i] X[i]`: the first i with the minimal X" + _FIRST,
           "first_min", "index", None, "real", finalize=_index),
)
# fmt: on
# ``pick`` is internal: it folds the values that a key selects, at most one, which is the result.
MONOIDS = {row.name: row for row in (*_ROWS, Monoid("pick", "", "pick", "value", _one))}
AGGREGATIONS = tuple(row.name for row in _ROWS)
_COMPARED = frozenset({"max", "min", "first_max", "first_min"})
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

    def without_lift(self) -> Aggregation:
        """The operator for values to which the lift has been applied: of a sum of squares, the sum.

        It is a row without a lift that folds in the same way, if there is one, so that equal computations have equal
        operators.
        """
        row = self.row
        equal = (plain.name for plain in MONOIDS.values() if plain.lift is None and _folding(plain) == _folding(row))
        return replace(self, op=next(equal, self.op), value=self.state[0])

    @property
    def identity(self) -> tuple[bool | int | float, ...]:
        """The state of an empty range: a Python number for each component."""
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
        """True if the result is the state's only component."""
        return self.row.finalize is None and self.state == (self.result,)

    def result_of_state(self, extents: Iterable[int]) -> Scalar:
        """The result, not yet cast to its dtype, as an expression over the components of the state.

        ``extents``: of the aggregated labels. Their product is n, unless n is a component of the state.
        """
        state, first = tuple(OperandRef(k, dtype) for k, dtype in enumerate(self.state)), self.state[0]
        finalize = self.row.finalize
        if finalize is None:
            return state[0]
        if self.row.finalize_reads_count and len(state) == 2:
            return finalize(state, ScalarCast(state[1], first))
        count = math.prod(extents)
        return finalize(state, ScalarConst(complex(count) if first.kind == "c" else float(count), first))

    @property
    def is_sum(self) -> bool:
        """True if the result is the sum of the folded values."""
        row = self.row
        return row.combine == "add" and row.finalize is None

    @property
    def is_mean(self) -> bool:
        """True if the result is the mean of the folded values."""
        return self.row.finalize is _mean_of_sum

    @property
    def is_linear(self) -> bool:
        """True if agg(c * x + d * y) = c * agg(x) + d * agg(y) for folded values x and y."""
        return self.is_sum or self.is_mean

    @property
    def bound_sign(self) -> int:
        """1 if the result is an upper bound of the folded values, -1 if it is a lower bound, else 0."""
        row = self.row
        return {"max": 1, "min": -1}.get(row.combine, 0) if row.finalize is None else 0

    @property
    def idempotent(self) -> bool:
        """True if combining a state with itself does not change it."""
        return self.combine in _COMPARED or self.combine in ("or", "and")

    @property
    def indexed(self) -> bool:
        """True if the state has the index of its value as a component."""
        return self.combine in ("first_max", "first_min")

    @property
    def rounds(self) -> bool:
        """True if adding a value rounds, so that long folds are divided into partial states."""
        return (self.combine == "add" or self.scaled) and self.state[0].is_inexact

    @property
    def scaled(self) -> bool:
        """True if the state is a maximum and a sum relative to it, which is rescaled when the maximum grows."""
        return self.combine in _SCALED


def _folding(row: Monoid) -> tuple[object, ...]:
    """The fields of a row that say what it computes from folded values."""
    return row.combine, row.finalize, row.derivative


def _extreme(dtype: DType, lowest: bool) -> bool | int | float:
    if dtype.kind == "b":
        return not lowest
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return int(info.min if lowest else info.max)
    return -math.inf if lowest else math.inf


def aggregation(op: str, value: DType, accumulator: DType | None = None, keyed: bool = False) -> Aggregation:
    """Return the operator ``op`` over values of dtype ``value``.

    ``accumulator``: the dtype of the state, if the program requests one.

    ``keyed``: the number of values depends on data, so a mean counts them in its state.

    Source: NumPy 2's dtype rules for the reductions of the same names; f16 and bf16 accumulate in f32.
    """
    row = MONOIDS[op]
    value = BOOL if row.values == "bool" else value
    requested = accumulator if row.accumulates else None
    result = requested or _result(row, value)
    exact = row.result in ("value", "index") and requested is None  # folding does not round, so no wider type is needed
    first = value if exact else result.accumulator
    indexes_or_counts = row.result == "index" or (row.finalize_reads_count and keyed)
    second = I64 if indexes_or_counts else first if row.combine in _SCALED else None
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
