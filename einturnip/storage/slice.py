"""One slice of a stored tensor along its first axis, as a separate tensor."""

from __future__ import annotations

from einturnip.ir.dtypes import DType
from einturnip.storage.file_versions import require_unchanged
from einturnip.storage.types import Array, Extent, Region, Source, contiguous_nbytes, transfer_itemsize


class SliceSource:
    """Element ``at`` of ``source``'s first axis. Closing it leaves the source open."""

    def __init__(self, source: Source, at: int) -> None:
        self._source, self._at = source, at
        self.name, self.tier = source.name, source.tier
        self.shape: tuple[int, ...] = source.shape[1:]
        self.dtype: DType = source.dtype
        self.transferred = transfer_itemsize(source)

    def _region(self, region: Region) -> Region:
        return ((self._at, self._at + 1), *region)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region."""
        return self._source.read(self._region(region), out[None])

    def extent(self, region: Region) -> Extent:
        """The region's extent in the source."""
        return self._source.extent(self._region(region))

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region."""
        return contiguous_nbytes(self._source, self._region(region))

    def require_unchanged(self) -> None:
        """Check that the source's file has not changed."""
        require_unchanged(self._source)

    def release(self, region: Region) -> None:
        """Announce that the region is not read again."""
        self._source.release(self._region(region))

    def close(self) -> None:
        """Nothing to do: the source stays open for the next slice."""
