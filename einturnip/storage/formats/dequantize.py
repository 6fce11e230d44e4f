"""Dequantizes tensors stored in blocks while a region is read, in pieces that fit in the cache."""

from __future__ import annotations

import math
import threading

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.storage.formats.quantized_blocks import BlockEncoding
from einturnip.storage.io.file_source import STAGING_NBYTES, FileSource, staging
from einturnip.storage.layout import blocks, c_layout
from einturnip.storage.types import Array, Extent, Region, Source, region_shape, window

POINTS = 1 << 14
"""Numbers dequantized at once: with their bytes and intermediates they fit in the second-level cache."""

_threads = threading.local()


class ExpandedSource:
    """A quantized tensor; its extents count the bytes of the dequantized tensor.

    ``raw`` contains its blocks: u8[..., blocks of a row, bytes of a block].
    """

    def __init__(self, raw: FileSource, encoding: BlockEncoding, dtype: DType) -> None:
        self.name = self.tier = raw.name
        *outer, count, _ = raw.shape
        self.shape = (*outer, count * encoding.points)
        self.dtype = dtype
        self.stored, self._encoding = raw, encoding
        self.transferred = encoding.nbytes / encoding.points
        self._layout = c_layout(self.shape, dtype.itemsize, 0)

    def expanded_to(self, dtype: DType) -> ExpandedSource:
        """Return this tensor converted to another float type; it replaces this source."""
        return ExpandedSource(self.stored, self._encoding, dtype) if dtype.is_float else self

    def extent(self, region: Region) -> Extent:
        """The region's extent in the dequantized tensor."""
        return self._layout.extent(region)

    def read(self, region: Region, out: Array) -> int:
        """Dequantize the region into ``out``; returns the bytes read from disk."""
        if any(start == stop for start, stop in region):
            return 0
        nbytes = 0
        for box in blocks(self._blocks(region), 1, STAGING_NBYTES):
            shape = region_shape(box)
            raw = staging()[: math.prod(shape)]
            nbytes += self.stored.read(box, raw.reshape(shape))
            self._expand(raw.reshape(-1, shape[-1]), box, region, out)
        return nbytes

    def _expand(self, raw: Array, box: Region, region: Region, out: Array) -> None:
        """Dequantize the blocks of ``box`` piece by piece, and copy the parts inside the region."""
        expand, points, at = self._encoding.expand, self._encoding.points, 0
        assert expand is not None
        for part in blocks(box, 1, POINTS // points * self._encoding.nbytes):
            *outer, count, _ = region_shape(part)
            length = math.prod(outer) * count
            numbers = _scratch()[: length * points].reshape(*outer, count * points)
            expand(raw[at : at + length], numbers.reshape(-1, points))
            at += length
            first = part[-2][0] * points
            start, stop = max(region[-1][0], first), min(region[-1][1], part[-2][1] * points)
            kept = (*part[:-2], (start, stop))
            out[window(kept, region)] = numbers[..., start - first : stop - first]

    def require_unchanged(self) -> None:
        """Check that the file has not changed."""
        self.stored.require_unchanged()

    def release(self, region: Region) -> None:
        """Drop the region's pages from the page cache."""
        if all(start < stop for start, stop in region):
            self.stored.release(self._blocks(region))

    def close(self) -> None:
        """Close the file."""
        self.stored.close()

    def _blocks(self, region: Region) -> Region:
        """The whole blocks that contain the region."""
        start, stop = region[-1]
        points = self._encoding.points
        return (*region[:-1], (start // points, -(-stop // points)), (0, self._encoding.nbytes))


def _scratch() -> Array:
    scratch: Array | None = getattr(_threads, "scratch", None)
    if scratch is None:
        scratch = _threads.scratch = np.empty(POINTS, np.float32)
    return scratch


class PlainSource(FileSource):
    """A tensor stored in its own type, unless the program declares another float type."""

    def expanded_to(self, dtype: DType) -> Source:
        """Return this tensor converted to another float type; it replaces this source."""
        return CastSource(self, dtype) if dtype.is_float and self.dtype.is_float else self


class CastSource:
    """A stored tensor converted to another float type while it is read, in pieces that fit in the cache."""

    def __init__(self, stored: FileSource, dtype: DType) -> None:
        self.name = self.tier = stored.name
        self.shape, self.dtype = stored.shape, dtype
        self._stored, self.transferred = stored, float(stored.dtype.itemsize)
        self._layout = c_layout(self.shape, dtype.itemsize, 0)

    def extent(self, region: Region) -> Extent:
        """The region's extent in the converted tensor."""
        return self._layout.extent(region)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``; returns the bytes read from disk."""
        nbytes, stored = 0, self._stored.dtype.numpy
        for box in blocks(region, stored.itemsize, POINTS * 4):
            shape = region_shape(box)
            held = _scratch().view(stored)[: math.prod(shape)].reshape(shape)
            nbytes += self._stored.read(box, held)
            out[window(box, region)] = held
        return nbytes

    def require_unchanged(self) -> None:
        """Check that the file has not changed."""
        self._stored.require_unchanged()

    def release(self, region: Region) -> None:
        """Drop the region's pages from the page cache."""
        self._stored.release(region)

    def close(self) -> None:
        """Close the file."""
        self._stored.close()
