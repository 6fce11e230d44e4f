"""The cut of a reproducible run: of the program and its sizes alone, so that every budget sums the same tiles."""

from __future__ import annotations

import math

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import MIB
from einturnip.planner.candidates import MAX_CALLS
from einturnip.tiling.build import label_classes
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.search import Tiling, successive_tilings

# What a tile's kernel may hold: of all tensors together the share, between the bounds. The most is little beside what
# any run needs (the least memory in which a program starts leaves some 100 MiB for tiles); products run near their
# full rate from there on.
SHARE = 16
MIN_TILE_NBYTES, MAX_TILE_NBYTES = 4 * MIB, 8 * MIB


def canonical_tiling(graph: EquivalenceClasses) -> Tiling:
    """The coarsest of ever finer cuts of which a kernel holds little enough.

    It is that of a described machine and of files in row-major order, whatever this machine and these files are.
    """
    available = min(max(_nbytes(graph.graph) // SHARE, MIN_TILE_NBYTES), MAX_TILE_NBYTES)
    tiling = None
    for tiling in successive_tilings(graph, Machine(), {}, MAX_CALLS):
        if tiling.working_set <= available:
            return tiling
    assert tiling is not None
    return tiling


def canonical_graph(fused: EinGraph, unfused: EinGraph) -> EinGraph:
    """The graph with regions, unless only that without can be cut as fine as it should be."""
    if fused is unfused:
        return fused
    sets = [canonical_tiling(equivalence_classes(g, label_classes(g))).working_set for g in (fused, unfused)]
    return fused if sets[0] <= max(MAX_TILE_NBYTES, sets[1]) else unfused


def _nbytes(graph: EinGraph) -> int:
    return sum(math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes)
