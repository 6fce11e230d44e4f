"""CSR tables, whose rows have different lengths: row i is ``entries[ptr[i]:ptr[i + 1]]``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def take_rows(ptr: NDArray[Any], rows: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the pointers of a table of some rows, and the indices of their entries.

    Example: ``ptr, at = take_rows(old_ptr, rows); entries = old_entries[at]``.
    """
    return gather_rows(ptr[rows], ptr[rows + 1] - ptr[rows])


def gather_rows(begins: NDArray[Any], counts: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the same for rows given by the indices of their first entries and by their lengths."""
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ptr, np.repeat(begins - ptr[:-1], counts) + np.arange(ptr[-1])
