"""The tiling of a reproducible run, which depends on the program and its sizes alone.

Every budget and machine then sums the same tiles in the same order.
"""

from __future__ import annotations

import math

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.search import Tiling, successive_tilings
from einturnip.tuning.search import CANONICAL_MAX_NBYTES, CANONICAL_MIN_NBYTES, CANONICAL_SHARE, MAX_CALLS


def canonical_tiling(graph: EquivalenceClasses) -> Tiling:
    """Return the coarsest tiling of the sequence whose kernels hold at most a fixed share of all tensors.

    It is computed for a default machine and row-major files, whatever the actual machine and files are.
    """
    available = min(max(_nbytes(graph.graph) // CANONICAL_SHARE, CANONICAL_MIN_NBYTES), CANONICAL_MAX_NBYTES)
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
    return fused if sets[0] <= max(CANONICAL_MAX_NBYTES, sets[1]) else unfused


def _nbytes(graph: EinGraph) -> int:
    return sum(math.prod(node.shape) * node.dtype.itemsize for node in graph.nodes)
