"""Dask arrays of a run on workers: how each is read, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from einturnip.cluster.workers import Worker, default_memory
from einturnip.core.errors import CapacityError
from einturnip.core.units import format_size
from einturnip.ir.dtypes import DType
from einturnip.sites.wires.dask_chunks import (
    ChunkTasks,
    can_be_sent,
    chunk_tasks,
    computed_here,
    computed_there,
    is_on_workers,
    persist,
    worker_chunks,
)
from einturnip.storage.chunks.chunk_grid import ChunkGrid, GridSource, Index
from einturnip.storage.dask_arrays import CHUNK_COPIES, DaskSource, chunk_failed
from einturnip.storage.placed_chunks import WorkerChunks
from einturnip.storage.types import Array, Source


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


def open_tasks(name: str, dtype: DType, borders: tuple[tuple[int, ...], ...], array: str, encoded: Any) -> Source:
    """Open a Dask array in a worker that computes the chunks it needs."""
    tasks = ChunkTasks.decoded(array, encoded)

    def computed(index: Index) -> Array:
        try:
            return tasks.compute(index)
        except Exception as error:
            raise chunk_failed(name, index, error) from error

    return GridSource(name, ChunkGrid(borders), dtype, computed, CHUNK_COPIES)
