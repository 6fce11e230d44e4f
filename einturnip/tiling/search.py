"""Memory-driven search: finer and finer tilings, halving the class that adds the fewest bytes moved.

In: the equivalence classes of a graph, the machine, the layouts of files. Out: a sequence of tilings, coarsest first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from einturnip.core.program_limits import checkpoint
from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import run_seconds
from einturnip.cost.working_set import copies_tiles, operand_nbytes, overlap
from einturnip.eingraph.types import InputNode
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Space
from einturnip.tiling.equivalence import EquivalenceClass, EquivalenceClasses
from einturnip.tiling.file_layout import FileLayout, layout_of
from einturnip.tiling.label_classes import LabelClasses
from einturnip.tuning.search import CLOSE, COPY_COST, EFFECTIVE_SHARE, THINNEST_PANEL


@dataclass(frozen=True, slots=True)
class Tiling:
    """One step of the search: tile sizes per class, the largest working set, the number of kernel calls."""

    tiles: tuple[int, ...]
    working_set: int
    kernel_calls: int


def successive_tilings(
    graph: EquivalenceClasses, machine: Machine, layouts: Mapping[int, FileLayout], max_calls: int
) -> Iterator[Tiling]:
    """Yield finer and finer tilings, coarsest first: each halves the cheapest class of the worst node.

    The sequence does not depend on a budget, so a tiling that fits a budget fits every larger one. It ends at
    ``max_calls``.
    """
    search = _Search(graph, machine, layouts)
    yield search.current()
    while (cheapest := search.next_class()) is not None:
        checkpoint()
        search.halve(cheapest)
        if search.calls > max_calls:
            return
        yield search.current()


def thinner(graph: EquivalenceClasses, tiling: Tiling) -> Iterator[Tiling]:
    """Yield the tiling with thinner panels along aggregated labels, which leave memory for larger blocks."""
    summed = {g.classes[p] for g in graph.groups if _is_product(g.einsum) for p in g.einsum.aggregated}
    tiles = list(tiling.tiles)
    while True:
        wide = [c for c in summed - graph.classes.fixed - graph.classes.tiled_last if tiles[c] > THINNEST_PANEL]
        if not wide:
            return
        for c in wide:
            tiles[c] = halve_tile(graph.classes, c, tiles[c])
        working_set = max(graph.working_set_nbytes(g, tiles) for g in graph.groups)
        yield Tiling(tuple(tiles), working_set, kernel_calls(graph, tiles))


def _is_product(e: Space) -> bool:
    return isinstance(e, Einsum) and contraction(e) is not None


def kernel_calls(graph: EquivalenceClasses, tiles: Sequence[int]) -> int:
    """Return the number of kernel calls."""
    return sum(n for _, n in calls_of(graph, tiles))


def calls_of(graph: EquivalenceClasses, tiles: Sequence[int]) -> Iterator[tuple[EquivalenceClass, int]]:
    """Return each equivalence class with the number of kernel calls of all its nodes."""
    return ((g, len(g.nodes) * _calls(graph, g, tiles)) for g in graph.groups)


def _calls(graph: EquivalenceClasses, group: EquivalenceClass, tiles: Sequence[int]) -> int:
    return math.prod(-(-b // t) for b, t in zip(group.einsum.bounds, graph.tiles(group, tiles), strict=True))


def halve_tile(classes: LabelClasses, c: int, tile: int) -> int:
    """Return half the tile of class ``c``, such that it still divides the calls of sites."""
    return classes.dividing(c, halve_extent(tile, classes.steps[c], classes.chunks[c]))


def halve_extent(extent: int, step: int = 1, chunk: int = 1) -> int:
    """Return half the extent rounded up to a multiple or divisor of ``chunk``, else of ``step`` or 16."""
    half = -(-extent // 2)
    for unit in (math.lcm(16, chunk), chunk):
        whole = -(-half // unit) * unit
        if (half >= 4 * unit or unit == chunk) and whole < extent:
            return whole
    if part := chunk_divisor(chunk, half, step):
        return part
    return halve_extent(extent, step, step) if step < chunk else half if half < 64 else -(-half // 16) * 16


def chunk_divisor(chunk: int, extent: int, step: int = 1) -> int | None:
    """Return a divisor of ``chunk`` near ``extent`` that is a multiple of ``step``; None if there is none.

    Such tiles never cross a chunk boundary.
    """
    counts = range(math.ceil(chunk / (CLOSE * extent)), int(CLOSE * chunk / extent) + 1) if extent < chunk else ()
    found = [chunk // n for n in counts if chunk % (n * step) == 0]
    return min(found, key=lambda part: abs(part - extent), default=None)


class _Search:
    """The current tiling, with the working set and calls of each equivalence class."""

    def __init__(self, graph: EquivalenceClasses, machine: Machine, layouts: Mapping[int, FileLayout]) -> None:
        self.graph = graph
        self.machine = machine
        self.fixed = graph.classes.fixed | graph.classes.tiled_last
        self.whole = graph.classes.whole
        self.tiles = list(graph.classes.coarsest)
        self.members: dict[int, list[int]] = {}
        for n, group in enumerate(graph.groups):
            for c in group.relevant:
                self.members.setdefault(c, []).append(n)
        self.working_sets = [graph.working_set_nbytes(g, self.tiles) for g in graph.groups]
        self.worst = [(-h, n) for n, h in enumerate(self.working_sets)]
        heapify(self.worst)
        self.group_calls = [len(g.nodes) * _calls(graph, g, self.tiles) for g in graph.groups]
        self.calls = sum(self.group_calls)
        self.stored = _stored(graph, layouts)

    def current(self) -> Tiling:
        """Return the current tiling."""
        while self.worst and -self.worst[0][0] != self.working_sets[self.worst[0][1]]:
            heappop(self.worst)
        return Tiling(tuple(self.tiles), -self.worst[0][0] if self.worst else 0, self.calls)

    def halve(self, c: int) -> None:
        """Halve the tiles of class ``c``."""
        self.tiles[c] = self._halved(c)
        for n in self.members[c]:
            group = self.graph.groups[n]
            self.working_sets[n] = self.graph.working_set_nbytes(group, self.tiles)
            heappush(self.worst, (-self.working_sets[n], n))
            calls = len(group.nodes) * _calls(self.graph, group, self.tiles)
            self.calls += calls - self.group_calls[n]
            self.group_calls[n] = calls

    def _halved(self, c: int) -> int:
        return halve_tile(self.graph.classes, c, self.tiles[c])

    def next_class(self) -> int | None:
        """Return the cheapest class among those that shrink the largest working set well; None at the end.

        A tile fixed by the program is halved only if nothing else can be.
        """
        for fixed in (False, True) if self.fixed else (False,):
            popped = []
            found = None
            while self.worst and found is None:
                entry = heappop(self.worst)
                if -entry[0] == self.working_sets[entry[1]]:
                    popped.append(entry)
                    found = self._cheapest(entry[1], fixed)
            for entry in popped:
                heappush(self.worst, entry)
            if found is not None:
                return found
        return None

    def _cheapest(self, n: int, fixed: bool) -> int | None:
        saved: dict[int, int] = {}
        group, tiles = self.graph.groups[n], self.tiles
        for c in group.relevant:
            if tiles[c] > 1 and c not in self.whole and (c in self.fixed) == fixed:
                before = tiles[c]
                tiles[c] = self._halved(c)
                saved[c] = self.working_sets[n] - self.graph.working_set_nbytes(group, tiles)
                tiles[c] = before
        if not saved:
            return None
        best = max(saved.values())
        choices = [c for c, s in saved.items() if s >= min(best, EFFECTIVE_SHARE * best)]
        return min(choices, key=lambda c: (self._cost(c), -tiles[c], c))

    def _cost(self, halved: int) -> float:
        """Return the bytes that halving class ``halved`` adds, including the price of shorter runs in files."""
        tiles, bounds = self.tiles, self.graph.classes.bounds
        total = 0.0
        for stored in self.stored.get(halved, ()):
            total += self._run_cost(stored, halved)
        for n in self.members[halved]:
            group = self.graph.groups[n]
            e, own = group.einsum, group.classes
            added = 0.0
            for s, reads in enumerate(group.reads):
                lacking = set(own) - {own[p] for p in reads}
                if halved in lacking:
                    times = math.prod(-(-bounds[c] // tiles[c]) for c in lacking)
                    added += operand_nbytes(e, s, e.bounds) * times
            aggregated = {own[p] for p in e.aggregated}
            if halved in aggregated:
                added += e.state_nbytes(e.bounds) * math.prod(-(-bounds[c] // tiles[c]) for c in aggregated)
                added += self._waiting_nbytes(group, aggregated)
            added += self._halo_nbytes(group, halved)
            total += added * len(group.nodes)
        return total

    def _waiting_nbytes(self, group: EquivalenceClass, aggregated: set[int]) -> float:
        """Return the bytes that workers could process in the time in which they wait for accumulators.

        Products wait for nothing: BLAS divides one among workers.
        """
        e, kept = group.einsum, set(group.classes) - aggregated
        if _is_product(e):
            return 0.0
        accumulators = math.prod(-(-self.graph.classes.bounds[c] // self.tiles[c]) for c in kept)
        idle = max(0.0, 1 - accumulators / max(1, self.machine.workers))
        return idle * sum(operand_nbytes(e, s, e.bounds) for s in range(len(group.reads)))

    def _halo_nbytes(self, group: EquivalenceClass, halved: int) -> float:
        """Return the bytes of overlapping parts of operands with affine indices: read again, or copied."""
        total = 0.0
        for s in group.shifted:
            if not any(group.classes[p] == halved for p in group.reads[s.slot]):
                continue
            e, before = group.einsum, self.tiles[halved]
            times = []
            for tile in (before, self._halved(halved)):
                self.tiles[halved] = tile
                own = self.graph.tiles(group, self.tiles)
                parts = overlap(e, s.slot, own)
                copied = s.kind is not InputNode or copies_tiles(e, s.slots, own)
                times.append(COPY_COST * parts if copied else parts - 1)
            self.tiles[halved] = before
            total += max(0.0, times[1] - times[0]) * operand_nbytes(e, s.slot, e.bounds)
        return total

    def _run_cost(self, stored: _StoredTensor, halved: int) -> float:
        """Return the bytes readable in the time that halving ``halved`` adds: shorter runs, repeated decoding."""
        tiles, machine = self.tiles, self.machine
        nbytes = math.prod(stored.shape) * stored.itemsize

        def cost() -> float:
            extents = [min(tiles[c], n) for c, n in zip(stored.classes, stored.shape, strict=True)]
            read = stored.layout.decoded_nbytes(stored.shape, extents, stored.itemsize)
            again = read / (math.prod(extents) * stored.itemsize)
            run = stored.layout.run_nbytes(stored.shape, extents, stored.itemsize)
            extra = nbytes / run * run_seconds(run, machine)
            extra += stored.layout.extra_reads(stored.shape, extents) * machine.op_latency
            return nbytes * again + extra * machine.read_bandwidth

        whole = cost()
        before = tiles[halved]
        tiles[halved] = self._halved(halved)
        shorter = cost()
        tiles[halved] = before
        return shorter - whole


@dataclass(frozen=True, slots=True)
class _StoredTensor:
    """A tensor in a file, and the class of each of its axes."""

    shape: tuple[int, ...]
    itemsize: int
    classes: tuple[int, ...]
    layout: FileLayout


def _stored(graph: EquivalenceClasses, layouts: Mapping[int, FileLayout]) -> dict[int, list[_StoredTensor]]:
    """Return the tensors in files by class."""
    found: dict[int, list[_StoredTensor]] = {}
    outputs = {node for _, node in graph.graph.outputs}
    for i, node in enumerate(graph.graph.nodes):
        shape: tuple[int, ...] = node.shape
        if (isinstance(node, InputNode) or i in outputs) and 0 not in shape:
            own = graph.classes.of[i][: len(shape)]
            entry = _StoredTensor(shape, node.dtype.itemsize, own, layout_of(layouts, i, len(shape)))
            for c in set(own):
                found.setdefault(c, []).append(entry)
    return found
