"""The header of a ``.safetensors`` file: eight bytes of length, JSON, then the data.

Source: the format's description in the README of huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

from einturnip.core.dtypes import DTYPES, DType
from einturnip.core.errors import BindError, StoreError
from einturnip.stores.file_source import FileSource
from einturnip.stores.layout import c_layout
from einturnip.stores.transfer import read_full

_HEADER_LIMIT = 100 << 20
_PAGE = 4096

# fmt: off
_NAMES = {
    "BOOL": "bool", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64", "U8": "u8", "U16": "u16", "U32": "u32",
    "U64": "u64", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "C64": "c64", "C128": "c128",
}
# fmt: on
_WRITTEN = {language: stored for stored, language in _NAMES.items() if stored != "C128"}


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """What a file says of its tensors: ``entries`` as they stand in the JSON, the data from byte ``begin`` on."""

    path: str
    size: int
    begin: int
    entries: dict[str, Any]
    metadata: dict[str, Any]

    def source(self, key: str, fd: int, beside: FileSource | None = None) -> FileSource:
        """The tensor ``key``. The descriptor is the source's from now on, unless it is that of ``beside``.

        Raises:
            StoreError: damaged, truncated, or an element type that the language lacks.
        """
        shown = f"{self.path}::{key}"
        try:
            entry = self.entries[key]
            stored, shape = entry["dtype"], tuple(entry["shape"])
            first, last = entry["data_offsets"]
            if not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
                raise ValueError("a negative or fractional size")
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{shown}: its entry in the header cannot be read ({error}): the file is damaged"
            ) from error
        if stored not in _NAMES:
            raise StoreError(
                f"{shown}: holds {stored} elements, which einturnip has no type for; convert it, for instance to F32"
            )
        dtype = DTYPES[_NAMES[stored]]
        needed = math.prod(shape) * dtype.itemsize
        if last - first != needed:
            raise StoreError(
                f"{shown}: {stored}{list(shape)} takes {needed} bytes, the header gives it {last - first}: damaged"
            )
        if self.begin + last > self.size:
            raise StoreError(
                f"{self.path}: is truncated: {key} needs {self.begin + last} bytes, the file has {self.size}; "
                "copy it again"
            )
        layout = c_layout(shape, dtype.itemsize, self.begin + first)
        return FileSource(shown, self.path, fd, layout, dtype, beside=beside)


def read_header(path: str, fd: int, size: int) -> SafetensorsHeader:
    """The header of a file.

    Raises:
        StoreError: no such file, damaged or truncated.
    """
    if size < 8:
        raise StoreError(f"{path}: is no .safetensors file: it has {size} bytes, and the header's length alone takes 8")
    prefix = bytearray(8)
    read_full(fd, memoryview(prefix), 0, path)
    (length,) = struct.unpack("<Q", prefix)
    if length > _HEADER_LIMIT:
        raise StoreError(f"{path}: is no .safetensors file: its first 8 bytes say that the header takes {length} bytes")
    if 8 + length > size:
        raise StoreError(f"{path}: is truncated: its header alone needs {8 + length} bytes, the file has {size}")
    raw = bytearray(length)
    read_full(fd, memoryview(raw), 8, path)
    try:
        header = json.loads(raw)
        if not isinstance(header, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: its .safetensors header cannot be read ({error}): the file is damaged") from error
    metadata = header.pop("__metadata__", {})
    return SafetensorsHeader(path, size, 8 + length, header, metadata if isinstance(metadata, dict) else {})


def make_header(path: str, tensors: dict[str, tuple[tuple[int, ...], DType]]) -> tuple[bytes, dict[str, int]]:
    """The header and where each tensor begins in the file: one after the other, widest elements first, none padded.

    The format allows no holes between tensors; blanks pad the header, to a page if the data are large.

    Raises:
        BindError: an element type or a key that the format lacks.
    """
    order = sorted(tensors, key=lambda key: -tensors[key][1].itemsize)
    offset, entries, begins = 0, {}, {}
    for key in order:
        shape, dtype = tensors[key]
        if dtype.name not in _WRITTEN:
            raise BindError(
                f"{path}::{key}: .safetensors has no {dtype.name}; write this output to a .npy or .npz file"
            )
        if key == "__metadata__":
            raise BindError(f"{path}::{key}: .safetensors keeps this key for itself; choose another")
        nbytes = math.prod(shape) * dtype.itemsize
        entries[key] = {"dtype": _WRITTEN[dtype.name], "shape": list(shape), "data_offsets": [offset, offset + nbytes]}
        begins[key] = offset
        offset += nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    align = _PAGE if offset >= 1 << 20 else 8
    text += b" " * (-(8 + len(text)) % align)
    header = struct.pack("<Q", len(text)) + text
    return header, {key: len(header) + begin for key, begin in begins.items()}
