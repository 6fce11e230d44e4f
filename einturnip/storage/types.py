"""The interfaces of stored tensors: kept outside compute memory, read and written by region."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.dtypes import DType

Region: TypeAlias = tuple[tuple[int, int], ...]
"""(start, stop) of each axis, half-open."""

Array: TypeAlias = NDArray[Any]

Repeats: TypeAlias = tuple[tuple[int, int], ...]
"""(count, stride in bytes) of repeated runs of bytes, outermost first."""

Extent: TypeAlias = tuple[int, int, Repeats]
"""(offset of the first run, bytes of one run, repeats), in the tier's own bytes."""


@runtime_checkable
class Source(Protocol):
    """A stored tensor that can be read by any number of threads at once.

    ``name`` is the file (and ``::key``) as the user wrote it, or the input's name for a caller's array. ``tier``
    identifies the bytes in which ``extent`` counts: the file for all its arrays, the array for itself.
    """

    @property
    def name(self) -> str:
        """Name of the file and key as the user wrote them, or of the input, in messages."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        ...

    @property
    def dtype(self) -> DType:
        """Element type of the tensor."""
        ...

    @property
    def tier(self) -> str:
        """Name of the file, or of the array, whose bytes ``extent`` counts."""
        ...

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region, in native byte order.

        Shapes: ``out`` has the region's shape and the source's dtype; C-contiguous is fastest.
        Units: the result is the number of bytes transferred.
        Raises: StoreError where the bytes are no longer there.
        """
        ...

    def extent(self, region: Region) -> Extent:
        """The region's extent."""
        ...

    def release(self, region: Region) -> None:
        """Announce that the region is not read again: its pages may leave the page cache."""
        ...

    def close(self) -> None:
        """Free the source's resources; idempotent."""
        ...


@runtime_checkable
class Sink(Source, Protocol):
    """A tensor being written, visible to others after ``commit``; written data can be read back."""

    def write(self, region: Region, array: Array) -> int:
        """Store ``array`` (the region's shape, the sink's dtype) and return the number of bytes transferred."""
        ...

    def commit(self) -> None:
        """Make the output durable and visible under its name (a container: when its last array commits)."""
        ...

    def abort(self) -> None:
        """Discard the written data; nothing remains, and an older file of that name is untouched."""
        ...


def transfer_itemsize(store: Source) -> float:
    """Bytes transferred for an element: its size, unless the store states its ``transferred`` bytes.

    Fewer if the tensor is stored in a smaller form, none if nothing is stored. Never more than a transfer counts.
    """
    size: float = getattr(store, "transferred", store.dtype.itemsize)
    return size


def contiguous_nbytes(store: Source, region: Region) -> int:
    """Length in bytes of the contiguous runs of a region; 0 for an empty one.

    A store of chunks counts within a chunk, by a method of this name.
    """
    own = getattr(store, "contiguous_nbytes", None)
    found: int = store.extent(region)[1] if own is None else own(region)
    return found


def region_shape(region: Region) -> tuple[int, ...]:
    """Number of points along each axis."""
    return tuple(stop - start for start, stop in region)


def whole(shape: tuple[int, ...]) -> Region:
    """The region of a whole tensor."""
    return tuple((0, n) for n in shape)


def slices(region: Region) -> tuple[slice, ...]:
    """The region as an index into an array."""
    return tuple(slice(start, stop) for start, stop in region)


def window(part: Region, region: Region) -> tuple[Any, ...]:
    """The part of a region as an index into the region's array; a view even if there are no axes."""
    return (*(slice(a - o, b - o) for (a, b), (o, _) in zip(part, region, strict=True)), ...)


def empty(region: Region, dtype: np.dtype[Any]) -> Array:
    """A fresh C-contiguous array of the region's shape."""
    return np.empty(region_shape(region), dtype)


def expanded_to(source: Source, dtype: DType) -> Source:
    """Convert a source to another float type if its file allows it; the result replaces the source."""
    change = getattr(source, "expanded_to", None)
    if change is None or dtype == source.dtype:
        return source
    changed: Source = change(dtype)
    return changed
