"""Tracks the finished parts of a file, so that their pages leave the cache and none is read twice."""

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

from einturnip.storage.io.pages import MAX_WAITING_NBYTES, PENDING_NBYTES, waiting_nbytes
from einturnip.storage.layout import LONG_NBYTES, StridedLayout, extent_nbytes, extent_span, rows, starts
from einturnip.storage.types import Extent, Region, whole

REACH_NBYTES = 4 << 20
"""Page-cache folios from read-ahead have up to some MiB and leave only as a whole. Therefore this number of released
bytes next to a range is dropped again with it."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE = 1 << 12  # pages counted together
_LARGE_NBYTES = 1 << 17
_BITS = _PAGE.bit_length()
_BYTES = (1 << _BITS) - 1


class IntervalSet:
    """A set of numbers as disjoint ranges; adjacent ranges are merged."""

    def __init__(self) -> None:
        self._starts, self._stops = list[int](), list[int]()

    def add(self, start: int, stop: int) -> tuple[int, int]:
        """Add a range; returns the merged range that contains it."""
        first, last = bisect.bisect_left(self._stops, start), bisect.bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last], self._stops[first:last] = [start], [stop]
        return start, stop


class PageCounts:
    """Counts the released bytes of each page of bytes ``start`` to ``stop`` since it was dropped.

    A partly released page takes eight bytes (``partial_nbytes`` / 512), an untouched page none; completed pages wait
    for ``take``. Bytes outside of the range in the first and last page count as released with the rest of the page.
    """

    def __init__(self, start: int, stop: int, most_nbytes: int = sys.maxsize) -> None:
        """``most_nbytes``: expected maximum of partly released pages, in bytes."""
        self._start, self._stop = start, stop
        self._room = _place(min(-(-stop // _PAGE) - start // _PAGE, most_nbytes // _PAGE))
        self._partial = self._room[:0]  # sorted page numbers, each with its count in the low bits
        self._added = list[NDArray[np.int64]]()  # the same, unsorted
        self._whole = list[NDArray[np.int64]]()  # numbers of pages

    @property
    def partial_nbytes(self) -> int:
        """Upper bound on the bytes of partly released pages, as of the last count."""
        return _PAGE * len(self._partial)

    def add(self, begins: NDArray[np.int64], run: int) -> None:
        """Count ``run`` bytes from each of ``begins`` as released; modifies ``begins``."""
        of_each = -(-run // _PAGE) + 1
        near = len(begins) > 1 and int(np.diff(begins).min()) < _PAGE  # several runs in a page
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
        """Yield ranges of completed pages lazily, and reset their counts."""
        self._count()
        if not self._whole:
            return iter(())
        pages, self._whole = np.concatenate(self._whole), []
        pages.sort(kind="stable")
        ends = np.flatnonzero(np.diff(pages) > 1)
        firsts, lasts = pages[np.append(0, ends + 1)], pages[np.append(ends, -1)]
        return ((int(a) * _PAGE, int(b + 1) * _PAGE) for a, b in zip(firsts, lasts, strict=True))

    def forget(self, start: int, stop: int) -> None:
        """Reset the counts of the pages of a byte range."""
        self._count()
        first, last = start // _PAGE, -(-stop // _PAGE)
        left, after = np.searchsorted(self._partial, (first << _BITS, last << _BITS)).tolist()
        for begin in range(after, len(self._partial), _AT_ONCE):
            left = self._put(left, self._partial[begin : begin + _AT_ONCE])
        self._partial = self._partial[:left]
        self._whole = [left for pages in self._whole if (left := pages[(pages < first) | (pages >= last)]).size]

    def _count(self) -> None:
        """Merge added counts into the existing ones in place, because they may be most of the memory in use."""
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
        """Remove the entries at sorted positions."""
        if not gone.size:
            return
        left = int(gone[0])
        for begin in range(left, len(self._partial), _AT_ONCE):
            inside = gone[slice(*np.searchsorted(gone, (begin, begin + _AT_ONCE)))]
            left = self._put(left, np.delete(self._partial[begin : begin + _AT_ONCE], inside - begin))
        self._partial = self._partial[:left]

    def _put(self, at: int, counts: NDArray[np.int64]) -> int:
        """Copy counts over old ones; returns their end."""
        self._partial[at : at + len(counts)] = counts
        return at + len(counts)

    def _insert(self, new: NDArray[np.int64]) -> None:
        """Insert sorted counts of other pages."""
        if not new.size:
            return
        many = len(self._partial)
        if many + len(new) > len(self._room):
            self._room = _place(many + len(new) + 4 * _AT_ONCE)
            self._room[:many] = self._partial
        self._partial = self._room[: many + len(new)]
        self._partial[many:] = new
        begin = int(np.searchsorted(self._partial[:many], new[0]))
        self._partial[begin:].sort(kind="stable")  # merges two sorted parts: copies at most the smaller


def _summed(counted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum the counts of equal pages and sort them; sorts its argument."""
    counted.sort(kind="stable")  # fastest for almost sorted data
    pages = counted >> _BITS
    firsts = np.flatnonzero(np.diff(pages, prepend=-1) > 0)
    return (pages[firsts] << _BITS) + np.minimum(np.add.reduceat(counted & _BYTES, firsts), _PAGE)


def _place(many: int) -> NDArray[np.int64]:
    """Allocate space for numbers.

    Unused pages take no memory, and all memory is returned when it is freed.
    """
    if many * 8 < _LARGE_NBYTES:
        return np.empty(many, np.int64)
    held = mmap.mmap(-1, many * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # malloc would keep it in its pool
    return np.frombuffer(held, np.int64)


def counts_nbytes(nbytes: int, run: int) -> int:
    """Maximum memory for counting the pages of a tensor's file that is read in tiles with such runs."""
    ends = 2 * -(-nbytes // run)
    return 8 * min(-(-nbytes // _PAGE) + 1, ends, MAX_WAITING_NBYTES // _PAGE) if run < LONG_NBYTES else 0


@dataclass(slots=True)
class _Slab:
    """A partly released slab of rows."""

    nbytes: int = 0  # released bytes
    pending_nbytes: int = 0  # see ``PageEviction``


class PageEviction:
    """Tracks released parts of a file; a slab of rows is dropped at once when its last tile is released.

    A tile of a row-major matrix has thousands of short runs, and a system call for each would cost more than reading
    them. The counts take 1/512 of the waiting pages (``PageCounts``): up to ``PENDING_NBYTES`` of completed pages, and
    up to ``waiting_nbytes`` of pages that neighbouring tiles still need. Beyond that, all pages are dropped and their
    counts reset. The memory is therefore bounded (``counts_nbytes``), whatever the sizes of file and tile.

    ``leave``: drops the pages of a byte range from the page cache; None if pages cannot be dropped.
    """

    def __init__(
        self,
        leave: Callable[[int, int], None] | None,
        layout: StridedLayout,
        file_order: tuple[int, ...],
        most: Callable[[], int] | None = None,
    ) -> None:
        """``most``: returns the maximum of waiting bytes; ``waiting_nbytes`` by default."""
        self._tell_most = most or waiting_nbytes
        self._stays, self._layout, self._file_order = leave is None, layout, file_order
        self._leave = leave or _stay
        self._lock = threading.Lock()
        self._slabs: dict[tuple[int, int], _Slab] = {}
        self._bytes = extent_span(layout.extent(whole(layout.shape)))
        self._gone = IntervalSet()
        self.pending_nbytes = 0
        """Bytes of pages with released parts since pages were last dropped before their slab was complete."""
        self.scattered_nbytes = 0
        """Those of them that stayed because neighbouring tiles need them."""
        self._began = False
        self.complete = False
        """True if all of the tensor was released, and nothing since."""

    @cached_property
    def _most(self) -> int:
        """Maximum of waiting bytes; computed once, because it takes half a millisecond."""
        return self._tell_most()

    @cached_property
    def _counts(self) -> PageCounts:
        return PageCounts(*self._bytes, self._most)

    def release(self, region: Region) -> None:
        """Mark the region as finished, and drop the completed pages."""
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
        """Count the pages of an extent in a slab, unless the slab was dropped; drop pages when too many wait."""
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
        """Drop the completed pages of incomplete slabs."""
        with self._lock:
            gone = self._counts.take()
            self.scattered_nbytes = self._counts.partial_nbytes
            self._none_pending()
        for start, stop in gone:
            self._leave(start, stop)

    def drop_scattered(self) -> None:
        """Drop all pages of partly released slabs, because too many wait, and reset their counts."""
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
        """Drop a finished range. A page at its ends with unfinished bytes stays, and is dropped with those.

        If it were dropped, it would be read twice, and the kernel would restart its read-ahead with small pages
        (measured: half the rate, and a sixth of the file read twice).
        """
        with self._lock:
            first, last = self._gone.add(start, stop)
            self.complete = (first, last) == self._bytes
            if self.complete:
                self._gone = IntervalSet()  # a new pass over the tensor begins
        first, last = max(first, start - REACH_NBYTES), min(last, stop + REACH_NBYTES)
        first = first // _PAGE if first == self._bytes[0] else -(-first // _PAGE)
        last = -(-last // _PAGE) if last == self._bytes[1] else last // _PAGE
        if first < last:
            self._leave(first * _PAGE, last * _PAGE)

    def _slab(self, region: Region) -> Region:
        """Extend the region to the whole of every axis after the first axis with more than one point."""
        slab, inner = list(region), False
        for axis in self._file_order:
            if inner:
                slab[axis] = (0, self._layout.shape[axis])
            inner = inner or region[axis][1] - region[axis][0] > 1
        return tuple(slab)


def _stay(start: int, stop: int) -> None:
    """A no-op in place of dropping pages."""
