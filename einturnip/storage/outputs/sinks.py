"""Outputs in files, written by region at their final offsets, and published atomically."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.io.file_source import StoredTensor, as_bytes, staging
from einturnip.storage.io.page_eviction import PageEviction
from einturnip.storage.io.pages import DirtyPages, page_dropper
from einturnip.storage.io.transfer import copy_blocked, write_extent, write_full
from einturnip.storage.io.unpublished_file import UnpublishedFile
from einturnip.storage.layout import blocks, c_layout, extent_nbytes
from einturnip.storage.types import Array, Extent, Region, Sink, region_shape

Tensors = dict[str, tuple[tuple[int, ...], DType]]
"""Shape and element type of each array of a file, by key."""


@dataclass(frozen=True, slots=True)
class FileSkeleton:
    """A file's layout: ``pieces`` are bytes known in advance, ``begins`` the offset of each array.

    ``finish`` writes what depends on the data, once these are complete.
    """

    pieces: tuple[tuple[int, bytes], ...]
    begins: dict[str, int]
    nbytes: int
    finish: Callable[[UnpublishedFile], None] | None = None


class Container(Protocol):
    """A file or directory under construction, published when the last of its arrays commits."""

    def sink(self, name: str, key: str, shape: tuple[int, ...], dtype: DType) -> Sink:
        """The sink of one of its arrays."""
        ...

    def abort(self) -> None:
        """Remove everything; without effect after the last commit."""
        ...


class OutputContainer:
    """One file with the sinks of its arrays; it is finished when the last of them commits."""

    _writing: weakref.WeakValueDictionary[str, OutputContainer] = weakref.WeakValueDictionary()

    def __init__(self, path: str, plan: FileSkeleton, tensors: Tensors) -> None:
        self.file: UnpublishedFile
        self.path, self.plan = path, plan
        target = os.path.realpath(path)
        rival = self._writing.get(target)
        if rival is not None and rival.file.fd >= 0:
            raise BindError(
                f"{path}: another output is being written to this file; open all arrays of one file together"
            )
        self.file = UnpublishedFile(path)
        self._writing[target] = self
        self.file.preallocate(self.plan.nbytes)
        self.pages = DirtyPages(self.file.fd)
        self._open = set(tensors)
        self._lock = threading.Lock()
        try:
            for offset, piece in self.plan.pieces:
                write_full(self.file.fd, memoryview(piece), offset, self.file.explain)
        except BaseException:
            self.file.abort()
            raise

    def sink(self, name: str, key: str, shape: tuple[int, ...], dtype: DType) -> FileSink:
        """The sink of one of its arrays."""
        return FileSink(name, self, key, shape, dtype)

    def commit(self, key: str) -> None:
        """Mark an array as complete; publish the file when all are."""
        with self._lock:
            self._open.discard(key)
            if self._open or self.file.fd < 0:
                return
            try:
                if self.plan.finish is not None:
                    self.plan.finish(self.file)
            except BaseException:
                self.file.abort()
                raise
            self.file.commit()

    def abort(self) -> None:
        """Remove the file."""
        self.file.abort()


class FileSink(StoredTensor):
    """One output in a file: C order, little-endian."""

    def __init__(self, name: str, container: OutputContainer, key: str, shape: tuple[int, ...], dtype: DType) -> None:
        layout = c_layout(shape, dtype.itemsize, container.plan.begins[key])
        super().__init__(name, container.file.fd, layout, dtype)
        self.tier = container.path
        self.container, self.key = container, key
        self._read_pages = PageEviction(page_dropper(self.fd), layout, self.file_order)

    def extent(self, region: Region) -> Extent:
        """The region's extent in the finished file."""
        return self.layout.extent(region)

    def write(self, region: Region, array: Array) -> int:
        """Store the region.

        Raises:
            StoreError: the write fails.
        """
        extent = self.layout.extent(region)
        nbytes = extent_nbytes(extent)
        if not nbytes:
            return 0
        self._check_open()
        if array.flags.c_contiguous and array.dtype == self.dtype.numpy:
            write_extent(self.fd, as_bytes(array), extent, self.container.file.explain)
        else:
            self._write_staged(region, array)
        try:
            self.container.pages.wrote(extent)
        except OSError as error:
            raise self.container.file.explain(error) from error
        return nbytes

    def read(self, region: Region, out: Array) -> int:
        """Read written data back."""
        self._check_open()
        return super().read(region, out)

    def release(self, region: Region) -> None:
        """Drop the region's clean pages from the page cache."""
        if self.container.file.fd >= 0:
            self._read_pages.release(region)

    def commit(self) -> None:
        """Make the output durable and visible; with several arrays in one file, when the last one commits."""
        self._check_open()
        self.container.commit(self.key)
        super().close()

    def abort(self) -> None:
        """Discard the whole file; without effect after its commit."""
        self.container.file.abort()
        super().close()

    def close(self) -> None:
        """Abort, unless it was committed."""
        if self._sequential_fd >= 0:
            self.abort()

    def _check_open(self) -> None:
        if self._sequential_fd < 0 or self.container.file.fd < 0:
            raise StoreError(f"{self.name}: was committed or aborted already")

    def _write_staged(self, region: Region, array: Array) -> None:
        origin, dtype = tuple(start for start, _ in region), self.dtype.numpy
        for block in blocks(region, dtype.itemsize, staging().nbytes):
            extent = self.layout.extent(block)
            stage = staging()[: extent_nbytes(extent)].view(dtype).reshape(region_shape(block))
            window = tuple(slice(a - o, b - o) for (a, b), o in zip(block, origin, strict=True))
            copy_blocked(stage, array[window])
            write_extent(self.fd, as_bytes(stage), extent, self.container.file.explain)
