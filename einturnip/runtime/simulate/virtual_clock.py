"""The state machine on a virtual clock: what a plan would take on a machine, without running it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.scheduler.lanes import lanes, lanes_of_kinds
from einturnip.runtime.scheduler.policies import Policy, Ranks
from einturnip.runtime.scheduler.state_machine import SchedulerState

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class VirtualTimeline:
    """When each op began and ended on the virtual clock, and the order in which they ended. Units: seconds."""

    makespan: float
    begin: Sequence[float]
    end: Sequence[float]
    order: Sequence[int]


@dataclass(frozen=True, slots=True)
class SharedCores:
    """Processors that ops share; ``asked``: the part of one that each op keeps busy, from 0 to 1."""

    number: int
    asked: Sequence[float]


def run(
    graph: MemGraph,
    ranks: Ranks,
    slots: Mapping[Lane, int] | Mapping[int, int],
    seconds: Sequence[float],
    lanes: Sequence[int] | None = None,
    in_order: bool = False,
    cores: SharedCores | None = None,
) -> VirtualTimeline:
    """Run every op; ``seconds`` is what each takes.

    ``cores``: what they share; while they ask for more cores than there are, all are slower alike.
    """
    state = SchedulerState(graph, ranks, slots, lanes, in_order)
    begin, end = array("d", bytes(8 * len(graph))), array("d", bytes(8 * len(graph)))
    running: list[tuple[float, int]] = []  # by how much the others have done by the time that they end
    order = array("i")
    clock = done = asked = 0.0
    launches = state.start()
    while True:
        for op in launches:
            begin[op] = clock
            heappush(running, (done + seconds[op], op))
            if cores is not None:
                asked += cores.asked[op]
        if not running:
            return VirtualTimeline(clock, begin, end, order)
        until, op = heappop(running)
        if cores is None:
            clock = until
        else:
            clock += (until - done) * max(1.0, asked / cores.number)
            asked -= cores.asked[op]
        done = until
        end[op] = clock
        order.append(op)
        launches = state.ended(op)


def simulate(
    graph: MemGraph,
    policy: Policy,
    slots: dict[Lane, int],
    seconds: Callable[[int], float] | None = None,
    cores: SharedCores | None = None,
    by_workers: Flags | None = None,
) -> tuple[float, Sequence[int]]:
    """Makespan in seconds and the order in which ops end.

    ``seconds`` gives an op's duration (default: the plan's own estimate). A lane's bandwidth is shared by its slots;
    several devices share those that compute evenly. ``by_workers``: the transfers that threads which compute run.
    """
    planned = graph.seconds if seconds is None else np.array([seconds(op) for op in range(len(graph))])
    shares = [1 if kind.lane == Lane.COMPUTE else slots[kind.lane] for kind in OpKind]
    each = slots | {Lane.COMPUTE: max(1, slots[Lane.COMPUTE] // graph.devices)}
    of, free = lanes(graph, each)
    if by_workers is not None and of is None:
        of = np.where(by_workers, Lane.COMPUTE, lanes_of_kinds(graph)).astype(np.uint8).tobytes()
    taken = array("d", (planned * np.array(shares)[graph.kind]).tobytes())
    ran = run(graph, policy(graph), free, taken, of, cores=cores)
    return ran.makespan, ran.order
