"""Which parts of a file are done with, so that their pages leave the page cache, and no page is read twice for it."""

from __future__ import annotations

import bisect
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from einturnip.stores.layout import LONG_NBYTES, Layout, extent_nbytes, extent_span, rows, starts
from einturnip.stores.pages import PENDING_NBYTES, waiting_nbytes
from einturnip.stores.types import Extent, Region, whole

REACH_NBYTES = 4 << 20
"""The page cache holds what is read ahead in pages of up to some MiB, which leave it only whole: so much of what was
released beside a range is dropped once more with it."""

_AT_ONCE = 1 << 13  # pages that are counted together
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BITS = _PAGE.bit_length()
_BYTES = (1 << _BITS) - 1


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
    """Of pages that hold bytes ``start`` to ``stop`` of a file, how many bytes were released since they were dropped.

    Eight bytes for each page that was released in part, none for those that were not or that were taken, and as much
    again while pages are counted: ``_AT_ONCE`` runs or pages at a time. What else the first and the last page hold
    counts as released with what is ours of them.
    """

    def __init__(self, start: int, stop: int) -> None:
        self._start, self._stop = start, stop
        self._partial = np.empty(0, np.int64)  # numbers of pages, in order, each with its count in the low bits
        self._added = list[NDArray[np.int64]]()  # the same, in any order
        self._whole = list[NDArray[np.int64]]()  # numbers of pages

    @property
    def partial_nbytes(self) -> int:
        """Bytes of the pages that were released in part when pages were last taken, or more."""
        return _PAGE * len(self._partial)

    def add(self, extent: Extent, most_nbytes: int = sys.maxsize) -> None:
        """Count the bytes of runs as released, up to where ``partial_nbytes`` is more than so much."""
        run = extent[1]
        of_each = -(-run // _PAGE) + 1
        near = bool(extent[2]) and extent[2][-1][1] < _PAGE  # several in a page
        for begins in starts(extent, max(1, _AT_ONCE // of_each)):
            ends = begins + run
            begins[begins == self._start] -= self._start % _PAGE
            ends[ends == self._stop] += -self._stop % _PAGE
            pages = (begins // _PAGE)[:, None] + np.arange(of_each)
            inside = np.minimum(ends[:, None], _PAGE * (pages + 1)) - np.maximum(begins[:, None], _PAGE * pages)
            counted = ((pages << _BITS) + inside)[inside > 0]
            self._added.append(_summed(counted) if near else counted)
            if sum(map(len, self._added)) > _AT_ONCE:
                self._count()
                if self.partial_nbytes > most_nbytes:
                    return

    def take(self) -> list[tuple[int, int]]:
        """Ranges of pages that are released whole; they count anew."""
        self._count()
        if not self._whole:
            return []
        begins, self._whole = _PAGE * np.unique(np.concatenate(self._whole)), []
        first, last = np.diff(begins, prepend=-_PAGE - 1) > _PAGE, np.diff(begins, append=sys.maxsize) > _PAGE
        return list(zip(begins[first].tolist(), (begins[last] + _PAGE).tolist(), strict=True))

    def _count(self) -> None:
        """Count what was added with what there was of the same pages."""
        if not self._added:
            return
        added, self._added = _summed(np.concatenate(self._added)), []
        at = np.searchsorted(self._partial, added & ~_BYTES)
        known = at < len(self._partial)
        known[known] = self._partial[at[known]] >> _BITS == added[known] >> _BITS
        added[known] += self._partial[at[known]] & _BYTES
        are_whole = added & _BYTES >= _PAGE
        if are_whole.any():
            self._whole.append(added[are_whole] >> _BITS)
        # Each step holds the counts twice at most.
        some = known & ~are_whole
        self._partial[at[some]] = added[some]
        if (gone := at[known & are_whole]).size:
            self._partial = np.delete(self._partial, gone)
        if (new := added[~known & ~are_whole]).size:
            old, self._partial = self._partial, np.empty(len(self._partial) + len(new), np.int64)
            self._partial[: len(old)], self._partial[len(old) :] = old, new
            del old
            self._partial.sort(kind="stable")  # two parts in order: at most the smaller is copied


def _summed(counted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each page once, in order, with all that was counted of it; sorts what it is given."""
    counted.sort(kind="stable")  # the quickest for what comes in order, but for a few breaks
    pages = counted >> _BITS
    firsts = np.flatnonzero(np.diff(pages, prepend=-1) > 0)
    return (pages[firsts] << _BITS) + np.minimum(np.add.reduceat(counted & _BYTES, firsts), _PAGE)


@dataclass(slots=True)
class _Slab:
    """A slab of which some was released, but not yet all."""

    counts: PageCounts
    nbytes: int = 0  # that were released
    pending_nbytes: int = 0  # see ``ReleasedPages``


class ReleasedPages:
    """Which parts of a file were released; a slab of rows is dropped at once when the last tile of it is.

    A tile of a row-major matrix has thousands of short runs, and one call for each would cost more than the reading.
    The counts take 1/512 of the pages that wait (``PageCounts``): those that are soon dropped, of ``PENDING_NBYTES``,
    and those that tiles beside hold the rest of, of ``waiting_nbytes``. When more wait all leave, and are counted no
    longer; so whatever the file's size and the tile's, no more memory is held.
    ``leave``: lets the pages that hold a range of the file's bytes leave the page cache; None where nothing does.
    """

    def __init__(self, leave: Callable[[int, int], None] | None, layout: Layout, file_order: tuple[int, ...]) -> None:
        self._stays, self._layout, self._file_order = leave is None, layout, file_order
        self._leave = leave or _stay
        self._lock = threading.Lock()
        self._slabs: dict[tuple[int, int], _Slab] = {}
        self._bytes = extent_span(layout.extent(whole(layout.shape)))
        self._gone = Spans()
        self.pending_nbytes = 0
        """Bytes of pages that tiles were released of since pages were last dropped before all of their slab was."""
        self.scattered_nbytes = 0
        """Of those that stayed then, because tiles beside hold the rest of them."""
        self._began = False
        self.complete = False
        """Whether all of the tensor was released, and nothing of it since."""

    @cached_property
    def _most(self) -> int:
        """``waiting_nbytes``, looked at once: it takes half a millisecond."""
        return waiting_nbytes()

    def release(self, region: Region) -> None:
        """Count the region as done with, and drop what that completes."""
        extent = self._layout.extent(region)
        nbytes = extent_nbytes(extent)
        if not nbytes or self._stays:
            return
        self._began = True
        if extent[1] >= LONG_NBYTES:
            for first, count, stride in rows(extent[0], extent[2]):
                for i in range(count):
                    self._done(first + i * stride, first + i * stride + extent[1])
            return
        span = extent_span(self._layout.extent(self._slab(region)))
        cached = nbytes // extent[1] * (-(-(extent[0] % _PAGE + extent[1]) // _PAGE) * _PAGE)
        with self._lock:
            slab = self._slabs.setdefault(span, _Slab(PageCounts(*self._bytes)))
            slab.nbytes += nbytes
            full = slab.nbytes >= span[1] - span[0]
            if full:
                del self._slabs[span]
                self.pending_nbytes -= slab.pending_nbytes
            else:
                slab.counts.add(extent, self._most)
                slab.pending_nbytes += cached
                self.pending_nbytes += cached
        if full:
            self._done(*span)
        elif self.pending_nbytes >= PENDING_NBYTES:
            self.drop_pending()
            if self.scattered_nbytes >= self._most:
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
            gone = [pages for slab in self._slabs.values() for pages in slab.counts.take()]
            self.scattered_nbytes = sum(slab.counts.partial_nbytes for slab in self._slabs.values())
            self._none_pending()
        for start, stop in gone:
            self._leave(start, stop)

    def drop_scattered(self) -> None:
        """Drop all of the slabs of which some was released: there is too much of it. Their pages count anew."""
        with self._lock:
            spans, self.scattered_nbytes = list(self._slabs), 0
            for slab in self._slabs.values():
                slab.counts = PageCounts(*self._bytes)
            self._none_pending()
        for span in spans:
            self._leave(*span)

    def _none_pending(self) -> None:
        self.pending_nbytes = 0
        for slab in self._slabs.values():
            slab.pending_nbytes = 0

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
