"""Outputs whose blocks stay in the memory of ranks, as inputs of later runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from einturnip.cluster.mpi_rank import JobRank
from einturnip.core.errors import DeviceError
from einturnip.ir.dtypes import from_numpy
from einturnip.sites.wires.mpi import Tag
from einturnip.storage.chunks.chunk_grid import ChunkGrid, Index
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.layout import blocks
from einturnip.storage.placed_chunks import PART_NBYTES, PlacedSource, WorkerChunks
from einturnip.storage.types import Array, Region, region_shape, window
from einturnip.tuning.memory import JOIN_SECONDS


@dataclass(frozen=True)
class RankArray:
    """A tensor in blocks that ranks hold."""

    blocks: RankBlocks
    grid: ChunkGrid
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class RankBlocks:
    """The blocks of an output that stay at ranks; implements ``Blocks``.

    ``key``: the name of the output at the ranks; ``ranks``: the rank of each block.
    """

    reader: BlockReader
    key: str
    ranks: Mapping[Index, int]

    def is_complete(self, seconds: float) -> bool:
        """See Blocks. A rank keeps its blocks before it takes another order."""
        return True

    def array(self, extents: tuple[tuple[int, ...], ...], dtype: Any) -> RankArray:
        """See Blocks."""
        return RankArray(self, ChunkGrid.of_extents(extents), np.dtype(dtype))


class BlockReader:
    """Reads blocks of ranks in this process, rank 0, between runs."""

    def __init__(self, rank: JobRank) -> None:
        self._rank, self._lock = rank, threading.Lock()
        self._arrived: SimpleQueue[tuple[int, Array]] = SimpleQueue()
        # Ranks that did not answer: a late answer must not be taken for that to a later question.
        self._silent = set[int]()
        rank.port.data[Tag.PIECE] = lambda source: lambda data: self._arrived.put((source, data))

    def read(self, rank: int, key: tuple[Any, ...], within: Region) -> Array:
        """Return the bytes of a part of a block.

        Raises:
            DeviceError: the rank does not answer.
        """
        with self._lock:
            try:
                if rank not in self._silent:
                    self._rank.say(rank, {"do": "read", "key": key, "within": within})
                    while True:
                        source, data = self._arrived.get(timeout=JOIN_SECONDS)
                        if source == rank:
                            return data
            except Empty:
                self._silent.add(rank)
            raise DeviceError(f"rank {rank} does not answer within {JOIN_SECONDS} s")

    def forget(self, key: str, ranks: set[int]) -> None:
        """Let ranks free their blocks of an array."""
        for rank in ranks:
            self._rank.say(rank, {"do": "forget", "array": key})


class RankSource(PlacedSource):
    """A tensor in blocks that ranks hold and read from each other; closing it frees them."""

    def __init__(self, name: str, array: RankArray) -> None:
        super().__init__(name, array.grid, from_numpy(array.dtype), self._block, 1.0)
        self.read_in_parts()
        self._array: RankArray | None = array
        made = array.blocks
        self.place = WorkerChunks(
            {index: (made.key, *index) for index in made.ranks},
            {index: (f"rank {rank}",) for index, rank in made.ranks.items()},
        )

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``, in parts of blocks."""
        for part in blocks(region, self.dtype.itemsize, PART_NBYTES):
            of_part = out[window(part, region)]
            for piece in self.grid.pieces(part):
                copy_blocked(of_part[piece.window], self._read(piece.chunk, piece.within))
        return out.nbytes

    def _read(self, index: Index, within: Region) -> Array:
        assert self._array is not None
        made = self._array.blocks
        data = made.reader.read(made.ranks[index], (made.key, *index), within)
        return data.view(self._array.dtype).reshape(region_shape(within))

    def _block(self, index: Index) -> Array:
        return self._read(index, tuple((0, b - a) for a, b in self.grid.region(index)))

    def _forget(self) -> None:
        super()._forget()
        if self._array is not None:
            made, self._array = self._array.blocks, None
            made.reader.forget(made.key, set(made.ranks.values()))
