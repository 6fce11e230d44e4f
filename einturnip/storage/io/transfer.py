"""Transfers whole runs between files and memory, even if the kernel transfers less at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from einturnip.core.errors import StoreError
from einturnip.storage.io.batched_io import AT_ONCE, FEWEST, READ, WRITE, BatchedIo, refused, thread_batched_io
from einturnip.storage.io.coalesced_reads import CoalescedReads
from einturnip.storage.io.pages import cached_only_flag
from einturnip.storage.layout import LONG_NBYTES, SIEVED_STRIDE, extent_span, rows
from einturnip.storage.types import Array, Extent

AHEAD = AT_ONCE
"""Runs requested together from the disk after a cache miss (measured: 4 to 6 times the rate of single requests)."""

_SIEVE_NBYTES = 1 << 17
_GROUP_NBYTES = _SIEVE_NBYTES // 8  # a group of runs that is read together with others
_threads = threading.local()


def read_full(fd: int, view: memoryview, offset: int, name: str) -> None:
    """Fill ``view`` from ``offset``.

    Raises:
        StoreError: the file ends before that, or cannot be read.
    """
    while view.nbytes:
        try:
            got = os.preadv(fd, [view], offset)
        except OSError as error:
            raise StoreError(f"{name}: reading failed at byte {offset}: {error.strerror}") from error
        if got == 0:
            raise StoreError(
                f"{name}: the file became shorter while it was read: {view.nbytes} bytes are missing at byte {offset}. "
                "Something else writes to it; run again when it is whole."
            )
        view, offset = view[got:], offset + got


def write_full(fd: int, view: memoryview, offset: int, explain: Callable[[OSError], StoreError]) -> None:
    """Write all of ``view`` at ``offset``; ``explain`` creates the error for the user."""
    while view.nbytes:
        try:
            put = os.pwritev(fd, [view], offset)
        except OSError as error:
            raise explain(error) from error
        view, offset = view[put:], offset + put


def read_extent(fd: int, view: memoryview, extent: Extent, name: str, stretches: CoalescedReads | None = None) -> None:
    """Fill ``view`` with the extent's runs.

    With ``stretches``, cold runs are read with their surroundings.
    """
    if stretches is not None:
        stretches.bring(fd, extent)
    offset, run, repeats = extent
    at, many, apart = 0, 1, 0
    if len(repeats) > 1 and repeats[-1][1] <= SIEVED_STRIDE and extent_span((0, run, repeats[-1:]))[1] <= _GROUP_NBYTES:
        repeats, (many, apart) = repeats[:-1], repeats[-1]
    for first, count, stride in rows(offset, repeats):
        part = view[at : at + count * many * run]
        if run >= LONG_NBYTES:
            for i in range(count):
                read_full(fd, part[i * run : (i + 1) * run], first + i * stride, name)
        elif many > 1 or count > 1 and stride <= SIEVED_STRIDE:
            _read_sieved(fd, part, (run, many, apart), first, count, stride, name)
        else:
            _read_short_runs(fd, part, run, first, count, stride, name)
        at += part.nbytes


def _read_short_runs(fd: int, view: memoryview, run: int, offset: int, count: int, stride: int, name: str) -> None:
    """Read cached runs directly, and request cold ones from the disk together first.

    Synchronous reads would give the disk only one small request at a time.
    """
    many = thread_batched_io() if count >= FEWEST else None
    flags = cached_only_flag(fd)
    for at in range(0, count, AHEAD):
        n, part = min(AHEAD, count - at), view[at * run : (at + AHEAD) * run]
        if many is None or not _read_together(many, fd, part, run, offset, n, stride, name, flags):
            _read_singly(fd, part, run, offset, n, stride, name, flags)
        offset += n * stride


def _read_singly(
    fd: int, view: memoryview, run: int, offset: int, count: int, stride: int, name: str, flags: int
) -> None:
    preadv, asked = os.preadv, False
    for at in range(0, count * run, run):
        try:
            got = preadv(fd, [view[at : at + run]], offset, flags)
        except OSError:  # not cached, or RWF_NOWAIT is unsupported: the plain read below reports real errors
            got = 0
        if got != run:
            if not asked and count > 1:
                asked = True
                for k in range(count - at // run):
                    os.posix_fadvise(fd, offset + k * stride, run, os.POSIX_FADV_WILLNEED)
            read_full(fd, view[at + got : at + run], offset + got, name)
        offset += stride


def _read_together(
    many: BatchedIo, fd: int, view: memoryview, run: int, offset: int, count: int, stride: int, name: str, flags: int
) -> bool:
    """The same with few system calls; False where the system lacks them."""
    address = np.frombuffer(view, np.uint8).ctypes.data
    try:
        got = many.transfer(READ, fd, address, run, offset, count, stride, flags)
        if (got != run).any():
            for k in np.flatnonzero(got != run).tolist():
                os.posix_fadvise(fd, offset + k * stride, run, os.POSIX_FADV_WILLNEED)
            got = many.transfer(READ, fd, address, run, offset, count, stride)
    except OSError:
        refused()
        return False
    for k in np.flatnonzero(got != run).tolist():  # reports the error, if there is one
        read_full(fd, view[k * run : (k + 1) * run], offset + k * stride, name)
    return True


def _read_sieved(
    fd: int, view: memoryview, runs: tuple[int, int, int], offset: int, count: int, stride: int, name: str
) -> None:
    """Read groups of ``runs`` (bytes, count, stride) with the bytes between them, and keep the runs.

    Nearby groups are read together with the bytes between them: one system call for hundreds of runs.

    Source: data sieving, Thakur, Gropp and Lusk, "Data sieving and collective I/O in ROMIO" (1999).
    """
    (run, many, apart), sieve = runs, _sieve()
    span, near = (many - 1) * apart + run, count > 1 and stride <= SIEVED_STRIDE
    step = stride if near else span
    target = np.frombuffer(view, np.uint8).reshape(count, many, run)
    together = (_SIEVE_NBYTES - span) // step + 1
    for at in range(0, count, together):
        n, begin = min(together, count - at), offset + at * stride
        if near:
            read_full(fd, sieve.data[: (n - 1) * step + span], begin, name)
        else:
            _read_short_runs(fd, sieve.data[: n * span], span, begin, n, stride, name)
        target[at : at + n] = as_strided(sieve, (n, many, run), (step, apart, 1))


def _sieve() -> Array:
    """A thread's buffer for sieved reads."""
    sieve: Array | None = getattr(_threads, "sieve", None)
    if sieve is None:
        sieve = _threads.sieve = np.empty(_SIEVE_NBYTES, np.uint8)
    return sieve


def copy_blocked(target: Array, source: Array) -> None:
    """Copy between arrays of one shape whose axes may be ordered differently.

    If their fastest axes differ, it copies eight of the target's fast elements at a time: measured four times NumPy's
    rate at 1024 x 64, because NumPy's loop follows the long strides.
    """
    if source.ndim > 1 and _fastest(source) != _fastest(target):
        axis = _fastest(target)
        window = [slice(None)] * source.ndim
        for at in range(0, source.shape[axis], 8):
            window[axis] = slice(at, at + 8)
            target[tuple(window)] = source[tuple(window)]
    else:
        target[...] = source


def _fastest(array: Array) -> int:
    strides = [abs(s) if n > 1 and s else sys.maxsize for s, n in zip(array.strides, array.shape, strict=True)]
    return strides.index(min(strides))


def write_extent(fd: int, view: memoryview, extent: Extent, explain: Callable[[OSError], StoreError]) -> None:
    """Write ``view`` to the extent's runs."""
    offset, run, repeats = extent
    at = 0
    for first, count, stride in rows(offset, repeats):
        many = thread_batched_io() if count >= FEWEST and run < LONG_NBYTES else None
        for begin in range(0, count, AT_ONCE):
            n = min(AT_ONCE, count - begin)
            part, place = view[at : at + n * run], first + begin * stride
            done = 0 if many is None else _write_together(many, fd, part, run, place, n, stride)
            for k in range(done, n):
                write_full(fd, part[k * run : (k + 1) * run], place + k * stride, explain)
            at += n * run


def _write_together(many: BatchedIo, fd: int, view: memoryview, run: int, offset: int, count: int, stride: int) -> int:
    """Write runs by one system call; returns the number of runs before the first failure."""
    try:
        put = many.transfer(WRITE, fd, np.frombuffer(view, np.uint8).ctypes.data, run, offset, count, stride)
    except OSError:
        refused()
        return 0
    short = np.flatnonzero(put != run)
    return int(short[0]) if len(short) else count
