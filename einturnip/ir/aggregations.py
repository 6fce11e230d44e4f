"""Aggregation operators: commutative monoids with a state.

An aggregation folds the join's values over a range. Its state has one or more components, each an array over the
output's labels; ``identity`` is the state of an empty range, ``combine`` is associative and commutative, ``finalize``
turns a state into the result. Sums of tiles combine in any order, which is what lets a schedule be free.
"""

from __future__ import annotations

from dataclasses import dataclass

from einturnip.ir.dtypes import BOOL, F64, I64, U64, DType

# The aggregations of the language. ``pick`` is internal: a key excludes all values but at most one, which is the
# result; states combine by a bitwise or of their bytes, whose identity is all zeros.
AGGREGATIONS = ("sum", "prod", "max", "min", "any", "all", "mean", "logsumexp", "argmax", "argmin")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation operator applied to join values of dtype ``value``.

    ``state`` are the dtypes of the state's components:
      sum prod max min any all pick: the value so far; mean: the sum (with keys, also the count);
      logsumexp: (max, sum of exp(x - max));
      argmax argmin: (best value, flat index over the aggregated labels; ties go to the lowest).
    ``result`` is the dtype of the finished result.
    """

    op: str
    value: DType
    state: tuple[DType, ...]
    result: DType

    @property
    def finalize_is_identity(self) -> bool:
        """True where the single component of the state is the result."""
        return self.op in ("sum", "prod", "max", "min", "any", "all", "pick") and self.state == (self.result,)


def aggregation(op: str, value: DType, accumulator: DType | None = None, keyed: bool = False) -> Aggregation:
    """Return the operator ``op`` over values of dtype ``value``.

    ``accumulator`` is a dtype that the program requested.

    ``keyed``: the number of values depends on data, so that a mean must count them.

    Source: NumPy 2's dtype rules for the reductions of the same names; f16 and bf16 accumulate in f32.
    """
    if accumulator is not None and op in ("sum", "prod", "mean", "logsumexp", "max", "min"):
        state = (accumulator.accumulator,) * (2 if op == "logsumexp" else 1)
        return Aggregation(op, value, (*state, I64) if op == "mean" and keyed else state, accumulator)
    match op:
        case "any" | "all":
            return Aggregation(op, BOOL, (BOOL,), BOOL)
        case "max" | "min" | "pick":
            return Aggregation(op, value, (value,), value)
        case "argmax" | "argmin":
            return Aggregation(op, value, (value, I64), I64)
        case "sum" | "prod":
            result = {"b": I64, "i": I64, "u": U64}.get(value.kind, value)
            return Aggregation(op, value, (result.accumulator,), result)
        case "mean":
            result = value if value.is_inexact else F64
            return Aggregation(op, value, (result.accumulator, I64) if keyed else (result.accumulator,), result)
        case "logsumexp":
            result = value if value.is_inexact else F64
            return Aggregation(op, value, (result.accumulator,) * 2, result)
        case _:
            raise KeyError(op)
