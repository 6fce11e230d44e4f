"""Proves a plan: runs the check of every IR that the plan was lowered through."""

from __future__ import annotations

from einturnip.eingraph.check import check as check_graph
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.check import check as check_memgraph
from einturnip.memgraph.types import MemGraph
from einturnip.taskgraph.check import check as check_taskgraph
from einturnip.tiling.check import check as check_decomposition


def check(graph: EinGraph, memgraph: MemGraph) -> None:
    """Prove a graph and its plan.

    Raises:
        InternalError: an IR violates one of its invariants.
    """
    check_graph(graph)
    check_decomposition(memgraph.taskgraph.decomposition)
    check_taskgraph(memgraph.taskgraph)
    check_memgraph(memgraph)
