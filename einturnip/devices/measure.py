"""Quick measurements of the host, each under two seconds, for ``einturnip doctor``."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import threadpoolctl

from einturnip.kernels.blas.cblas import MatrixOperand, product

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DiskRates:
    """Rates of a folder's disk without the page cache. Units: bytes/s.

    ``direct``: False if the file system does not support direct reads; then ``read`` can be the page cache's rate.
    """

    read: float
    write: float
    direct: bool


def _best(run: Callable[[], object], seconds: float) -> float:
    """Return the shortest time of a call, repeated for about ``seconds``."""
    run()
    best, until = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        best = min(best, end - start)
        if end >= until:
            return best


def measure_gemm(dtype: Any = np.float32, n: int = 512, threads: int = 1) -> float:
    """Return the rate in flop/s of an n x n x n product by the BLAS that kernels call."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
    c, scratch = np.zeros((2, n, n), a.dtype)
    left, right, out = (MatrixOperand(x.ctypes.data, n, 1) for x in (a, b, c))
    multiply = product(a.dtype, 1.0).prepare(n, n, n, left, right, 0, out, scratch.ctypes.data)
    with threadpoolctl.threadpool_limits(limits=threads, user_api="blas"):
        seconds = _best(multiply.run, 0.25)
    return 2.0 * n**3 / seconds


def measure_copy(nbytes: int = 64 * _MIB) -> float:
    """Return the bytes/s that one thread copies between buffers larger than the caches."""
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return nbytes / _best(lambda: np.copyto(target, source), 0.25)


def measure_disk(folder: str | os.PathLike[str], nbytes: int = 64 * _MIB) -> DiskRates:
    """Measure the disk under ``folder`` with a nameless temporary file of ``nbytes``.

    Raises:
        OSError: the folder cannot be written.
    """
    with mmap.mmap(-1, nbytes) as memory, tempfile.TemporaryFile(dir=folder) as file:
        memory.write(os.urandom(_MIB) * (nbytes // _MIB))
        number = file.fileno()
        start = time.perf_counter()
        _all_of(os.pwrite, number, memory, nbytes)
        os.fsync(number)
        written = time.perf_counter() - start
        direct = _drop_and_bypass(number)
        start = time.perf_counter()
        _all_of(lambda fd, view, offset: os.preadv(fd, [view], offset), number, memory, nbytes)
        read = time.perf_counter() - start
    return DiskRates(nbytes / read, nbytes / written, direct)


def _all_of(transfer: Callable[[int, memoryview, int], int], number: int, memory: mmap.mmap, nbytes: int) -> None:
    """Transfer a whole buffer in pieces of 8 MiB."""
    with memoryview(memory) as view:
        offset = 0
        while offset < nbytes:
            with view[offset : min(offset + 8 * _MIB, nbytes)] as piece:
                moved = transfer(number, piece, offset)
            if moved <= 0:
                raise OSError(f"a transfer of a temporary file of {nbytes} bytes stopped at {offset}")
            offset += moved


def _drop_and_bypass(number: int) -> bool:
    """Drop the file's cached pages and switch to direct reads; return whether that is supported."""
    with contextlib.suppress(AttributeError, OSError):
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        import fcntl

        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_DIRECT)
    except (ImportError, AttributeError, OSError):
        return False
    return True
