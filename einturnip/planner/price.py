"""What a plan will take."""

from __future__ import annotations

from collections import Counter

from einturnip.core.machine import Machine
from einturnip.decomp.kernel_time import kernel_seconds
from einturnip.eingraph.types import EinGraph, EinsumNode
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


def least_seconds(graph: EinGraph, machine: Machine) -> float:
    """What the kernels of a graph take by formula, shared evenly among the workers, if nothing ever waits."""
    einsums = [node.einsum for node in graph.nodes if isinstance(node, EinsumNode)]
    counted = Counter(map(id, einsums))
    each = {id(e): kernel_seconds(e, e.bounds, machine) - machine.op_latency for e in einsums}
    return sum(n * each[e] for e, n in counted.items()) / machine.workers
