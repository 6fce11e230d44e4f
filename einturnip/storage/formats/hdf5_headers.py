"""Checks the sizes of object headers in HDF5 files before the HDF5 library reads a header.

In the format's first version an object's header contains all its attributes, and the library reads it at once: 112 MB
of attributes take 212 MiB.

Source: the HDF5 file format specification, version 3.0, "Superblock" and "Data Object Headers".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from einturnip.core.errors import StoreError

MAX_HEADER_NBYTES = 4 << 20
_MAX_CHUNKS = 10_000
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_CONTINUATION, _SHARED, _IN_HEADER = 16, 2, 2
_MESSAGE = struct.Struct("<HHB3x")  # type, size and flags, in version 1


class Hdf5Headers:
    """Checks the headers of the objects on the path to one dataset. ``fd``: the open file."""

    def __init__(self, path: str, fd: int) -> None:
        self._path, self._fd, self._left, self._checked = path, fd, MAX_HEADER_NBYTES, set[int]()
        self._base = self._address_nbytes = self._length_nbytes = 0

    def require_root(self) -> None:
        """Check the root group's header and the superblock's extension, if this is an HDF5 file.

        Raises:
            StoreError: they exceed the limit on headers.
        """
        size = os.fstat(self._fd).st_size
        while os.pread(self._fd, len(_SIGNATURE), self._base) != _SIGNATURE:
            self._base = self._base * 2 or 512
            if self._base >= size:
                return
        block = os.pread(self._fd, 128, self._base).ljust(128)
        version = block[8]
        at = 24 + 4 * version if version < 2 else 12
        self._address_nbytes, self._length_nbytes = block[13:15] if version < 2 else block[9:11]
        n = self._address_nbytes
        # base, free space, end, driver, offset of the root's name, root; from version 2 on base, extension, end, root
        fields = [int.from_bytes(block[at + i * n : at + (i + 1) * n], "little") for i in range(6)]
        self._base = fields[0]
        for i in (5,) if version < 2 else (1, 3):
            self.require(fields[i])

    def require(self, address: int, alone: bool = False) -> None:
        """Check the header at an address, and those of shared types that it refers to.

        ``alone``: the library has no other header in memory at that time.

        Raises:
            StoreError: all headers so far exceed the limit on headers.
        """
        if alone:
            self._left = MAX_HEADER_NBYTES
        addresses = [address]
        while addresses:
            address = addresses.pop()
            # The largest number means that there is no address.
            if address not in self._checked and self._base + address < os.fstat(self._fd).st_size:
                self._checked.add(address)
                addresses += self._measured(address)

    def _measured(self, address: int) -> list[int]:
        """Subtract the bytes of a header from the remaining limit; returns the headers of shared types."""
        start = os.pread(self._fd, 32, self._base + address).ljust(32)
        if start[:4] == b"OHDR":
            flags = start[5]
            at, width = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0), 1 << (flags & 3)
            chunks = [(address + at + width, int.from_bytes(start[at : at + width], "little"))]
            prefix = 6 if flags & 4 else 4
        elif start[:1] == b"\x01":
            chunks, prefix = [(address + 16, int.from_bytes(start[8:12], "little"))], 8
        else:
            return []  # the library reports the error
        shared, n_chunks = list[int](), 0
        while chunks:
            begin, nbytes = chunks.pop()
            self._left, n_chunks = self._left - nbytes, n_chunks + 1
            if self._left < 0 or n_chunks > _MAX_CHUNKS:
                raise StoreError(
                    f"{self._path}: the headers of a dataset and its groups take more than "
                    f"{MAX_HEADER_NBYTES >> 20} MiB, since they hold large attributes. help: store the file again as "
                    "h5repack --latest does, which stores attributes outside of headers"
                )
            for kind, flags, body in _messages(os.pread(self._fd, nbytes, self._base + begin), prefix):
                n = self._address_nbytes
                if kind == _CONTINUATION and len(body) >= n + self._length_nbytes:
                    begin = int.from_bytes(body[:n], "little")
                    length = int.from_bytes(body[n : n + self._length_nbytes], "little")
                    # In version 2 a signature comes before the messages, and a checksum after them.
                    chunks.append((begin, length) if prefix == 8 else (begin + 4, max(0, length - 8)))
                elif flags & _SHARED and len(body) >= 2 + n and (body[0] < 3 or body[1] == _IN_HEADER):
                    at = 8 if body[0] == 1 else 2
                    shared.append(int.from_bytes(body[at : at + n], "little"))
        return shared


def _messages(chunk: bytes, prefix: int) -> Iterator[tuple[int, int, bytes]]:
    """The type, flags and data of each message of a header; ``prefix``: bytes before the data."""
    at = 0
    while at + prefix <= len(chunk):
        if prefix == 8:
            kind, nbytes, flags = _MESSAGE.unpack_from(chunk, at)
        else:
            kind, nbytes, flags = chunk[at], int.from_bytes(chunk[at + 1 : at + 3], "little"), chunk[at + 3]
        yield kind, flags, chunk[at + prefix : at + prefix + nbytes]
        at += prefix + nbytes
