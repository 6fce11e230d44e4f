"""Tensors of chunks of any extents, such as Dask's, read chunk by chunk."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DType
from einturnip.storage.chunks.chunked_source import ChunkedSource, ChunkWindow
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.types import Array, Region, window

Index = tuple[int, ...]
"""The position of a chunk along each axis."""


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """How a tensor is divided into chunks.

    ``borders``: for each axis 0 and the end of every chunk, ascending.
    """

    borders: tuple[tuple[int, ...], ...]

    @classmethod
    def of_extents(cls, extents: Iterable[Sequence[int]]) -> ChunkGrid:
        """Return the grid of chunks with these extents along each axis."""
        return cls(tuple((0, *itertools.accumulate(int(n) for n in axis)) for axis in extents))

    @classmethod
    def of_regions(cls, shape: Sequence[int], regions: Iterable[Region]) -> ChunkGrid:
        """Return the coarsest grid in which each region consists of whole chunks."""
        ends = [{0, n} for n in shape]
        for region in regions:
            for axis, bounds in zip(ends, region, strict=True):
                axis.update(bounds)
        return cls(tuple(tuple(sorted(axis)) if n else (0, 0) for n, axis in zip(shape, ends, strict=True)))

    @property
    def extents(self) -> tuple[tuple[int, ...], ...]:
        """The extents of the chunks along each axis."""
        return tuple(tuple(b - a for a, b in itertools.pairwise(axis)) for axis in self.borders)

    @property
    def largest(self) -> tuple[int, ...]:
        """The largest extent along each axis."""
        return tuple(max(axis, default=0) for axis in self.extents)

    def indices(self) -> Iterator[Index]:
        """Return the positions of all chunks."""
        return itertools.product(*(range(len(axis) - 1) for axis in self.borders))

    def region(self, index: Index) -> Region:
        """Return the region of a chunk."""
        return tuple((axis[k], axis[k + 1]) for axis, k in zip(self.borders, index, strict=True))

    def pieces(self, region: Region) -> Iterator[ChunkWindow]:
        """Return the parts of a region in each chunk."""
        axes = []
        for (start, stop), borders in zip(region, self.borders, strict=True):
            chunks = range(bisect_right(borders, start) - 1, len(borders) - 1)
            inside = itertools.takewhile(lambda k, borders=borders, stop=stop: borders[k] < stop, chunks)  # type: ignore[misc]
            axes.append([k for k in inside if borders[k] < borders[k + 1]])
        for index in itertools.product(*axes):
            whole = self.region(index)
            part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(region, whole, strict=True))
            within = tuple((a - c, b - c) for (a, b), (c, _) in zip(part, whole, strict=True))
            yield ChunkWindow(index, within, window(part, region))


class GridSource(ChunkedSource):
    """A tensor whose chunks ``load`` returns as arrays.

    The last chunk is kept until another one is read.
    ``copies``: chunks that are in memory at once, at most, while one is loaded.
    """

    def __init__(self, name: str, grid: ChunkGrid, dtype: DType, load: Callable[[Index], Array], copies: float) -> None:
        shape = tuple(axis[-1] for axis in grid.borders)
        held = int(copies * math.prod(grid.largest) * dtype.itemsize)
        super().__init__(name, shape, dtype, grid.largest, self._decode, self._forget, held)
        self.grid, self._load = grid, load
        self._last: tuple[Index, Array] | None = None

    def _parts(self, region: Region) -> Iterator[Region]:
        for piece in self.grid.pieces(region):
            chunk = self.grid.region(piece.chunk)
            yield tuple((c + a, c + b) for (c, _), (a, b) in zip(chunk, piece.within, strict=True))

    def _decode(self, part: Region, out: Array) -> None:
        (piece,) = self.grid.pieces(part)
        copy_blocked(out, self._chunk(piece.chunk)[window(piece.within, tuple((0, 0) for _ in part))])

    def _chunk(self, index: Index) -> Array:
        if self._last is None or self._last[0] != index:
            self._last = None  # before the next one is loaded
            self._last = index, require_chunk(self._load(index), self.name, self.grid, index, self.dtype)
        return self._last[1]

    def _forget(self) -> None:
        self._last = None


def require_chunk(chunk: Array, name: str, grid: ChunkGrid, index: Index, dtype: DType) -> Array:
    """Return a chunk, which must have the dtype and the shape that its tensor states.

    Raises:
        StoreError: it has not.
    """
    shape = tuple(b - a for a, b in grid.region(index))
    if chunk.shape != shape or chunk.dtype != dtype.numpy:
        raise StoreError(
            f"{name}: its chunk {list(index)} is {chunk.dtype}{list(chunk.shape)}, and should be {dtype}{list(shape)}"
        )
    return chunk
