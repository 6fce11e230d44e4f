"""Transfers one run of a file to and from separate rows of memory, without a copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.storage.io.transfer import read_full, write_full
from einturnip.storage.types import Array

LEAST_NBYTES = 4096
"""Shorter rows are copied in blocks instead."""

_AT_ONCE = os.sysconf("SC_IOV_MAX")


def rows_of(array: Array) -> list[memoryview]:
    """The bytes of an array of two or more axes in C order as few rows; empty if the rows are short."""
    inner, axis = array.itemsize, array.ndim
    while axis and (array.shape[axis - 1] == 1 or array.strides[axis - 1] == inner):
        axis -= 1
        inner *= array.shape[axis]
    if not axis or not array.size or inner < LEAST_NBYTES:
        return []
    lines = array.reshape(array.shape[:axis] + (-1,)).view(np.uint8)
    return [line.data for place in np.ndindex(array.shape[: axis - 1]) for line in lines[place]]


def read_rows(fd: int, rows: Sequence[memoryview], offset: int, name: str) -> None:
    """Fill rows of one length from ``offset`` on.

    Raises:
        StoreError: the file ends before that, or cannot be read.
    """
    each = rows[0].nbytes
    for at in range(0, len(rows), _AT_ONCE):
        part, begin = rows[at : at + _AT_ONCE], offset + at * each
        try:
            got = os.preadv(fd, part, begin)
        except OSError:
            got = 0  # reading row by row reports the error
        for rest, done in _left(part, got):
            read_full(fd, rest, begin + done, name)


def write_rows(fd: int, rows: Sequence[memoryview], offset: int, explain: Callable[[OSError], StoreError]) -> None:
    """Write rows of one length from ``offset``; ``explain`` creates the error for the user."""
    each = rows[0].nbytes
    for at in range(0, len(rows), _AT_ONCE):
        part, begin = rows[at : at + _AT_ONCE], offset + at * each
        try:
            put = os.pwritev(fd, part, begin)
        except OSError as error:
            raise explain(error) from error
        for rest, done in _left(part, put):
            write_full(fd, rest, begin + done, explain)


def _left(rows: Sequence[memoryview], moved: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the untransferred part of each row after ``moved`` bytes, with the bytes before it."""
    each = rows[0].nbytes
    for i in range(moved // each, len(rows)):
        done = max(0, moved - i * each)
        yield rows[i][done:], i * each + done
