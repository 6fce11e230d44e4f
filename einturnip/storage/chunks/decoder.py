"""Decodes one stored chunk through its codecs, in memory that is known before the first byte is read.

There is at most one compressor. All other codecs (filters) have an output size that follows from their input size, so
the chunk's shape determines every buffer. Chunks that only a streaming compressor encodes, or that are plain, pass
through a small buffer instead: chunks of any size are then read in a few hundred kilobytes.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from einturnip.storage.chunks.compression import (
    PIECE_NBYTES,
    SPARE_NBYTES,
    Compressor,
    DecodeError,
    exactly,
    max_compressed_nbytes,
)
from einturnip.storage.io.transfer import read_full
from einturnip.storage.types import Array, Region, slices, window

MAX_STREAMS = 4


NewMemory = Callable[[int], memoryview]
"""Returns memory of a number of bytes."""


def new_memory(nbytes: int) -> memoryview:
    """Return memory that is freed with its last use."""
    return memoryview(bytearray(nbytes))


@dataclass(frozen=True, slots=True)
class Filter:
    """A codec whose encoded size follows from the decoded one.

    ``decode`` may return a part of its argument. ``temporary_nbytes`` is given the decoded size.
    """

    name: str
    decode: Callable[[memoryview, NewMemory], Any]
    encoded_nbytes: Callable[[int], int] = lambda n: n
    temporary_nbytes: Callable[[int], int] = lambda _: 0


Codec = Filter | Compressor


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The place of a chunk's encoded bytes in a file."""

    fd: int
    offset: int
    nbytes: int
    name: str

    @property
    def key(self) -> object:
        """Identifies the chunk and the version of its file."""
        status = os.fstat(self.fd)
        return status.st_dev, status.st_ino, status.st_mtime_ns, self.offset, self.nbytes

    def pieces(self) -> Iterator[memoryview]:
        """Yield the encoded bytes, PIECE_NBYTES at a time, in one buffer."""
        buffer = bytearray(min(PIECE_NBYTES, self.nbytes))
        for at in range(0, self.nbytes, PIECE_NBYTES):
            view = memoryview(buffer)[: min(PIECE_NBYTES, self.nbytes - at)]
            read_full(self.fd, view, self.offset + at, self.name)
            yield view

    def read(self, memory: NewMemory = new_memory) -> memoryview:
        """All encoded bytes, preceded by SPARE_NBYTES unused ones, in new ``memory``."""
        view = memory(SPARE_NBYTES + self.nbytes)
        read_full(self.fd, view[SPARE_NBYTES:], self.offset, self.name)
        return view


class ChunkDecoder:
    """Decodes chunks of one shape and element type.

    ``codecs`` are in encoding order. ``order``: the axes as they are stored, slowest first. ``reading_nbytes``: maximum
    memory for reading any part of a chunk in addition to the destination. The chunk decoded last is kept: it is decoded
    once for tiles that follow each other in it.
    """

    def __init__(
        self, codecs: Sequence[Codec], shape: tuple[int, ...], stored: np.dtype[Any], order: tuple[int, ...]
    ) -> None:
        self.shape, self._dtype, self._order = shape, stored, order
        self.nbytes = math.prod(shape) * stored.itemsize
        at = next((i for i, codec in enumerate(codecs) if isinstance(codec, Compressor)), len(codecs))
        found = codecs[at] if at < len(codecs) else None
        self._compressor = found if isinstance(found, Compressor) else None
        self._before = tuple(c for c in codecs[:at] if isinstance(c, Filter))
        self._after = tuple(c for c in codecs[at + 1 :] if isinstance(c, Filter))
        if len(self._before) + len(self._after) + (self._compressor is not None) != len(codecs):
            raise ValueError("it has two compressors")
        self._sizes = [self.nbytes]  # before each filter, and before the compressor
        for codec in self._before:
            self._sizes.append(codec.encoded_nbytes(self._sizes[-1]))
        self._packed = max_compressed_nbytes(self._sizes[-1]) if self._compressor else self._sizes[-1]
        self.max_stored_nbytes = self._packed
        for codec in self._after:
            self.max_stored_nbytes = codec.encoded_nbytes(self.max_stored_nbytes)
        stream = self._compressor.stream if self._compressor else _as_it_is
        self._stream = None if self._before or self._after else stream
        # Workers request tiles almost in order: several streams of a chunk serve late requests.
        self._max_streams = MAX_STREAMS if not self._compressor or self._compressor.state_nbytes(1) <= 1 << 16 else 1
        self._streams = list[_Stream]()
        self._last: tuple[object, Any] | None = None  # the chunk decoded last, unless it is streamed: key and elements
        self._buffers: dict[str, memoryview] = {}
        self.reading_nbytes = self._reading_nbytes()

    def _reading_nbytes(self) -> int:
        state = self._compressor.state_nbytes(self._sizes[-1]) if self._compressor else 0
        if self._stream is not None:
            return self._max_streams * (state + 5 * PIECE_NBYTES)
        makes_copies = any(codec.encoded_nbytes(64) == 64 for codec in self._after)  # checksums return a part instead
        stored = (1 + bool(self._after) + makes_copies) * self.max_stored_nbytes
        if self._compressor and self._compressor.stream and not self._after:
            stored = 3 * PIECE_NBYTES
        held = stored + state + self._sizes[-1]
        for codec, decoded, encoded in zip(self._before, self._sizes, self._sizes[1:], strict=False):
            held = max(held, decoded + encoded + codec.temporary_nbytes(decoded))
        return held + PIECE_NBYTES

    def read(self, chunk: StoredChunk, within: Region, out: Array) -> None:
        """Decode the chunk and copy its region ``within`` to ``out``.

        Raises:
            DecodeError: it does not decode to exactly the chunk's size. StoreError: the file cannot be read.
        """
        if chunk.nbytes > self.max_stored_nbytes:
            raise DecodeError(
                f"it takes {chunk.nbytes:,} bytes, more than the {self.max_stored_nbytes:,} "
                f"that {self.nbytes:,} bytes can be encoded to"
            )
        region = tuple(within[axis] for axis in self._order)
        target = out.transpose(self._order)
        if self._stream is not None:
            self._copy_streamed(chunk, region, target)
        else:
            key = chunk.key
            if self._last is None or self._last[0] != key:
                self._last = None  # before the next one takes memory
                self._last = key, np.frombuffer(self._decode(chunk), self._dtype)
            whole = self._last[1].reshape([self.shape[a] for a in self._order])
            target[...] = whole[slices(region)] if region else whole

    def _decode(self, chunk: StoredChunk) -> Any:
        self._keep_buffers("stored", "encoded", "decoded")
        packed: Any = chunk.pieces()
        streamed = self._compressor is not None and self._compressor.stream is not None and not self._after
        if not streamed:
            packed = chunk.read(partial(self._buffer, "stored"))
            for n, codec in enumerate(reversed(self._after)):
                encoded = codec.decode(packed[SPARE_NBYTES:], partial(self._buffer, f"filter {n}"))
                packed = self._buffer(("stored", "encoded")[n % 2 == 0], SPARE_NBYTES + len(encoded))
                packed[SPARE_NBYTES:] = encoded
        data = self._decompress(packed, streamed) if self._compressor else packed[SPARE_NBYTES:]
        del packed
        used = "decoded"
        for n, (codec, size) in enumerate(zip(reversed(self._before), self._sizes[-2::-1], strict=True)):
            self._keep_buffers(used)
            used = f"before {n}"
            data = memoryview(codec.decode(data, partial(self._buffer, used))).cast("B")
            if data.nbytes != size:
                raise DecodeError(f"its filter {codec.name} makes {data.nbytes:,} bytes instead of {size:,}")
        if data.nbytes != self.nbytes:
            raise DecodeError(f"it has {data.nbytes:,} bytes instead of {self.nbytes:,}")
        return data

    def _decompress(self, packed: Any, streamed: bool) -> memoryview:
        assert self._compressor is not None
        size = self._sizes[-1]
        out = self._buffer("decoded", size)
        if self._compressor.block is not None:
            try:
                self._compressor.block(packed, out)
            except (RuntimeError, ValueError) as error:
                raise DecodeError(str(error)) from error
        elif self._compressor.stream is not None:
            at = 0
            pieces = packed if streamed else iter([packed[SPARE_NBYTES:]])
            for piece in exactly(self._compressor.stream(pieces), size):
                out[at : at + len(piece)] = piece
                at += len(piece)
        return out

    def _buffer(self, use: str, nbytes: int) -> memoryview:
        """Return memory that the next chunk uses again.

        Fresh pages for each chunk would take longer than decoding it. It is a mapping of its own, because malloc would
        keep freed memory for each thread that decodes.
        """
        found = self._buffers.get(use)
        if found is None or len(found) < nbytes:
            self._buffers.pop(use, None)
            found = self._buffers[use] = memoryview(mmap.mmap(-1, max(1, nbytes)))
        return found[:nbytes]

    def _keep_buffers(self, *uses: str) -> None:
        """Release the memory of all other uses: a stage of decoding takes its own."""
        for other in {*self._buffers}.difference(uses):
            del self._buffers[other]

    def _copy_streamed(self, chunk: StoredChunk, region: Region, target: Array) -> None:
        """Copy a region of a chunk that is streamed in its stored axis order."""
        wanted = [n for n, block in enumerate(self._blocks()) if _overlap(block, region) is not None]
        if not wanted:
            return
        stream = self._take_stream(chunk, wanted[0])
        try:
            for n, block in enumerate(itertools.islice(self._blocks(), wanted[-1] + 1)):
                if n < stream.next_block:
                    continue
                raw = stream.read(math.prod(b - a for a, b in block) * self._dtype.itemsize)
                overlap = _overlap(block, region)
                if overlap is not None:
                    data = np.frombuffer(raw, self._dtype).reshape([b - a for a, b in block])
                    target[window(overlap, region)] = data[window(overlap, block)]
            if wanted[-1] == self._block_count - 1:
                stream.require_end()
                stream.close()
                return
        except BaseException:
            stream.close()
            raise
        self._streams.append(stream)

    def _blocks(self) -> Iterator[Region]:
        """Yield the chunk in pieces of at most PIECE_NBYTES, as regions of its stored axes, in storage order."""
        shape, axis, step = [self.shape[a] for a in self._order], *self._block_step
        inner = tuple((0, n) for n in shape[axis + 1 :])
        for place in itertools.product(*(range(n) for n in shape[:axis])):
            outer = tuple((i, i + 1) for i in place)
            for first in range(0, shape[axis], step) if shape else ():
                yield (*outer, (first, min(first + step, shape[axis])), *inner)
        if not shape:
            yield ()

    @cached_property
    def _block_step(self) -> tuple[int, int]:
        """The axis that blocks divide, and its block extent: earlier axes have extent 1, later ones are whole."""
        shape = [self.shape[a] for a in self._order]
        axis = max(0, len(shape) - 1)
        while axis > 0 and math.prod(shape[axis:]) * self._dtype.itemsize <= PIECE_NBYTES:
            axis -= 1
        return axis, max(1, PIECE_NBYTES // (math.prod(shape[axis + 1 :]) * self._dtype.itemsize))

    @cached_property
    def _block_count(self) -> int:
        axis, step = self._block_step
        shape = [self.shape[a] for a in self._order]
        return math.prod(shape[:axis]) * -(-shape[axis] // step) if shape else 1

    def _take_stream(self, chunk: StoredChunk, block: int) -> _Stream:
        """The stream closest before a block of the chunk, or a new one."""
        key = chunk.key
        found = [s for s in self._streams if s.key == key and s.next_block <= block]
        if found:
            stream = max(found, key=lambda s: s.next_block)
            self._streams.remove(stream)
            return stream
        while len(self._streams) >= self._max_streams:
            self._streams.pop(0).close()
        assert self._stream is not None
        own = replace(chunk, fd=os.dup(chunk.fd))
        return _Stream(key, own.fd, exactly(self._stream(own.pieces()), self.nbytes))

    def close(self) -> None:
        """Close the suspended streams, and release the memory of decoded chunks."""
        self._last = None
        self._buffers.clear()
        while self._streams:
            self._streams.pop().close()


class _Stream:
    """A chunk being decoded sequentially, suspended between reads: tiles in order decode it once."""

    def __init__(self, key: object, fd: int, pieces: Iterator[bytes]) -> None:
        self.key, self.next_block = key, 0
        self._fd, self._pieces, self._held = fd, pieces, bytearray()

    def read(self, nbytes: int) -> bytes:
        """The bytes of the next block."""
        while len(self._held) < nbytes:
            self._held += next(self._pieces)
        raw = bytes(memoryview(self._held)[:nbytes])
        del self._held[:nbytes]
        self.next_block += 1
        return raw

    def require_end(self) -> None:
        """Require that the data end here.

        Raises:
            DecodeError: they do not.
        """
        for _ in self._pieces:
            pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _overlap(block: Region, region: Region) -> Region | None:
    found = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(block, region, strict=True))
    return found if all(a < b for a, b in found) else None


def _as_it_is(pieces: Iterator[Any]) -> Iterator[bytes]:
    return (bytes(piece) for piece in pieces)
