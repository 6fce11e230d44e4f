"""The layout of a tensor in memory that belongs to the caller, on the host or on a GPU."""

from __future__ import annotations

from einturnip.ir.dtypes import DType
from einturnip.storage.layout import StridedLayout
from einturnip.storage.types import Array, Extent, Region


class StridedArray:
    """A tensor in memory that belongs to the caller."""

    def __init__(self, name: str, array: Array, dtype: DType) -> None:
        self.name, self.array, self.dtype = name, array, dtype
        self.tier = name
        self.shape: tuple[int, ...] = array.shape
        low = sum(min(0, stride * (n - 1)) for n, stride in zip(array.shape, array.strides, strict=True) if n)
        self._layout = StridedLayout(array.shape, array.strides, array.itemsize, -low)

    def extent(self, region: Region) -> Extent:
        """The region's bytes as an extent, counted from the array's lowest address."""
        return self._layout.extent(region)

    def release(self, region: Region) -> None:
        """Nothing to do: the memory is the caller's."""

    def close(self) -> None:
        """Nothing to do: the memory is the caller's."""
