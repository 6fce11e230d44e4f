"""EinGraph -> Decomposition: every class of labels cut into tiles of one size, blocks chosen for the memory at hand."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.eingraph.types import EinGraph
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.io_blocking import choose_block
from einturnip.tiling.label_classes import LabelClasses, label_bounds, label_classes
from einturnip.tiling.types import Decomposition, IoBlock, Partitioning

__all__ = ["LabelClasses", "decompose", "label_classes", "lay_out"]


def decompose(graph: EinGraph, classes: LabelClasses, tiles: Sequence[int], capacity: int) -> Decomposition:
    """The graph with every class cut into ``tiles``, and blocks chosen for ``capacity`` bytes."""
    return lay_out(equivalence_classes(graph, classes), tiles, capacity)


def lay_out(graph: EquivalenceClasses, tiles: Sequence[int], capacity: int) -> Decomposition:
    """As ``decompose``, of a graph whose einsums are grouped already."""
    blocks: list[IoBlock] = []
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


def _outgrown(graph: EquivalenceClasses, tiles: Sequence[int]) -> tuple[str, ...]:
    """A note for each tile that the program fixes and that the memory does not allow."""
    small = [c for c in sorted(graph.classes.fixed) if tiles[c] < graph.classes.coarsest[c]]
    return tuple(f"@tile of {graph.classes.coarsest[c]} was cut to {tiles[c]}: it does not fit" for c in small)
