"""Memory for results, recycled from results that have been freed.

The first access to a page costs as much as filling it at memory speed (64 MiB: 4 to 8 ms; a softmax of that size takes
8 ms), so freed results stay mapped. They are marked as reclaimable (MADV_FREE): the system takes them back when it
needs memory.
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

# Below this size NumPy's allocator is used; above it every array has pages of its own.
MIN_NBYTES = 4 << 20
# Maximum of kept bytes; the oldest are freed first.
MAX_KEPT_NBYTES = 1 << 30
_PAGE = 2 << 20  # of the large kind
_free: deque[mmap.mmap] = deque()


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An uninitialized array, in memory of an earlier result if one fits."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < MIN_NBYTES or not hasattr(mmap, "MADV_FREE"):
        return np.empty(shape, dtype)
    mapping = _reusable(-(-nbytes // _PAGE) * _PAGE + _PAGE) or _new_mapping(-(-nbytes // _PAGE) * _PAGE + _PAGE)
    memory: Array = np.frombuffer(mapping, np.uint8)
    start = -memory.ctypes.data % _PAGE
    weakref.finalize(memory, _recycle, mapping, os.getpid()).atexit = False
    return np.ndarray(shape, dtype, memory, start)


def release() -> None:
    """Return unused result memory to the system."""
    _free.clear()


def _reusable(nbytes: int) -> mmap.mmap | None:
    """Unused memory of exactly this size; the most recent, which is most likely in the cache."""
    for _ in range(len(_free)):
        try:
            mapping = _free.pop()
        except IndexError:  # another thread took it
            return None
        if len(mapping) == nbytes:
            return mapping
        _free.appendleft(mapping)
    return None


def _new_mapping(nbytes: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def _recycle(mapping: mmap.mmap, process: int) -> None:
    """Recycle the memory of a freed array."""
    if process == os.getpid() and len(mapping) <= MAX_KEPT_NBYTES:
        mapping.madvise(mmap.MADV_FREE)
        _free.append(mapping)
        with contextlib.suppress(IndexError):  # other threads took the rest
            while sum(map(len, _free.copy())) > MAX_KEPT_NBYTES:
                _free.popleft()
