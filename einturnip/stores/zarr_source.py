"""Arrays of Zarr directories, version 2 or 3: we read plain chunks, the zarr package decodes all others."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from einturnip.core.dtypes import from_numpy
from einturnip.core.errors import BindError, StoreError
from einturnip.stores.chunk_files import ChunkFiles
from einturnip.stores.chunked import ChunkedSource
from einturnip.stores.location import no_such_file, pick_key
from einturnip.stores.types import Array, Region, slices
from einturnip.stores.unchanged import ChunkVersions
from einturnip.stores.zarr_plain import plain_array

MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Files of which a Zarr directory holds one."""


def zarr_source(path: str, key: str | None, name: str) -> ChunkedSource | ChunkFiles:
    """The array ``key`` (its path in the group; none where the directory is itself an array).

    Raises:
        BindError: no such directory or array. StoreError: damaged, of an element type that the language lacks, or the
        zarr package is missing.
    """
    names = key.strip("/").split("/") if key else []
    if not {"", ".", ".."} & set(names):
        plain = plain_array(os.path.join(path, *names), f"{path}::{'/'.join(names)}" if names else path)
        if plain is not None:
            return plain
    found = _arrays_of(path)
    if not isinstance(found, dict):
        if key:
            raise BindError(f"{path}::{key}: {path} is one array and has no keys; name {path} alone")
        return _array_source(found, path, path)
    picked = pick_key(path, key if key is None else key.strip("/"), list(found), name)
    shown = f"{path}::{picked}"
    return plain_array(os.path.join(path, picked), shown) or _array_source(found[picked], path, shown)


def zarr_keys(path: str) -> tuple[str, ...] | None:
    """The paths of a group's arrays; None where the directory is itself an array. Errors: as of ``zarr_source``."""
    if plain_array(path, path) is not None:
        return None
    found = _arrays_of(path)
    return tuple(found) if isinstance(found, dict) else None


def _arrays_of(path: str) -> Any:
    """The arrays of a group by their paths, or the one array that the directory is.

    Raises:
        BindError: no such directory. StoreError: it is damaged, or the zarr package is missing.
    """
    if not os.path.exists(path):
        raise no_such_file(path)
    if not any(os.path.exists(os.path.join(path, mark)) for mark in MARKS):
        raise StoreError(f"{path}: is no Zarr directory: it holds none of {', '.join(MARKS)}")
    try:
        zarr = import_module("zarr")
    except ImportError:
        raise StoreError(
            f"{path}: Zarr directories need the package zarr, which is not installed: pip install 'einturnip[zarr]'"
        ) from None
    try:
        root = zarr.open(path, mode="r")
        return root if isinstance(root, zarr.Array) else _arrays(root, "", zarr)
    except Exception as error:  # any of its parsers may have met nonsense
        raise StoreError(f"{path}: its metadata cannot be read ({error}): the directory is damaged") from error


def _arrays(group: Any, prefix: str, zarr: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in sorted(group.members()):
        if isinstance(member, zarr.Array):
            found[prefix + name] = member
        else:
            found |= _arrays(member, f"{prefix}{name}/", zarr)
    return found


def _array_source(array: Any, path: str, shown: str) -> ChunkedSource:
    try:
        dtype = from_numpy(array.dtype)
    except KeyError:
        raise StoreError(
            f"{shown}: holds {array.dtype} elements, which einturnip has no type for; convert it, for instance to f32"
        ) from None

    def decode(region: Region, out: Array) -> None:
        try:
            out[...] = array[slices(region)] if region else array[()]
        except Exception as error:  # any codec may have met nonsense
            raise StoreError(f"{shown}: a chunk cannot be read ({error}): the directory is damaged") from error

    return ChunkedSource(
        shown, array.shape, dtype, array.chunks, decode, lambda: None, versions=_versions(array, path, shown)
    )


def _versions(array: Any, folder: str, shown: str) -> ChunkVersions:
    """The versions of the files that the array's chunks, or its shards of several chunks, lie in."""
    files = getattr(array, "shards", None) or array.chunks
    inside = os.path.join(folder, array.path)
    return ChunkVersions(
        shown, array.shape, files, lambda place: os.path.join(inside, array.metadata.encode_chunk_key(place))
    )
