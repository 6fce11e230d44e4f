"""Outputs in a Zarr directory, written by region directly to chunk files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.chunks.chunked_source import pieces
from einturnip.storage.io.file_source import STAGING_NBYTES, as_bytes, staging
from einturnip.storage.io.pages import DirtyPages
from einturnip.storage.io.transfer import copy_blocked, read_extent, write_extent
from einturnip.storage.io.vectored_rows import rows_of, write_rows
from einturnip.storage.layout import blocks, c_layout, extent_nbytes
from einturnip.storage.outputs.zarr_container import ZarrContainer, chunk_shape
from einturnip.storage.types import Array, Extent, Region, region_shape


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """The part of a region in one chunk: window of the region, region of the chunk, and chunk file."""

    window: tuple[Any, ...]
    within: Region
    file: str


class ZarrSink:
    """One array of a Zarr directory. Extents count as in a contiguous tensor."""

    def __init__(self, name: str, container: ZarrContainer, key: str, shape: tuple[int, ...], dtype: DType) -> None:
        self.name, self.tier, self.shape, self.dtype = name, container.path, shape, dtype
        self._container, self._key = container, key
        self._folder = os.path.join(container.root, *key.strip("/").split("/"), "c")
        self._chunk = chunk_shape(shape, dtype.itemsize)
        self._whole, self._inside = c_layout(shape, dtype.itemsize, 0), c_layout(self._chunk, dtype.itemsize, 0)
        self._pages, self._open = DirtyPages(container.fd, self._opened, self._inside.nbytes), True

    def extent(self, region: Region) -> Extent:
        """The region's extent in a contiguous tensor."""
        return self._whole.extent(region)

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region."""
        return self._whole.extent(region)[1]

    def write(self, region: Region, array: Array) -> int:
        """Store the region, chunk by chunk.

        Raises:
            StoreError: the write fails.
        """
        self._check_open()
        for part in self._parts(region):
            extent = self._inside.extent(part.within)
            with self._opened(part.file) as fd:
                self._write(fd, part, extent, array[part.window])
            try:
                self._pages.wrote(extent, part.file)
            except OSError as error:
                raise self._container.explain(error) from error
        return array.nbytes

    def read(self, region: Region, out: Array) -> int:
        """Read written data back."""
        self._check_open()
        for part in self._parts(region):
            with self._opened(part.file) as fd:
                for stage, box, window in self._staged(part):
                    read_extent(fd, as_bytes(stage), self._inside.extent(box), self.name)
                    copy_blocked(out[part.window][window], stage)
        return out.nbytes

    def release(self, region: Region) -> None:
        """Nothing to do: pages leave the cache as they are written."""

    def commit(self) -> None:
        """Make the output durable and visible.

        With several arrays in one directory, when the last one commits.
        """
        self._check_open()
        self._open = False
        self._container.commit(self._key)

    def abort(self) -> None:
        """Discard the whole directory; without effect after its commit."""
        self._open = False
        self._container.abort()

    def close(self) -> None:
        """Abort, unless it was committed."""
        if self._open:
            self.abort()

    def _check_open(self) -> None:
        if not self._open or self._container.fd < 0:
            raise StoreError(f"{self.name}: was committed or aborted already")

    def _parts(self, region: Region) -> list[_ChunkPart]:
        self._whole.check(region)
        return [
            _ChunkPart(piece.window, piece.within, os.path.join(self._folder, *map(str, piece.chunk)))
            for piece in pieces(region, self._chunk)
        ]

    def _write(self, fd: int, part: _ChunkPart, extent: Extent, array: Array) -> None:
        explain = self._container.explain
        if not extent[2] and array.dtype == self.dtype.numpy:
            rows = [as_bytes(array)] if array.flags.c_contiguous else rows_of(array)
            if rows:
                write_rows(fd, rows, extent[0], explain)
                return
        for stage, box, window in self._staged(part):
            copy_blocked(stage, array[window])
            write_extent(fd, as_bytes(stage), self._inside.extent(box), explain)

    def _staged(self, part: _ChunkPart) -> Iterator[tuple[Array, Region, tuple[Any, ...]]]:
        """Yield the part a buffer at a time: memory, its region of the chunk, its window of the part."""
        dtype = self.dtype.numpy
        for box in blocks(part.within, dtype.itemsize, STAGING_NBYTES):
            nbytes = extent_nbytes(self._inside.extent(box))
            stage = staging()[:nbytes].view(dtype).reshape(region_shape(box))
            window = tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(box, part.within, strict=True))
            yield stage, box, (*window, ...)

    @contextmanager
    def _opened(self, file: str) -> Iterator[int]:
        try:
            fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise self._container.explain(error) from error
        try:
            yield fd
        finally:
            os.close(fd)
