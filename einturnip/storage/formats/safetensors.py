"""Parses and writes the header of a ``.safetensors`` file: eight bytes of length, JSON, then the data.

Source: the format's description in the README of huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DTYPES, DType
from einturnip.storage.formats.json_members import JsonMembers
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.io.transfer import read_full
from einturnip.storage.layout import c_layout

MAX_HEADER_NBYTES = 32 << 20
MAX_TENSORS = 100_000
_MAX_ENTRY_NBYTES = 64 << 10
_MAX_METADATA_NBYTES = 1 << 20
_MAX_NAME = 64
MAX_RANK = 64
_PAGE = 4096

# fmt: off
_NAMES = {
    "BOOL": "bool", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64", "U8": "u8", "U16": "u16", "U32": "u32",
    "U64": "u64", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "C64": "c64", "C128": "c128",
}
# fmt: on
_WRITTEN = {language: stored for stored, language in _NAMES.items() if stored != "C128"}


@dataclass(frozen=True, slots=True)
class SafetensorsEntry:
    """One tensor: its element type as the file names it, its shape, and its byte range in the data."""

    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """A file's tensors: an entry or an error for each; the data begin at byte ``begin``."""

    path: str
    size: int
    begin: int
    entries: dict[str, SafetensorsEntry | str]
    metadata: dict[str, Any]
    misplaced: str | None = None
    """Two tensors that overlap, or bytes of no tensor; None if there are none."""

    def source(self, key: str, fd: int, beside: FileSource | None = None) -> FileSource:
        """Open the tensor ``key``. The source takes over the descriptor, unless it belongs to ``beside``.

        Raises:
            StoreError: damaged, truncated, or an element type that the language lacks.
        """
        shown = f"{self.path}::{key}"
        entry = self.entries[key]
        if isinstance(entry, str):
            raise StoreError(f"{shown}: its entry in the header cannot be read ({entry}): the file is damaged")
        stored, shape, first, last = entry.dtype, entry.shape, entry.first, entry.last
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
        if self.misplaced is not None:
            raise StoreError(f"{self.path}: {self.misplaced}: the file is damaged, save it again")
        layout = c_layout(shape, dtype.itemsize, self.begin + first)
        return FileSource(shown, self.path, fd, layout, dtype, beside=beside)


def read_header(path: str, fd: int, size: int) -> SafetensorsHeader:
    """Read the header of a file.

    Raises:
        StoreError: no such file, damaged or truncated.
    """
    if size < 8:
        raise StoreError(f"{path}: is no .safetensors file: it has {size} bytes, and the header's length alone takes 8")
    prefix = bytearray(8)
    read_full(fd, memoryview(prefix), 0, path)
    (length,) = struct.unpack("<Q", prefix)
    if length > 1 << 40:
        raise StoreError(f"{path}: is no .safetensors file: its first 8 bytes say that the header takes {length} bytes")
    if 8 + length > size:
        raise StoreError(f"{path}: is truncated: its header alone needs {8 + length} bytes, the file has {size}")
    if length > MAX_HEADER_NBYTES:
        raise StoreError(
            f"{path}: its header takes {length:,} bytes; einturnip reads headers of at most {MAX_HEADER_NBYTES:,}: "
            "store the tensors in several files"
        )
    entries, metadata = dict[str, SafetensorsEntry | str](), dict[str, Any]()

    def read(offset: int, nbytes: int) -> bytearray:
        piece = bytearray(nbytes)
        read_full(fd, memoryview(piece), 8 + offset, path)
        return piece

    def longest(key: str) -> int:
        return _MAX_METADATA_NBYTES if key == "__metadata__" else _MAX_ENTRY_NBYTES

    try:
        for key, said in JsonMembers(read, length, longest):
            if key == "__metadata__":
                metadata = said if isinstance(said, dict) else {}
                continue
            entries[key] = _entry(said)
            if len(entries) > MAX_TENSORS:
                raise StoreError(
                    f"{path}: holds more than {MAX_TENSORS:,} tensors, the most that einturnip reads of one file: "
                    "store them in several"
                )
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: its .safetensors header cannot be read ({error}): the file is damaged") from error
    misplaced = _misplaced(entries, size - 8 - length)
    return SafetensorsHeader(path, size, 8 + length, entries, metadata, misplaced)


def _misplaced(entries: dict[str, SafetensorsEntry | str], nbytes: int) -> str | None:
    """Find two tensors that overlap in ``nbytes`` of data, or bytes of no tensor.

    The format requires that each byte belongs to one tensor. Gaps may belong to entries that cannot be read.
    """
    placed = sorted((e.first, e.last, key) for key, e in entries.items() if isinstance(e, SafetensorsEntry))
    complete = len(placed) == len(entries)
    end, before = 0, ""
    for first, last, key in placed:
        if last < first:
            return f"its tensor {key!r} ends at byte {last} of the data, before its begin at byte {first}"
        if first < end:
            return f"its tensors {before!r} and {key!r} overlap in bytes {first} to {min(end, last)} of the data"
        if first > end and complete:
            return f"bytes {end} to {first} of its data, before tensor {key!r}, belong to no tensor"
        end, before = last, key
    if complete and end < nbytes:
        return f"the last {nbytes - end} bytes of its data belong to no tensor"
    return None


def _entry(said: Any) -> SafetensorsEntry | str:
    """Parse an entry of the JSON, or describe its error, reported only if the tensor is requested."""
    if not isinstance(said, dict):
        return "it is no object"
    missing = [field for field in ("dtype", "shape", "data_offsets") if field not in said]
    if missing:
        return f"it lacks {missing[0]!r}"
    dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or len(dtype) > _MAX_NAME:
        return "its dtype is no name"
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        return "its shape is no list of sizes"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int and n >= 0 for n in offsets):
        return "its data_offsets are no two offsets"
    return SafetensorsEntry(sys.intern(dtype), tuple(shape), offsets[0], offsets[1])


def make_header(path: str, tensors: dict[str, tuple[tuple[int, ...], DType]]) -> tuple[bytes, dict[str, int]]:
    """Create the header and the offsets of the tensors: contiguous, widest elements first.

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
