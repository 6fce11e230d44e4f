"""Scratch memory of each thread for packed blocks, allocated once, as BLAS does."""

from __future__ import annotations

import threading

import numpy as np

from einturnip.kernels.expr.primitives import Array

_local = threading.local()
_LINE = 64


def thread_scratch(nbytes: int) -> int:
    """Return the address of this thread's scratch, aligned to a cache line.

    Its size is the largest that the thread has asked for: up to 768 KiB, times the products of a region.
    """
    scratch: Array | None = getattr(_local, "scratch", None)
    if scratch is None or len(scratch) < nbytes + _LINE:
        scratch = _local.scratch = np.empty(nbytes + _LINE, np.uint8)
        _local.address = -(-int(scratch.__array_interface__["data"][0]) // _LINE) * _LINE
    address: int = _local.address
    return address
