"""Lowers an EinGraph to a Decomposition: one tile size per class of labels, I/O blocks for the memory."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.eingraph.types import EinGraph
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.io_blocking import choose_block
from einturnip.tiling.label_classes import LabelClasses, label_bounds
from einturnip.tiling.types import Decomposition, IoBlock, Partitioning


def decompose(graph: EinGraph, classes: LabelClasses, tiles: Sequence[int], capacity: int) -> Decomposition:
    """Tile every class by ``tiles`` and choose blocks for ``capacity`` bytes."""
    return lay_out(equivalence_classes(graph, classes), tiles, capacity)


def lay_out(graph: EquivalenceClasses, tiles: Sequence[int], capacity: int) -> Decomposition:
    """Like ``decompose``, for a graph whose einsums are already grouped."""
    blocks: list[IoBlock] = []
    parts: list[Partitioning] = []
    for group in graph.groups:
        parts.append(Partitioning(group.einsum.bounds, graph.tiles(group, tiles)))
        blocks.append(choose_block(group, parts[-1], capacity)[0])
    others: dict[object, Partitioning] = {}
    all_parts: list[Partitioning] = []
    for i, (node, number) in enumerate(zip(graph.graph.nodes, graph.of, strict=True)):
        if number >= 0:
            all_parts.append(parts[number])
            continue
        bounds, own = label_bounds(node), graph.classes.tiles(i, label_bounds(node), tiles)
        all_parts.append(others.setdefault((bounds, own), Partitioning(bounds, own)))
    return Decomposition(
        graph.graph,
        tuple(all_parts),
        tuple(blocks[number] if number >= 0 else None for number in graph.of),
        graph.classes.notes + _outgrown(graph, tiles),
    )


def _outgrown(graph: EquivalenceClasses, tiles: Sequence[int]) -> tuple[str, ...]:
    """Return a note for each tile fixed by the program that does not fit the memory."""
    small = [c for c in sorted(graph.classes.fixed) if tiles[c] < graph.classes.coarsest[c]]
    return tuple(
        f"@tile of {graph.classes.coarsest[c]} was reduced to {tiles[c]}, which fits the memory" for c in small
    )
