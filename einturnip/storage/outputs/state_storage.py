"""Storage of tensors that are read and written in every step: memory, or a nameless file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.arrays import ArraySink
from einturnip.storage.file_versions import require_unchanged
from einturnip.storage.io.file_source import STAGING_NBYTES, StoredTensor, as_bytes
from einturnip.storage.io.page_eviction import PageEviction
from einturnip.storage.io.pages import DirtyPages, page_dropper
from einturnip.storage.io.transfer import write_extent
from einturnip.storage.io.unpublished_file import default_directory, nameless_file, out_of_space
from einturnip.storage.layout import blocks, c_layout, extent_nbytes
from einturnip.storage.types import Array, Extent, Region, Sink, Source, region_shape, whole


class ScratchFile(StoredTensor):
    """A tensor in a nameless file, in C order, which vanishes when it is closed."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType, directory: str | None) -> None:
        self._directory = directory or default_directory()
        nbytes = math.prod(shape) * dtype.itemsize
        layout = c_layout(shape, dtype.itemsize, 0)
        super().__init__(name, nameless_file(self._directory, nbytes, f"tensor {name}"), layout, dtype)
        self.tier = f"{name} (state)"
        self._written = DirtyPages(self.fd)
        self._read_pages = PageEviction(page_dropper(self.fd), layout, self.file_order)

    def extent(self, region: Region) -> Extent:
        """The region's extent."""
        return self.layout.extent(region)

    def write(self, region: Region, array: Array) -> int:
        """Store the region."""
        extent = self.layout.extent(region)
        nbytes = extent_nbytes(extent)
        if nbytes:
            plain = np.ascontiguousarray(array, self.dtype.numpy)
            write_extent(self.fd, as_bytes(plain), extent, self._explain)
            self._written.wrote(extent)
        return nbytes

    def _explain(self, error: OSError) -> StoreError:
        return out_of_space(error, f"tensor {self.name}", self._directory, math.prod(self.shape) * self.dtype.itemsize)

    def release(self, region: Region) -> None:
        """Drop the region's clean pages from the page cache."""
        self._read_pages.release(region)

    def commit(self) -> None:
        """Nothing to do: the file is private."""

    def abort(self) -> None:
        """Nothing to do: the caller knows that the data are incomplete."""

    def close(self) -> None:
        """Free the disk space; idempotent."""
        if self._sequential_fd >= 0:
            super().close()
            os.close(self.fd)


class DeferredOutput(ScratchFile):
    """An output to an array that the run still reads: it is written to a file and copied at the end."""

    def __init__(self, sink: ArraySink, directory: str | None) -> None:
        super().__init__(sink.name, sink.shape, sink.dtype, directory)
        self.tier = sink.name
        self._sink = sink

    def commit(self) -> None:
        """Copy the result into the caller's array."""
        copy_tensor(self, self._sink)
        self.close()

    def abort(self) -> None:
        """Leave the caller's array unchanged."""
        self.close()


class StateStorage:
    """A state's storage between steps: one buffer to read and one to write, which may be the same."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: DType, in_memory: bool, spill: str | None, lazy: bool = False
    ) -> None:
        """``lazy``: memory is taken when it is first written."""
        self.name, self.shape, self.dtype = name, shape, dtype
        self._spill, self._lazy = spill, lazy
        self.read: Sink = self._make(in_memory)
        self.write: Sink = self.read

    @property
    def nbytes(self) -> int:
        """Bytes of one copy."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_double(self) -> bool:
        """True if reading and writing use separate buffers."""
        return self.write is not self.read

    @property
    def array(self) -> Array | None:
        """The array that is read, if it is in memory."""
        return self.read.array if isinstance(self.read, ArraySink) else None

    def double(self, in_memory: bool) -> None:
        """Use separate buffers for reading and writing from now on."""
        if self.write is self.read:
            self.write = self._make(in_memory)

    def move_out(self) -> None:
        """Move the state from memory to a file. A lazy state is still empty, so nothing is copied."""
        before, self.read = self.read, self._make(in_memory=False)
        self.write = self.read
        if not self._lazy:
            copy_tensor(before, self.read)

    def swap(self) -> None:
        """Swap the buffers: the next step reads the written one."""
        self.read, self.write = self.write, self.read

    def fill(self, source: Source) -> None:
        """Copy a source into the state."""
        copy_tensor(source, self.read)

    def close(self) -> None:
        """Free the files; arrays are freed with the last reference to them."""
        self.read.close()
        self.write.close()

    def _make(self, in_memory: bool) -> Sink:
        if in_memory:
            array = np.zeros(self.shape, self.dtype.numpy)
            if not self._lazy:
                array.fill(0)  # allocates its pages now, so that a later plan counts them
            return ArraySink(self.name, array, self.dtype)
        return ScratchFile(self.name, self.shape, self.dtype, self._spill)


def copy_tensor(source: Source, sink: Sink, seen: Callable[[Array], object] | None = None) -> None:
    """Copy a tensor, a block at a time in C order; calls ``seen`` with each block."""
    for region in blocks(whole(source.shape), source.dtype.itemsize, 16 * STAGING_NBYTES):
        block = np.empty(region_shape(region), source.dtype.numpy)
        source.read(region, block)
        sink.write(region, block)
        if seen is not None:
            seen(block)
        source.release(region)
    require_unchanged(source)
