"""Distinct numbers of an array without ``np.unique``, which loads ``numpy.ma``: 1.8 MiB."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def sorted_distinct(values: ArrayLike) -> NDArray[Any]:
    """Return the sorted distinct values of an array of any shape."""
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
