"""Decodes chunks of HDF5 datasets in bounded memory.

deflate, shuffle and fletcher32 are decoded here, because the library would let a chunk grow to the size that its data
state. The library decodes chunks with other filters, after their first bytes or filter settings have shown their size.

Source: the HDF5 file format specification, and h5py's lzf filter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.storage.chunks.chunked_source import pieces
from einturnip.storage.chunks.compression import SPARE_NBYTES, DecodeError, compressor, max_compressed_nbytes
from einturnip.storage.chunks.decoder import ChunkDecoder, Codec, StoredChunk
from einturnip.storage.chunks.filters import checksum, fletcher32, shuffle
from einturnip.storage.types import Array, Region, slices

_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP, _NBIT, _SCALEOFFSET, _LZF = 1, 2, 3, 4, 5, 6, 32000
_NAMES = {
    _DEFLATE: "deflate",
    _SHUFFLE: "shuffle",
    _FLETCHER32: "fletcher32",
    _SZIP: "szip",
    _NBIT: "nbit",
    _SCALEOFFSET: "scaleoffset",
    _LZF: "lzf",
}
_BY_LIBRARY = (_SZIP, _NBIT, _SCALEOFFSET, _LZF)
_LIBRARY_COPIES = 3
"""Maximum number of chunks in the library's memory while it decodes one: encoded, between two filters, decoded."""

Setting = tuple[int, tuple[int, ...]]
"""A filter's number and settings."""


class Hdf5Chunks:
    """Reads the chunks of a dataset. ``fd``: its file; ``reading_nbytes``: memory for reading a chunk."""

    def __init__(self, dataset: Any, plain_type: bool, shown: str, fd: int) -> None:
        self._dataset, self._shown, self._fd = dataset, shown, fd
        self._chunks: tuple[int, ...] = dataset.chunks
        self._nbytes = math.prod(self._chunks) * dataset.dtype.itemsize
        plist = dataset.id.get_create_plist()
        found = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        self._filters: tuple[Setting, ...] = tuple((code, tuple(values)) for code, _, values, _ in found)
        self._require_known({code: name for code, _, _, name in found})
        self._decoders: dict[int, ChunkDecoder] = {}  # by the mask of skipped filters
        self._used = 0  # the mask of the last chunk
        # The library converts elements that differ from NumPy's, such as integers of 12 bits.
        self._by_library = not plain_type or any(code in _BY_LIBRARY for code, _ in self._filters)
        if self._by_library:
            self.reading_nbytes = _LIBRARY_COPIES * self._nbytes + 2 * max_compressed_nbytes(self._nbytes)
        else:
            self.reading_nbytes = self._decoder(0).reading_nbytes

    def read(self, region: Region, out: Array) -> None:
        """Fill ``out`` with a region that is part of one chunk.

        Raises:
            StoreError: the chunk cannot be read or decoded.
        """
        (piece,) = pieces(region, self._chunks)
        origin = tuple(a * c for a, c in zip(piece.chunk, self._chunks, strict=True))
        try:
            info = self._dataset.id.get_chunk_info_by_coord(origin)
            if info.byte_offset is None or not info.size:
                out[...] = self._dataset.fillvalue
                return
            chunk = StoredChunk(self._fd, info.byte_offset, info.size, self._shown)
            if not self._by_library:
                self._decoder(info.filter_mask).read(chunk, piece.within, out)
                return
            self._require_size(chunk, info.filter_mask)
            out[...] = self._dataset[slices(region)]
        except (DecodeError, OSError, RuntimeError, MemoryError) as error:
            raise StoreError(
                f"{self._shown}: a chunk cannot be read ({piece.chunk}: {error}): the file is damaged"
            ) from error

    def close(self) -> None:
        """Close the streams of chunks that were read in part."""
        for decoder in self._decoders.values():
            decoder.close()

    def _require_known(self, names: dict[int, bytes]) -> None:
        for code, name in names.items():
            if code not in _NAMES:
                raise StoreError(
                    f"{self._shown}: its filter {code} ({name.decode('utf-8', 'replace')}) is not supported; supported "
                    f"are {', '.join(_NAMES.values())}: store the dataset again with one of them, as h5repack does"
                )

    def _codecs(self, mask: int) -> list[Codec]:
        """The filters of a chunk: all that its mask does not skip."""
        codecs = list[Codec]()
        for i, (code, values) in enumerate(self._filters):
            if mask >> i & 1:
                continue
            if code == _DEFLATE:
                found = compressor("zlib", {})
                assert found is not None
                codecs.append(found)
            elif code == _SHUFFLE:
                codecs.append(shuffle(values[0] if values and values[0] > 0 else self._dataset.dtype.itemsize))
            elif code == _FLETCHER32:
                codecs.append(checksum("fletcher32", fletcher32))
        return codecs

    def _decoder(self, mask: int) -> ChunkDecoder:
        mask &= (1 << len(self._filters)) - 1
        if mask != self._used:
            self.close()  # only one decoder may keep streams or a chunk
            self._used = mask
        if mask not in self._decoders:
            try:
                order = tuple(range(len(self._chunks)))
                made = ChunkDecoder(self._codecs(mask), self._chunks, self._dataset.dtype, order)
            except ValueError as error:
                raise StoreError(f"{self._shown}: is stored in a way that is not supported: {error}") from error
            self._decoders[mask] = made
        return self._decoders[mask]

    def _require_size(self, chunk: StoredChunk, mask: int) -> None:
        """Refuse a chunk that the library would decode to a wrong size.

        Raises:
            DecodeError: it would, or the combination of filters hides the size.
        """
        used = [setting for i, setting in enumerate(self._filters) if not mask >> i & 1]
        sizing = [(code, values) for code, values in used if code not in (_SHUFFLE, _FLETCHER32)]
        most = max_compressed_nbytes(self._nbytes)
        if chunk.nbytes > most:
            raise DecodeError(f"it takes {chunk.nbytes:,} bytes, more than {self._nbytes:,} bytes can be encoded to")
        if len(sizing) > 1:
            names = ", ".join(_NAMES[code] for code, _ in sizing)
            raise DecodeError(f"several filters that change its size ({names}) are not supported")
        if not sizing:
            return
        code, values = sizing[0]
        packed = chunk.read()[SPARE_NBYTES:]
        if _FLETCHER32 in (c for c, _ in used):
            packed = packed[:-4]
        if code == _DEFLATE:
            whole = ((0, n) for n in self._chunks)
            self._decoder(mask).read(chunk, tuple(whole), np.empty(self._chunks, self._dataset.dtype))
            self.close()
            return
        if code == _LZF:
            size = lzf_nbytes(packed, self._nbytes)
        elif code == _SZIP:
            size = int.from_bytes(packed[:4], "little")
        else:  # nbit and scaleoffset state the number of elements and their size
            size = values[2] * values[4] if len(values) > 4 else -1
        if size != self._nbytes:
            raise DecodeError(f"it decodes to {size:,} bytes or more instead of {self._nbytes:,}")


def lzf_nbytes(packed: memoryview, enough: int) -> int:
    """The size to which LZF data decode; counting stops above ``enough``.

    A control byte below 32 precedes that many literals plus one; any other is a copy of up to 264 bytes.
    """
    at = size = 0
    end = len(packed)
    while at < end and size <= enough:
        control = packed[at]
        if control < 32:
            at += control + 2
            size += control + 1
        elif control < 224:
            at += 2
            size += (control >> 5) + 2
        else:
            size += (packed[at + 1] if at + 1 < end else 0) + 9
            at += 3
    return size
