"""EinGraph -> Decomposition: tiles small enough that several working sets fit, cut where it costs least.

Labels that must be cut alike (an axis and every label that indexes it) form one class, so that no repartition is ever
needed; the largest working set is halved along the class whose cut moves the fewest bytes, until the target is met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.machine import Machine
from einturnip.decomp.blocks import choose_block
from einturnip.decomp.cost import operand_nbytes, state_nbytes, working_set_nbytes
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode

# A tile need not be larger than this for any kernel to run at full rate; smaller ones leave room to overlap.
LARGEST_WORKING_SET = 48 << 20
# Halving a class counts as effective if it saves this part of what the best halving saves.
EFFECTIVE = 0.6


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


def decompose(
    graph: EinGraph, capacity: int, machine: Machine, sets: int = 12, layouts: Mapping[int, Sequence[int]] | None = None
) -> Decomposition:
    """Cut every node so that ``sets`` of the largest working set fit ``capacity`` bytes.

    ``layouts`` gives, for a stored tensor, its axes from slowest to fastest (default: row-major).
    """
    classes = label_classes(graph)
    target = max(1, min(capacity // sets, LARGEST_WORKING_SET))
    tiles = _cut_classes(graph, classes, target, machine, layouts or {})
    parts = tuple(
        Partitioning(n.shape if isinstance(n, InputNode) else n.einsum.bounds, tuple(tiles[c] for c in classes.of[i]))
        for i, n in enumerate(graph.nodes)
    )
    blocks = tuple(
        choose_block(graph, i, parts[i], capacity) if isinstance(n, EinsumNode) else None
        for i, n in enumerate(graph.nodes)
    )
    return Decomposition(graph, parts, blocks)


def _cut_classes(
    graph: EinGraph, classes: LabelClasses, target: int, machine: Machine, layouts: Mapping[int, Sequence[int]]
) -> list[int]:
    """Tile extent of each class: halve the worst node's cheapest class until every working set meets the target."""
    tiles = [max(b, 1) for b in classes.bounds]
    einsums = {i: n.einsum for i, n in enumerate(graph.nodes) if isinstance(n, EinsumNode)}

    def held(i: int, trial: Sequence[int]) -> int:
        return working_set_nbytes(einsums[i], [trial[c] for c in classes.of[i]])

    members: dict[int, list[int]] = {}
    for i in einsums:
        for c in set(classes.of[i]):
            members.setdefault(c, []).append(i)
    sizes = {i: held(i, tiles) for i in einsums}
    while sizes:
        worst = max(sizes, key=lambda i: sizes[i])
        if sizes[worst] <= target:
            break
        saved: dict[int, int] = {}
        for c in set(classes.of[worst]):
            if tiles[c] > 1:
                trial = list(tiles)
                trial[c] = halved(tiles[c])
                saved[c] = sizes[worst] - held(worst, trial)
        best = max(saved.values(), default=0)
        if not saved:
            sizes[worst] = 0  # a single point; nothing left to cut
            continue
        choices = [c for c, s in saved.items() if s >= EFFECTIVE * best]
        c = min(choices, key=lambda c: (_cut_cost(graph, classes, tiles, c, machine, layouts), -tiles[c], c))
        tiles[c] = halved(tiles[c])
        for i in members[c]:
            if sizes[i]:
                sizes[i] = held(i, tiles)
    return tiles


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
