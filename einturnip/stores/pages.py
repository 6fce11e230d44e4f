"""Keeping what a file leaves in the page cache small, with few system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import threading

from einturnip.stores.layout import Layout, extent_nbytes, extent_span, rows
from einturnip.stores.types import Extent, Region, whole

PENDING_NBYTES = 32 << 20
"""Released (or dirty) bytes after which pages are dropped though their neighbours are not yet done with."""

_LONG_NBYTES = 1 << 18
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_RANGES = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4


def drop(fd: int, start: int, stop: int) -> None:
    """Let the clean pages that hold the bytes leave the page cache. Shared pages at the ends go too: one re-read."""
    start -= start % _PAGE
    os.posix_fadvise(fd, start, -(-stop // _PAGE) * _PAGE - start, os.POSIX_FADV_DONTNEED)


class ReleasedPages:
    """Which parts of a file were released; a slab of rows is dropped at once when the last tile of it is.

    A tile of a row-major matrix has thousands of short runs, and one call for each would cost more than the reading.
    """

    def __init__(self, fd: int, layout: Layout, file_order: tuple[int, ...]) -> None:
        self._fd, self._layout, self._file_order = fd, layout, file_order
        self._lock = threading.Lock()
        self._released: dict[tuple[int, int], int] = {}
        self._pending: dict[tuple[int, int], int] = {}
        self._pending_nbytes = 0
        self._began = False

    def release(self, region: Region) -> None:
        """Count the region as done with, and drop what that completes."""
        extent = self._layout.extent(region)
        nbytes = extent_nbytes(extent)
        if not nbytes:
            return
        self._began = True
        if extent[1] >= _LONG_NBYTES:
            for first, count, stride in rows(extent[0], extent[2]):
                for i in range(count):
                    drop(self._fd, first + i * stride, first + i * stride + extent[1])
            return
        span = extent_span(self._layout.extent(self._slab(region)))
        cached = nbytes // extent[1] * (-(-(extent[0] % _PAGE + extent[1]) // _PAGE) * _PAGE)
        with self._lock:
            done = self._released.get(span, 0) + nbytes
            self._pending[span] = self._pending.get(span, 0) + cached
            self._pending_nbytes += cached
            if done < span[1] - span[0]:
                self._released[span] = done
                if self._pending_nbytes >= PENDING_NBYTES:
                    self._drop_pending()
            else:
                self._released.pop(span, None)
                self._pending_nbytes -= self._pending.pop(span)
                drop(self._fd, *span)

    def close(self) -> None:
        """Drop all of the tensor's pages if any were released: read-ahead may have left some between."""
        with self._lock:
            if self._began:
                drop(self._fd, *extent_span(self._layout.extent(whole(self._layout.shape))))
                self._began = False

    def _drop_pending(self) -> None:
        for span in self._pending:
            drop(self._fd, *span)
        self._pending.clear()
        self._pending_nbytes = 0

    def _slab(self, region: Region) -> Region:
        """The region made whole along every axis that is faster than its first one of more than one point."""
        slab, inner = list(region), False
        for axis in self._file_order:
            if inner:
                slab[axis] = (0, self._layout.shape[axis])
            inner = inner or region[axis][1] - region[axis][0] > 1
        return tuple(slab)


class WrittenPages:
    """Dirty pages kept few: full batches go to the disk in the background, and the batch before leaves the cache."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._span = (0, 0)
        self._previous = (0, 0)
        self._nbytes = 0

    def wrote(self, extent: Extent) -> None:
        """Count the extent's bytes as dirty.

        Raises:
            OSError: the disk failed to take earlier ones.
        """
        start, stop = extent_span(extent)
        with self._lock:
            self._span = (min(start, self._span[0]), max(stop, self._span[1])) if self._nbytes else (start, stop)
            self._nbytes += extent_nbytes(extent)
            if self._nbytes < PENDING_NBYTES:
                return
            span, previous = self._span, self._previous
            self._nbytes, self._previous = 0, span
        write_back(self._fd, *span, wait=False)
        if previous[1] > previous[0]:
            write_back(self._fd, *previous, wait=True)
            drop(self._fd, *previous)


_libc = ctypes.CDLL(None, use_errno=True)


def write_back(fd: int, start: int, stop: int, wait: bool) -> None:
    """Send the dirty pages of a range to the disk (``sync_file_range``, or ``fdatasync`` where there is none).

    Raises:
        OSError: the disk failed. It tells so only once, so this must not be passed over.
    """
    call = getattr(_libc, "sync_file_range", None)
    flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER if wait else _WRITE
    if call is not None and call(fd, ctypes.c_int64(start), ctypes.c_int64(stop - start), flags) == 0:
        return
    if call is not None and (code := ctypes.get_errno()) not in _NO_RANGES:
        raise OSError(code, os.strerror(code))
    os.fdatasync(fd)
