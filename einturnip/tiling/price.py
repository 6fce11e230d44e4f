"""What a cut would take, by formula: seconds in kernels, and bytes of operands that stand in files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.cost.kernel_time import kernel_seconds
from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import READERS, run_seconds
from einturnip.eingraph.types import InputNode
from einturnip.tiling.equivalence import EquivalenceClass, EquivalenceClasses
from einturnip.tiling.file_layout import FileLayout, layout_of
from einturnip.tiling.io_blocking import BlockTable
from einturnip.tiling.search import Tiling
from einturnip.tiling.types import Partitioning

# A cut that takes this many times what the best could take is not worth a search for a better one.
NEARLY = 1.25
# A byte read costs this many times its transfer even where kernels hide it: files may be cold, disks are shared. So a
# product keeps near the bound of its bytes until shorter runs cost more than that.
COLD = 8.0


@dataclass(frozen=True)
class TilingCandidate:
    """One group of einsums in tiles of one size.

    ``runs``: seconds that starting to read adds to a byte of each operand; ``cores``: what reading takes of a core.
    """

    seconds: float
    apart: int
    held: int
    calls: int
    runs: tuple[float, ...]
    cores: tuple[float, ...]
    blocks: BlockTable | None


class TilingPrices:
    """Prices of the cuts of one graph; what was worked out for a group is kept."""

    def __init__(
        self, graph: EquivalenceClasses, machine: Machine, layouts: Mapping[int, FileLayout], blocked: bool
    ) -> None:
        self.graph = graph
        self.machine = machine
        self._layouts = layouts
        self._blocked = blocked
        self._ways: dict[tuple[int, tuple[int, ...]], TilingCandidate] = {}

    def cut(self, tiles: Sequence[int]) -> Tiling:
        """The cut of all classes into ``tiles``."""
        ways = [self.way(n, tiles) for n in range(len(self.graph.groups))]
        return Tiling(tuple(tiles), max((w.held for w in ways), default=0), sum(w.calls for w in ways))

    def of(self, tiles: Sequence[int], capacity: int) -> float:
        """Seconds in which kernels and reading hide each other, and the bytes read, which cost even if hidden.

        What reading takes of the cores is no longer theirs who compute.
        """
        computing = reading = nbytes = 0.0
        machine = self.machine
        for n, group in enumerate(self.graph.groups):
            way = self.way(n, tiles)
            together = way.apart
            if way.blocks is not None:
                reads = len(group.nodes) * way.blocks.reads_of_each(capacity)
                nbytes += float(reads.sum())
                reading += float(reads @ way.runs)
                computing += float(reads @ way.cores) / machine.workers
                if way.blocks.cut:
                    together = way.blocks.together(capacity)
            # Kernels of one output tile share an accumulator and take turns.
            computing += way.seconds / max(1, min(machine.workers, together))
        moving = nbytes / machine.read_bandwidth
        return max(computing, moving + reading) + COLD * moving

    def read_nbytes(self, tiles: Sequence[int], capacity: int) -> float:
        """Bytes of operands that stand in files, as often as the blocks of ``capacity`` read them."""
        ways = [(len(group.nodes), self.way(n, tiles)) for n, group in enumerate(self.graph.groups)]
        return sum(times * way.blocks.read_nbytes(capacity) for times, way in ways if way.blocks is not None)

    def spare(self, tiles: Sequence[int], capacity: int) -> float:
        """How many more tiles would fit beside the blocks of ``capacity``, where the fewest would."""
        blocks = (self.way(n, tiles).blocks for n in range(len(self.graph.groups)))
        return min((b.spare(capacity) for b in blocks if b is not None and b.cut), default=0.0)

    def way(self, n: int, tiles: Sequence[int]) -> TilingCandidate:
        """Group ``n`` where the classes are cut into ``tiles``."""
        group = self.graph.groups[n]
        key = n, tuple(tiles[c] for c in sorted(group.relevant))
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._make(group, tiles)
        return found

    def _make(self, group: EquivalenceClass, tiles: Sequence[int]) -> TilingCandidate:
        e, machine = group.einsum, self.machine
        part = Partitioning(e.bounds, self.graph.tiles(group, tiles))
        calls = math.prod(part.counts) * len(group.nodes)
        work = kernel_seconds(e, part.tiles, machine) - machine.op_latency
        parts = math.prod(b / t for b, t in zip(e.bounds, part.tiles, strict=True))
        seconds = calls * machine.op_latency + work * parts * len(group.nodes)
        blocks = BlockTable(group, part) if self._blocked and group.from_files else None
        reading = [self._reading(group, slot, part.tiles) for slot in range(len(e.accesses))] if blocks else []
        runs, cores = zip(*reading, strict=True) if reading else ((), ())
        apart = math.prod(part.counts[: e.n_out])
        return TilingCandidate(seconds, apart, self.graph.held_nbytes(group, tiles), calls, runs, cores, blocks)

    def _reading(self, group: EquivalenceClass, slot: int, tiles: Sequence[int]) -> tuple[float, float]:
        """Seconds that a byte of a stored operand takes beside its transfer, and those of a core with it.

        For the starts of contiguous runs, and for decoding what is not wanted.
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
        seconds += layout.cut_again(stored.shape, box) * machine.op_latency / (math.prod(stored.shape) * itemsize)
        read = layout.decoded_nbytes(stored.shape, box, itemsize)
        seconds += max(0.0, read / (math.prod(box) * itemsize) - 1) / machine.read_bandwidth
        return seconds, READERS * (machine.run_latency / run + machine.read_core / machine.read_bandwidth)


def whole_is_best(graph: EquivalenceClasses, machine: Machine) -> bool:
    """True where no finer cut could be much faster than the coarsest: latency is nearly all that there is."""
    total = least = 0.0
    for group in graph.groups:
        tiles = graph.tiles(group, graph.classes.coarsest)
        calls = math.prod(Partitioning(group.einsum.bounds, tiles).counts) * len(group.nodes)
        work = kernel_seconds(group.einsum, tiles, machine) - machine.op_latency
        total += calls * (machine.op_latency + work)
        least += calls * (machine.op_latency + work / machine.workers)
    return total <= NEARLY * least
