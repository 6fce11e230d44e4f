"""Room for packed blocks: bytes of the thread's own, made once, as BLAS has them too."""

from __future__ import annotations

import threading

import numpy as np

from einturnip.kernels.expr.primitives import Array

_rooms = threading.local()
_LINE = 64


def thread_scratch(nbytes: int) -> int:
    """The address of this thread's bytes, on a line of the cache: 700 KiB at most, or for each product of a region."""
    held: Array | None = getattr(_rooms, "room", None)
    if held is None or len(held) < nbytes + _LINE:
        held = _rooms.room = np.empty(nbytes + _LINE, np.uint8)
        _rooms.address = -(-int(held.__array_interface__["data"][0]) // _LINE) * _LINE
    address: int = _rooms.address
    return address
