"""Decompressors for stored chunks, bounded by the stated size of the decoded chunk.

A damaged or hostile chunk may contain anything. zlib, gzip, bz2 and lzma are decoded piece by piece, so that decoding
can stop at the stated size. zstd, blosc and lz4 write into one buffer: the size in their headers is compared with the
chunk's size before they are called.

Sources: RFC 8878 (zstd frames), c-blosc's README_CHUNK_FORMAT.rst, numcodecs (the size in front of an lz4 block).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

PIECE_NBYTES = 1 << 18
"""Bytes that one step of a streaming decompressor reads, and the maximum that it writes."""

SPARE_NBYTES = 8
"""Bytes in front of a compressed chunk that a block decompressor may overwrite."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_BLOSC_BLOCK_NBYTES = 4 << 20
_BZ2_STATE_NBYTES = 4 << 20

Bytes = bytes | bytearray | memoryview
Stream = Callable[[Iterator[Bytes]], Iterator[bytes]]
"""Turns the pieces of a compressed chunk into pieces of the decoded one, none longer than PIECE_NBYTES."""


class DecodeError(ValueError):
    """A chunk that does not decode as expected; the message completes "a chunk cannot be read"."""


class UnknownCodecError(ValueError):
    """An unsupported codec, or unsupported settings of one."""


@dataclass(frozen=True, slots=True)
class Compressor:
    """A codec whose encoded size depends on the data; either ``stream`` or ``block`` is set.

    ``block(packed, out)`` fills ``out``; the compressed bytes are ``packed[SPARE_NBYTES:]``. ``state_nbytes``: memory
    for decoding in addition to input and output, by decoded size.
    """

    name: str
    stream: Stream | None = None
    block: Callable[[memoryview, memoryview], None] | None = None
    state_nbytes: Callable[[int], int] = lambda _: 0


def max_compressed_nbytes(nbytes: int) -> int:
    """Upper bound on the compressed size of ``nbytes`` bytes; zstd and lz4 add at most 1/255."""
    return nbytes + nbytes // 64 + (64 << 10)


def compressor(name: str, settings: Mapping[str, Any]) -> Compressor | None:
    """The compressor that numcodecs or Zarr calls ``name``; None if there is none.

    Raises:
        UnknownCodecError: settings that are not supported.
    """
    match name:
        case "gzip":
            return Compressor(name, stream=partial(_inflate, 31), state_nbytes=lambda _: 1 << 16)
        case "zlib":
            return Compressor(name, stream=partial(_inflate, 15), state_nbytes=lambda _: 1 << 16)
        case "bz2":
            start = bz2.BZ2Decompressor
            return Compressor(name, stream=partial(_decompress, start), state_nbytes=lambda _: _BZ2_STATE_NBYTES)
        case "lzma":
            # The dictionary may be stated larger than the chunk, but only decoded data are ever written to it.
            return Compressor(
                name, stream=partial(_decompress, _lzma_start(settings)), state_nbytes=lambda n: n + 65536
            )
        case "zstd":
            return Compressor(name, block=_zstd, state_nbytes=lambda _: 1 << 18)
        case "lz4":
            return Compressor(name, block=_lz4)
        case "blosc":
            most = max(_MAX_BLOSC_BLOCK_NBYTES, int(settings.get("blocksize") or 0))
            return Compressor(name, block=partial(_blosc, most), state_nbytes=lambda n: 3 * min(n, most) + (1 << 18))
    return None


def exactly(pieces: Iterator[bytes], nbytes: int) -> Iterator[bytes]:
    """Yield the pieces, which must have ``nbytes`` bytes in total.

    Raises:
        DecodeError: they are not, or the compressed data are damaged.
    """
    seen = 0
    try:
        for piece in pieces:
            seen += len(piece)
            if seen > nbytes:
                raise DecodeError(f"it decodes to more than the {nbytes:,} bytes that its shape takes")
            yield piece
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise DecodeError(str(error)) from error
    if seen < nbytes:
        raise DecodeError(f"it decodes to {seen:,} bytes instead of {nbytes:,}")


def _inflate(wbits: int, packed: Iterator[Bytes]) -> Iterator[bytes]:
    """Decode zlib or gzip data; gzip files may have several members."""
    inflater = zlib.decompressobj(wbits)
    for piece in packed:
        data: Bytes = piece
        while data:
            if inflater.eof:
                if wbits <= 15 or not bytes(data).strip(b"\0"):
                    break  # padding after the end
                inflater = zlib.decompressobj(wbits)
            out = inflater.decompress(data, PIECE_NBYTES)
            if out:
                yield out
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            while not inflater.eof and not data and len(out) == PIECE_NBYTES:  # the inflater may buffer more output
                out = inflater.decompress(b"", PIECE_NBYTES)
                if out:
                    yield out
    if not inflater.eof:
        raise DecodeError("its compressed data end early")


def _decompress(start: Callable[[], Any], packed: Iterator[Bytes]) -> Iterator[bytes]:
    """Decode bz2 or lzma data of one or several streams."""
    decompressor = start()
    for piece in packed:
        data: Bytes = piece
        while data or not (decompressor.eof or decompressor.needs_input):
            if decompressor.eof:
                decompressor = start()
            out = decompressor.decompress(data, PIECE_NBYTES)
            data = decompressor.unused_data if decompressor.eof else b""
            if out:
                yield out
    if not decompressor.eof:
        raise DecodeError("its compressed data end early")


def _lzma_start(settings: Mapping[str, Any]) -> Callable[[], Any]:
    form, filters = settings.get("format", lzma.FORMAT_XZ), settings.get("filters")
    if form == lzma.FORMAT_RAW:
        if not isinstance(filters, list):
            raise UnknownCodecError("lzma without a header needs 'filters'")
        return partial(lzma.LZMADecompressor, lzma.FORMAT_RAW, filters=filters)
    return partial(lzma.LZMADecompressor, lzma.FORMAT_AUTO)


def _numcodecs(module: str) -> Any:
    return import_module(f"numcodecs.{module}")


def _zstd(packed: memoryview, out: memoryview) -> None:
    """Decode one zstd frame.

    A frame's header need not state the content's size. numcodecs would then let its buffer grow with the data, so the
    size is written into the header, and libzstd fails if the content has another size.
    """
    frame = packed[SPARE_NBYTES:]
    if len(frame) < 6 or frame[:4] != _ZSTD_MAGIC:
        raise DecodeError("it is no zstd frame")
    flags = frame[4]
    single, size_flag = bool(flags & 0x20), flags >> 6
    begin = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (int(single), 2, 4, 8)[size_flag]
    if len(frame) < begin + width:
        raise DecodeError("its zstd frame ends in its header")
    if width:
        stated = int.from_bytes(frame[begin : begin + width], "little") + (256 if size_flag == 1 else 0)
        _require(stated, out.nbytes)
    else:
        header = bytes(frame[:begin])
        packed[:begin] = header[:4] + bytes([flags | 0xC0]) + header[5:]
        packed[begin : begin + 8] = out.nbytes.to_bytes(8, "little")
        frame = packed
    _numcodecs("zstd").decompress(frame, out)


def _lz4(packed: memoryview, out: memoryview) -> None:
    frame = packed[SPARE_NBYTES:]
    if len(frame) < 4:
        raise DecodeError("its lz4 block ends in its header")
    _require(int.from_bytes(frame[:4], "little"), out.nbytes)
    _numcodecs("lz4").decompress(frame, out)


def _blosc(max_block: int, packed: memoryview, out: memoryview) -> None:
    frame = packed[SPARE_NBYTES:]
    if len(frame) < 16:
        raise DecodeError("its blosc buffer ends in its header")
    nbytes, block, stored = (int.from_bytes(frame[at : at + 4], "little") for at in (4, 8, 12))
    _require(nbytes, out.nbytes)
    if stored != len(frame):  # c-blosc trusts the header's length
        raise DecodeError(f"its blosc header states {stored:,} compressed bytes, and {len(frame):,} are stored")
    if not 0 < block <= max_block and out.nbytes:
        raise DecodeError(f"its blosc blocks take {block:,} bytes each; at most {max_block:,} are decoded")
    _numcodecs("blosc").decompress(frame, out)


def _require(stated: int, nbytes: int) -> None:
    if stated != nbytes:
        raise DecodeError(f"it decodes to {stated:,} bytes instead of {nbytes:,}")
