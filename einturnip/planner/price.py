"""What a plan will take, and what no plan could take less of."""

from __future__ import annotations

import math

from einturnip.core.contraction import contraction
from einturnip.core.machine import Machine
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.memgraph.types import Lane, MemGraph
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


def link_bound(graph: EinGraph, capacity: int) -> dict[str, int]:
    """Bytes that any schedule must move: inputs and outputs once, and for a contraction 2MNK/sqrt(S) elements.

    Source: Smith, Lowery, Langou, van de Geijn (arXiv 1702.02017), after Hong and Kung (1981); S: the arena's elements.
    """
    read = sum(math.prod(n.shape) * n.dtype.itemsize for n in graph.nodes if isinstance(n, InputNode))
    stored = {i for i, n in enumerate(graph.nodes) if isinstance(n, InputNode)}
    for node in graph.nodes:
        c = contraction(node.einsum) if isinstance(node, EinsumNode) else None
        # An operand that is made on the way need never cross the link, so only stored ones are bound by it.
        if c is None or not isinstance(node, EinsumNode) or not all(i in stored for i in node.operands):
            continue
        bounds = node.einsum.bounds
        batch, m, n, k = (math.prod(bounds[p] for p in group) for group in (c.batch, c.m, c.n, c.k))
        itemsize = c.accumulator.itemsize
        read = max(read, int(2 * batch * m * n * k / math.sqrt(max(1, capacity / itemsize)) * itemsize))
    written = sum(math.prod(graph.nodes[i].shape) * graph.nodes[i].dtype.itemsize for _, i in graph.outputs)
    return {"disk->cpu:0": read, "cpu:0->disk": written}
