"""Zarr arrays whose chunks are the elements as they stand in memory: their metadata are read here, with no library.

Source: the Zarr core specifications, versions 2 and 3 (zarr-specs.readthedocs.io).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from einturnip.core.dtypes import DType, from_numpy
from einturnip.stores.chunk_files import ChunkFiles, Coordinates, fill_of

_SAID = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}


def plain_array(folder: str, name: str) -> ChunkFiles | None:
    """The array that ``folder`` is; None where it is none, or something of it is not plain or not understood."""
    for mark, version in (("zarr.json", _version_3), (".zarray", _version_2)):
        try:
            with open(os.path.join(folder, mark), encoding="utf-8") as file:
                return version(json.load(file), folder, name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError):
            return None  # the zarr package may understand it, or says what is wrong
    return None


def _version_3(meta: Mapping[str, Any], folder: str, name: str) -> ChunkFiles | None:
    grid, keys = _named(meta["chunk_grid"]), _named(meta["chunk_key_encoding"])
    (codec,) = map(_named, meta["codecs"])
    dtype = np.dtype(meta["data_type"])
    known = meta["zarr_format"] == 3 and meta["node_type"] == "array" and not meta.get("storage_transformers")
    if not known or codec[0] != "bytes" or grid[0] != "regular" or keys[0] not in ("default", "v2"):
        return None
    if dtype.name != meta["data_type"] or dtype.itemsize > 1 and codec[1]["endian"] != sys.byteorder:
        return None
    first, between = ("c", "/") if keys[0] == "default" else ("", ".")
    path = _files(folder, first, keys[1].get("separator", between))
    return _array(name, meta["shape"], dtype, grid[1]["chunk_shape"], path, meta["fill_value"])


def _version_2(meta: Mapping[str, Any], folder: str, name: str) -> ChunkFiles | None:
    dtype = np.dtype(meta["dtype"])
    plain = meta["order"] == "C" and meta["compressor"] is None and not meta["filters"] and dtype.isnative
    if meta["zarr_format"] != 2 or not plain:
        return None
    path = _files(folder, "", meta.get("dimension_separator", "."))
    return _array(name, meta["shape"], dtype, meta["chunks"], path, meta["fill_value"])


def _named(extension: Any) -> tuple[str, Mapping[str, Any]]:
    """A metadata extension's name and what it is set to: it may stand as its name alone."""
    return (extension, {}) if isinstance(extension, str) else (extension["name"], extension.get("configuration", {}))


def _files(folder: str, first: str, separator: str) -> Callable[[Coordinates], str]:
    if separator not in ("/", "."):
        raise ValueError(separator)
    return lambda chunk: os.path.join(folder, separator.join(([first] if first else []) + [str(c) for c in chunk]))


def _array(
    name: str, shape: list[int], stored: np.dtype[Any], chunks: list[int], path: Callable[[Coordinates], str], fill: Any
) -> ChunkFiles | None:
    sides = [*shape, *chunks]
    if not shape or len(shape) != len(chunks) or not all(type(n) is int and n > 0 for n in sides):
        return None
    dtype = from_numpy(stored)
    return ChunkFiles(name, tuple(shape), dtype, tuple(chunks), path, fill_of(_value(fill, dtype), dtype))


def _value(fill: Any, dtype: DType) -> Any:
    """What a fill value in JSON stands for."""
    if dtype.kind == "c" and isinstance(fill, list):
        real, imaginary = (_SAID[x] if isinstance(x, str) else x for x in fill)
        return complex(real, imaginary)
    return _SAID[fill] if isinstance(fill, str) and dtype.is_inexact else fill
