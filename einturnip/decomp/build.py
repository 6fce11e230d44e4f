"""EinGraph -> Decomposition: every class of labels cut into tiles of one size, blocks chosen for the memory at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.core.machine import Machine
from einturnip.decomp.alike import Grouped, grouped
from einturnip.decomp.blocks import choose_block
from einturnip.decomp.classes import LabelClasses, label_bounds, label_classes
from einturnip.decomp.kernel_time import kernel_seconds
from einturnip.decomp.search import Cut
from einturnip.decomp.types import Block, Decomposition, Partitioning
from einturnip.eingraph.types import EinGraph

# A cut that takes this many times what the best could take is not worth a search for a better one.
NEARLY = 1.25

__all__ = ["LabelClasses", "decompose", "label_classes", "lay_out", "price", "whole_is_best"]


def decompose(graph: EinGraph, classes: LabelClasses, tiles: Sequence[int], capacity: int) -> Decomposition:
    """The graph with every class cut into ``tiles``, and blocks chosen for ``capacity`` bytes."""
    return lay_out(grouped(graph, classes), tiles, capacity)


def lay_out(graph: Grouped, tiles: Sequence[int], capacity: int) -> Decomposition:
    """As ``decompose``, of a graph whose einsums are grouped already."""
    blocks: list[Block] = []
    parts: list[Partitioning] = []
    for group in graph.groups:
        parts.append(Partitioning(group.einsum.bounds, graph.tiles(group, tiles)))
        blocks.append(choose_block(group, parts[-1], capacity)[0])
    others: dict[object, Partitioning] = {}
    cut: list[Partitioning] = []
    for i, (node, number) in enumerate(zip(graph.graph.nodes, graph.of, strict=True)):
        if number >= 0:
            cut.append(parts[number])
            continue
        bounds, own = label_bounds(node), graph.classes.tiles(i, label_bounds(node), tiles)
        cut.append(others.setdefault((bounds, own), Partitioning(bounds, own)))
    return Decomposition(
        graph.graph,
        tuple(cut),
        tuple(blocks[number] if number >= 0 else None for number in graph.of),
        graph.classes.notes + _outgrown(graph, tiles),
    )


def _outgrown(graph: Grouped, tiles: Sequence[int]) -> tuple[str, ...]:
    """A note for each tile that the program fixes and that the memory does not allow."""
    small = [c for c in sorted(graph.classes.fixed) if tiles[c] < graph.classes.coarsest[c]]
    return tuple(f"@tile of {graph.classes.coarsest[c]} was cut to {tiles[c]}: it does not fit" for c in small)


def price(graph: Grouped, cut: Cut, capacity: int, machine: Machine, blocked: bool = True) -> float:
    """Seconds that the cut would take by formula: kernels over the workers, and, ``blocked``, bytes read from files."""
    total = 0.0
    for group in graph.groups:
        e = group.einsum
        part = Partitioning(e.bounds, graph.tiles(group, cut.tiles))
        calls = math.prod(part.counts)
        # Kernels of one output tile share an accumulator and take turns.
        apart = math.prod(part.counts[: e.n_out])
        seconds = calls * kernel_seconds(e, part.tiles, machine) / max(1, min(machine.workers, apart))
        if blocked and group.from_files:
            seconds += choose_block(group, part, capacity)[1] / machine.read_bandwidth
        total += seconds * len(group.nodes)
    return total


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
