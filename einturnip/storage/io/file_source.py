"""An uncompressed tensor in a file: read by region with ``preadv``, never memory-mapped."""

from __future__ import annotations

import os
import threading

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.dtypes import DType
from einturnip.storage.file_versions import overwritten, version
from einturnip.storage.io.coalesced_reads import STRETCH_NBYTES, BufferedReads, CoalescedReads
from einturnip.storage.io.page_eviction import PageEviction
from einturnip.storage.io.pages import page_dropper
from einturnip.storage.io.transfer import copy_blocked, read_extent
from einturnip.storage.io.vectored_rows import read_rows, rows_of
from einturnip.storage.layout import LONG_NBYTES, StridedLayout, blocks, extent_nbytes
from einturnip.storage.types import Array, Extent, Region, region_shape

STAGING_NBYTES = 1 << 18
"""Buffer of one thread for reordering axes; it fits in the second-level cache."""

_SEQUENTIAL_NBYTES = 1 << 22

_threads = threading.local()


def staging() -> Array:
    """This thread's reordering buffer, allocated once."""
    buffer: Array | None = getattr(_threads, "buffer", None)
    if buffer is None:
        buffer = _threads.buffer = np.empty(STAGING_NBYTES, np.uint8)
    return buffer


def as_bytes(array: Array) -> memoryview:
    """The memory of a C-contiguous array of any dtype (bf16 lacks the buffer protocol) and any rank."""
    raw: NDArray[np.uint8] = array.reshape(-1).view(np.uint8)
    return raw.data


class StoredTensor:
    """Reading of a file, common to sources and unfinished sinks.

    The caller closes ``fd``. It gets ``POSIX_FADV_RANDOM``, because the kernel would otherwise read megabytes around
    every row. Long runs, and tensors that are read whole, use a second descriptor with read-ahead, which doubles the
    rate. ``beside``: another tensor of the same file, whose descriptors serve both; it must be closed last.
    """

    def __init__(
        self,
        name: str,
        fd: int,
        layout: StridedLayout,
        dtype: DType,
        swapped: bool = False,
        beside: StoredTensor | None = None,
    ) -> None:
        self.name, self.fd, self.layout, self.dtype, self.swapped = name, fd, layout, dtype, swapped
        self.shape = layout.shape
        ndim = len(layout.shape)
        self._mirrored = ndim > 1 and layout.strides[0] < layout.strides[-1]
        self.file_order = tuple(reversed(range(ndim))) if self._mirrored else tuple(range(ndim))
        self._borrows = beside is not None
        self._stretches: CoalescedReads | None = None
        if beside is not None:
            self._sequential_fd: int = beside._sequential_fd
            return
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._sequential_fd = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the second descriptor; idempotent."""
        if self._sequential_fd >= 0 and not self._borrows:
            os.close(self._sequential_fd)
        self._sequential_fd = -1

    def allow_reading_ahead(self, waiting: BufferedReads) -> None:
        """Allow reading ahead near cold runs from now on; ``waiting`` counts the bytes read ahead."""
        self._stretches = CoalescedReads(self._sequential_fd, self.layout, waiting)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region; returns its bytes."""
        extent = self.layout.extent(region)
        nbytes = extent_nbytes(extent)
        if nbytes == 0:
            return 0
        if out.flags.c_contiguous and (not self._mirrored or not extent[2] and _is_line(region)):
            self._fill(out, extent)
        elif not self._mirrored and not extent[2] and (rows := rows_of(out)):
            read_rows(self._reader(extent), rows, extent[0], self.name)
            self._turn(out)
        else:
            self._read_staged(region, out)
        return nbytes

    def _fill(self, out: Array, extent: Extent) -> None:
        read_extent(self._reader(extent), as_bytes(out), extent, self.name, self._stretches)
        self._turn(out)

    def _reader(self, extent: Extent) -> int:
        """The descriptor for an extent: if the tensor is read whole, bytes after a run are needed too."""
        _, run, repeats = extent
        least = _SEQUENTIAL_NBYTES if repeats else LONG_NBYTES if self._stretches is None else 0
        return self._sequential_fd if run >= least else self.fd

    def _turn(self, out: Array) -> None:
        if self.swapped:
            out.byteswap(inplace=True)

    def _read_staged(self, region: Region, out: Array) -> None:
        """Read blocks in the file's axis order and copy each to its place."""
        order = self.file_order
        origin = tuple(region[axis][0] for axis in order)
        target = out.transpose(order)
        dtype = self.dtype.numpy
        for block in blocks(tuple(region[axis] for axis in order), dtype.itemsize, STAGING_NBYTES):
            shape = region_shape(block)
            extent = self.layout.extent(tuple(block[order.index(axis)] for axis in range(len(order))))
            nbytes = extent_nbytes(extent)
            stage = staging()[:nbytes].view(dtype).reshape(shape)
            self._fill(stage, extent)
            window = tuple(slice(a - o, b - o) for (a, b), o in zip(block, origin, strict=True))
            copy_blocked(target[window], stage)


class FileSource(StoredTensor):
    """A source that owns its open file."""

    def __init__(
        self,
        name: str,
        tier: str,
        fd: int,
        layout: StridedLayout,
        dtype: DType,
        swapped: bool = False,
        beside: FileSource | None = None,
    ) -> None:
        super().__init__(name, fd, layout, dtype, swapped, beside)
        self.tier = tier
        self._pages = PageEviction(page_dropper(fd), layout, self.file_order)
        self._version, self._read_nbytes = version(fd), 0

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` with the region; returns its bytes.

        Raises:
            StoreError: the file was overwritten. This is checked once more bytes were read than the tensor has, because
            then some are read again.
        """
        if self._read_nbytes >= self.layout.nbytes:
            self.require_unchanged()
        nbytes = super().read(region, out)
        self._read_nbytes += nbytes
        return nbytes

    def require_unchanged(self) -> None:
        """Check that the file has not changed since it was opened.

        Raises:
            StoreError: it was overwritten.
        """
        if self.fd >= 0 and version(self.fd) != self._version:
            raise overwritten(self.name)

    def extent(self, region: Region) -> Extent:
        """The region's extent in the file."""
        return self.layout.extent(region)

    def read_whole(self) -> None:
        """Announce that the whole tensor will be read: bytes near a cold run may be read ahead."""
        if self._stretches is None and self.layout.nbytes > STRETCH_NBYTES:
            self.allow_reading_ahead(BufferedReads())

    def release(self, region: Region) -> None:
        """Drop the region's pages from the page cache."""
        if self.fd >= 0:
            self._pages.release(region)

    def close(self) -> None:
        """Drop the released pages and close the file."""
        if self.fd >= 0:
            self._pages.close()
            super().close()
            if not self._borrows:
                os.close(self.fd)
            self.fd = -1


def _is_line(region: Region) -> bool:
    return sum(stop - start > 1 for start, stop in region) <= 1
