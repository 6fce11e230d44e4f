"""Codecs with an encoded size that follows from the decoded one: shuffled bytes and checksums."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from einturnip.storage.chunks.compression import DecodeError
from einturnip.storage.chunks.decoder import Filter, NewMemory


def shuffle(itemsize: int) -> Filter:
    """Undo HDF5's byte shuffle, which groups bytes by their position in the element.

    A remainder is not shuffled.
    """

    def decode(data: memoryview, memory: NewMemory) -> memoryview:
        count, decoded = data.nbytes // itemsize, memory(data.nbytes)
        planes = np.frombuffer(data, np.uint8, count * itemsize).reshape(itemsize, count)
        out = np.frombuffer(decoded, np.uint8)
        out[: count * itemsize].reshape(count, itemsize)[...] = planes.T
        out[count * itemsize :] = np.frombuffer(data, np.uint8)[count * itemsize :]
        return decoded

    return Filter("shuffle", decode)


def checksum(name: str, compute: Callable[[memoryview], Sequence[int]], at_start: bool = False) -> Filter:
    """Verify four bytes before or after the data; ``compute`` returns the accepted values."""

    def decode(data: memoryview, memory: NewMemory) -> memoryview:
        if data.nbytes < 4:
            raise DecodeError(f"it ends inside its {name} checksum")
        stated, rest = (data[:4], data[4:]) if at_start else (data[-4:], data[:-4])
        if int.from_bytes(stated, "little") not in compute(rest):
            raise DecodeError(f"its {name} checksum is wrong")
        return rest

    return Filter(name, decode, lambda n: n + 4)


def crc32(data: memoryview) -> tuple[int]:
    """CRC-32 as in zlib."""
    return (zlib.crc32(data),)


def adler32(data: memoryview) -> tuple[int]:
    """Adler-32 as in zlib."""
    return (zlib.adler32(data),)


def fletcher32(data: memoryview) -> tuple[int, int]:
    """Fletcher's checksum over 16-bit big-endian words: HDF5's, and the variant of early HDF5 versions."""
    first = second = 0
    any_set = False
    even = data.nbytes // 2 * 2
    for at in range(0, even, 1 << 17):
        words = np.frombuffer(data[at : min(even, at + (1 << 17))], ">u2").astype(np.uint64)
        second = (second + len(words) * first + int(words @ np.arange(len(words), 0, -1, dtype=np.uint64))) % 65535
        first = (first + int(words.sum())) % 65535
        any_set = any_set or bool(words.any())
    if data.nbytes > even:
        first = (first + (data[-1] << 8)) % 65535
        second = (second + first) % 65535
        any_set = any_set or bool(data[-1])
    # HDF5 folds its sums instead of taking remainders: a nonzero sum that 65535 divides becomes 65535.
    if any_set:
        first, second = first or 65535, second or 65535
    value = second << 16 | first
    swapped = int.from_bytes(value.to_bytes(4, "little")[i] for i in (1, 0, 3, 2))
    return value, swapped
