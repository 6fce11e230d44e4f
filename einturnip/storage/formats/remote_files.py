"""Formats of objects in remote stores, by the suffix of their URL; they are read, not written."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ENOENT
from tempfile import TemporaryDirectory

from einturnip.core.errors import BindError, StoreError
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.file_format import FileFormat
from einturnip.storage.file_versions import Version
from einturnip.storage.formats.npy import npy_layout, read_header
from einturnip.storage.formats.zarr import encoded_source
from einturnip.storage.formats.zarr_metadata import MARKS, node_kind, read_array
from einturnip.storage.location import MAX_JSON_NBYTES
from einturnip.storage.remote import RemoteStore, array_in_one_piece

OBJECT_COPIES = 4
"""Encoded chunks in memory while one is read: the one before, its parts as they arrive, the whole, and its file."""


class RemoteNpy(FileFormat):
    """A ``.npy`` in a remote store."""

    has_keys = False
    writable = False

    def source(self, path: str, key: str | None, name: str) -> ChunkedSource:
        """Open the array."""
        store = RemoteStore(path, f"input {name}")
        try:
            size, _, _ = store.version()
            store.require_ranges()
            header = read_header(lambda offset, nbytes: store.read("", offset, min(offset + nbytes, size)), path)
        except FileNotFoundError:
            raise store.missing() from None
        layout = npy_layout(header, 0)
        if size < layout.offset + layout.nbytes:
            raise StoreError(
                f"{path}: is truncated: {header.dtype.name}{list(header.shape)} needs {layout.offset + layout.nbytes} "
                f"bytes, the object has {size}; upload it again"
            )
        return array_in_one_piece(store, path, layout, header.dtype, header.swapped)


class RemoteZarr(FileFormat):
    """A Zarr directory in a remote store. Its groups are not listed, because not all stores can."""

    writable = False

    def source(self, path: str, key: str | None, name: str) -> ChunkedSource:
        """Open the array ``key``.

        By default that is the directory itself, or the array in it that has the input's name.
        """
        store = RemoteStore(path, f"input {name}")
        with TemporaryDirectory() as folder:
            if key is None:
                kind = _metadata(store, folder, "")
                if kind is None:
                    raise store.missing(MARKS[0])
                key = "" if kind == "array" else name
            key = key.strip("/")
            if {".", ".."} & set(key.split("/")):
                raise BindError(f"input {name}: {path}::{key}: is no name of an array")
            if key and _metadata(store, folder, key) != "array":
                raise BindError(
                    f"input {name}: {path}: it has no array {key!r}. help: name one of its arrays, as in {path}::NAME"
                )
            shown = f"{path}::{key}" if key else path
            array = read_array(os.path.join(folder, key), shown)
            if array.shard is not None:
                raise BindError(
                    f"input {name}: {shown}: it has shards, which are read from files only. help: copy it here, or "
                    "store it without shards"
                )
            return encoded_source(array, shown, _Objects(store, folder), OBJECT_COPIES, f"{store.role}: ")


class _Objects:
    """The objects of chunks, by the name of the file that a directory would have; see ``encoded_source``."""

    def __init__(self, store: RemoteStore, folder: str) -> None:
        self._store, self._folder = store, folder
        self._seen: tuple[str, Version] | None = None
        self._last: tuple[str, Version, int] | None = None

    def version(self, file: str) -> Version:
        path = os.path.relpath(file, self._folder)
        self._seen = path, self._store.version(path)
        return self._seen[1]

    def open(self, file: str, max_nbytes: int) -> tuple[int, os.stat_result]:
        """Return a descriptor of an object's content; that of the last one is kept for the chunk's next tile."""
        path = os.path.relpath(file, self._folder)
        # A source asks for the version before it opens: one request for both. The end of the run checks it again.
        if self._seen is None or self._seen[0] != path:
            self.version(file)
        assert self._seen is not None
        if self._last is None or self._last[:2] != self._seen:
            self.close()
            self._last = *self._seen, self._store.open_object(path, self._seen[1][0], max_nbytes)
        fd = os.dup(self._last[2])
        return fd, os.fstat(fd)

    def close(self) -> None:
        if self._last is not None:
            os.close(self._last[2])
            self._last = None


def remote_version(url: str, role: str) -> tuple[int, int]:
    """Return size and a digest of the version of an object.

    Those of a folder are of the object that describes it.

    Raises:
        FileNotFoundError: there is no such object. StoreError: the store does not answer.
    """
    store = RemoteStore(url, role)
    for path in ("", *MARKS):
        with suppress(FileNotFoundError):
            size, digest, _ = store.version(path)
            return size, digest
    raise FileNotFoundError(ENOENT, os.strerror(ENOENT), url)


def _metadata(store: RemoteStore, folder: str, key: str) -> str | None:
    """Copy the metadata of a node to a folder; return its kind, None if there is no node."""
    os.makedirs(os.path.join(folder, key), exist_ok=True)
    for mark in MARKS:
        path = f"{key}/{mark}" if key else mark
        try:
            nbytes, _, _ = store.version(path)
            if nbytes > MAX_JSON_NBYTES:
                raise StoreError(f"{store.url}/{path}: has {nbytes:,} bytes, more than metadata may have")
            data = store.read(path, 0, nbytes)
        except FileNotFoundError:
            continue
        with open(os.path.join(folder, path), "wb") as file:
            file.write(data)
        break
    return node_kind(os.path.join(folder, key))


REMOTE_NPY, REMOTE_ZARR = RemoteNpy(), RemoteZarr()
