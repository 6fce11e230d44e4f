"""Dask arrays of a run on workers: inputs whose chunks they read, outputs whose blocks stay there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from einturnip.cluster.tensors import Place, tile_of
from einturnip.cluster.workers import Worker, default_memory
from einturnip.core.errors import CapacityError, InternalError, RunError
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import DType
from einturnip.memgraph.types import FILES, Lane, OpKind
from einturnip.planner.predict import slots
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
from einturnip.storage.generated import _GeneratedTensor
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.types import Array, Region, Source, region_shape, slices
from einturnip.tuning.memory import RECEIVE_WINDOW

# -- inputs, at the coordinator


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
                source.compute = partial(computed_there, client)


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


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """Where each site reads chunks, and what it serves to others.

    ``inputs``: places of Dask arrays by site and name. ``served``: of each site, by number, the key of a chunk, a
    window in it, and the chunk's shape and dtype. ``planned``: bytes that each site reads from others.
    """

    inputs: list[dict[str, Place]]
    served: list[dict[int, tuple[Any, ...]]]
    planned: list[dict[int, int]]


def chunk_places(
    parts: Sequence[SitePart], graph: EinGraph, sources: Mapping[str, Source], addresses: Sequence[str], first: int
) -> ChunkPlaces:
    """Return the places of all Dask arrays that workers read.

    ``first``: a number that no op of the plan has.

    Raises:
        RunError: a chunk is on a worker that takes no part.
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
                    raise RunError(
                        f"input {name}: its chunk {list(piece.chunk)} is on {', '.join(place.holders[piece.chunk])}, "
                        "which takes no part in the run. help: run again"
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


def input_tiers(graph: EinGraph) -> dict[str, int]:
    """Return the tier of each input in a memory graph."""
    return {node.name: FILES + i for i, node in enumerate(graph.nodes) if isinstance(node, InputNode)}


def regions_of(part: SitePart, tier: int, stored: bool) -> list[Region]:
    """Return the region of each op of a part that stores a tile to a tier, or reads one from it."""
    graph, table = part.graph, part.graph.write if stored else part.graph.read
    ptr = graph.write_ptr if stored else graph.read_ptr
    rows = np.flatnonzero(table[:, 0] == tier)
    ops = np.unique(np.searchsorted(ptr, rows, side="right") - 1)
    kinds = (OpKind.STORE,) if stored else (OpKind.LOAD, OpKind.RELOAD)
    return [tile_of(graph, graph[i])[1] for i in ops[np.isin(graph.kind[ops], kinds)].tolist()]


# -- outputs, at the coordinator


def kept_grids(
    parts: Sequence[SitePart], graph: EinGraph, kept: Collection[str]
) -> dict[str, tuple[ChunkGrid, dict[Index, int]]]:
    """Return the grid of blocks of each output that stays on the workers, and the site of each block."""
    found = {}
    for output, (name, number) in enumerate(graph.outputs):
        if name in kept:
            tier = FILES + len(graph.nodes) + output
            regions = [regions_of(part, tier, stored=True) for part in parts]
            grid = ChunkGrid.of_regions(graph.nodes[number].shape, [r for of_site in regions for r in of_site])
            sites = {p.chunk: site for site, rs in enumerate(regions) for r in rs for p in grid.pieces(r)}
            found[name] = grid, sites
    return found


def extra_nbytes(
    parts: Sequence[SitePart], graph: EinGraph, sources: Mapping[str, Source], kept: Collection[str]
) -> tuple[int, ...]:
    """Return the bytes that Dask arrays take in each worker: pieces on their way, and blocks."""
    tiers = [
        tier
        for name, tier in input_tiers(graph).items()
        if isinstance(source := sources[name], DaskSource) and isinstance(source.place, WorkerChunks)
    ]
    reads = [part.graph.read[np.isin(part.graph.read[:, 0], tiers), 2].max(initial=0) for part in parts]
    pieces = (slots(1)[Lane.IN] + RECEIVE_WINDOW) * int(max(reads, default=0))
    first = FILES + len(graph.nodes)
    stores = [first + i for i, (name, _) in enumerate(graph.outputs) if name in kept]
    blocks = [int(p.graph.write[np.isin(p.graph.write[:, 0], stores), 2].sum()) for p in parts]
    return tuple(pieces + nbytes for nbytes in blocks)


# -- in a worker


def open_chunks(place: Place, name: str, dtype: DType, fetch: Callable[[int, Sequence[int]], Array]) -> Source | None:
    """Open a Dask array in a worker; None if the place is of another kind.

    ``fetch``: returns a piece by its number and the sites that have it.
    """
    match place:
        case ("chunks", borders, numbers):
            grid = ChunkGrid(borders)
            shape = tuple(axis[-1] for axis in borders)
            return ChunkPieces(name, shape, dtype, grid, numbers, fetch)
        case ("tasks", borders, array, encoded):
            tasks = ChunkTasks.decoded(array, encoded)

            def computed(index: Index) -> Array:
                try:
                    return tasks.compute(index)
                except Exception as error:
                    raise chunk_failed(name, index, error) from error

            return GridSource(name, ChunkGrid(borders), dtype, computed, CHUNK_COPIES)
    return None


def pieces_of(served: Mapping[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Return the pieces that a worker serves, as its wire takes them."""
    return {number: (key, slices(at), shape, dtype.numpy) for number, (key, at, shape, dtype) in served.items()}


@dataclass(frozen=True)
class ChunkPieces(_GeneratedTensor):
    """An input in chunks that workers hold.

    ``numbers``: number and sites of each piece, by chunk and window.
    """

    grid: ChunkGrid
    numbers: Mapping[tuple[Index, Region], tuple[int, Sequence[int]]]
    fetch: Callable[[int, Sequence[int]], Array]

    def read(self, region: Region, out: Array) -> int:
        """Fetch a tile, piece by piece."""
        for piece in self.grid.pieces(region):
            data, part = self.fetch(*self.numbers[piece.chunk, piece.within]), out[piece.window]
            local = data.shape == part.shape and data.dtype == part.dtype
            copy_blocked(part, data if local else data.view(part.dtype).reshape(part.shape))
        return out.nbytes


@dataclass(frozen=True)
class BlockSink(_GeneratedTensor):
    """An output whose blocks stay in the worker that stores them. ``blocks``: by name and position."""

    grid: ChunkGrid
    blocks: dict[tuple[str, Index], Array] = field(default_factory=dict)

    def read(self, region: Region, out: Array) -> int:
        """Refuse to read: no plan does."""
        raise InternalError(f"output {self.name} cannot be read back")

    def write(self, region: Region, array: Array) -> int:
        """Keep the tile as blocks."""
        for piece in self.grid.pieces(region):
            self.blocks[self.name, piece.chunk] = np.array(array[piece.window], array.dtype, order="C", copy=True)
        return array.nbytes

    def commit(self) -> None:
        """Do nothing: the task returns the blocks."""

    abort = commit
