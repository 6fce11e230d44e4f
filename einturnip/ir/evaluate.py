"""Evaluates scalar expressions, and empty and finished states of aggregations, with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.functions import ELEMENTWISE
from einturnip.ir.operators import OPERATORS, Array, compute, convert
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst

State = tuple[Array, ...]


def evaluate_scalar(expr: Scalar, operands: Sequence[Array], origins: Sequence[int], extents: Sequence[int]) -> Array:
    """Evaluate an expression at every point of a box.

    ``operands`` have one axis a label, of size 1 where absent.
    """
    match expr:
        case ScalarConst(value, dtype):
            return np.asarray(convert(np.asarray(value), dtype))
        case OperandRef(slot, _):
            return operands[slot]
        case LabelValue(position, dtype):
            index = np.arange(origins[position], origins[position] + extents[position], dtype=np.int64)
            return convert(index, dtype).reshape([-1 if p == position else 1 for p in range(len(extents))])
        case ScalarCast(argument, dtype):
            return convert(evaluate_scalar(argument, operands, origins, extents), dtype)
        case ScalarCall(op, arguments, dtype):
            return apply(op, [evaluate_scalar(a, operands, origins, extents) for a in arguments], dtype)
        case _:
            assert_never(expr)


def apply(op: str, arguments: Sequence[Array], dtype: DType) -> Array:
    """Apply an operator or function to arrays."""
    return compute(ELEMENTWISE[op].numpy if op in ELEMENTWISE else OPERATORS[op], arguments, dtype)


def finalize_state(einsum: Einsum, state: State) -> Array:
    """The result of a state over the whole range; mean divides by the number of points."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    with np.errstate(all="ignore"):
        result = evaluate_scalar(aggregation.result_of_state(einsum.bounds[einsum.n_out :]), state, (), ())
        return convert(np.asarray(result), aggregation.result)


def identity_state(einsum: Einsum, shape: tuple[int, ...]) -> State:
    """The state of an empty range as arrays of ``shape``."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    values = zip(aggregation.identity, aggregation.state, strict=True)
    return tuple(np.full(shape, value, dtype.numpy) for value, dtype in values)
