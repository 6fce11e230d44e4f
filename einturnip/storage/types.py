"""What a store is: a tensor kept outside compute memory that is read and written by region."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.dtypes import DType

Region: TypeAlias = tuple[tuple[int, int], ...]
"""(start, stop) of each axis, half-open."""

Array: TypeAlias = NDArray[Any]

Repeats: TypeAlias = tuple[tuple[int, int], ...]
"""(count, stride in bytes), outermost first: how often one run of bytes is repeated and how far apart."""

Extent: TypeAlias = tuple[int, int, Repeats]
"""(byte offset of the first run, nbytes of one run, repeats) in the tier's own bytes."""


@runtime_checkable
class Source(Protocol):
    """A stored tensor that can be read, from any number of threads at once.

    ``name`` is the file (and ``::key``) as the user wrote it, or the input's name for an array of the caller.
    ``tier`` names the bytes that ``extent`` counts in: the file for all its arrays, the array for itself.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def tier(self) -> str: ...

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region, in native byte order.

        Shapes: ``out`` has the region's shape and the source's dtype; C-contiguous is fastest.
        Units: the result is the number of bytes transferred.
        Raises: StoreError where the bytes are no longer there.
        """
        ...

    def extent(self, region: Region) -> Extent:
        """Where the region's bytes lie."""
        ...

    def contiguous_nbytes(self, region: Region) -> int:
        """Length in bytes of the contiguous runs that the region is made of; 0 for an empty one."""
        ...

    def release(self, region: Region) -> None:
        """Say that the region is not read again: its pages may leave the page cache."""
        ...

    def close(self) -> None:
        """Give back what the source holds; twice is allowed."""
        ...


@runtime_checkable
class Sink(Source, Protocol):
    """A tensor being written: seen by others whole after ``commit``, or not at all. What was written can be read."""

    def write(self, region: Region, array: Array) -> int:
        """Store ``array`` (the region's shape, the sink's dtype) and return the number of bytes transferred."""
        ...

    def commit(self) -> None:
        """Make the output durable and visible under its name (a container: when its last array commits)."""
        ...

    def abort(self) -> None:
        """Drop what was written; nothing stays behind and an older file of that name is untouched."""
        ...


def transfer_itemsize(store: Source) -> float:
    """Bytes transferred for an element: its size, unless the store has another ``transferred``.

    Fewer where the tensor is stored in a smaller form, none where nothing is stored. Never more than a transfer counts.
    """
    size: float = getattr(store, "transferred", store.dtype.itemsize)
    return size


def region_shape(region: Region) -> tuple[int, ...]:
    """Number of points along each axis."""
    return tuple(stop - start for start, stop in region)


def whole(shape: tuple[int, ...]) -> Region:
    """The region that is all of a tensor."""
    return tuple((0, n) for n in shape)


def slices(region: Region) -> tuple[slice, ...]:
    """The region as an index into an array."""
    return tuple(slice(start, stop) for start, stop in region)


def empty(region: Region, dtype: np.dtype[Any]) -> Array:
    """A fresh C-contiguous array of the region's shape."""
    return np.empty(region_shape(region), dtype)
