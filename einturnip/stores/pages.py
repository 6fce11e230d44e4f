"""Keeping what a file leaves in the page cache small, with few system calls."""

from __future__ import annotations

import bisect
import ctypes
import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from einturnip.stores.layout import Layout, extent_nbytes, extent_span, rows
from einturnip.stores.types import Extent, Region, whole

PENDING_NBYTES = 32 << 20
"""Released bytes after which pages are dropped though their neighbours are not yet done with."""

STRETCH_NBYTES = 8 << 20
SCATTERED_NBYTES = 256 << 20
"""Dirty bytes in stretches half written after which they go to the disk as they are."""

REACH_NBYTES = 4 << 20
"""The page cache holds what is read ahead in pages of up to some MiB, which leave it only whole: so much of what was
released beside a range is dropped once more with it."""

_LONG_NBYTES = 1 << 18
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_RANGES = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4


def drop(fd: int, start: int, stop: int) -> None:
    """Let the clean pages that hold the bytes leave the page cache. Shared pages at the ends go too: one re-read."""
    start -= start % _PAGE
    os.posix_fadvise(fd, start, -(-stop // _PAGE) * _PAGE - start, os.POSIX_FADV_DONTNEED)


class Spans:
    """Ranges of numbers; those that touch are one."""

    def __init__(self) -> None:
        self._starts, self._stops = list[int](), list[int]()

    def add(self, start: int, stop: int) -> tuple[int, int]:
        """Add a range; gives the one that holds it now."""
        first, last = bisect.bisect_left(self._stops, start), bisect.bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last], self._stops[first:last] = [start], [stop]
        return start, stop


class ReleasedPages:
    """Which parts of a file were released; a slab of rows is dropped at once when the last tile of it is.

    A tile of a row-major matrix has thousands of short runs, and one call for each would cost more than the reading.
    ``leave``: lets the pages that hold a range of the file's bytes leave the page cache.
    """

    def __init__(self, leave: Callable[[int, int], None], layout: Layout, file_order: tuple[int, ...]) -> None:
        self._leave, self._layout, self._file_order = leave, layout, file_order
        self._lock = threading.Lock()
        self._released: dict[tuple[int, int], int] = {}
        self._pending: dict[tuple[int, int], int] = {}
        self.pending_nbytes = 0
        """Bytes released that wait in the page cache for what lies between them."""
        self._gone = Spans()
        self._bytes = extent_span(layout.extent(whole(layout.shape)))
        self._began = False
        self.complete = False
        """Whether all of the tensor was released, and nothing of it since."""

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
                    self._done(first + i * stride, first + i * stride + extent[1])
            return
        span = extent_span(self._layout.extent(self._slab(region)))
        cached = nbytes // extent[1] * (-(-(extent[0] % _PAGE + extent[1]) // _PAGE) * _PAGE)
        with self._lock:
            done = self._released.get(span, 0) + nbytes
            self._pending[span] = self._pending.get(span, 0) + cached
            self.pending_nbytes += cached
            full, many = done >= span[1] - span[0], self.pending_nbytes >= PENDING_NBYTES
            if full:
                self._released.pop(span, None)
                self.pending_nbytes -= self._pending.pop(span)
            else:
                self._released[span] = done
        if full:
            self._done(*span)
        elif many:
            self.drop_pending()

    def close(self) -> None:
        """Drop all of the tensor's pages if any were released: read-ahead may have left some between."""
        with self._lock:
            began, self._began = self._began, False
        if began:
            self._leave(*self._bytes)

    def drop_pending(self) -> None:
        """Drop what was released and waits, with all that is between."""
        with self._lock:
            pending, self._pending, self.pending_nbytes = self._pending, {}, 0
        for span in pending:
            self._leave(*span)

    def _done(self, start: int, stop: int) -> None:
        """Drop a range that is done with. A page at its ends that holds what is not stays, and goes with that.

        If it went it would be read twice, and the kernel, which sees a reader begin anew, would read ahead in small
        pages (measured: half the rate, and a sixth of the file read twice).
        """
        with self._lock:
            first, last = self._gone.add(start, stop)
            self.complete = (first, last) == self._bytes
            if self.complete:
                self._gone = Spans()  # whoever reads it again begins anew
        first, last = max(first, start - REACH_NBYTES), min(last, stop + REACH_NBYTES)
        first = first // _PAGE if first == self._bytes[0] else -(-first // _PAGE)
        last = -(-last // _PAGE) if last == self._bytes[1] else last // _PAGE
        if first < last:
            self._leave(first * _PAGE, last * _PAGE)

    def _slab(self, region: Region) -> Region:
        """The region made whole along every axis that is faster than its first one of more than one point."""
        slab, inner = list(region), False
        for axis in self._file_order:
            if inner:
                slab[axis] = (0, self._layout.shape[axis])
            inner = inner or region[axis][1] - region[axis][0] > 1
        return tuple(slab)


class WrittenPages:
    """Dirty pages kept few: a stretch of the file goes to the disk when all of it is written, and leaves the cache.

    Tiles of a row-major matrix share pages at their edges. A page that left the cache half written would have to be
    read again, and pages sent one by one cost the disk a turn each: both are put off until ``SCATTERED_NBYTES``.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._written: dict[int, int] = {}
        self._scattered_nbytes = 0
        self._leaving: deque[tuple[int, int]] = deque()

    def wrote(self, extent: Extent) -> None:
        """Count the extent's bytes as dirty.

        Raises:
            OSError: the disk failed to take earlier ones.
        """
        full, gone = [], []
        with self._lock:
            for stretch, nbytes in _by_stretch(extent):
                total = self._written.pop(stretch, 0) + nbytes
                self._scattered_nbytes += nbytes
                if total < STRETCH_NBYTES:
                    self._written[stretch] = total
                else:
                    self._scattered_nbytes -= total
                    full.append(stretch)
            if self._scattered_nbytes >= SCATTERED_NBYTES:
                full.extend(sorted(self._written))
                self._written.clear()
                self._scattered_nbytes = 0
            # Those of before, but for a few, have had the time to arrive.
            while full and len(self._leaving) * STRETCH_NBYTES > PENDING_NBYTES:
                gone.append(self._leaving.popleft())
            self._leaving.extend((f * STRETCH_NBYTES, (f + 1) * STRETCH_NBYTES) for f in full)
        for stretch in full:
            write_back(self._fd, stretch * STRETCH_NBYTES, (stretch + 1) * STRETCH_NBYTES, wait=False)
        for span in gone:
            write_back(self._fd, *span, wait=True)
            drop(self._fd, *span)


def _by_stretch(extent: Extent) -> Iterator[tuple[int, int]]:
    """The stretches of a file that an extent lies in, with its bytes in each."""
    offset, nbytes, repeats = extent
    if not repeats:
        for stretch in range(offset // STRETCH_NBYTES, -(-(offset + nbytes) // STRETCH_NBYTES)):
            begin = stretch * STRETCH_NBYTES
            yield stretch, min(offset + nbytes, begin + STRETCH_NBYTES) - max(offset, begin)
        return
    begins = np.array([offset])
    for count, stride in repeats:
        begins = (begins[:, None] + stride * np.arange(count)).ravel()
    ends = begins + nbytes
    first, last = begins // STRETCH_NBYTES, (ends - 1) // STRETCH_NBYTES
    for stretch in range(int(first.min()), int(last.max()) + 1):
        begin = stretch * STRETCH_NBYTES
        inside = np.minimum(ends, begin + STRETCH_NBYTES) - np.maximum(begins, begin)
        if (found := int(inside[inside > 0].sum())) > 0:
            yield stretch, found


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
