"""EinGraph -> Decomposition: tiles small enough that several working sets fit, cut where it costs least.

Labels that must be cut alike (an axis and every label that indexes it) form one class, so that no repartition is ever
needed; the largest working set is halved along the class whose cut moves the fewest bytes, until the target is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.contraction import contraction
from einturnip.core.machine import Machine
from einturnip.decomp.blocks import choose_block, consumed
from einturnip.decomp.cost import kernel_seconds, operand_nbytes, state_nbytes, working_set_nbytes
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode

# Halving a class counts as effective if it saves this part of what the best halving saves.
EFFECTIVE = 0.6
# Panels of a contraction are not made thinner than this: below, the matrix product loses its rate.
THINNEST = 512


@dataclass(frozen=True, slots=True)
class LabelClasses:
    """Which labels are cut alike: ``of[node][label]`` is the class, ``bounds[class]`` its size."""

    of: tuple[tuple[int, ...], ...]
    bounds: tuple[int, ...]


def label_classes(graph: EinGraph) -> LabelClasses:
    """Unite every axis with the labels that index it, over the whole graph."""
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def find(x: tuple[int, int]) -> tuple[int, int]:
        while parent.setdefault(x, x) != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            for operand, access in zip(node.operands, node.einsum.accesses, strict=True):
                for axis, label in enumerate(access):
                    parent[find((i, label))] = find((operand, axis))
    numbers: dict[tuple[int, int], int] = {}
    bounds: list[int] = []
    of: list[tuple[int, ...]] = []
    for i, node in enumerate(graph.nodes):
        sizes = node.shape if isinstance(node, InputNode) else node.einsum.bounds
        row = []
        for label, bound in enumerate(sizes):
            root = find((i, label))
            if root not in numbers:
                numbers[root] = len(bounds)
                bounds.append(bound)
            row.append(numbers[root])
        of.append(tuple(row))
    return LabelClasses(tuple(of), tuple(bounds))


@dataclass(frozen=True, slots=True)
class Cut:
    """One step from whole tensors to single points: the tiles, what a kernel holds, how many kernels there are."""

    tiles: tuple[int, ...]
    working_set: int
    kernel_calls: int


def cuts(
    graph: EinGraph,
    classes: LabelClasses,
    machine: Machine,
    layouts: Mapping[int, Sequence[int]],
    most_calls: int,
) -> list[Cut]:
    """Ever finer cuts, coarsest first: each halves the worst node's cheapest class.

    The way does not depend on a budget, so what fits a budget fits every larger one. It ends at ``most_calls``.
    """
    tiles = [max(b, 1) for b in classes.bounds]
    einsums = {i: n.einsum for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)}

    def held(i: int, trial: Sequence[int]) -> int:
        return working_set_nbytes(einsums[i], [trial[c] for c in classes.of[i]])

    members: dict[int, list[int]] = {}
    for i in einsums:
        for c in set(classes.of[i]):
            members.setdefault(c, []).append(i)
    sizes = {i: held(i, tiles) for i in einsums}
    way: list[Cut] = []
    while True:
        calls = kernel_calls(graph, classes, tiles)
        if way and calls > most_calls:
            return way
        way.append(Cut(tuple(tiles), max(sizes.values(), default=0), calls))
        cheapest = _next_cut(graph, classes, tiles, sizes, held, machine, layouts)
        if cheapest is None:
            return way
        tiles[cheapest] = halved(tiles[cheapest])
        for i in members[cheapest]:
            sizes[i] = held(i, tiles)


def decompose(graph: EinGraph, classes: LabelClasses, tiles: Sequence[int], capacity: int) -> Decomposition:
    """The graph with every class cut into ``tiles``, and blocks chosen for ``capacity`` bytes."""
    parts = partitionings(graph, classes, tiles)
    inner = consumed(graph)
    blocks = tuple(
        choose_block(graph, i, parts[i], capacity, inner)[0] if isinstance(n, EinsumNode) else None
        for i, n in enumerate(graph.nodes)
    )
    return Decomposition(graph, parts, blocks)


def partitionings(graph: EinGraph, classes: LabelClasses, tiles: Sequence[int]) -> tuple[Partitioning, ...]:
    """Each node's partitioning where every class is cut into ``tiles``."""
    return tuple(
        Partitioning(n.shape if isinstance(n, InputNode) else n.einsum.bounds, tuple(tiles[c] for c in classes.of[i]))
        for i, n in enumerate(graph.nodes)
    )


def thinner(graph: EinGraph, classes: LabelClasses, cut: Cut) -> Iterator[Cut]:
    """The cut with the aggregated labels of contractions in ever thinner panels, which leave room for larger blocks."""
    einsums = {i: n.einsum for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)}
    summed = {classes.of[i][p] for i, e in einsums.items() if contraction(e) is not None for p in e.aggregated}
    tiles = list(cut.tiles)
    while True:
        wide = [c for c in summed if tiles[c] > THINNEST]
        if not wide:
            return
        for c in wide:
            tiles[c] = halved(tiles[c])
        held = max(working_set_nbytes(e, [tiles[c] for c in classes.of[i]]) for i, e in einsums.items())
        yield Cut(tuple(tiles), held, kernel_calls(graph, classes, tiles))


def kernel_calls(graph: EinGraph, classes: LabelClasses, tiles: Sequence[int]) -> int:
    """Number of tile kernels."""
    return sum(
        math.prod(-(-b // tiles[c]) for b, c in zip(n.einsum.bounds, classes.of[i], strict=True))
        for i, n in enumerate(graph.nodes)
        if isinstance(n, EinsumNode)
    )


def price(
    graph: EinGraph, classes: LabelClasses, cut: Cut, capacity: int, machine: Machine, blocked: bool = True
) -> float:
    """Seconds that the cut would take by formula: kernels over the workers, and, ``blocked``, bytes read from files."""
    parts = partitionings(graph, classes, cut.tiles)
    inner = consumed(graph)
    total = 0.0
    for i, node in enumerate(graph.nodes):
        if isinstance(node, EinsumNode):
            calls = math.prod(parts[i].counts)
            # Kernels of one output tile share an accumulator and take turns.
            apart = math.prod(parts[i].counts[: node.einsum.n_out])
            seconds = kernel_seconds(node.einsum, parts[i].tiles, machine)
            total += calls * seconds / max(1, min(machine.workers, apart))
            if blocked and any(isinstance(graph.nodes[o], InputNode) for o in node.operands):
                total += choose_block(graph, i, parts[i], capacity, inner)[1] / machine.read_bandwidth
    return total


def _next_cut(
    graph: EinGraph,
    classes: LabelClasses,
    tiles: Sequence[int],
    sizes: Mapping[int, int],
    held: Callable[[int, Sequence[int]], int],
    machine: Machine,
    layouts: Mapping[int, Sequence[int]],
) -> int | None:
    """The class to halve: of those that shrink the largest working set well, the cheapest; None where none is left."""
    for worst in sorted(sizes, key=lambda i: -sizes[i]):
        saved: dict[int, int] = {}
        for c in set(classes.of[worst]):
            if tiles[c] > 1:
                trial = list(tiles)
                trial[c] = halved(tiles[c])
                saved[c] = sizes[worst] - held(worst, trial)
        if saved:
            best = max(saved.values())
            choices = [c for c, s in saved.items() if s >= min(best, EFFECTIVE * best)]
            return min(choices, key=lambda c: (_cut_cost(graph, classes, tiles, c, machine, layouts), -tiles[c], c))
    return None


def halved(extent: int) -> int:
    """Half the extent, rounded up; to a multiple of 16 where that is fine enough."""
    half = -(-extent // 2)
    return half if half < 64 else -(-half // 16) * 16


def _cut_cost(
    graph: EinGraph,
    classes: LabelClasses,
    tiles: Sequence[int],
    cut: int,
    machine: Machine,
    layouts: Mapping[int, Sequence[int]],
) -> float:
    """Bytes that halving class ``cut`` adds to what kernels touch, and the price of shorter runs in files."""
    counts = [-(-b // t) for b, t in zip(classes.bounds, tiles, strict=True)]
    total = 0.0
    stored = {node for _, node in graph.outputs}
    for i, node in enumerate(graph.nodes):
        own = classes.of[i]
        if isinstance(node, InputNode) or i in stored:
            axes = layouts.get(i, range(len(node.shape)))
            total += _run_cost(
                [node.shape[a] for a in axes], node.dtype.itemsize, [own[a] for a in axes], tiles, cut, machine
            )
        if not isinstance(node, EinsumNode) or cut not in own:
            continue
        e = node.einsum
        for s, access in enumerate(e.accesses):
            lacking = {own[p] for p in range(len(own))} - {own[p] for p in access}
            if cut in lacking:
                total += operand_nbytes(e, s, e.bounds) * math.prod(counts[c] for c in lacking)
        aggregated = {own[p] for p in e.aggregated}
        if cut in aggregated:
            total += state_nbytes(e, e.bounds) * math.prod(counts[c] for c in aggregated)
    return total


def _run_cost(
    shape: Sequence[int], itemsize: int, axes: Sequence[int], tiles: Sequence[int], cut: int, machine: Machine
) -> float:
    """Bytes that could have been read in the time that halving ``cut`` adds in shorter contiguous runs."""
    if not axes or math.prod(shape) == 0:
        return 0.0
    nbytes = math.prod(shape) * itemsize

    def runs(trial: Sequence[int]) -> float:
        run = itemsize
        for c, bound in zip(reversed(axes), reversed(shape), strict=True):
            run *= min(trial[c], bound)
            if trial[c] < bound:
                break
        return nbytes / run

    after = list(tiles)
    after[cut] = halved(tiles[cut])
    return (runs(after) - runs(tiles)) * machine.run_latency * machine.read_bandwidth
