"""Tensors in chunks that other processes hold, or can compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from einturnip.storage.chunks.chunk_grid import GridSource, Index

PART_NBYTES = 16 << 20
"""Bytes that are read at once from chunks on workers."""


@dataclass(frozen=True, slots=True)
class WorkerChunks:
    """Chunks in the memory of workers. ``holders``: the addresses of the workers that have a chunk."""

    keys: Mapping[Index, Any]
    holders: Mapping[Index, tuple[str, ...]]


class PlacedSource(GridSource):
    """A tensor whose chunks are not in this process, or need not be.

    ``place``: where workers of a cluster find its chunks; None if this process sends them.
    """

    place: Any = None

    def read_in_parts(self) -> None:
        """Record that a part of a chunk is read without the rest of it."""
        self.reading_nbytes, self.whole_chunks = 0, False
