"""Which parts of a file are done with, so that their pages leave the page cache, and no page is read twice for it."""

from __future__ import annotations

import bisect
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from einturnip.storage.io.pages import MOST_WAITING_NBYTES, PENDING_NBYTES, waiting_nbytes
from einturnip.storage.layout import LONG_NBYTES, StridedLayout, extent_nbytes, extent_span, rows, starts
from einturnip.storage.types import Extent, Region, whole

REACH_NBYTES = 4 << 20
"""The page cache holds what is read ahead in pages of up to some MiB, which leave it only whole: so much of what was
released beside a range is dropped once more with it."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE = 1 << 12  # pages that are counted together
_LARGE_NBYTES = 1 << 17
_BITS = _PAGE.bit_length()
_BYTES = (1 << _BITS) - 1


class IntervalSet:
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

    Eight bytes for each page that was released in part (``partial_nbytes`` / 512), none for those that were not; those
    that are whole wait to be taken. What else the first and the last page hold counts as released with what is ours of
    them.
    """

    def __init__(self, start: int, stop: int, most_nbytes: int = sys.maxsize) -> None:
        """``most_nbytes``: of pages released in part, more of which are seldom to be counted."""
        self._start, self._stop = start, stop
        self._room = _place(min(-(-stop // _PAGE) - start // _PAGE, most_nbytes // _PAGE))
        self._partial = self._room[:0]  # numbers of pages, in order, each with its count in the low bits
        self._added = list[NDArray[np.int64]]()  # the same, in any order
        self._whole = list[NDArray[np.int64]]()  # numbers of pages

    @property
    def partial_nbytes(self) -> int:
        """Bytes of the pages that were released in part when pages were last counted, or more."""
        return _PAGE * len(self._partial)

    def add(self, begins: NDArray[np.int64], run: int) -> None:
        """Count ``run`` bytes from each of ``begins`` on as released; changes ``begins``."""
        of_each = -(-run // _PAGE) + 1
        near = len(begins) > 1 and int(np.diff(begins).min()) < _PAGE  # several in a page
        ends = begins + run
        begins[begins == self._start] -= self._start % _PAGE
        ends[ends == self._stop] += -self._stop % _PAGE
        pages = (begins // _PAGE)[:, None] + np.arange(of_each)
        inside = np.minimum(ends[:, None], _PAGE * (pages + 1)) - np.maximum(begins[:, None], _PAGE * pages)
        counted = ((pages << _BITS) + inside)[inside > 0]
        self._added.append(_summed(counted) if near else counted)
        if sum(map(len, self._added)) > _AT_ONCE:
            self._count()

    def take(self) -> Iterator[tuple[int, int]]:
        """Ranges of pages that are released whole, made as they are asked for; they count anew."""
        self._count()
        if not self._whole:
            return iter(())
        pages, self._whole = np.concatenate(self._whole), []
        pages.sort(kind="stable")
        ends = np.flatnonzero(np.diff(pages) > 1)
        firsts, lasts = pages[np.append(0, ends + 1)], pages[np.append(ends, -1)]
        return ((int(a) * _PAGE, int(b + 1) * _PAGE) for a, b in zip(firsts, lasts, strict=True))

    def forget(self, start: int, stop: int) -> None:
        """Count the pages that hold a range of the file's bytes anew."""
        self._count()
        first, last = start // _PAGE, -(-stop // _PAGE)
        left, after = np.searchsorted(self._partial, (first << _BITS, last << _BITS)).tolist()
        for begin in range(after, len(self._partial), _AT_ONCE):
            left = self._put(left, self._partial[begin : begin + _AT_ONCE])
        self._partial = self._partial[:left]
        self._whole = [left for pages in self._whole if (left := pages[(pages < first) | (pages >= last)]).size]

    def _count(self) -> None:
        """Count what was added with what there was of the same pages; in place, for that may be most of all we hold."""
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
        some = known & ~are_whole
        self._partial[at[some]] = added[some]
        self._remove(at[known & are_whole])
        self._insert(added[~known & ~are_whole])

    def _remove(self, gone: NDArray[np.int64]) -> None:
        """Take out what is at so many places, in order."""
        if not gone.size:
            return
        left = int(gone[0])
        for begin in range(left, len(self._partial), _AT_ONCE):
            inside = gone[slice(*np.searchsorted(gone, (begin, begin + _AT_ONCE)))]
            left = self._put(left, np.delete(self._partial[begin : begin + _AT_ONCE], inside - begin))
        self._partial = self._partial[:left]

    def _put(self, at: int, counts: NDArray[np.int64]) -> int:
        """Copy counts to where others were; gives where they end."""
        self._partial[at : at + len(counts)] = counts
        return at + len(counts)

    def _insert(self, new: NDArray[np.int64]) -> None:
        """Put in counts of other pages, which are in order."""
        if not new.size:
            return
        many = len(self._partial)
        if many + len(new) > len(self._room):
            self._room = _place(many + len(new) + 4 * _AT_ONCE)
            self._room[:many] = self._partial
        self._partial = self._room[: many + len(new)]
        self._partial[many:] = new
        begin = int(np.searchsorted(self._partial[:many], new[0]))
        self._partial[begin:].sort(kind="stable")  # two parts in order: at most the smaller is copied


def _summed(counted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each page once, in order, with all that was counted of it; sorts what it is given."""
    counted.sort(kind="stable")  # the quickest for what comes in order, but for a few breaks
    pages = counted >> _BITS
    firsts = np.flatnonzero(np.diff(pages, prepend=-1) > 0)
    return (pages[firsts] << _BITS) + np.minimum(np.add.reduceat(counted & _BYTES, firsts), _PAGE)


def _place(many: int) -> NDArray[np.int64]:
    """Place for numbers, of which those that are not used take no memory, and all goes back when it is dropped."""
    if many * 8 < _LARGE_NBYTES:
        return np.empty(many, np.int64)
    held = mmap.mmap(-1, many * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # malloc would keep it for its thread
    return np.frombuffer(held, np.int64)


def counts_nbytes(nbytes: int, run: int) -> int:
    """Bytes that it may take to count the pages of a tensor's file that is read in tiles of such runs."""
    ends = 2 * -(-nbytes // run)
    return 8 * min(-(-nbytes // _PAGE) + 1, ends, MOST_WAITING_NBYTES // _PAGE) if run < LONG_NBYTES else 0


@dataclass(slots=True)
class _Slab:
    """A slab of which some was released, but not yet all."""

    nbytes: int = 0  # that were released
    pending_nbytes: int = 0  # see ``PageEviction``


class PageEviction:
    """Which parts of a file were released; a slab of rows is dropped at once when the last tile of it is.

    A tile of a row-major matrix has thousands of short runs, and one call for each would cost more than the reading.
    The counts take 1/512 of the pages that wait (``PageCounts``): those that are soon dropped, of ``PENDING_NBYTES``,
    and those that tiles beside hold the rest of, of ``waiting_nbytes``. When more wait all leave, and are counted no
    longer; so whatever the file's size and the tile's, no more memory is held (``counts_nbytes``).
    ``leave``: lets the pages that hold a range of the file's bytes leave the page cache; None where nothing does.
    """

    def __init__(
        self,
        leave: Callable[[int, int], None] | None,
        layout: StridedLayout,
        file_order: tuple[int, ...],
        most: Callable[[], int] | None = None,
    ) -> None:
        """``most``: tells how many bytes may wait; ``waiting_nbytes`` if not stated."""
        self._tell_most = most or waiting_nbytes
        self._stays, self._layout, self._file_order = leave is None, layout, file_order
        self._leave = leave or _stay
        self._lock = threading.Lock()
        self._slabs: dict[tuple[int, int], _Slab] = {}
        self._bytes = extent_span(layout.extent(whole(layout.shape)))
        self._gone = IntervalSet()
        self.pending_nbytes = 0
        """Bytes of pages that tiles were released of since pages were last dropped before all of their slab was."""
        self.scattered_nbytes = 0
        """Of those that stayed then, because tiles beside hold the rest of them."""
        self._began = False
        self.complete = False
        """Whether all of the tensor was released, and nothing of it since."""

    @cached_property
    def _most(self) -> int:
        """Bytes that may wait, looked at once: it takes half a millisecond."""
        return self._tell_most()

    @cached_property
    def _counts(self) -> PageCounts:
        return PageCounts(*self._bytes, self._most)

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
        with self._lock:
            slab = self._slabs.setdefault(span, _Slab())
            slab.nbytes += nbytes
            full = slab.nbytes >= span[1] - span[0]
            if full:
                del self._slabs[span]
                self.pending_nbytes -= slab.pending_nbytes
                self._counts.forget(*span)
        if full:
            self._done(*span)
        else:
            self._count(extent, span, slab)

    def _count(self, extent: Extent, span: tuple[int, int], slab: _Slab) -> None:
        """Count the pages of an extent in a slab, until all of that was dropped; drop pages when many wait."""
        run = extent[1]
        cached = -(-(extent[0] % _PAGE + run) // _PAGE) * _PAGE
        for begins in starts(extent, _AT_ONCE // (-(-run // _PAGE) + 1)):
            with self._lock:
                if self._slabs.get(span) is not slab:
                    return
                slab.pending_nbytes += cached * len(begins)
                self.pending_nbytes += cached * len(begins)
                self._counts.add(begins, run)
            if self.pending_nbytes >= PENDING_NBYTES:
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
            gone = self._counts.take()
            self.scattered_nbytes = self._counts.partial_nbytes
            self._none_pending()
        for start, stop in gone:
            self._leave(start, stop)

    def drop_scattered(self) -> None:
        """Drop all of the slabs of which some was released: there is too much of it. Their pages count anew."""
        with self._lock:
            spans, self.scattered_nbytes = list(self._slabs), 0
            self._counts.forget(*self._bytes)
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
                self._gone = IntervalSet()  # whoever reads it again begins anew
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
