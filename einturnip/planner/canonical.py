"""The tiling of a reproducible run, which depends on the program and its sizes alone.

Every budget and machine then sums the same tiles in the same order.
"""

from __future__ import annotations

import math

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import MIB
from einturnip.planner.candidates import MAX_CALLS
from einturnip.tiling.build import label_classes
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.search import Tiling, successive_tilings

# A kernel may hold 1 / SHARE of the bytes of all tensors, within these limits. The maximum is small compared with what
# any run needs (the minimum memory of a process leaves about 100 MiB for tiles), and products run at nearly full rate
# with such tiles.
SHARE = 16
MIN_TILE_NBYTES, MAX_TILE_NBYTES = 4 * MIB, 8 * MIB


def canonical_tiling(graph: EquivalenceClasses) -> Tiling:
    """Return the coarsest tiling of the sequence whose kernels hold at most a fixed share of all tensors.

    It is computed for a default machine and row-major files, whatever the actual machine and files are.
    """
    available = min(max(_nbytes(graph.graph) // SHARE, MIN_TILE_NBYTES), MAX_TILE_NBYTES)
    tiling = None
    for tiling in successive_tilings(graph, Machine(), {}, MAX_CALLS):
        if tiling.working_set <= available:
            return tiling
    assert tiling is not None
    return tiling


def canonical_graph(fused: EinGraph, unfused: EinGraph) -> EinGraph:
    """Return the fused graph, unless only the unfused one has a tiling that is fine enough."""
    if fused is unfused:
        return fused
    sets = [canonical_tiling(equivalence_classes(g, label_classes(g))).working_set for g in (fused, unfused)]
    return fused if sets[0] <= max(MAX_TILE_NBYTES, sets[1]) else unfused


def _nbytes(graph: EinGraph) -> int:
    return sum(math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes)
