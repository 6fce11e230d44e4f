"""Prices tilings by formula: seconds in kernels, and bytes read from files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.program_limits import checkpoint
from einturnip.cost.kernel_time import kernel_seconds
from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import READERS, run_seconds
from einturnip.eingraph.types import InputNode
from einturnip.tiling.equivalence import EquivalenceClass, EquivalenceClasses
from einturnip.tiling.file_layout import FileLayout, layout_of
from einturnip.tiling.io_blocking import BlockTable
from einturnip.tiling.search import Tiling
from einturnip.tiling.types import Partitioning
from einturnip.tuning.search import COLD_READ_WEIGHT, NEAR_BEST_TIME


@dataclass(frozen=True)
class TilingCandidate:
    """One equivalence class of einsums in tiles of one size.

    ``runs``, ``cores``: for each operand, seconds and core seconds per byte read, in addition to its transfer.
    """

    seconds: float
    output_tiles: int
    working_set: int
    calls: int
    runs: tuple[float, ...]
    cores: tuple[float, ...]
    blocks: BlockTable | None


class TilingPrices:
    """Prices of the tilings of one graph, with a cache per equivalence class."""

    def __init__(
        self, graph: EquivalenceClasses, machine: Machine, layouts: Mapping[int, FileLayout], blocked: bool
    ) -> None:
        self.graph = graph
        self.machine = machine
        self._layouts = layouts
        self._blocked = blocked
        self._candidates: dict[tuple[int, tuple[int, ...]], TilingCandidate] = {}

    def tiling(self, tiles: Sequence[int]) -> Tiling:
        """Return the tiling of all classes by ``tiles``."""
        candidates = [self.candidate(n, tiles) for n in range(len(self.graph.groups))]
        working_set = max((c.working_set for c in candidates), default=0)
        return Tiling(tuple(tiles), working_set, sum(c.calls for c in candidates))

    def of(self, tiles: Sequence[int], capacity: int) -> float:
        """Return the seconds with kernels and reads overlapped, and the bytes read, which cost even if hidden.

        Reads take a share of the cores from the kernels.
        """
        computing = reading = nbytes = 0.0
        machine = self.machine
        for n, group in enumerate(self.graph.groups):
            candidate = self.candidate(n, tiles)
            concurrent_tiles = candidate.output_tiles
            if candidate.blocks is not None:
                reads = len(group.nodes) * candidate.blocks.reads_of_each(capacity)
                nbytes += float(reads.sum())
                reading += float(reads @ candidate.runs)
                computing += float(reads @ candidate.cores) / machine.workers
                if candidate.blocks.accumulates:
                    concurrent_tiles = candidate.blocks.concurrent_tiles(capacity)
            # Kernels of one output tile share an accumulator, so only one of them runs at a time.
            computing += candidate.seconds / max(1, min(machine.workers, concurrent_tiles))
        moving = nbytes / machine.read_bandwidth
        return max(computing, moving + reading) + COLD_READ_WEIGHT * moving

    def computing_seconds(self, tiles: Sequence[int]) -> float:
        """Return the seconds in kernels, evenly shared among workers."""
        return sum(self.candidate(n, tiles).seconds for n in range(len(self.graph.groups))) / self.machine.workers

    def read_nbytes(self, tiles: Sequence[int], capacity: int) -> float:
        """Return the bytes read from files, repeated as often as blocks of ``capacity`` require."""
        candidates = [(len(group.nodes), self.candidate(n, tiles)) for n, group in enumerate(self.graph.groups)]
        return sum(
            times * candidate.blocks.read_nbytes(capacity)
            for times, candidate in candidates
            if candidate.blocks is not None
        )

    def free_tiles(self, tiles: Sequence[int], capacity: int) -> float:
        """Return the number of tiles that would still fit next to the blocks of ``capacity``; the minimum."""
        blocks = (self.candidate(n, tiles).blocks for n in range(len(self.graph.groups)))
        return min((b.free_tiles(capacity) for b in blocks if b is not None and b.accumulates), default=0.0)

    def candidate(self, n: int, tiles: Sequence[int]) -> TilingCandidate:
        """Return the candidate of class ``n`` for the tile sizes ``tiles``."""
        group = self.graph.groups[n]
        key = n, tuple(tiles[c] for c in sorted(group.relevant))
        found = self._candidates.get(key)
        if found is None:
            checkpoint()
            found = self._candidates[key] = self._price_candidate(group, tiles)
        return found

    def _price_candidate(self, group: EquivalenceClass, tiles: Sequence[int]) -> TilingCandidate:
        e, machine = group.einsum, self.machine
        part = Partitioning(e.bounds, self.graph.tiles(group, tiles))
        calls = math.prod(part.counts) * len(group.nodes)
        work = kernel_seconds(e, part.tiles, machine) - machine.op_latency
        parts = math.prod(b / t for b, t in zip(e.bounds, part.tiles, strict=True))
        seconds = calls * machine.op_latency + work * parts * len(group.nodes)
        blocks = BlockTable(group, part) if self._blocked and group.from_files else None
        reading = [self._reading(group, slot, part.tiles) for slot in range(len(e.accesses))] if blocks else []
        runs, cores = zip(*reading, strict=True) if reading else ((), ())
        output_tiles = math.prod(part.counts[: e.n_out])
        return TilingCandidate(
            seconds, output_tiles, self.graph.working_set_nbytes(group, tiles), calls, runs, cores, blocks
        )

    def _reading(self, group: EquivalenceClass, slot: int, tiles: Sequence[int]) -> tuple[float, float]:
        """Return the seconds per byte that reading a stored operand takes, in addition to its transfer.

        The first number is elapsed time: starts of contiguous runs, and decoding of data that is not needed. The second
        one is core time.
        """
        node = self.graph.graph.nodes[group.node]
        operand = () if isinstance(node, InputNode) else node.operands[slot : slot + 1]
        stored = self.graph.graph.nodes[operand[0]] if operand else None
        if not isinstance(stored, InputNode) or 0 in stored.shape:
            return 0.0, 0.0
        machine, itemsize = self.machine, stored.dtype.itemsize
        layout = layout_of(self._layouts, operand[0], len(stored.shape))
        box = [max(1, n) for n in group.einsum.operand_extents(slot, tiles)]
        run = layout.run_nbytes(stored.shape, box, itemsize)
        seconds = run_seconds(run, machine) / run
        seconds += layout.extra_reads(stored.shape, box) * machine.op_latency / (math.prod(stored.shape) * itemsize)
        read = layout.decoded_nbytes(stored.shape, box, itemsize)
        seconds += max(0.0, read / (math.prod(box) * itemsize) - 1) / machine.read_bandwidth
        return seconds, READERS * (machine.run_latency / run + machine.read_core / machine.read_bandwidth)


def coarsest_is_best(graph: EquivalenceClasses, machine: Machine) -> bool:
    """Return whether no finer tiling could be much faster than the coarsest, because latency dominates."""
    total = parallel = 0.0
    for group in graph.groups:
        tiles = graph.tiles(group, graph.classes.coarsest)
        calls = math.prod(Partitioning(group.einsum.bounds, tiles).counts) * len(group.nodes)
        work = kernel_seconds(group.einsum, tiles, machine) - machine.op_latency
        total += calls * (machine.op_latency + work)
        parallel += calls * (machine.op_latency + work / machine.workers)
    return total <= NEAR_BEST_TIME * parallel
