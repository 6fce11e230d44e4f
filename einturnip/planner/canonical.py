"""The cut of a reproducible run: of the program and its sizes alone, so that every budget sums the same tiles."""

from __future__ import annotations

import math

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import MIB
from einturnip.planner.candidates import MOST_CALLS
from einturnip.tiling.build import label_classes
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.search import Tiling, successive_tilings

# What a tile's kernel may hold: of all tensors together the share, between the bounds. The most is little beside what
# any run needs (the least memory in which a program starts leaves some 100 MiB for tiles); products run near their
# full rate from there on.
SHARE = 16
LEAST, MOST = 4 * MIB, 8 * MIB


def canonical_cut(graph: EquivalenceClasses) -> Tiling:
    """The coarsest of ever finer cuts of which a kernel holds little enough.

    It is that of a described machine and of files in row-major order, whatever this machine and these files are.
    """
    room = min(max(_nbytes(graph.graph) // SHARE, LEAST), MOST)
    cut = None
    for cut in successive_tilings(graph, Machine(), {}, MOST_CALLS):
        if cut.working_set <= room:
            return cut
    assert cut is not None
    return cut


def canonical_graph(fused: EinGraph, apart: EinGraph) -> EinGraph:
    """The graph with regions, unless only that without can be cut as fine as it should be."""
    if fused is apart:
        return fused
    sets = [canonical_cut(equivalence_classes(g, label_classes(g))).working_set for g in (fused, apart)]
    return fused if sets[0] <= max(MOST, sets[1]) else apart


def _nbytes(graph: EinGraph) -> int:
    return sum(math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes)
