"""Inputs in chunks that are in the memory of sites, and outputs whose blocks stay there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from einturnip.cluster.tensors import Place, PlannedInput, tile_of
from einturnip.core.errors import InternalError, WorkerLost
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.memgraph.types import FILES, Lane, OpKind, output_tier
from einturnip.planner.predict import slots
from einturnip.sites.part import SitePart
from einturnip.storage.chunks.chunk_grid import ChunkGrid, Index
from einturnip.storage.generated import _GeneratedTensor
from einturnip.storage.io.transfer import copy_blocked
from einturnip.storage.placed_chunks import PlacedSource, WorkerChunks
from einturnip.storage.types import Array, Region, Source, region_shape, slices
from einturnip.tuning.memory import RECEIVE_WINDOW

# -- at the coordinator


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """The chunks that each site reads, and the pieces of chunks that it serves to other sites.

    ``inputs``: for each site, the places of these inputs by name. ``served``: for each site, its pieces by number: the
    key of a chunk, a region in it, and the chunk's shape and dtype. ``planned``: for each site, the bytes that it reads
    from each other site.
    """

    inputs: list[dict[str, Place]]
    served: list[dict[int, tuple[Any, ...]]]
    planned: list[dict[int, int]]


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


def chunk_places(
    parts: Sequence[SitePart], graph: EinGraph, sources: Mapping[str, Source], addresses: Sequence[str], first: int
) -> ChunkPlaces:
    """Return the places of all inputs in chunks that workers read from each other or compute.

    ``first``: a number that no op of the plan has.

    Raises:
        WorkerLost: a chunk is on a worker that takes no part.
    """
    n, site_of = len(parts), {address: site for site, address in enumerate(addresses)}
    found = ChunkPlaces([{} for _ in parts], [{} for _ in parts], [defaultdict(int) for _ in parts])
    for name, tier in input_tiers(graph).items():
        source = sources[name]
        if not isinstance(source, PlacedSource) or source.place is None:
            continue
        place = source.place
        grid, numbers = source.grid, dict[tuple[Index, Region], int]()
        for site in range(n):
            pieces = [p for region in regions_of(parts[site], tier, stored=False) for p in grid.pieces(region)]
            if not isinstance(place, WorkerChunks):
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


def kept_grids(
    parts: Sequence[SitePart], graph: EinGraph, kept: Collection[str]
) -> dict[str, tuple[ChunkGrid, dict[Index, int]]]:
    """Return the grid of blocks of each output that stays on the workers, and the site of each block."""
    found = {}
    for output, (name, number) in enumerate(graph.outputs):
        if name in kept:
            tier = output_tier(graph, output)
            regions = [regions_of(part, tier, stored=True) for part in parts]
            grid = ChunkGrid.of_regions(graph.nodes[number].shape, [r for of_site in regions for r in of_site])
            sites = {p.chunk: site for site, rs in enumerate(regions) for r in rs for p in grid.pieces(r)}
            found[name] = grid, sites
    return found


def extra_nbytes(
    parts: Sequence[SitePart], graph: EinGraph, inputs: Mapping[str, PlannedInput], kept: Collection[str]
) -> tuple[int, ...]:
    """Return the bytes that chunks take in each worker: pieces in transit, and blocks of outputs."""
    tiers = [tier for name, tier in input_tiers(graph).items() if inputs[name].in_pieces]
    reads = [part.graph.read[np.isin(part.graph.read[:, 0], tiers), 2].max(initial=0) for part in parts]
    pieces = (slots(1)[Lane.IN] + RECEIVE_WINDOW) * int(max(reads, default=0))
    stores = [output_tier(graph, i) for i, (name, _) in enumerate(graph.outputs) if name in kept]
    blocks = [int(p.graph.write[np.isin(p.graph.write[:, 0], stores), 2].sum()) for p in parts]
    return tuple(pieces + nbytes for nbytes in blocks)


# -- at a site


def pieces_of(served: Mapping[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Return the pieces that a worker serves, as its wire takes them."""
    return {number: (key, slices(at), shape, dtype.numpy) for number, (key, at, shape, dtype) in served.items()}


@dataclass(frozen=True)
class ChunkPieces(_GeneratedTensor):
    """An input in chunks that are in the memory of workers.

    ``numbers``: number and sites of each piece, by its chunk and its region in the chunk. ``fetch``: returns a
    piece, given its number, its sites and its bytes.
    """

    grid: ChunkGrid
    numbers: Mapping[tuple[Index, Region], tuple[int, Sequence[int]]]
    fetch: Callable[[int, Sequence[int], int], Array]

    def read(self, region: Region, out: Array) -> int:
        """Fetch a tile, piece by piece."""
        for piece in self.grid.pieces(region):
            part = out[piece.window]
            data = self.fetch(*self.numbers[piece.chunk, piece.within], part.nbytes)
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
