"""The state machine on a virtual clock: what a plan would take on a machine, without running it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.lanes import lanes
from einturnip.runtime.policies import Policy, Ranks
from einturnip.runtime.state import State


@dataclass(frozen=True, slots=True)
class Ran:
    """When each op began and ended on the virtual clock, and the order in which they ended. Units: seconds."""

    makespan: float
    begin: Sequence[float]
    end: Sequence[float]
    order: Sequence[int]


def run(
    graph: MemGraph,
    ranks: Ranks,
    slots: Mapping[Lane, int] | Mapping[int, int],
    seconds: Sequence[float],
    lanes: Sequence[int] | None = None,
    in_order: bool = False,
) -> Ran:
    """Run every op; ``seconds`` is what each takes."""
    state = State(graph, ranks, slots, lanes, in_order)
    begin, end = array("d", bytes(8 * len(graph))), array("d", bytes(8 * len(graph)))
    running: list[tuple[float, int]] = []
    order = array("i")
    clock = 0.0
    launches = state.start()
    while True:
        for op in launches:
            begin[op] = clock
            heappush(running, (clock + seconds[op], op))
        if not running:
            return Ran(clock, begin, end, order)
        clock, op = heappop(running)
        end[op] = clock
        order.append(op)
        launches = state.ended(op)


def simulate(
    graph: MemGraph,
    policy: Policy,
    slots: dict[Lane, int],
    seconds: Callable[[int], float] | None = None,
) -> tuple[float, Sequence[int]]:
    """Makespan in seconds and the order in which ops end.

    ``seconds`` gives an op's duration (default: the plan's own estimate). A lane's bandwidth is shared by its slots;
    several devices share those that compute evenly.
    """
    planned = graph.seconds if seconds is None else np.array([seconds(op) for op in range(len(graph))])
    shares = [1 if kind.lane == Lane.COMPUTE else slots[kind.lane] for kind in OpKind]
    each = slots | {Lane.COMPUTE: max(1, slots[Lane.COMPUTE] // graph.devices)}
    of, free = lanes(graph, each)
    ran = run(graph, policy(graph), free, array("d", (planned * np.array(shares)[graph.kind]).tobytes()), of)
    return ran.makespan, ran.order
