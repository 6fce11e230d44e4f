"""What a cut would take, by formula: seconds in kernels, and bytes of operands that stand in files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.machine import Machine
from einturnip.decomp.alike import Group, Grouped
from einturnip.decomp.blocks import Blocks
from einturnip.decomp.kernel_time import kernel_seconds
from einturnip.decomp.search import Cut
from einturnip.decomp.stored import FileLayout, layout_of
from einturnip.decomp.transfer_time import run_seconds
from einturnip.decomp.types import Partitioning
from einturnip.eingraph.types import InputNode

# A cut that takes this many times what the best could take is not worth a search for a better one.
NEARLY = 1.25
# A byte read costs this many times its transfer even where kernels hide it: files may be cold, disks are shared. So a
# product keeps near the bound of its bytes until shorter runs cost more than that.
COLD = 8.0


@dataclass(frozen=True)
class Way:
    """One group of einsums in tiles of one size. ``run_seconds``: what starting to read takes, a byte of operands."""

    seconds: float
    apart: int
    held: int
    calls: int
    run_seconds: float
    blocks: Blocks | None


class Prices:
    """Prices of the cuts of one graph; what was worked out for a group is kept."""

    def __init__(self, graph: Grouped, machine: Machine, layouts: Mapping[int, FileLayout], blocked: bool) -> None:
        self.graph = graph
        self.machine = machine
        self._layouts = layouts
        self._blocked = blocked
        self._ways: dict[tuple[int, tuple[int, ...]], Way] = {}

    def cut(self, tiles: Sequence[int]) -> Cut:
        """The cut of all classes into ``tiles``."""
        ways = [self.way(n, tiles) for n in range(len(self.graph.groups))]
        return Cut(tuple(tiles), max((w.held for w in ways), default=0), sum(w.calls for w in ways))

    def of(self, tiles: Sequence[int], capacity: int) -> float:
        """Seconds in which kernels and reading hide each other, and the bytes read, which cost even if hidden."""
        computing = reading = nbytes = 0.0
        machine = self.machine
        for n, group in enumerate(self.graph.groups):
            way = self.way(n, tiles)
            together = way.apart
            if way.blocks is not None:
                read = way.blocks.read_nbytes(capacity)
                nbytes += len(group.nodes) * read
                reading += len(group.nodes) * read * way.run_seconds
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

    def way(self, n: int, tiles: Sequence[int]) -> Way:
        """Group ``n`` where the classes are cut into ``tiles``."""
        group = self.graph.groups[n]
        key = n, tuple(tiles[c] for c in sorted(group.relevant))
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._make(group, tiles)
        return found

    def _make(self, group: Group, tiles: Sequence[int]) -> Way:
        e, machine = group.einsum, self.machine
        part = Partitioning(e.bounds, self.graph.tiles(group, tiles))
        calls = math.prod(part.counts) * len(group.nodes)
        work = kernel_seconds(e, part.tiles, machine) - machine.op_latency
        parts = math.prod(b / t for b, t in zip(e.bounds, part.tiles, strict=True))
        seconds = calls * machine.op_latency + work * parts * len(group.nodes)
        blocks = Blocks(group, part) if self._blocked and group.from_files else None
        runs = self._run_seconds(group, part.tiles) if blocks is not None else 0.0
        apart = math.prod(part.counts[: e.n_out])
        return Way(seconds, apart, self.graph.held_nbytes(group, tiles), calls, runs, blocks)

    def _run_seconds(self, group: Group, tiles: Sequence[int]) -> float:
        """Seconds a byte that starting each contiguous run of a stored operand adds, and decoding what is not wanted.

        On average over the operands.
        """
        node = self.graph.graph.nodes[group.node]
        seconds = nbytes = 0.0
        for slot, operand in enumerate(node.operands if not isinstance(node, InputNode) else ()):
            stored = self.graph.graph.nodes[operand]
            extents = group.einsum.operand_extents(slot, tiles)
            whole = math.prod(stored.shape) * stored.dtype.itemsize
            nbytes += whole
            if not isinstance(stored, InputNode) or not whole:
                continue
            layout, box = layout_of(self._layouts, operand, len(stored.shape)), [max(1, n) for n in extents]
            run = layout.run_nbytes(stored.shape, box, stored.dtype.itemsize)
            seconds += whole / run * run_seconds(run, self.machine)
            seconds += layout.cut_again(stored.shape, box) * self.machine.op_latency
            read, wanted = layout.decoded_nbytes(stored.shape, box, stored.dtype.itemsize), math.prod(box)
            seconds += whole * max(0.0, read / (wanted * stored.dtype.itemsize) - 1) / self.machine.read_bandwidth
        return seconds / nbytes if nbytes else 0.0


def whole_is_best(graph: Grouped, machine: Machine) -> bool:
    """True where no finer cut could be much faster than the coarsest: latency is nearly all that there is."""
    total = least = 0.0
    for group in graph.groups:
        tiles = graph.tiles(group, graph.classes.coarsest)
        calls = math.prod(Partitioning(group.einsum.bounds, tiles).counts) * len(group.nodes)
        work = kernel_seconds(group.einsum, tiles, machine) - machine.op_latency
        total += calls * (machine.op_latency + work)
        least += calls * (machine.op_latency + work / machine.workers)
    return total <= NEARLY * least
