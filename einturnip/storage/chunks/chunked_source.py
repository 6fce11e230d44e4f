"""Tensors stored in encoded chunks, read chunk by chunk with at most one decoded at a time."""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.file_versions import ChunkVersions, overwritten, version
from einturnip.storage.io.pages import PENDING_NBYTES
from einturnip.storage.layout import c_layout
from einturnip.storage.types import Array, Extent, Region, window

_STARTED_NBYTES = 1 << 20
"""Reserved for allocations of a library at its first read, such as its caches."""

_reading: weakref.WeakSet[ChunkedSource] = weakref.WeakSet()
_reading_lock = threading.Lock()  # a set must not grow while another thread lists it


def reading_nbytes() -> int:
    """Memory that reads of all open sources take in addition to their destinations.

    Each source is read by one thread at a time. Budgets include this memory before the first read.
    """
    with _reading_lock:
        return sum(source.reading_nbytes for source in _reading)


def largest_nbytes() -> tuple[str, int, int]:
    """The open source with the largest decoding memory: name, bytes of a chunk, bytes for decoding."""
    with _reading_lock:
        most = max(_reading, key=lambda source: source.reading_nbytes, default=None)
        return ("", 0, 0) if most is None else (most.name, most.chunk_nbytes, most.reading_nbytes)


class ChunkedSource:
    """A tensor read by ``decode(region, out)``, which is called for regions within one chunk.

    Extents count the bytes of the decoded tensor. ``reading_nbytes``: maximum memory that reading takes in addition to
    ``out``; one thread reads at a time. ``whole_chunks``: a chunk is decoded as a whole, also if a part of it is read.
    """

    whole_chunks = True

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        chunks: tuple[int, ...],
        decode: Callable[[Region, Array], None],
        close: Callable[[], None],
        reading_nbytes: int,
        fd: int = -1,
        versions: ChunkVersions | None = None,
    ) -> None:
        """``fd``: the only file of the tensor; ``versions``: those of its files, if there are several."""
        self.name = self.tier = name
        self.shape, self.dtype = shape, dtype
        self.chunks = tuple(max(1, min(c, n)) for c, n in zip(chunks, shape, strict=True))
        self.chunk_nbytes = math.prod(self.chunks) * dtype.itemsize
        self.reading_nbytes = reading_nbytes + _STARTED_NBYTES
        self._layout = c_layout(shape, dtype.itemsize, 0)
        self._decode, self._close, self._fd = decode, close, fd
        self._lock = threading.Lock()
        self._versions, self._version = versions, version(fd) if fd >= 0 else None
        self._open, self._passed, self._read_nbytes = True, 0, 0
        with _reading_lock:
            _reading.add(self)

    def extent(self, region: Region) -> Extent:
        """The region's extent in the decoded tensor."""
        return self._layout.extent(region)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` chunk by chunk.

        Raises:
            StoreError: a chunk cannot be read or decoded.
        """
        self._layout.check(region)
        if self._versions is None and self._read_nbytes >= self._layout.nbytes:
            self.require_unchanged()  # some of it is read again
        self._read_nbytes += out.nbytes
        for part in self._parts(region):
            with self._lock:
                if self._versions is not None:
                    self._versions.require(self._versions.place(part))
                try:
                    self._decode(part, out[window(part, region)])
                except StoreError:
                    self.require_unchanged()  # overwritten data look damaged
                    raise
                self._passed += math.prod(b - a for a, b in part) * self.dtype.itemsize
                if self._fd >= 0 and self._passed >= PENDING_NBYTES:
                    os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    self._passed = 0
        return out.nbytes

    def _parts(self, region: Region) -> Iterator[Region]:
        return parts(region, self.chunks)

    def require_unchanged(self) -> None:
        """Check that the files read so far have not changed.

        Raises:
            StoreError: one was overwritten.
        """
        if self._versions is not None:
            self._versions.require_all()
        if self._fd >= 0 and self._open and version(self._fd) != self._version:
            raise overwritten(self.name)

    def release(self, region: Region) -> None:
        """Nothing to do: pages leave the page cache as chunks are decoded."""

    def close(self) -> None:
        """Close the file."""
        if self._open:
            self._open = False
            with _reading_lock:
                _reading.discard(self)
            if self._fd >= 0:
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
            self._close()


@dataclass(frozen=True, slots=True)
class ChunkWindow:
    """The part of a region in one chunk: the chunk, the region of the chunk, the window of the region."""

    chunk: tuple[int, ...]
    within: Region
    window: tuple[Any, ...]


def pieces(region: Region, chunks: tuple[int, ...]) -> Iterator[ChunkWindow]:
    """The region chunk by chunk."""
    for part in parts(region, chunks):
        chunk = tuple(a // c for (a, _), c in zip(part, chunks, strict=True))
        within = tuple((a - k * c, b - k * c) for (a, b), k, c in zip(part, chunk, chunks, strict=True))
        yield ChunkWindow(chunk, within, window(part, region))


def parts(region: Region, chunks: tuple[int, ...]) -> Iterator[Region]:
    """Split a region at the chunk boundaries."""
    axes = []
    for (start, stop), chunk in zip(region, chunks, strict=True):
        borders = [start, *range((start // chunk + 1) * chunk, stop, chunk), stop]
        axes.append([(a, b) for a, b in itertools.pairwise(borders) if a < b])
    yield from itertools.product(*axes)
