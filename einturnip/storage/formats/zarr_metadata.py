"""Parses the metadata of Zarr arrays and groups, versions 2 and 3, without a library.

Source: the Zarr core specifications (zarr-specs.readthedocs.io).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType, from_numpy
from einturnip.storage.chunks.compression import UnknownCodecError
from einturnip.storage.chunks.decoder import Codec, Filter
from einturnip.storage.chunks.files import Coordinates, fill_of
from einturnip.storage.formats.zarr_codecs import codec
from einturnip.storage.location import read_json

MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Files of which every Zarr directory contains one."""

MAX_CHUNKS = 1 << 27
"""Maximum number of chunks of one array: their versions take 8 bytes each."""

_SAID = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """Files with several chunks each: their shape, and the encoding of the chunk index in them."""

    shape: tuple[int, ...]
    index_at_start: bool
    index_dtype: np.dtype[Any]
    index_checksum: Filter | None


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """The metadata of an array.

    ``chunks``: the shape that is encoded at once, inside a shard if there are any. ``stored``: the element type with
    its byte order. ``order``: the axes of a chunk as they are stored, slowest first. ``path``: the file of a chunk or
    shard.
    """

    shape: tuple[int, ...]
    dtype: DType
    chunks: tuple[int, ...]
    stored: np.dtype[Any]
    order: tuple[int, ...]
    codecs: tuple[Codec, ...]
    fill: Any
    path: Callable[[Coordinates], str]
    shard: ShardLayout | None = None


@dataclass(slots=True)
class _Encoding:
    """The encoding of a chunk of some shape to bytes."""

    endian: str = sys.byteorder
    order: tuple[int, ...] = ()
    codecs: list[Codec] = field(default_factory=list)


def node_kind(folder: str) -> Literal["array", "group"] | None:
    """The kind of a folder; None if it is neither an array nor a group.

    Raises:
        StoreError: its metadata cannot be read.
    """
    if os.path.lexists(os.path.join(folder, "zarr.json")):
        kind: Literal["array", "group"] = _parsed(os.path.join(folder, "zarr.json"), folder, _kind_3)
        return kind
    if os.path.lexists(os.path.join(folder, ".zarray")):
        return "array"
    return "group" if os.path.lexists(os.path.join(folder, ".zgroup")) else None


def read_array(folder: str, name: str) -> ZarrArray:
    """Read the array in ``folder``; ``name`` is its name in messages.

    Raises:
        StoreError: its metadata cannot be read, or are not supported.
    """
    for mark, version in (("zarr.json", _version_3), (".zarray", _version_2)):
        if os.path.lexists(os.path.join(folder, mark)):
            array: ZarrArray = _parsed(os.path.join(folder, mark), name, partial(version, folder, name))
            return array
    raise StoreError(f"{name}: holds neither zarr.json nor .zarray")


def _parsed(file: str, name: str, build: Callable[[Any], Any]) -> Any:
    try:
        return build(read_json(file))
    except UnknownCodecError as error:
        raise StoreError(f"{name}: {error}; store the array again with one of them") from error
    except ImportError as error:
        raise StoreError(
            f"{name}: its codecs need the package {(error.name or 'numcodecs').partition('.')[0]}, which is not "
            "installed: pip install 'einturnip[zarr]'"
        ) from None
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise StoreError(f"{name}: its metadata cannot be read ({said}): the directory is damaged") from error


def _kind_3(meta: Mapping[str, Any]) -> str:
    kind = meta["node_type"]
    if meta["zarr_format"] != 3 or kind not in ("array", "group"):
        raise ValueError(f"it is a {kind!r} of Zarr format {meta['zarr_format']!r}")
    return str(kind)


def _version_3(folder: str, name: str, meta: Mapping[str, Any]) -> ZarrArray:
    if _kind_3(meta) != "array":
        raise ValueError("it is a group")
    grid, keys = _named(meta["chunk_grid"]), _named(meta["chunk_key_encoding"])
    if meta.get("storage_transformers") or grid[0] != "regular" or keys[0] not in ("default", "v2"):
        raise ValueError(f"chunk grid {grid[0]!r} with keys {keys[0]!r} is not supported")
    first, between = ("c", "/") if keys[0] == "default" else ("", ".")
    path = _files(folder, first, keys[1].get("separator", between))
    said = meta["data_type"]
    dtype = _element_type(said, name)
    shape, chunks = _shapes(meta["shape"], grid[1]["chunk_shape"])
    codecs, shard = [_named(c) for c in meta["codecs"]], None
    if [c[0] for c in codecs] == ["sharding_indexed"]:
        shard, inner, codecs = _sharding(codecs[0][1], chunks)
        chunks = inner
    encoding = _encoding(codecs, len(shape))
    stored = dtype.numpy if encoding.endian == sys.byteorder else dtype.numpy.newbyteorder("S")
    fill = fill_of(_value(meta["fill_value"], dtype), dtype)
    return ZarrArray(shape, dtype, chunks, stored, encoding.order, tuple(encoding.codecs), fill, path, shard)


def _sharding(settings: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[ShardLayout, tuple[int, ...], list[Any]]:
    _, inner = _shapes(shape, settings["chunk_shape"])
    if any(s % c for s, c in zip(shape, inner, strict=True)):
        raise ValueError(f"chunks of {inner} do not divide shards of {shape}")
    kinds = [_named(c) for c in settings["index_codecs"]]
    names = [kind[0] for kind in kinds]
    if names not in (["bytes"], ["bytes", "crc32c"]):
        raise UnknownCodecError(f"its shards' index has the codecs {names}; supported are 'bytes' and 'crc32c'")
    order = kinds[0][1].get("endian", "little")
    at_start = settings.get("index_location", "end") == "start"
    crc = codec(names[1], kinds[1][1]) if len(names) == 2 else None
    shard = ShardLayout(shape, at_start, np.dtype("u8").newbyteorder(order), crc if isinstance(crc, Filter) else None)
    return shard, inner, [_named(c) for c in settings["codecs"]]


def _encoding(codecs: Sequence[tuple[str, Mapping[str, Any]]], ndim: int) -> _Encoding:
    encoding = _Encoding(order=tuple(range(ndim)))
    to_bytes = [c[0] for c in codecs].index("bytes")
    for i, (name, settings) in enumerate(codecs):
        if name == "bytes":
            encoding.endian = settings.get("endian", sys.byteorder)
            if encoding.endian not in ("little", "big"):
                raise ValueError(f"endian {encoding.endian!r}")
        elif name == "transpose":
            order = settings["order"]
            if i > to_bytes or encoding.codecs or sorted(order) != list(range(ndim)):
                raise ValueError(f"transpose to {order}")
            encoding.order = tuple(encoding.order[axis] for axis in order)
        elif name == "sharding_indexed":
            raise UnknownCodecError("its codec 'sharding_indexed' is combined with others; supported are plain shards")
        else:
            encoding.codecs.append(codec(name, settings))
    return encoding


def _version_2(folder: str, name: str, meta: Mapping[str, Any]) -> ZarrArray:
    if meta["zarr_format"] != 2 or meta["order"] not in ("C", "F"):
        raise ValueError(f"order {meta['order']!r} of Zarr format {meta['zarr_format']!r}")
    dtype = _element_type(meta["dtype"], name)
    shape, chunks = _shapes(meta["shape"], meta["chunks"])
    axes = tuple(range(len(shape)))
    rows = [*(meta["filters"] or []), *([meta["compressor"]] if meta["compressor"] else [])]
    codecs = tuple(codec(row["id"], row) for row in rows)
    path = _files(folder, "", meta.get("dimension_separator", "."))
    fill = fill_of(_value(meta["fill_value"], dtype), dtype)
    order = axes if meta["order"] == "C" else axes[::-1]
    return ZarrArray(shape, dtype, chunks, np.dtype(meta["dtype"]), order, codecs, fill, path)


def _element_type(said: Any, name: str) -> DType:
    try:
        stored = np.dtype(said) if isinstance(said, str) else None
        if stored is not None and (stored.name == said or said[0] in "<>|="):
            return from_numpy(stored)
    except (TypeError, KeyError):
        pass
    shown = said.get("name", said) if isinstance(said, dict) else said
    raise StoreError(
        f"{name}: holds {shown} elements, which einturnip has no type for; convert it, for instance to f32"
    )


def _shapes(shape: Sequence[int], chunks: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(shape) != len(chunks) or not all(type(n) is int and n >= 0 for n in [*shape, *chunks]):
        raise ValueError(f"shape {shape} in chunks of {chunks}")
    if 0 in chunks and 0 not in shape:
        raise ValueError(f"chunks of {chunks}")
    if (count := math.prod(-(-n // max(1, c)) for n, c in zip(shape, chunks, strict=True))) > MAX_CHUNKS:
        raise ValueError(f"{count:,} chunks, where at most {MAX_CHUNKS:,} are read")
    return tuple(shape), tuple(max(1, c) for c in chunks)


def _named(extension: Any) -> tuple[str, Mapping[str, Any]]:
    """A metadata extension's name and configuration; the name may come without configuration."""
    return (extension, {}) if isinstance(extension, str) else (extension["name"], extension.get("configuration", {}))


def _files(folder: str, first: str, separator: str) -> Callable[[Coordinates], str]:
    if separator not in ("/", "."):
        raise ValueError(separator)

    def path(chunk: Coordinates) -> str:
        return os.path.join(folder, separator.join(([first] if first else []) + [str(c) for c in chunk]) or "0")

    return path


def _value(fill: Any, dtype: DType) -> Any:
    """The value of a fill value in JSON."""
    if dtype.kind == "c" and isinstance(fill, list):
        real, imaginary = (_SAID[x] if isinstance(x, str) else x for x in fill)
        return complex(real, imaginary)
    return _SAID[fill] if isinstance(fill, str) and dtype.is_inexact else fill
