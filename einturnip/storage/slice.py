"""One slice of a tensor, at an index along some of its axes, as a separate tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.storage.arrays import ArraySink, ArraySource
from einturnip.storage.file_versions import require_unchanged
from einturnip.storage.types import Array, Extent, Region, Sink, Source, contiguous_nbytes, transfer_itemsize, whole

MAX_ARRAY_NBYTES = 4 << 20
"""[bytes] Maximum size of a slice of a file that is read into an array, so that small steps run on arrays."""


class SliceSource:
    """The elements of ``source`` at the indices ``at``, by axis. Closing it leaves the source open."""

    def __init__(self, source: Source, at: Mapping[int, int]) -> None:
        self.of, self.at = source, dict(at)
        self._axes = tuple(sorted(at))
        self.name, self.tier = source.name, source.tier
        self.shape: tuple[int, ...] = tuple(n for axis, n in enumerate(source.shape) if axis not in at)
        self.dtype: DType = source.dtype
        self.transferred = transfer_itemsize(source)

    def _region(self, region: Region) -> Region:
        rest = iter(region)
        at = self.at
        return tuple((at[a], at[a] + 1) if a in at else next(rest) for a in range(len(self.of.shape)))

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region."""
        return self.of.read(self._region(region), np.expand_dims(out, self._axes))

    def extent(self, region: Region) -> Extent:
        """The region's extent in the source."""
        return self.of.extent(self._region(region))

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region."""
        return contiguous_nbytes(self.of, self._region(region))

    def require_unchanged(self) -> None:
        """Check that the source's file has not changed."""
        require_unchanged(self.of)

    def release(self, region: Region) -> None:
        """Announce that the region is not read again."""
        self.of.release(self._region(region))

    def close(self) -> None:
        """Nothing to do: the source stays open for the next slice."""


class SliceSink(SliceSource):
    """A slice of a tensor that is being written."""

    def __init__(self, sink: Sink, at: Mapping[int, int]) -> None:
        super().__init__(sink, at)
        self._sink = sink

    def write(self, region: Region, array: Array) -> int:
        """Store the region."""
        return self._sink.write(self._region(region), np.expand_dims(array, self._axes))

    def commit(self) -> None:
        """Nothing to do: the whole tensor is committed."""

    def abort(self) -> None:
        """Nothing to do: the whole tensor is aborted."""


def slice_source(source: Source, at: Mapping[int, int]) -> Source:
    """A slice to read: of an array a view, of a file an array if it is small."""
    if isinstance(source, ArraySource):
        return ArraySource(source.name, source.array[slice_index(len(source.shape), at)], source.dtype)
    found = SliceSource(source, at)
    if math.prod(found.shape) * found.dtype.itemsize > MAX_ARRAY_NBYTES:
        return found
    out = np.empty(found.shape, found.dtype.numpy)
    found.read(whole(found.shape), out)
    found.require_unchanged()
    return ArraySource(found.name, out, found.dtype)


def slice_sink(sink: Sink, at: Mapping[int, int]) -> Sink:
    """A slice to write: of an array a view."""
    if isinstance(sink, ArraySink):
        return ArraySink(sink.name, sink.array[slice_index(len(sink.shape), at)], sink.dtype)
    return SliceSink(sink, at)


def slice_index(rank: int, at: Mapping[int, int]) -> tuple[Any, ...]:
    """The index of a slice into an array, which is a view even if no axis is left."""
    return (*(at.get(axis, slice(None)) for axis in range(rank)), ...)
