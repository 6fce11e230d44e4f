"""The state machine on a virtual clock: what a plan would take on a machine, without running it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.policies import Policy
from einturnip.runtime.state import State


def simulate(
    graph: MemGraph,
    policy: Policy,
    slots: dict[Lane, int],
    seconds: Callable[[int], float] | None = None,
) -> tuple[float, list[int]]:
    """Makespan in seconds and the order in which ops end.

    ``seconds`` gives an op's duration (default: the plan's own estimate). A lane's bandwidth is shared by its slots.
    """
    state = State(graph, policy(graph), slots)
    planned = graph.seconds.tolist()
    running: list[tuple[float, int]] = []
    order: list[int] = []
    clock = 0.0
    launches = state.start()
    while True:
        for op in launches:
            share = 1 if state.lane[op] == Lane.COMPUTE else slots[Lane(state.lane[op])]
            heappush(running, (clock + (planned[op] if seconds is None else seconds(op)) * share, op))
        if not running:
            return clock, order
        clock, op = heappop(running)
        order.append(op)
        launches = state.ended(op)
