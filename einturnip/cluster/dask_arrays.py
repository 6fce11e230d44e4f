"""Dask arrays of a run on workers: how each is read, and by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from einturnip.cluster.chunks import ChunkPlaces, input_tiers, regions_of
from einturnip.cluster.workers import Worker, default_memory
from einturnip.core.errors import CapacityError, WorkerLost
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph
from einturnip.ir.dtypes import DType
from einturnip.sites.part import SitePart
from einturnip.sites.wires.dask_chunks import (
    ChunkTasks,
    Index,
    WorkerChunks,
    can_be_sent,
    chunk_tasks,
    computed_here,
    computed_there,
    is_on_workers,
    persist,
    worker_chunks,
)
from einturnip.storage.chunks.chunk_grid import ChunkGrid, GridSource
from einturnip.storage.dask_arrays import CHUNK_COPIES, DaskSource, chunk_failed
from einturnip.storage.types import Array, Region, Source, region_shape


def locate(
    client: Any, sources: Mapping[str, Source], memory: int | None, workers: Callable[[], Sequence[Worker]]
) -> None:
    """Decide how workers read each Dask array.

    Dask computes arrays whose chunks have tasks in common, or use values on the workers, as a whole here.
    Chunks in the memory of workers are read there. Chunks whose tasks can be sent are computed by the worker that
    needs one. Others, whose tasks contain the data, are computed by this process, which sends tiles.

    Raises:
        CapacityError: the workers cannot hold an array that they must compute as a whole. RunError: that failed.
    """
    for source in sources.values():
        if isinstance(source, DaskSource):
            source.place = worker_chunks(client, source.array, source.name)
            if source.place is None:
                _locate_tasks(client, source, memory, workers)
            if isinstance(source.place, WorkerChunks):
                source.read_in_parts()
                source.compute = partial(computed_there, client, source.name)


def _locate_tasks(client: Any, source: DaskSource, memory: int | None, workers: Callable[[], Sequence[Worker]]) -> None:
    tasks = None if is_on_workers(source.array) else chunk_tasks(source.array)
    if tasks is not None:
        if can_be_sent(tasks, source.array):
            source.place = tasks
        else:
            source.compute = computed_here
        return
    every = workers()
    allowed = default_memory(every) if memory is None else memory
    needed = max(w.resident for w in every) + -(-source.array.nbytes // len(every))
    if needed > allowed:
        raise CapacityError(
            f"input {source.name}: its chunks depend on each other, so Dask has to compute all of them first, and "
            f"each worker needs {format_size(needed)}, more than {format_size(allowed)}. help: store the array, "
            "to_zarr, and give the file",
            needed,
        )
    source.array = persist(client, source.array)
    source.place = worker_chunks(client, source.array, source.name)


def chunk_places(
    parts: Sequence[SitePart], graph: EinGraph, sources: Mapping[str, Source], addresses: Sequence[str], first: int
) -> ChunkPlaces:
    """Return the places of all Dask arrays that workers read.

    ``first``: a number that no op of the plan has.

    Raises:
        WorkerLost: a chunk is on a worker that takes no part.
    """
    n, site_of = len(parts), {address: site for site, address in enumerate(addresses)}
    found = ChunkPlaces([{} for _ in parts], [{} for _ in parts], [defaultdict(int) for _ in parts])
    for name, tier in input_tiers(graph).items():
        source = sources[name]
        place = source.place if isinstance(source, DaskSource) else None
        if place is None:
            continue
        assert isinstance(source, DaskSource)
        grid, numbers = source.grid, dict[tuple[Index, Region], int]()
        for site in range(n):
            pieces = [p for region in regions_of(parts[site], tier, stored=False) for p in grid.pieces(region)]
            if isinstance(place, ChunkTasks):
                tasks = place.encoded({p.chunk for p in pieces})
                found.inputs[site][name] = ("tasks", grid.borders, place.name, np.frombuffer(tasks, np.uint8))
                continue
            reads = dict[tuple[Index, Region], tuple[int, tuple[int, ...]]]()
            for piece in pieces:
                holders = [site_of[address] for address in place.holders[piece.chunk] if address in site_of]
                if not holders:
                    raise WorkerLost(
                        f"input {name}: its chunk {list(piece.chunk)} is on {', '.join(place.holders[piece.chunk])}, "
                        "which takes no part in the run."
                    )
                what = piece.chunk, piece.within
                number = numbers.setdefault(what, first + len(numbers))
                holders = sorted(holders, key=lambda holder: (holder != site, (holder - number) % n))
                shape = region_shape(grid.region(piece.chunk))
                for holder in holders:
                    found.served[holder][number] = (place.keys[piece.chunk], piece.within, shape, source.dtype)
                reads[what] = number, tuple(holders)
                if holders[0] != site:
                    count = int(np.prod(region_shape(piece.within), dtype=np.int64))
                    found.planned[site][holders[0]] += count * source.dtype.itemsize
            found.inputs[site][name] = ("chunks", grid.borders, reads)
        first += len(numbers)
    return found


def open_tasks(name: str, dtype: DType, borders: tuple[tuple[int, ...], ...], array: str, encoded: Any) -> Source:
    """Open a Dask array in a worker that computes the chunks it needs."""
    tasks = ChunkTasks.decoded(array, encoded)

    def computed(index: Index) -> Array:
        try:
            return tasks.compute(index)
        except Exception as error:
            raise chunk_failed(name, index, error) from error

    return GridSource(name, ChunkGrid(borders), dtype, computed, CHUNK_COPIES)
