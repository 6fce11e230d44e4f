"""Arrays of Zarr directories, version 2 or 3: plain chunks in place, encoded ones one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Protocol

import numpy as np

from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.chunks.chunked_source import ChunkedSource, pieces
from einturnip.storage.chunks.compression import DecodeError
from einturnip.storage.chunks.decoder import ChunkDecoder, StoredChunk, new_memory
from einturnip.storage.chunks.files import ChunkFiles
from einturnip.storage.file_format import FileFormat
from einturnip.storage.file_versions import ChunkVersions, Version, version
from einturnip.storage.formats.zarr_metadata import MARKS, ShardLayout, ZarrArray, node_kind, read_array
from einturnip.storage.io.transfer import read_full
from einturnip.storage.location import no_such_file, open_regular, pick_key
from einturnip.storage.outputs.sinks import Container, FileSkeleton, Tensors
from einturnip.storage.types import Array, Region

MAX_NODES = 100_000
"""Maximum number of arrays and groups visited when listing a directory."""

_ENTRY_NBYTES = 16
_MISSING = np.iinfo(np.uint64).max


def zarr_source(path: str, key: str | None, name: str) -> ChunkedSource | ChunkFiles:
    """Open the array ``key``, its path in the group; None where the directory is itself an array.

    Raises:
        BindError: no such directory or array. StoreError: damaged, of an element type that the language lacks, of a
        codec that is not supported, or a package that decodes it is missing.
    """
    names = key.strip("/").split("/") if key else []
    folder = os.path.join(path, *names)
    if names and not {"", ".", ".."} & set(names) and node_kind(folder) == "array":
        return _array_source(folder, f"{path}::{'/'.join(names)}")
    found = zarr_keys(path)
    if found is None:
        if key:
            raise BindError(f"{path}::{key}: {path} is one array and has no keys; name {path} alone")
        return _array_source(path, path)
    picked = pick_key(path, key if key is None else key.strip("/"), list(found), name)
    return _array_source(os.path.join(path, picked), f"{path}::{picked}")


def zarr_keys(path: str) -> tuple[str, ...] | None:
    """The paths of a group's arrays; None where the directory is itself an array.

    Raises:
        BindError: no such directory. StoreError: it is damaged, or holds too many arrays.
    """
    if not os.path.exists(path):
        raise no_such_file(path)
    if not any(os.path.lexists(os.path.join(path, mark)) for mark in MARKS):
        raise StoreError(f"{path}: is no Zarr directory: it holds none of {', '.join(MARKS)}")
    if node_kind(path) == "array":
        return None
    found, groups, seen = list[str](), [""], 0
    while groups:
        prefix = groups.pop()
        inner = list[str]()
        with os.scandir(os.path.join(path, prefix)) as entries:
            for entry in entries:
                if entry.is_dir():
                    inner.append(prefix + entry.name)
                    seen += 1
                if seen > MAX_NODES:  # links may also make a group contain itself
                    raise StoreError(f"{path}: holds more than {MAX_NODES:,} directories; name one of its groups")
        for key in sorted(inner, reverse=True):
            kind = node_kind(os.path.join(path, key))
            if kind == "array":
                found.append(key)
            elif kind == "group":
                groups.append(f"{key}/")
    return tuple(sorted(found))


def _array_source(folder: str, shown: str) -> ChunkedSource | ChunkFiles:
    array = read_array(folder, shown)
    in_order = array.order == tuple(range(len(array.shape)))
    plain = in_order and array.stored.isnative and not array.codecs and array.shard is None
    if plain and array.shape and 0 not in array.shape:
        return ChunkFiles(shown, array.shape, array.dtype, array.chunks, array.path, array.fill)
    return encoded_source(array, shown, _Files())


class ChunkObjects(Protocol):
    """Files of chunks, by the name that a directory gives them.

    FileNotFoundError means that a chunk is absent; other errors end the run.
    """

    def version(self, file: str) -> Version:
        """Return the version of a file."""
        ...

    def open(self, file: str, max_nbytes: int) -> tuple[int, os.stat_result]:
        """Open a file, which the caller closes.

        ``max_nbytes``: the maximum that it can contain if it has no shards.
        """
        ...

    def close(self) -> None:
        """Free what is kept of files."""
        ...


class _Files:
    def version(self, file: str) -> Version:
        return version(file)

    def open(self, file: str, max_nbytes: int) -> tuple[int, os.stat_result]:
        return open_regular(file)

    def close(self) -> None: ...


def encoded_source(
    array: ZarrArray, shown: str, objects: ChunkObjects, copies: int = 0, role: str = ""
) -> ChunkedSource:
    """Return the source of an array whose chunks are decoded.

    ``copies``: encoded chunks that ``objects`` keeps in memory. ``role``: precedes the name where it has changed.
    """
    reader = _ChunkReader(array, shown, objects, copies)
    files = array.chunks if array.shard is None else array.shard.shape
    versions = ChunkVersions(f"{role}{shown}", array.shape, files, array.path, objects.version)
    return ChunkedSource(
        shown,
        array.shape,
        array.dtype,
        array.chunks,
        reader.read,
        reader.close,
        reader.reading_nbytes,
        versions=versions,
    )


class _ChunkReader:
    """Decodes the chunks of an array, each in a file of its own or in a shard."""

    def __init__(self, array: ZarrArray, shown: str, objects: ChunkObjects, copies: int) -> None:
        self._array, self._shown, self._objects = array, shown, objects
        try:
            self._decoder = ChunkDecoder(array.codecs, array.chunks, array.stored, array.order)
        except ValueError as error:
            raise StoreError(f"{shown}: is stored in a way that is not supported: {error}") from error
        self._index: tuple[tuple[str, int, int], Array] | None = None  # of the shard read last
        self.reading_nbytes = self._decoder.reading_nbytes + copies * self._decoder.max_stored_nbytes
        if array.shard is not None:
            self.reading_nbytes += 3 * _ENTRY_NBYTES * prod(self._per_shard(array.shard))

    def read(self, region: Region, out: Array) -> None:
        """Fill ``out`` with a region that is part of one chunk.

        Raises:
            StoreError: the chunk cannot be read or decoded.
        """
        (piece,) = pieces(region, self._array.chunks)
        within = piece.within
        try:
            with self._stored(piece.chunk) as chunk:
                if chunk is None:
                    out[...] = self._array.fill
                    return
                self._decoder.read(chunk, within, out)
                if all(b - a == n for (a, b), n in zip(within, self._array.chunks, strict=True)):
                    os.posix_fadvise(chunk.fd, chunk.offset, chunk.nbytes, os.POSIX_FADV_DONTNEED)
        except (DecodeError, OSError, MemoryError) as error:
            raise StoreError(
                f"{self._shown}: a chunk cannot be read ({piece.chunk}: {error}): the directory is damaged"
            ) from error

    def close(self) -> None:
        """Close the files of chunks that are read in part."""
        self._decoder.close()
        self._objects.close()

    @contextmanager
    def _stored(self, chunk: tuple[int, ...]) -> Iterator[StoredChunk | None]:
        """Yield the place of a chunk while its file is open; None if it was never written."""
        shard = self._array.shard
        per = self._per_shard(shard) if shard is not None else ()
        place = tuple(c // n for c, n in zip(chunk, per, strict=True)) if shard is not None else chunk
        file = self._array.path(place)
        try:
            fd, status = self._objects.open(file, self._decoder.max_stored_nbytes)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise StoreError(f"{self._shown}: its chunk {file} cannot be read: {error.strerror}") from error
        try:
            if shard is None:
                yield StoredChunk(fd, 0, status.st_size, self._shown)
                return
            index = self._shard_index(shard, fd, (file, status.st_size, status.st_mtime_ns))
            offset, nbytes = map(int, index[tuple(c % n for c, n in zip(chunk, per, strict=True))])
            if offset == nbytes == _MISSING:
                yield None
                return
            if offset + nbytes > status.st_size:
                raise DecodeError(f"its place in the shard {file} is after the end of the file")
            yield StoredChunk(fd, offset, nbytes, self._shown)
        finally:
            os.close(fd)

    def _per_shard(self, shard: ShardLayout) -> tuple[int, ...]:
        return tuple(s // c for s, c in zip(shard.shape, self._array.chunks, strict=True))

    def _shard_index(self, shard: ShardLayout, fd: int, file: tuple[str, int, int]) -> Array:
        """Offset and size of each chunk of a shard."""
        if self._index is not None and self._index[0] == file:
            return self._index[1]
        per = self._per_shard(shard)
        nbytes = _ENTRY_NBYTES * prod(per)
        stored = nbytes if shard.index_checksum is None else shard.index_checksum.encoded_nbytes(nbytes)
        if file[1] < stored:
            raise DecodeError(f"the shard {file[0]} has {file[1]:,} bytes, and its index alone takes {stored:,}")
        raw = memoryview(bytearray(stored))
        read_full(fd, raw, 0 if shard.index_at_start else file[1] - stored, self._shown)
        if shard.index_checksum is not None:
            raw = shard.index_checksum.decode(raw, new_memory)
        index = np.frombuffer(raw, shard.index_dtype).reshape(*per, 2)
        self._index = file, index
        return index


class ZarrFormat(FileFormat):
    """``.zarr``, directories of versions 2 and 3; version 3 is written."""

    def source(self, path: str, key: str | None, name: str) -> ChunkedSource | ChunkFiles:
        """Open the array ``key``."""
        return zarr_source(path, key, name)

    def keys(self, path: str) -> tuple[str, ...] | None:
        """The paths of a group's arrays; None where the directory is itself an array."""
        return zarr_keys(path)

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """Chunks are separate files, so offsets only distinguish the arrays."""
        begins, offset = dict[str, int](), 0
        for key, (shape, dtype) in tensors.items():
            begins[key] = offset
            offset += prod(shape) * dtype.itemsize
        return FileSkeleton((), begins, 0)

    def container(self, path: str, tensors: Tensors, chunks: Mapping[str, tuple[int, ...]]) -> Container:
        """Create the directory."""
        from einturnip.storage.formats.zarr_output import ZarrContainer

        return ZarrContainer(path, tensors, chunks)

    def output_chunks(self, shape: tuple[int, ...], dtype: DType, periods: Sequence[int] = ()) -> tuple[int, ...]:
        """The chunk shape of a written array."""
        from einturnip.storage.formats.zarr_output import chunk_shape

        return chunk_shape(shape, dtype.itemsize, periods)


ZARR = ZarrFormat()
