"""The operators of the language in NumPy: arithmetic, comparisons, logic, choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.dtypes import DType

Array: TypeAlias = NDArray[Any]


def compute(function: Callable[..., Any], arguments: Sequence[Array], dtype: DType) -> Array:
    """Apply a function of NumPy to arrays; f16 and bf16 are computed in f32 and rounded once."""
    if arguments[0].dtype.itemsize == 2 and arguments[0].dtype.kind not in "iu" and function is not np.where:
        arguments = [a.astype(np.float32) for a in arguments]
    return np.asarray(function(*arguments)).astype(dtype.numpy, copy=False)


def convert(array: Array, dtype: DType) -> Array:
    """``astype`` without the warning that a complex number loses its imaginary part."""
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    return array.astype(dtype.numpy, copy=False)


def _power(base: Array, exponent: Array) -> Array:
    """``np.power``.

    An integer to a negative power is 1 // base^|e| truncated towards zero, and 0 for base 0.
    """
    if np.result_type(base, exponent).kind not in "iu":
        return np.asarray(np.power(base, exponent))
    powers = np.power(base, np.maximum(exponent, 0))
    odd = exponent % 2 != 0
    unit = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0))
    return np.asarray(np.where(exponent < 0, unit.astype(powers.dtype), powers))


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": _power,
    "min": np.minimum,
    "max": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
    "neg": np.negative,
}
