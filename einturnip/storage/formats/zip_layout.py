"""Lays out an uncompressed ``.npz`` in advance, so that arrays are written to their final place.

Source: PKWARE's APPNOTE.TXT 6.3.10, always with the zip64 fields, as ``numpy.savez`` writes them.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.storage.formats.npy import make_header

_PAGE = 4096
_MAX32 = 0xFFFFFFFF
_NEW_YEAR_1980 = 0x21
_UTF8 = 0x800
_VERSION = 45
_ALIGNMENT_FIELD = 0xD935


@dataclass(frozen=True, slots=True)
class ZipMember:
    """One array: offsets of its local header, of its ``.npy`` (``begin``) and elements (``data``)."""

    filename: bytes
    offset: int
    local: bytes
    begin: int
    npy_header: bytes
    nbytes: int

    @property
    def data(self) -> int:
        """The offset of the elements."""
        return self.begin + len(self.npy_header)

    @property
    def crc_offset(self) -> int:
        """The offset of the checksum in the local header."""
        return self.offset + 14


def lay_out(path: str, tensors: dict[str, tuple[tuple[int, ...], DType]]) -> tuple[ZipMember, ...]:
    """Place the arrays one after another; large ones begin on a page.

    Raises:
        BindError: an element type that ``.npy`` lacks.
    """
    members, offset = list[ZipMember](), 0
    for key, (shape, dtype) in tensors.items():
        header = make_header(shape, dtype, f"{path}::{key}")
        nbytes = len(header) + math.prod(shape) * dtype.itemsize
        filename = f"{key}.npy".encode()
        zip64 = struct.pack("<2H2Q", 1, 16, nbytes, nbytes)
        bare = offset + 30 + len(filename) + len(zip64) + 4
        padding = -bare % (_PAGE if nbytes >= 1 << 20 else 64)
        extra = zip64 + struct.pack("<2H", _ALIGNMENT_FIELD, padding) + bytes(padding)
        local = struct.pack(
            "<4s5H3I2H",
            b"PK\x03\x04",
            _VERSION,
            _UTF8,
            0,
            0,
            _NEW_YEAR_1980,
            0,
            _MAX32,
            _MAX32,
            len(filename),
            len(extra),
        )
        members.append(ZipMember(filename, offset, local + filename + extra, bare + padding, header, nbytes))
        offset = bare + padding + nbytes
    return tuple(members)


def directory(members: tuple[ZipMember, ...], checksums: tuple[int, ...]) -> bytes:
    """The central directory and the end records, which follow the last member."""
    entries = b"".join(_entry(member, crc) for member, crc in zip(members, checksums, strict=True))
    start = members[-1].begin + members[-1].nbytes
    count = len(members)
    end64 = struct.pack(
        "<4sQ2H2I4Q", b"PK\x06\x06", 44, _VERSION, _VERSION, 0, 0, count, count, len(entries), start
    ) + struct.pack("<4sIQI", b"PK\x06\x07", 0, start + len(entries), 1)
    small = min(count, 0xFFFF)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, small, small, min(len(entries), _MAX32), min(start, _MAX32), 0)
    return entries + end64 + end


def _entry(member: ZipMember, crc: int) -> bytes:
    extra = struct.pack("<2H3Q", 1, 24, member.nbytes, member.nbytes, member.offset)
    head = struct.pack(
        "<4s6H3I5H2I", b"PK\x01\x02", _VERSION, _VERSION, _UTF8, 0, 0, _NEW_YEAR_1980, crc, _MAX32, _MAX32,
        len(member.filename), len(extra), 0, 0, 0, 0o600 << 16, _MAX32,
    )  # fmt: skip
    return head + member.filename + extra
