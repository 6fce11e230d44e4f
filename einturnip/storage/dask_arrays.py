"""Dask arrays as inputs, computed chunk by chunk. Dask itself is imported under ``sites.wires`` only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from einturnip.core.errors import BindError, DTypeError, EinturnipError, StoreError
from einturnip.ir.dtypes import from_numpy
from einturnip.storage.chunks.chunk_grid import ChunkGrid, Index
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.layout import blocks
from einturnip.storage.placed_chunks import PART_NBYTES, PlacedSource
from einturnip.storage.types import Array, Region, slices, window

CHUNK_COPIES = 3.0
"""Chunks that take memory while Dask computes one: the result, an operand of its last task, and the chunk before."""


class DaskSource(PlacedSource):
    """A ``dask.array`` that is computed chunk by chunk in the thread that reads it.

    If it has a ``place``, workers of a cluster read or compute its chunks instead.
    """

    def __init__(self, name: str, array: Any) -> None:
        """Check the array.

        Raises:
            BindError: it has chunks of unknown size, or of another kind than NumPy arrays. DTypeError: its dtype has
            no name in the language.
        """
        if any(math.isnan(n) for axis in array.chunks for n in axis):
            raise BindError(f"input {name}: the sizes of its chunks are unknown. help: call compute_chunk_sizes()")
        kind = type(array._meta)
        if kind is not np.ndarray:
            raise BindError(
                f"input {name}: its chunks are {kind.__module__}.{kind.__name__}, not NumPy arrays. help: convert "
                "them with map_blocks"
            )
        try:
            dtype = from_numpy(array.dtype)
        except KeyError:
            raise DTypeError(
                f"input {name}: the array given has dtype {array.dtype}, which einturnip has no type for; convert it "
                "with .astype"
            ) from None
        self.array: Any = array
        self.compute: Callable[[Any], Any] = _computed
        super().__init__(name, ChunkGrid.of_extents(array.chunks), dtype, self._computed, CHUNK_COPIES)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``: chunk by chunk, or in parts of any chunks if these are read without the rest."""
        if self.whole_chunks:
            return super().read(region, out)
        for part in blocks(region, self.dtype.itemsize, PART_NBYTES):
            copy_blocked(out[window(part, region)], np.asarray(self.compute(self.array[slices(part)])))
        return out.nbytes

    def _forget(self) -> None:
        super()._forget()
        self.array = None  # its chunks may be in the memory of workers, as long as somebody has it

    def _computed(self, index: Index) -> Array:
        try:
            return np.asarray(self.compute(self.array.blocks[index] if index else self.array))
        except EinturnipError:
            raise
        except Exception as error:
            raise chunk_failed(self.name, index, error) from error


def _computed(block: Any) -> Any:
    return block.compute()


def chunk_failed(name: str, index: Index, error: Exception) -> StoreError:
    """Return the error for a chunk that Dask cannot compute."""
    return StoreError(f"{name}: Dask cannot compute its chunk {list(index)}: {type(error).__name__}: {error}")
