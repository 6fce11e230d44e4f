"""Tensors stored as a grid of files, each an unpacked chunk in C order: what Zarr makes without codecs.

Any part of a chunk is read straight from its file, by as many threads as there are: nothing is decoded and no library
is asked, and a tile that is smaller than a chunk costs no more than its own bytes.
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
from einturnip.storage.io.small_files import open_regular
from einturnip.storage.layout import c_layout
from einturnip.storage.types import Array, Extent, Region

Coordinates = tuple[int, ...]
"""Which chunk it is along each axis."""

MOST_OPEN = 16
"""Chunks whose files stay open: their reader goes on where it was, and the kernel reads ahead of it."""


@dataclass(slots=True)
class _Opened:
    """A chunk's file, and how many threads read it."""

    stored: StoredTensor
    readers: int = 0

    def close(self) -> None:
        self.stored.close()
        os.close(self.stored.fd)


class ChunkFiles:
    """A tensor in chunks of one shape; those at the far borders are stored whole. Chunks without a file hold ``fill``.

    ``path``: the file of a chunk. Extents count as though the tensor lay in one piece.
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
        self._opened: dict[Coordinates, _Opened] = {}  # used longest ago first
        # Of each chunk of which some was released, but not yet all.
        self._pages: dict[Coordinates, PageEviction] = {}

    @cached_property
    def _most_waiting(self) -> int:
        """Bytes; looked at once, for it takes half a millisecond."""
        return waiting_nbytes()

    def extent(self, region: Region) -> Extent:
        """Where the region's bytes would lie in one piece."""
        return self._whole.extent(region)

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region, in its first chunk."""
        self._whole.check(region)
        first = next(pieces(region, self.chunks), None)
        return 0 if first is None else self._inside.extent(first.within)[1]

    def read_whole(self) -> None:
        """Say that all of the tensor will be read: what lies in a chunk beside a cold run may be read with it."""
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
        """See to it that the chunks that were read are as they were.

        Raises:
            StoreError: one was overwritten.
        """
        self._versions.require_all()

    def release(self, region: Region) -> None:
        """Count the region as done with: what is whole of a chunk leaves the page cache, and all when much waits."""
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
        """Let what was read leave the page cache; twice is allowed."""
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
        """The chunk's file, open until the block ends and as long after as it is among the latest; None without one."""
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
                stored.read_beside(self._waiting)
            return _Opened(stored)
        except BaseException:
            os.close(fd)
            raise

    def _drop(self, chunk: Coordinates, start: int, stop: int) -> None:
        """Let pages of a chunk's file leave the page cache."""
        with contextlib.suppress(StoreError), self._open(chunk) as stored:  # it may be gone
            if stored is not None:
                drop(stored.fd, start, stop)


def fill_of(value: Any, dtype: DType) -> Any:
    """What unwritten elements hold; zero where the container states nothing."""
    return dtype.numpy.type(0) if value is None else np.asarray(value).astype(dtype.numpy)
