"""Which parts of a file are done with, so that their pages leave the page cache, and no page is read twice for it."""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.stores.layout import Layout, extent_nbytes, extent_span, rows, starts
from einturnip.stores.pages import PENDING_NBYTES, waiting_nbytes
from einturnip.stores.types import Extent, Region, whole

REACH_NBYTES = 4 << 20
"""The page cache holds what is read ahead in pages of up to some MiB, which leave it only whole: so much of what was
released beside a range is dropped once more with it."""

_LONG_NBYTES = 1 << 18
_AT_ONCE = 1 << 13  # pages that are counted together
_PAGE = os.sysconf("SC_PAGE_SIZE")


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


class PageCounts:
    """Of each page that holds bytes ``start`` to ``stop`` of a file, how many bytes were released since it was dropped.

    Two bytes a page, of those alone that are ever counted.
    """

    def __init__(self, start: int, stop: int) -> None:
        self._start, self._stop, self._first = start, stop, start // _PAGE
        kind = np.dtype(np.uint16 if _PAGE < 1 << 16 else np.uint32)
        self._counts: NDArray[Any] = np.zeros(-(-stop // _PAGE) - self._first, kind)
        self._foreign()

    def add(self, extent: Extent) -> None:
        """Count the bytes of runs as released."""
        run = extent[1]
        of_each = -(-run // _PAGE) + 1
        for begins in starts(extent, max(1, _AT_ONCE // of_each)):
            ends = begins + run
            pages = (begins // _PAGE)[:, None] + np.arange(of_each)
            inside = np.minimum(ends[:, None], _PAGE * (pages + 1)) - np.maximum(begins[:, None], _PAGE * pages)
            held = inside > 0
            np.add.at(self._counts, pages[held] - self._first, inside[held].astype(self._counts.dtype))

    def take(self, start: int, stop: int) -> tuple[list[tuple[int, int]], int]:
        """Ranges of pages in a range of bytes that are released whole, and the bytes of those that are in part.

        The former count anew.
        """
        low, high = start // _PAGE - self._first, -(-stop // _PAGE) - self._first
        whole_ones = np.flatnonzero(self._counts[low:high] >= _PAGE) + low
        self._counts[whole_ones] = 0
        partial = int(np.count_nonzero(self._counts[low:high]))
        self._foreign()
        firsts = whole_ones[np.diff(whole_ones, prepend=-2) != 1].tolist()
        lasts = whole_ones[np.diff(whole_ones, append=-2) != 1].tolist()
        pairs = zip(firsts, lasts, strict=True)
        return [(_PAGE * (self._first + a), _PAGE * (self._first + b + 1)) for a, b in pairs], _PAGE * partial

    def _foreign(self) -> None:
        """What of the first and the last page is not ours counts as released."""
        if len(self._counts):
            for at, ours in ((0, _PAGE - self._start % _PAGE), (-1, (self._stop - 1) % _PAGE + 1)):
                if self._counts[at] == 0:
                    self._counts[at] = _PAGE - ours


class ReleasedPages:
    """Which parts of a file were released; a slab of rows is dropped at once when the last tile of it is.

    A tile of a row-major matrix has thousands of short runs, and one call for each would cost more than the reading.
    ``leave``: lets the pages that hold a range of the file's bytes leave the page cache; None where nothing does.
    """

    def __init__(self, leave: Callable[[int, int], None] | None, layout: Layout, file_order: tuple[int, ...]) -> None:
        self._stays, self._layout, self._file_order = leave is None, layout, file_order
        self._leave = leave or _stay
        self._lock = threading.Lock()
        # Of each slab the bytes that were released, and those of pages that wait for what is beside.
        self._released: dict[tuple[int, int], tuple[int, int]] = {}
        self._bytes = extent_span(layout.extent(whole(layout.shape)))
        self._gone = Spans()
        self._counts: PageCounts | None = None
        self.pending_nbytes = 0
        """Bytes of pages that tiles were released of since pages were last dropped before all of their slab was."""
        self.scattered_nbytes = 0
        """Of those that stayed then, because tiles beside hold the rest of them."""
        self._began = False
        self.complete = False
        """Whether all of the tensor was released, and nothing of it since."""

    def release(self, region: Region) -> None:
        """Count the region as done with, and drop what that completes."""
        extent = self._layout.extent(region)
        nbytes = extent_nbytes(extent)
        if not nbytes or self._stays:
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
            if self._counts is None:
                self._counts = PageCounts(*self._bytes)
            done, waits = self._released.pop(span, (0, 0))
            full = done + nbytes >= span[1] - span[0]
            if full:
                self._counts.take(*span)
                self.pending_nbytes -= waits
            else:
                self._released[span] = done + nbytes, waits + cached
                self._counts.add(extent)
                self.pending_nbytes += cached
        if full:
            self._done(*span)
        elif self.pending_nbytes >= PENDING_NBYTES:
            self.drop_pending()
            if self.scattered_nbytes >= waiting_nbytes():
                self.drop_scattered()

    def close(self) -> None:
        """Drop all of the tensor's pages if any were released: read-ahead may have left some between."""
        with self._lock:
            began, self._began = self._began, False
        if began:
            self._leave(*self._bytes)

    def drop_pending(self) -> None:
        """Drop the pages that were released whole, of slabs that are not yet."""
        with self._lock:
            if self._counts is None:
                return
            taken = [self._counts.take(*span) for span in self._released]
            self.scattered_nbytes = sum(partial for _, partial in taken)
            self._none_pending()
        for ranges, _ in taken:
            for start, stop in ranges:
                self._leave(start, stop)

    def drop_scattered(self) -> None:
        """Drop all of the slabs of which some was released: there is too much of it."""
        with self._lock:
            spans, self.scattered_nbytes = list(self._released), 0
            self._none_pending()
        for span in spans:
            self._leave(*span)

    def _none_pending(self) -> None:
        self._released = {span: (done, 0) for span, (done, _) in self._released.items()}
        self.pending_nbytes = 0

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


def _stay(start: int, stop: int) -> None:
    """Nothing leaves."""
