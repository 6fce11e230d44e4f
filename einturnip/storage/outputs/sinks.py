"""Outputs in files, written by region at their final offsets, and published atomically."""

from __future__ import annotations

import itertools
import math
import os
import struct
import threading
import weakref
from dataclasses import dataclass

from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.formats import npy, safetensors, zip_layout
from einturnip.storage.io.file_source import StoredTensor, as_bytes, staging
from einturnip.storage.io.page_eviction import PageEviction
from einturnip.storage.io.pages import DirtyPages, drop, page_dropper
from einturnip.storage.io.transfer import copy_blocked, read_full, write_extent, write_full
from einturnip.storage.io.unpublished_file import UnpublishedFile
from einturnip.storage.layout import blocks, c_layout, extent_nbytes
from einturnip.storage.location import HDF5
from einturnip.storage.types import Array, Extent, Region, region_shape

Tensors = dict[str, tuple[tuple[int, ...], DType]]


@dataclass(frozen=True, slots=True)
class FileSkeleton:
    """A file's layout: ``pieces`` are bytes known in advance, ``begins`` the offset of each array."""

    pieces: tuple[tuple[int, bytes], ...]
    begins: dict[str, int]
    nbytes: int
    members: tuple[zip_layout.ZipMember, ...] = ()


def plan_file(path: str, ending: str, tensors: Tensors) -> FileSkeleton:
    """Lay out a file with the given tensors in the format ``ending``.

    Raises:
        BindError: an element type that the format lacks.
    """
    sizes = {key: math.prod(shape) * dtype.itemsize for key, (shape, dtype) in tensors.items()}
    if ending == ".npz":
        members = zip_layout.lay_out(path, tensors)
        pieces = [(m.offset, m.local) for m in members] + [(m.begin, m.npy_header) for m in members]
        end = members[-1].begin + members[-1].nbytes
        total = end + len(zip_layout.directory(members, (0,) * len(members)))
        return FileSkeleton(
            tuple(pieces), {key: m.data for key, m in zip(tensors, members, strict=True)}, total, members
        )
    if ending == ".safetensors":
        header, begins = safetensors.make_header(path, tensors)
        return FileSkeleton(((0, header),), begins, len(header) + sum(sizes.values()))
    if ending in HDF5:
        from einturnip.storage.formats.hdf5 import lay_out

        return FileSkeleton(*lay_out(path, tensors))
    if ending == ".zarr":  # chunks are separate files: offsets only distinguish the arrays
        return FileSkeleton((), dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False)), 0)
    ((key, (shape, dtype)),) = tensors.items()
    header = npy.make_header(shape, dtype, path)
    return FileSkeleton(((0, header),), {key: len(header)}, len(header) + sizes[key])


class OutputContainer:
    """One file with the sinks of its arrays; it is finished when the last of them commits."""

    _writing: weakref.WeakValueDictionary[str, OutputContainer] = weakref.WeakValueDictionary()

    def __init__(self, path: str, ending: str, tensors: Tensors) -> None:
        self.file: UnpublishedFile
        self.path = path
        self.plan = plan_file(path, ending, tensors)
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

    def commit(self, key: str) -> None:
        """Mark an array as complete; publish the file when all are."""
        with self._lock:
            self._open.discard(key)
            if self._open or self.file.fd < 0:
                return
            try:
                if self.plan.members:
                    self._finish_zip()
            except BaseException:
                self.file.abort()
                raise
            self.file.commit()

    def abort(self) -> None:
        """Remove the file."""
        self.file.abort()

    def _finish_zip(self) -> None:
        """Complete a zip, which has a checksum of each member: reads the data once more, a piece at a time."""
        fd, checksums = self.file.fd, []
        for member in self.plan.members:
            crc, at, end = 0, member.begin, member.begin + member.nbytes
            while at < end:
                piece = staging().data[: min(end - at, staging().nbytes)]
                read_full(fd, piece, at, self.path)
                crc, at = zip_layout.checksum(crc, piece), at + piece.nbytes
                if at % (32 << 20) < piece.nbytes:
                    drop(fd, member.begin, at)
            checksums.append(crc)
            write_full(fd, memoryview(struct.pack("<I", crc)), member.crc_offset, self.file.explain)
        tail = zip_layout.directory(self.plan.members, tuple(checksums))
        write_full(fd, memoryview(tail), self.plan.nbytes - len(tail), self.file.explain)


class FileSink(StoredTensor):
    """One output in a file: C order, little-endian."""

    def __init__(self, name: str, container: OutputContainer, key: str, shape: tuple[int, ...], dtype: DType) -> None:
        layout = c_layout(shape, dtype.itemsize, container.plan.begins[key])
        super().__init__(name, container.file.fd, layout, dtype)
        self.tier = container.path
        self._container, self._key = container, key
        self._read_pages = PageEviction(page_dropper(self.fd), layout, self.file_order)

    def extent(self, region: Region) -> Extent:
        """The region's extent in the finished file."""
        return self.layout.extent(region)

    def contiguous_nbytes(self, region: Region) -> int:
        """Length of the contiguous runs of the region."""
        return self.layout.extent(region)[1]

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
            write_extent(self.fd, as_bytes(array), extent, self._container.file.explain)
        else:
            self._write_staged(region, array)
        try:
            self._container.pages.wrote(extent)
        except OSError as error:
            raise self._container.file.explain(error) from error
        return nbytes

    def read(self, region: Region, out: Array) -> int:
        """Read written data back."""
        self._check_open()
        return super().read(region, out)

    def release(self, region: Region) -> None:
        """Drop the region's clean pages from the page cache."""
        if self._container.file.fd >= 0:
            self._read_pages.release(region)

    def commit(self) -> None:
        """Make the output durable and visible; with several arrays in one file, when the last one commits."""
        self._check_open()
        self._container.commit(self._key)
        super().close()

    def abort(self) -> None:
        """Discard the whole file; without effect after its commit."""
        self._container.file.abort()
        super().close()

    def close(self) -> None:
        """Abort, unless it was committed."""
        if self._sequential_fd >= 0:
            self.abort()

    def _check_open(self) -> None:
        if self._sequential_fd < 0 or self._container.file.fd < 0:
            raise StoreError(f"{self.name}: was committed or aborted already")

    def _write_staged(self, region: Region, array: Array) -> None:
        origin, dtype = tuple(start for start, _ in region), self.dtype.numpy
        for block in blocks(region, dtype.itemsize, staging().nbytes):
            extent = self.layout.extent(block)
            stage = staging()[: extent_nbytes(extent)].view(dtype).reshape(region_shape(block))
            window = tuple(slice(a - o, b - o) for (a, b), o in zip(block, origin, strict=True))
            copy_blocked(stage, array[window])
            write_extent(self.fd, as_bytes(stage), extent, self._container.file.explain)
