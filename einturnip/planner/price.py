"""What a plan will take."""

from __future__ import annotations

from einturnip.core.machine import Machine
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.planner.bound import link_bound
from einturnip.runtime.policies import Policy
from einturnip.runtime.simulate import simulate
from einturnip.runtime.types import Prediction

READERS, WRITERS = 2, 1


def slots(workers: int) -> dict[Lane, int]:
    """How many ops each lane runs at once."""
    return {Lane.COMPUTE: workers, Lane.IN: READERS, Lane.OUT: WRITERS}


def predict(graph: MemGraph, machine: Machine, policy: Policy) -> Prediction:
    """Run the plan on a virtual clock."""
    seconds, _ = simulate(graph, policy, slots(machine.workers))
    return Prediction(
        seconds=seconds,
        flops=float(graph.taskgraph.flops.sum()),
        peak_nbytes={machine.compute: graph.peak_nbytes},
        link_bytes=graph.nbytes_by_link(),
        link_bytes_lower_bound=link_bound(graph.taskgraph.decomposition.graph, graph.capacity),
    )
