"""Parses a ``.gguf`` header: key-value pairs, then name, sizes, type and offset of each tensor.

Source: the format's description, docs/gguf.md in ggml-org/ggml.
"""

from __future__ import annotations

import collections
import math
import os
import struct
from dataclasses import dataclass
from typing import Any

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DTYPES
from einturnip.storage.formats.dequantize import ExpandedSource, PlainSource
from einturnip.storage.formats.quantized_blocks import ENCODINGS, OTHERS
from einturnip.storage.io.file_source import FileSource
from einturnip.storage.layout import c_layout

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PIECE = 1 << 18
MAX_HEADER_NBYTES = 128 << 20
MAX_TENSORS = 100_000
MAX_PAIRS = 10_000
_MAX_RANK = 64
_MAX_TEXT_NBYTES = 1 << 20  # of a name or a value: chat templates take some kilobytes
_MAX_NESTING = 8
_MAX_LISTED = 1_000_000  # the largest vocabularies have some 300,000 words
_MAX_KEPT_NBYTES = 8 << 20  # of all names and values, except vocabularies


@dataclass(frozen=True, slots=True)
class GgufEntry:
    """One tensor: its shape (slowest axis first), its type number, its offset after the header."""

    shape: tuple[int, ...]
    type: int
    offset: int


class _Cursor:
    """Reads the header sequentially, a piece at a time, and frees the pieces that are done."""

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path, self._fd, self._size = path, fd, size
        self._piece, self._begin, self._at = b"", 0, 0
        self._kept = 0

    @property
    def offset(self) -> int:
        return self._begin + self._at

    def take(self, nbytes: int) -> bytes:
        """The next bytes."""
        stop = self._at + nbytes
        if stop > len(self._piece):
            self._more(nbytes)
            stop = nbytes
        taken = self._piece[self._at : stop]
        self._at = stop
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def text(self) -> str:
        nbytes = self.number("Q")
        if nbytes > _MAX_TEXT_NBYTES:
            raise StoreError(
                f"{self.path}: its header holds a text of {nbytes:,} bytes; einturnip reads at most "
                f"{_MAX_TEXT_NBYTES:,}"
            )
        self._kept += nbytes
        return self.take(nbytes).decode("utf-8", "replace")

    def require_little_kept(self) -> None:
        """Refuse a header whose names and values take too much memory in total."""
        if self._kept > _MAX_KEPT_NBYTES:
            raise StoreError(
                f"{self.path}: the names and values in its header take {self._kept:,} bytes; einturnip reads at most "
                f"{_MAX_KEPT_NBYTES:,}"
            )

    def value(self, kind: int, whole: bool, depth: int = 0) -> Any:
        """Read a value of type ``kind``; a list for an array if ``whole``, else None."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            if depth == _MAX_NESTING:
                raise StoreError(f"{self.path}: its header nests arrays {depth} deep: the file is damaged")
            inner, count = self.number("I"), self.number("Q")
            if whole and count > _MAX_LISTED:
                raise StoreError(
                    f"{self.path}: its header lists {count:,} values; einturnip reads at most {_MAX_LISTED:,}"
                )
            before = self._kept
            values = (self.value(inner, whole, depth + 1) for _ in range(count))
            if whole:
                return list(values)
            collections.deque(values, maxlen=0)
            self._kept = before
            return None
        if kind not in _SCALARS:
            raise StoreError(f"{self.path}: its header holds a value of an unknown kind ({kind}): the file is damaged")
        return self.number(_SCALARS[kind])

    def _more(self, nbytes: int) -> None:
        start = self.offset
        if start + nbytes > MAX_HEADER_NBYTES:
            raise StoreError(
                f"{self.path}: its header takes more than the {MAX_HEADER_NBYTES:,} bytes that einturnip reads of one"
            )
        if start + nbytes > self._size:
            raise StoreError(
                f"{self.path}: is truncated: its header alone needs {start + nbytes} bytes, the file has {self._size}"
            )
        self._piece, self._begin, self._at = os.pread(self._fd, max(nbytes, _PIECE), start), start, 0
        if len(self._piece) < nbytes:
            raise StoreError(f"{self.path}: the file became shorter while it was read; run again when it is whole")


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The content of a GGUF header: ``metadata`` by name, and the tensors' offsets from byte ``begin``."""

    path: str
    size: int
    begin: int
    entries: dict[str, GgufEntry]
    metadata: dict[str, Any]

    def source(self, key: str, fd: int, beside: FileSource | None = None) -> ExpandedSource | PlainSource:
        """Open the tensor ``key``. The source takes over the descriptor, unless it belongs to ``beside``.

        Raises:
            StoreError: the file is too short, or the type is not supported.
        """
        entry, shown = self.entries[key], f"{self.path}::{key}"
        encoding = ENCODINGS.get(entry.type)
        if encoding is None:
            kind = OTHERS.get(entry.type, f"number {entry.type}")
            known = ", ".join(e.name for e in ENCODINGS.values() if e.expand is not None)
            raise StoreError(
                f"{shown}: is stored as {kind}, which einturnip does not expand; of the quantised types it knows "
                f"{known}: convert the file to one of them with llama.cpp's llama-quantize"
            )
        count = math.prod(entry.shape)
        if count % encoding.points or encoding.expand is not None and entry.shape[-1] % encoding.points:
            raise StoreError(f"{shown}: {list(entry.shape)} is not in blocks of {encoding.points}: the file is damaged")
        start = self.begin + entry.offset
        needed = start + count // encoding.points * encoding.nbytes
        if needed > self.size:
            raise StoreError(
                f"{self.path}: is truncated: {key} needs {needed} bytes, the file has {self.size}; copy it again"
            )
        if encoding.expand is None:
            layout = c_layout(entry.shape, encoding.nbytes, start)
            return PlainSource(shown, self.path, fd, layout, encoding.dtype, beside=beside)
        shape = (*entry.shape[:-1], entry.shape[-1] // encoding.points, encoding.nbytes)
        raw = FileSource(shown, self.path, fd, c_layout(shape, 1, start), DTYPES["u8"], beside=beside)
        return ExpandedSource(raw, encoding, encoding.dtype)


def read_header(path: str, fd: int, size: int, whole: bool = False) -> GgufHeader:
    """Read the header of a file; lists of the metadata only if ``whole`` (a vocabulary takes megabytes).

    Raises:
        StoreError: not a GGUF file, damaged or truncated.
    """
    cursor = _Cursor(path, fd, size)
    if size < 24 or cursor.take(4) != b"GGUF":
        raise StoreError(f"{path}: is no .gguf file: it does not begin with GGUF")
    version = cursor.number("I")
    if version not in (2, 3):
        raise StoreError(
            f"{path}: is a GGUF file of version {version}; einturnip reads versions 2 and 3, little-endian: "
            "convert it with llama.cpp's tools"
        )
    tensors, pairs = cursor.number("Q"), cursor.number("Q")
    if tensors > MAX_TENSORS or pairs > MAX_PAIRS:
        raise StoreError(
            f"{path}: states {tensors:,} tensors and {pairs:,} keys; einturnip reads at most {MAX_TENSORS:,} and "
            f"{MAX_PAIRS:,} of a file"
        )
    metadata, entries = dict[str, Any](), dict[str, GgufEntry]()
    try:
        for _ in range(pairs):
            name = cursor.text()
            metadata[name] = cursor.value(cursor.number("I"), whole)
            if not whole:
                cursor.require_little_kept()
        for _ in range(tensors):
            name, entry = _entry(cursor)
            entries[name] = entry
            if not whole:
                cursor.require_little_kept()
    except (MemoryError, OverflowError, RecursionError, struct.error) as error:
        raise StoreError(f"{path}: its header cannot be read ({error}): the file is damaged") from error
    align = metadata.get("general.alignment", 32)
    if not isinstance(align, int) or align < 1:
        raise StoreError(f"{path}: says that its tensors are aligned to {align!r} bytes: the file is damaged")
    return GgufHeader(path, size, -(-cursor.offset // align) * align, entries, metadata)


def _entry(cursor: _Cursor) -> tuple[str, GgufEntry]:
    name = cursor.text()
    rank = cursor.number("I")
    if rank > _MAX_RANK:
        raise StoreError(f"{cursor.path}: {name[:80]} has {rank:,} axes: the file is damaged")
    shape = tuple(cursor.number("Q") for _ in range(rank))[::-1]
    return name, GgufEntry(shape, cursor.number("I"), cursor.number("Q"))
