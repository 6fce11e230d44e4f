"""Objects in remote stores, read by fsspec.

Only whole objects of a known size and ranges of them are read. fsspec is imported when the first URL is opened.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any
from zlib import crc32

import numpy as np

from einturnip.core.errors import BindError, EinturnipError, StoreError
from einturnip.core.program_limits import require_room
from einturnip.ir.dtypes import DType
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.file_versions import ChunkVersions, Version
from einturnip.storage.layout import StridedLayout
from einturnip.storage.location import is_url
from einturnip.storage.types import Array, Region, region_shape, window

SLAB_NBYTES = 4 << 20
"""Bytes that one request reads of an array in one piece: many, because each request waits for the network once."""
SLAB_COPIES = 3
"""Slabs in memory while one is read: the one before, its parts as they arrive, and the whole."""
_WEB_NBYTES, _STORE_NBYTES = 24 << 20, 48 << 20
"""Resident bytes of fsspec and aiohttp, and of those with the library of a store. Measured: 14 and 40 MiB (s3fs)."""
_NOT_FOUND = (404, 410)
_MARKS = ("ETag", "etag", "LastModified", "Last-Modified", "mtime", "created", "updated")
"""Names that stores have for what changes with an object."""


def library_nbytes(paths: Iterable[str]) -> int:
    """Resident bytes of the libraries that a process loads to read some paths; 0 if none is a URL."""
    schemes = {path.partition("://")[0] for path in paths if is_url(path)}
    if not schemes:
        return 0
    return _STORE_NBYTES if schemes - {"http", "https", "memory"} else _WEB_NBYTES


class RemoteStore:
    """The store of a URL. ``role``: the operand, for messages."""

    def __init__(self, url: str, role: str) -> None:
        """Load the libraries of the store.

        Raises:
            BindError: one is not installed, or the scheme is unknown. NeedsMore: they do not fit in the memory.
        """
        self.url, self.role = url, role
        if "fsspec" not in sys.modules:
            if find_spec("fsspec") is None:
                raise BindError(f"{role}: {url}: reading URLs needs fsspec. help: pip install 'einturnip[remote]'")
            require_room(library_nbytes([url]), "fsspec")
        from fsspec.core import url_to_fs

        try:
            # With a cache of listings, a store would answer from it after an object has changed.
            self._fs, self._root = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            package = "aiohttp" if url.startswith("http") else error.name or "the library that the message names"
            raise BindError(f"{role}: {url}: {error}. help: pip install {package}") from error
        except ValueError as error:
            raise BindError(f"{role}: {url}: {error}. help: name a scheme that fsspec knows, as in s3://") from error

    def version(self, path: str = "") -> Version:
        """The version of an object below the URL.

        Raises:
            FileNotFoundError: there is none. StoreError: the store does not answer, or hides its size.
        """
        info = self._do(path, lambda name: self._fs.info(name))
        size = info.get("size")
        if size is None or info.get("type") == "directory":
            if info.get("type") == "directory":
                raise FileNotFoundError(self._name(path))
            raise StoreError(f"{self.role}: {self._name(path)}: its server does not say its size. help: copy it here")
        marks = repr([info.get(key) for key in _MARKS]).encode()
        return int(size), crc32(marks), 0  # the same in all processes

    def read(self, path: str, begin: int, end: int) -> bytes:
        """Return a range of an object.

        Raises:
            FileNotFoundError: there is no such object. StoreError: it cannot be read, or has no such range.
        """
        if begin == end:
            return b""
        data: bytes = self._do(path, lambda name: self._fs.cat_file(name, start=begin, end=end))
        if len(data) != end - begin:
            raise StoreError(
                f"{self.role}: {self._name(path)}: bytes {begin:,} to {end:,} were requested, and {len(data):,} came: "
                "the object has changed, or its server does not serve parts. help: copy it here"
            )
        return data

    def require_ranges(self) -> None:
        """Refuse a web server that sends whole files only, before one of them is in memory.

        Raises:
            StoreError: it does.
        """
        if not self.url.startswith(("http://", "https://")):
            return
        try:
            with self._fs.open(self._root, cache_type="none") as file:
                file.seek(6)
                file.read(2)
        except ValueError as error:
            raise StoreError(
                f"{self.role}: {self.url}: its server does not serve parts of files. help: copy it here"
            ) from error
        except Exception as error:
            raise self._failure("", error) from error

    def open_object(self, path: str, nbytes: int, max_nbytes: int) -> int:
        """Return the descriptor of a file in memory with the content of an object of a size.

        Raises:
            FileNotFoundError: there is no such object. StoreError: it cannot be read, or is larger.
        """
        if nbytes > max_nbytes:
            raise StoreError(
                f"{self.role}: {self._name(path)}: has {nbytes:,} bytes, and its content takes at most "
                f"{max_nbytes:,}: the store is damaged"
            )
        data = self.read(path, 0, nbytes)
        fd = os.memfd_create("einturnip-object")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except BaseException:
            os.close(fd)
            raise
        return fd

    def missing(self, path: str = "") -> BindError:
        """The error for an object that is not there."""
        return BindError(
            f"{self.role}: {self._name(path)}: there is no such object. help: check the name, and that your "
            "credentials allow to read it"
        )

    def _name(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}" if path else self.url

    def _do(self, path: str, call: Callable[[str], Any]) -> Any:
        name = f"{self._root.rstrip('/')}/{path}" if path else self._root
        try:
            return call(name)
        except Exception as error:
            failure = self._failure(path, error)
            raise failure from (None if isinstance(failure, FileNotFoundError) else error)

    def _failure(self, path: str, error: Exception) -> Exception:
        """The error for a failed call.

        It is a FileNotFoundError only if the store has said that the object is not there.
        """
        if isinstance(error, EinturnipError):
            return error
        cause = error.__cause__
        if isinstance(error, FileNotFoundError) and (
            cause is None or isinstance(cause, FileNotFoundError) or _status(cause) in _NOT_FOUND
        ):
            return FileNotFoundError(self._name(path))
        reason = cause if isinstance(error, FileNotFoundError) and cause is not None else error
        return StoreError(
            f"{self.role}: {self._name(path)}: cannot be read: {type(reason).__name__}: {reason}. help: check the "
            "name of the host, the network and your credentials"
        )


def _status(error: BaseException) -> int | None:
    """The HTTP status in an error of aiohttp or of botocore."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found: int | None = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found
    return getattr(error, "status", None)


def slab_shape(layout: StridedLayout) -> tuple[int, ...]:
    """The shape of the parts in which an array in one piece is read: contiguous, of at most SLAB_NBYTES."""
    room, found = max(1, SLAB_NBYTES // layout.itemsize), [1] * len(layout.shape)
    for axis in sorted(range(len(layout.shape)), key=lambda axis: (layout.strides[axis], -axis)):
        found[axis] = max(1, min(layout.shape[axis], room))
        room //= found[axis]
        if found[axis] < layout.shape[axis]:
            break
    return tuple(found)


def array_in_one_piece(
    store: RemoteStore, name: str, layout: StridedLayout, dtype: DType, swapped: bool
) -> ChunkedSource:
    """Return the source of an array whose elements are in one object, read in slabs."""
    slabs = _Slabs(store, layout, dtype, swapped)
    whole = tuple(max(1, n) for n in layout.shape)
    versions = ChunkVersions(f"{store.role}: {name}", layout.shape, whole, lambda chunk: "", store.version)
    if 0 not in layout.shape:
        versions.require((0,) * len(whole))
    held = SLAB_COPIES * math.prod(slabs.shape) * layout.itemsize
    return ChunkedSource(name, layout.shape, dtype, slabs.shape, slabs.read, slabs.close, held, versions=versions)


class _Slabs:
    def __init__(self, store: RemoteStore, layout: StridedLayout, dtype: DType, swapped: bool) -> None:
        self._store, self._layout = store, layout
        self._stored = dtype.numpy.newbyteorder("S") if swapped else dtype.numpy
        self.shape = slab_shape(layout)
        self._last: tuple[Region, Array] | None = None

    def read(self, region: Region, out: Array) -> None:
        """Fill ``out`` with a region of one slab."""
        slab = tuple(
            (a // c * c, min(a // c * c + c, n))
            for (a, _), c, n in zip(region, self.shape, self._layout.shape, strict=True)
        )
        if self._last is None or self._last[0] != slab:
            self._last = slab, self._fetch(slab)
        out[...] = self._last[1][window(region, slab)]

    def close(self) -> None:
        """Free the slab that was read last."""
        self._last = None

    def _fetch(self, slab: Region) -> Array:
        strides = self._layout.strides
        begin = self._layout.offset + sum(a * s for (a, _), s in zip(slab, strides, strict=True))
        end = begin + math.prod(region_shape(slab)) * self._layout.itemsize
        try:
            data = self._store.read("", begin, end)
        except FileNotFoundError:
            raise self._store.missing() from None
        return np.ndarray(region_shape(slab), self._stored, data, 0, strides)
