"""Objects with a shape, a dtype and slicing as sources: read region by region, never as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, EinturnipError, StoreError
from einturnip.ir.dtypes import DType, from_numpy
from einturnip.storage.arrays import ArraySource
from einturnip.storage.chunks.chunk_grid import ChunkGrid, GridSource, Index
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.layout import blocks
from einturnip.storage.types import Array, Region, region_shape, slices, window

PART_NBYTES = 4 << 20
"""[bytes] Maximum size of a region that is fetched at once from an object without chunks."""

CHUNK_COPIES = 3.0
"""Chunks in memory while a library decodes one: the encoded one, the decoded one, and the one before."""


def kind_of(value: object) -> str:
    """The type of a caller's object, in messages."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class ObjectReader:
    """Fetches regions of an object, and checks that they are what the object promised.

    ``fetch`` returns the elements of a region, as anything that ``np.asarray`` takes; ``stated`` returns the shape that
    the object has now.
    """

    def __init__(
        self,
        name: str,
        value: object,
        shape: tuple[int, ...],
        dtype: DType,
        fetch: Callable[[Region], Any],
        stated: Callable[[], tuple[int, ...]],
    ) -> None:
        self.name, self.kind, self.shape, self.dtype = name, kind_of(value), shape, dtype
        self._fetch, self._stated = fetch, stated

    def read(self, region: Region) -> Array:
        """Return a region.

        Raises:
            StoreError: the object cannot read it, or returns another shape or dtype than it stated.
        """
        try:
            found = np.asarray(self._fetch(region))
        except EinturnipError:
            raise
        except Exception as error:
            raise StoreError(
                f"input {self.name}: the {self.kind} given cannot read {_shown(region)} of its shape "
                f"{list(self.shape)}: {type(error).__name__}: {error}"
            ) from error
        try:
            same = found.shape == region_shape(region) and from_numpy(found.dtype) == self.dtype
        except KeyError:
            same = False
        if not same:
            raise StoreError(
                f"input {self.name}: the {self.kind} given is {self.dtype}{list(self.shape)}, so {_shown(region)} of "
                f"it should be {self.dtype}{list(region_shape(region))}, but it returned "
                f"{found.dtype}{list(found.shape)}"
            )
        return found

    def require_shape(self) -> None:
        """Check that the object has the shape for which the run was planned.

        Raises:
            BindError: it has not, or cannot be read any more.
        """
        try:
            shape = self._stated()
        except Exception as error:
            raise BindError(
                f"input {self.name}: the {self.kind} given cannot be read any more ({type(error).__name__}: {error}). "
                "help: keep it open until the run has ended"
            ) from error
        if shape != self.shape:
            raise BindError(
                f"input {self.name}: the {self.kind} given had shape {list(self.shape)} when the run was planned and "
                f"has {list(shape)} now. help: plan again"
            )


class SlicedSource(ChunkedSource):
    """An object without chunks, such as a contiguous ``h5py.Dataset``, a table, or sparse coordinates."""

    def __init__(self, reader: ObjectReader) -> None:
        self.reader = reader
        nothing = (lambda *_: None), (lambda: None)
        super().__init__(reader.name, reader.shape, reader.dtype, reader.shape, *nothing, reading_nbytes=PART_NBYTES)
        self.whole_chunks = False

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region, in parts of bounded size.

        Raises:
            StoreError: the object cannot be read, or returns something else than it stated.
        """
        self._layout.check(region)
        for part in blocks(region, self.dtype.itemsize, PART_NBYTES):
            if 0 not in region_shape(part):
                with self._lock:
                    copy_blocked(out[window(part, region)], self.reader.read(part))
        return out.nbytes


class ChunkedObject(GridSource):
    """An object in chunks of one shape, such as a ``zarr.Array``, which is read by whole chunks."""

    def __init__(self, reader: ObjectReader, chunks: tuple[int, ...]) -> None:
        self.reader = reader
        grid = ChunkGrid(
            tuple((*range(0, n, c), n) if n else (0, 0) for n, c in zip(reader.shape, chunks, strict=True))
        )
        super().__init__(reader.name, grid, reader.dtype, self._read_chunk, CHUNK_COPIES)

    def _read_chunk(self, index: Index) -> Array:
        found = self.reader.read(self.grid.region(index))
        return found.astype(self.dtype.numpy, copy=False)  # files may have another byte order


def sliced_source(
    value: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: DType,
    fetch: Callable[[Region], Any] | None = None,
    chunks: tuple[int, ...] | None = None,
) -> SlicedSource | ChunkedObject:
    """Return the source of an object that is read by slicing, or by ``fetch``.

    ``chunks``: its chunk shape, if it has one.
    """
    reader = ObjectReader(
        name, value, shape, dtype, fetch or (lambda region: value[slices(region)]), lambda: tuple(value.shape)
    )
    return SlicedSource(reader) if chunks is None else ChunkedObject(reader, chunks)


def require_shape(source: object) -> None:
    """Check that a caller's object still has the shape for which a run was planned.

    Raises:
        BindError: it has not.
    """
    reader: ObjectReader | None = getattr(source, "reader", None)
    if reader is not None:
        reader.require_shape()
    if isinstance(source, ArraySource) and source.array.shape != source.shape:
        raise BindError(
            f"input {source.name}: the array given had shape {list(source.shape)} when the run was planned and has "
            f"{list(source.array.shape)} now. help: plan again"
        )


def _shown(region: Region) -> str:
    return f"[{', '.join(f'{a}:{b}' for a, b in region)}]"
