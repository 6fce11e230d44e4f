"""Memory for results. What a result that nobody holds any more stood in is what the next one stands in.

The first touch of a page costs as much as a kernel at the memory's rate takes to fill it (64 MiB: 4 to 8 ms, softmax
of as much 8), so freed results stay mapped. They are marked as free to take (MADV_FREE): the system has them back as
soon as it wants memory, without asking.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from einturnip.storage.types import Array

# Below this NumPy's allocator does well, above it every array is pages of its own.
LEAST_NBYTES = 4 << 20
# What is kept in all; the oldest goes first.
MOST_NBYTES = 1 << 30
_PAGE = 2 << 20  # of the large kind
_free: deque[mmap.mmap] = deque()


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array of any contents, in memory that an earlier one has left where that fits."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LEAST_NBYTES or not hasattr(mmap, "MADV_FREE"):
        return np.empty(shape, dtype)
    place = _left(-(-nbytes // _PAGE) * _PAGE + _PAGE) or _mapped(-(-nbytes // _PAGE) * _PAGE + _PAGE)
    whole: Array = np.frombuffer(place, np.uint8)
    start = -whole.ctypes.data % _PAGE
    weakref.finalize(whole, _leave, place, os.getpid()).atexit = False
    return np.ndarray(shape, dtype, whole, start)


def release() -> None:
    """Give back to the system what no result stands in."""
    _free.clear()


def _left(nbytes: int) -> mmap.mmap | None:
    """A place of just this size that nothing stands in; the youngest, of which most is in the cache."""
    for _ in range(len(_free)):
        try:
            place = _free.pop()
        except IndexError:  # another thread took it
            return None
        if len(place) == nbytes:
            return place
        _free.appendleft(place)
    return None


def _mapped(nbytes: int) -> mmap.mmap:
    place = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place.madvise(mmap.MADV_HUGEPAGE)
    return place


def _leave(place: mmap.mmap, process: int) -> None:
    """Nobody holds the array any more."""
    if process == os.getpid() and len(place) <= MOST_NBYTES:
        place.madvise(mmap.MADV_FREE)
        _free.append(place)
        with contextlib.suppress(IndexError):  # other threads took what there was
            while sum(map(len, _free.copy())) > MOST_NBYTES:
                _free.popleft()
