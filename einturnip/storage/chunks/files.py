"""Tensors stored as a grid of files, each a plain chunk in C order: Zarr without codecs.

Any part of a chunk is read directly from its file, by any number of threads. Nothing is decoded, and a tile smaller
than a chunk costs only its own bytes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.chunks.chunked_source import pieces
from einturnip.storage.file_versions import ChunkVersions
from einturnip.storage.io.coalesced_reads import BufferedReads
from einturnip.storage.io.file_source import StoredTensor
from einturnip.storage.io.page_eviction import PageEviction
from einturnip.storage.io.pages import PENDING_NBYTES, drop, waiting_nbytes
from einturnip.storage.layout import c_layout
from einturnip.storage.location import open_regular
from einturnip.storage.types import Array, Extent, Region

Coordinates = tuple[int, ...]
"""The coordinates of a chunk in the grid."""

MOST_OPEN = 16
"""Number of chunk files that stay open, so that the kernel's read-ahead continues where a reader left off."""


@dataclass(slots=True)
class _Opened:
    """A chunk's file, and the number of threads that read it."""

    stored: StoredTensor
    readers: int = 0

    def close(self) -> None:
        self.stored.close()
        os.close(self.stored.fd)


class ChunkFiles:
    """A tensor in chunks of one shape.

    Chunks at the far borders are stored whole. Missing chunks contain ``fill``.

    ``path``: the file of a chunk. Extents count as though the tensor were contiguous.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        chunks: tuple[int, ...],
        path: Callable[[Coordinates], str],
        fill: Any,
    ) -> None:
        self.name = self.tier = name
        self.shape, self.dtype, self.chunks = shape, dtype, chunks
        self._path, self._fill = path, fill
        self._whole = c_layout(shape, dtype.itemsize, 0)
        self._inside = c_layout(chunks, dtype.itemsize, 0)
        self._versions = ChunkVersions(name, shape, chunks, path)
        self._lock = threading.Lock()
        self._waiting: BufferedReads | None = None
        self._opened: dict[Coordinates, _Opened] = {}  # least recently used first
        # For each chunk that was released in part.
        self._pages: dict[Coordinates, PageEviction] = {}

    @cached_property
    def _most_waiting(self) -> int:
        """Maximum of bytes that wait in the page cache; computed once, because it takes half a millisecond."""
        return waiting_nbytes()

    def extent(self, region: Region) -> Extent:
        """The region's extent in a contiguous tensor."""
        return self._whole.extent(region)

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region, in its first chunk."""
        self._whole.check(region)
        first = next(pieces(region, self.chunks), None)
        return 0 if first is None else self._inside.extent(first.within)[1]

    def read_whole(self) -> None:
        """Announce that the whole tensor will be read: bytes of a chunk near a cold run may be read ahead."""
        if self._waiting is None:
            self._waiting = BufferedReads()

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``, part by part.

        Raises:
            StoreError: a chunk's file cannot be read or has another size than its shape.
        """
        self._whole.check(region)
        for piece in pieces(region, self.chunks):
            self._read(piece.chunk, piece.within, out[piece.window])
        return out.nbytes

    def require_unchanged(self) -> None:
        """Check that the chunk files read so far have not changed.

        Raises:
            StoreError: one was overwritten.
        """
        self._versions.require_all()

    def release(self, region: Region) -> None:
        """Mark the region as finished; complete chunks leave the page cache, and all pages when too many wait."""
        self._whole.check(region)
        for piece in pieces(region, self.chunks):
            with self._lock:
                if piece.chunk not in self._pages:
                    order = tuple(range(len(self.shape)))
                    self._pages[piece.chunk] = PageEviction(
                        partial(self._drop, piece.chunk), self._inside, order, lambda: self._most_waiting
                    )
                pages = self._pages[piece.chunk]
            pages.release(piece.within)
            with self._lock:
                if pages.complete:
                    self._pages.pop(piece.chunk, None)
                waiting = list(self._pages.values())
            if sum(p.pending_nbytes for p in waiting) >= PENDING_NBYTES:
                for p in waiting:
                    p.drop_pending()
                if sum(p.scattered_nbytes for p in waiting) >= self._most_waiting:
                    for p in waiting:
                        p.drop_scattered()

    def close(self) -> None:
        """Let all pages that were read leave the page cache; idempotent."""
        with self._lock:
            left, self._pages = list(self._pages.values()), {}
        for pages in left:
            pages.close()
        with self._lock:
            opened, self._opened = list(self._opened.values()), {}
        for chunk in opened:
            chunk.close()

    def _read(self, chunk: Coordinates, within: Region, out: Array) -> None:
        with self._open(chunk) as stored:
            if stored is None:
                out[...] = self._fill
            else:
                stored.read(within, out)

    @contextmanager
    def _open(self, chunk: Coordinates) -> Iterator[StoredTensor | None]:
        """The chunk's open file, kept open afterwards while it is among the most recent; None without a file."""
        with self._lock:
            found = self._opened.pop(chunk, None) or self._new(chunk)
            if found is not None:
                self._opened[chunk] = found
                found.readers += 1
        try:
            yield None if found is None else found.stored
        finally:
            with self._lock:
                if found is not None:
                    found.readers -= 1
                if (many := len(self._opened) - MOST_OPEN) > 0:
                    for old in [c for c, o in self._opened.items() if not o.readers][:many]:
                        self._opened.pop(old).close()

    def _new(self, chunk: Coordinates) -> _Opened | None:
        file = self._path(chunk)
        self._versions.require(chunk)
        try:
            fd, status = open_regular(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.name}: its chunk {file} cannot be read: {error.strerror}") from error
        try:
            if (found := status.st_size) != self._inside.nbytes:
                raise StoreError(
                    f"{self.name}: its chunk {file} has {found:,} bytes instead of {self._inside.nbytes:,}: "
                    "the directory is damaged"
                )
            stored = StoredTensor(self.name, fd, self._inside, self.dtype)
            if self._waiting is not None:
                stored.allow_reading_ahead(self._waiting)
            return _Opened(stored)
        except BaseException:
            os.close(fd)
            raise

    def _drop(self, chunk: Coordinates, start: int, stop: int) -> None:
        """Drop pages of a chunk's file from the page cache."""
        with contextlib.suppress(StoreError), self._open(chunk) as stored:  # the file may be gone
            if stored is not None:
                drop(stored.fd, start, stop)


def fill_of(value: Any, dtype: DType) -> Any:
    """The value of unwritten elements; zero unless the container states one."""
    return dtype.numpy.type(0) if value is None else np.asarray(value).astype(dtype.numpy)
