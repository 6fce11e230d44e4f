"""Tensors stored as a grid of files, each an unpacked chunk in C order: what Zarr makes without codecs.

Any part of a chunk is read straight from its file, by as many threads as there are: nothing is decoded and no library
is asked, and a tile that is smaller than a chunk costs no more than its own bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from einturnip.core.dtypes import DType
from einturnip.core.errors import StoreError
from einturnip.stores.chunked import pieces
from einturnip.stores.file_source import StoredTensor
from einturnip.stores.layout import c_layout, extent_nbytes
from einturnip.stores.pages import PENDING_NBYTES
from einturnip.stores.types import Array, Extent, Region

Coordinates = tuple[int, ...]
"""Which chunk it is along each axis."""


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
        self._lock = threading.Lock()
        # Bytes of each chunk that were released and are still in the page cache.
        self._released: dict[Coordinates, int] = {}

    def extent(self, region: Region) -> Extent:
        """Where the region's bytes would lie in one piece."""
        return self._whole.extent(region)

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region, in its first chunk."""
        self._whole.check(region)
        first = next(pieces(region, self.chunks), None)
        return 0 if first is None else self._inside.extent(first.within)[1]

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``, part by part.

        Raises:
            StoreError: a chunk's file cannot be read or has another size than its shape.
        """
        self._whole.check(region)
        for piece in pieces(region, self.chunks):
            self._read(piece.chunk, piece.within, out[piece.window])
        return out.nbytes

    def release(self, region: Region) -> None:
        """Count the region as done with: chunks leave the page cache once all of them is, or when many wait."""
        self._whole.check(region)
        for piece in pieces(region, self.chunks):
            chunk, nbytes = piece.chunk, extent_nbytes(self._inside.extent(piece.within))
            with self._lock:
                self._released[chunk] = self._released.get(chunk, 0) + nbytes
                full = self._released[chunk] >= self._inside.nbytes
                many = sum(self._released.values()) >= PENDING_NBYTES
                gone = list(self._released) if many else [chunk] if full else []
                for done in gone:
                    del self._released[done]
            self._drop(gone)

    def close(self) -> None:
        """Let what was read leave the page cache; twice is allowed."""
        with self._lock:
            gone, self._released = list(self._released), {}
        self._drop(gone)

    def _read(self, chunk: Coordinates, within: Region, out: Array) -> None:
        file = self._path(chunk)
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            out[...] = self._fill
            return
        except OSError as error:
            raise StoreError(f"{self.name}: its chunk {file} cannot be read: {error.strerror}") from error
        try:
            if (found := os.fstat(fd).st_size) != self._inside.nbytes:
                raise StoreError(
                    f"{self.name}: its chunk {file} has {found:,} bytes instead of {self._inside.nbytes:,}: "
                    "the directory is damaged"
                )
            stored = StoredTensor(self.name, fd, self._inside, self.dtype)
            try:
                stored.read(within, out)
            finally:
                stored.close()
        finally:
            os.close(fd)

    def _drop(self, chunks: list[Coordinates]) -> None:
        for chunk in chunks:
            try:
                fd = os.open(self._path(chunk), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # was never there, or is gone
                continue
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def fill_of(value: Any, dtype: DType) -> Any:
    """What unwritten elements hold; zero where the container states nothing."""
    return dtype.numpy.type(0) if value is None else np.asarray(value).astype(dtype.numpy)
