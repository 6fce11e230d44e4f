"""Writes Zarr 3 directories by region: plain chunks in a temporary folder, published atomically.

Source: the Zarr version 3 core specification (zarr-specs.readthedocs.io), regular grids and the bytes codec.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import math
import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import BindError, StoreError
from einturnip.core.regular_files import create_folder, remove_abandoned, temporary_path
from einturnip.ir.dtypes import DType
from einturnip.storage.chunks.chunked_source import pieces
from einturnip.storage.formats.zarr_metadata import MARKS
from einturnip.storage.io.file_source import STAGING_NBYTES, as_bytes, staging
from einturnip.storage.io.pages import DirtyPages
from einturnip.storage.io.transfer import copy_blocked, read_extent, write_extent
from einturnip.storage.io.unpublished_file import out_of_space, preallocate, require_name
from einturnip.storage.io.vectored_rows import rows_of, write_rows
from einturnip.storage.layout import blocks, c_layout, extent_nbytes
from einturnip.storage.types import Array, Extent, Region, region_shape, window

CHUNK_NBYTES = 16 << 20
_AT_FDCWD, _EXCHANGE = -100, 2
# fmt: off
_NAMES = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64",
    "c128": "complex128",
}
# fmt: on


def chunk_shape(shape: tuple[int, ...], itemsize: int, periods: Sequence[int] = ()) -> tuple[int, ...]:
    """Choose chunks of at most 16 MiB: the fewest, and of those the most even.

    ``periods``: by axis, a distance that the extent of chunks must divide; 0 for any. The extents of axes without one
    are found by halving the longest.
    """
    periods = tuple(periods) or (0,) * len(shape)
    most = max(1, CHUNK_NBYTES // itemsize)
    # Of the combinations of divisors with the same number of points, only the one with the fewest chunks is kept.
    best: dict[int, tuple[int, list[int], tuple[int, ...]]] = {1: (1, [], ())}
    for n, period in zip(shape, periods, strict=True):
        found: dict[int, tuple[int, list[int], tuple[int, ...]]] = {}
        for points, (count, lengths, extents) in best.items():
            for extent in _divisors(period) if period else (0,):
                size = points * max(1, extent)
                if size <= most:
                    longer = sorted([*lengths, extent], reverse=True)
                    chunks = (count * -(-n // max(1, extent)) if extent else count, longer, (*extents, extent))
                    found[size] = min(found.get(size, chunks), chunks)
        best = found
    every = [_halved(shape, extents, most) for _, _, extents in best.values()]
    return min(every, key=lambda chunk: (_count(shape, chunk), sorted(chunk, reverse=True), chunk))


def _halved(shape: tuple[int, ...], extents: Sequence[int], most: int) -> tuple[int, ...]:
    """Return a chunk of at most ``most`` points with the extents that are not 0; halves the other axes."""
    chunk = [extent or max(n, 1) for n, extent in zip(shape, extents, strict=True)]
    free = [axis for axis, extent in enumerate(extents) if not extent]
    while math.prod(chunk) > most:
        axis = max(free, key=lambda a: chunk[a])
        chunk[axis] = -(-chunk[axis] // 2)
    return tuple(chunk)


def _count(shape: Sequence[int], chunk: Sequence[int]) -> int:
    return math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _metadata(shape: tuple[int, ...], dtype: DType, chunk: tuple[int, ...]) -> dict[str, object]:
    fill: object = [0.0, 0.0] if dtype.kind == "c" else False if dtype.kind == "b" else 0.0 if dtype.is_float else 0
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": _NAMES[dtype.name],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }


class ZarrContainer:
    """A directory under construction in a temporary folder.

    It is published when the last of its arrays commits.
    """

    def __init__(
        self,
        path: str,
        tensors: dict[str, tuple[tuple[int, ...], DType]],
        chunks: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.chunks = {k: chunks.get(k) or chunk_shape(shape, d.itemsize) for k, (shape, d) in tensors.items()}
        self.path, self.target = path, os.path.realpath(path.rstrip("/"))
        self.directory = os.path.dirname(self.target)
        self._check(tensors)
        remove_abandoned(self.directory)
        self._waiting, self._lock = set(tensors), threading.Lock()
        self.fd = -1
        try:
            self.fd, self.root = create_folder(self.target)
            self._group("")
            for key, (shape, dtype) in tensors.items():
                self._array(key, shape, dtype)
        except OSError as error:
            self.abort()
            raise self.explain(error) from error
        except BaseException:
            self.abort()
            raise

    def sink(self, name: str, key: str, shape: tuple[int, ...], dtype: DType) -> ZarrSink:
        """The sink of one of its arrays."""
        return ZarrSink(name, self, key, shape, dtype)

    def explain(self, error: OSError) -> StoreError:
        """The error for a failed write."""
        return out_of_space(error, self.path, self.directory, 0)

    def commit(self, key: str) -> None:
        """Mark an array as complete; publish the directory when all are.

        Raises:
            StoreError: the disk or the directory fails; nothing remains.
        """
        with self._lock:
            self._waiting.discard(key)
            if self._waiting or self.fd < 0:
                return
            try:
                self.sync()
                self._put_in_place()
                _sync(self.directory)
            except OSError as error:
                self.abort()
                raise StoreError(
                    f"{self.path}: the finished directory cannot be put in place: {error.strerror}"
                ) from error
            os.close(self.fd)
            self.fd = -1

    def sync(self) -> None:
        """Make everything that was written durable."""
        for folder, _, names in os.walk(self.root):
            for name in [*names, "."]:
                _sync(os.path.join(folder, name))

    def abort(self) -> None:
        """Remove the directory; idempotent, and without effect after a commit."""
        if self.fd >= 0:
            shutil.rmtree(self.root, ignore_errors=True)
            os.close(self.fd)
            self.fd = -1

    def _put_in_place(self) -> None:
        if not os.path.lexists(self.target):
            os.rename(self.root, self.target)
            return
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        old, new = os.fsencode(self.root), os.fsencode(self.target)
        if rename is None or rename(_AT_FDCWD, old, _AT_FDCWD, new, _EXCHANGE) != 0:
            # This file system lacks an atomic exchange: between two renames the name is missing, never incomplete.
            # Until the new directory is in place, the old one has a name that does not mark it as abandoned.
            aside = os.path.join(self.directory, f".{os.path.basename(self.target)}.replaced-{secrets.token_hex(4)}")
            os.rename(self.target, aside)
            try:
                os.rename(self.root, self.target)
            except OSError:
                os.rename(aside, self.target)
                raise
            self.root = temporary_path(self.target)
            os.rename(aside, self.root)
        shutil.rmtree(self.root, ignore_errors=True)

    def _check(self, tensors: dict[str, tuple[tuple[int, ...], DType]]) -> None:
        if not os.path.isdir(self.directory):
            raise BindError(f"{self.path}: there is no directory {self.directory}; create it first")
        require_name(self.target, self.path)
        if os.path.lexists(self.target) and not any(os.path.exists(os.path.join(self.target, m)) for m in MARKS):
            raise BindError(f"{self.path}: exists and is no Zarr directory, so it is not replaced; name another")
        for key, (_, dtype) in tensors.items():
            if dtype.name not in _NAMES:
                raise BindError(f"{self.path}::{key}: Zarr has no {dtype.name}; write to .safetensors, or cast to f32")
            pieces = key.strip("/").split("/")
            if any(piece in ("", ".", "..") or piece.startswith("__") for piece in pieces):
                raise BindError(f"{self.path}::{key}: is no path of names that Zarr allows")
            inside = [other for other in tensors if other.startswith(key.strip("/") + "/")]
            if inside:
                raise BindError(f"{self.path}::{inside[0]}: {key} is an array, so it cannot contain others")

    def _group(self, key: str) -> None:
        folder = os.path.join(self.root, key)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "zarr.json"), "w", encoding="utf-8") as file:
            json.dump({"zarr_format": 3, "node_type": "group", "attributes": {}}, file)

    def _array(self, key: str, shape: tuple[int, ...], dtype: DType) -> None:
        pieces = key.strip("/").split("/")
        for depth in range(1, len(pieces)):
            self._group("/".join(pieces[:depth]))
        folder, chunk = os.path.join(self.root, *pieces), self.chunks[key]
        os.makedirs(folder)
        with open(os.path.join(folder, "zarr.json"), "w", encoding="utf-8") as file:
            json.dump(_metadata(shape, dtype, chunk), file)
        nbytes = math.prod(chunk) * dtype.itemsize
        for place in itertools.product(*(range(-(-n // c)) for n, c in zip(shape, chunk, strict=True))):
            name = os.path.join(folder, "c", *map(str, place))
            os.makedirs(os.path.dirname(name), exist_ok=True)
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                preallocate(fd, nbytes, self.path, self.directory)
            finally:
                os.close(fd)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EISDIR):  # some file systems cannot sync directories
            raise
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """The part of a region in one chunk: window of the region, region of the chunk, and chunk file."""

    window: tuple[Any, ...]
    within: Region
    file: str


class ZarrSink:
    """One array of a Zarr directory. Extents count as in a contiguous tensor."""

    def __init__(self, name: str, container: ZarrContainer, key: str, shape: tuple[int, ...], dtype: DType) -> None:
        self.name, self.tier, self.shape, self.dtype = name, container.path, shape, dtype
        self.container, self.key = container, key
        self._folder = os.path.join(container.root, *key.strip("/").split("/"), "c")
        self.chunks = container.chunks[key]
        self._whole, self._inside = c_layout(shape, dtype.itemsize, 0), c_layout(self.chunks, dtype.itemsize, 0)
        self._pages, self._open = DirtyPages(container.fd, self._opened, self._inside.nbytes), True

    def extent(self, region: Region) -> Extent:
        """The region's extent in a contiguous tensor."""
        return self._whole.extent(region)

    def write(self, region: Region, array: Array) -> int:
        """Store the region, chunk by chunk.

        Raises:
            StoreError: the write fails.
        """
        self._check_open()
        for part in self._parts(region):
            extent = self._inside.extent(part.within)
            with self._opened(part.file) as fd:
                self._write(fd, part, extent, array[part.window])
            try:
                self._pages.wrote(extent, part.file)
            except OSError as error:
                raise self.container.explain(error) from error
        return array.nbytes

    def read(self, region: Region, out: Array) -> int:
        """Read written data back."""
        self._check_open()
        for part in self._parts(region):
            with self._opened(part.file) as fd:
                for stage, box, within in self._staged(part):
                    read_extent(fd, as_bytes(stage), self._inside.extent(box), self.name)
                    copy_blocked(out[part.window][within], stage)
        return out.nbytes

    def release(self, region: Region) -> None:
        """Nothing to do: pages leave the cache as they are written."""

    def commit(self) -> None:
        """Make the output durable and visible.

        With several arrays in one directory, when the last one commits.
        """
        self._check_open()
        self._open = False
        self.container.commit(self.key)

    def abort(self) -> None:
        """Discard the whole directory; without effect after its commit."""
        self._open = False
        self.container.abort()

    def close(self) -> None:
        """Abort, unless it was committed."""
        if self._open:
            self.abort()

    def _check_open(self) -> None:
        if not self._open or self.container.fd < 0:
            raise StoreError(f"{self.name}: was committed or aborted already")

    def _parts(self, region: Region) -> list[_ChunkPart]:
        self._whole.check(region)
        return [
            _ChunkPart(piece.window, piece.within, os.path.join(self._folder, *map(str, piece.chunk)))
            for piece in pieces(region, self.chunks)
        ]

    def _write(self, fd: int, part: _ChunkPart, extent: Extent, array: Array) -> None:
        explain = self.container.explain
        if not extent[2] and array.dtype == self.dtype.numpy:
            rows = [as_bytes(array)] if array.flags.c_contiguous else rows_of(array)
            if rows:
                write_rows(fd, rows, extent[0], explain)
                return
        for stage, box, within in self._staged(part):
            copy_blocked(stage, array[within])
            write_extent(fd, as_bytes(stage), self._inside.extent(box), explain)

    def _staged(self, part: _ChunkPart) -> Iterator[tuple[Array, Region, tuple[Any, ...]]]:
        """Yield the part a buffer at a time: memory, its region of the chunk, its window of the part."""
        dtype = self.dtype.numpy
        for box in blocks(part.within, dtype.itemsize, STAGING_NBYTES):
            nbytes = extent_nbytes(self._inside.extent(box))
            stage = staging()[:nbytes].view(dtype).reshape(region_shape(box))
            yield stage, box, window(box, part.within)

    @contextmanager
    def _opened(self, file: str) -> Iterator[int]:
        try:
            fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise self.container.explain(error) from error
        try:
            yield fd
        finally:
            os.close(fd)
