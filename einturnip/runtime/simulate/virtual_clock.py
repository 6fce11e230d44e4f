"""Runs the scheduler's state machine on a virtual clock, to predict the time of a plan."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.scheduler.policies import Policy, Ranks
from einturnip.runtime.scheduler.state_machine import SchedulerState, lanes, lanes_of_kinds

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class VirtualTimeline:
    """When each op began and ended on the virtual clock, and the order in which ops ended. Units: seconds."""

    makespan: float
    begin: Sequence[float]
    end: Sequence[float]
    order: Sequence[int]


@dataclass(frozen=True, slots=True)
class SharedCores:
    """Cores that ops share. ``demand``: the fraction of one core that each op uses, from 0 to 1."""

    number: int
    demand: Sequence[float]


def run(
    graph: MemGraph,
    ranks: Ranks,
    slots: Mapping[Lane, int] | Mapping[int, int],
    seconds: Sequence[float],
    lanes: Sequence[int] | None = None,
    in_order: bool = False,
    cores: SharedCores | None = None,
) -> VirtualTimeline:
    """Run every op on the virtual clock. ``seconds``: the duration of each op on an idle machine.

    ``cores``: while running ops demand more cores than there are, all of them slow down by the same factor. Then
    ``done`` counts progress in seconds of an unshared core (processor sharing, as in a fluid model).
    """
    state = SchedulerState(graph, ranks, slots, lanes, in_order)
    begin, end = array("d", bytes(8 * len(graph))), array("d", bytes(8 * len(graph)))
    running: list[tuple[float, int]] = []  # heap of (value of ``done`` at which the op ends, op)
    order = array("i")
    clock = done = demand = 0.0
    launches = state.start()
    while True:
        for op in launches:
            begin[op] = clock
            heappush(running, (done + seconds[op], op))
            if cores is not None:
                demand += cores.demand[op]
        if not running:
            return VirtualTimeline(clock, begin, end, order)
        until, op = heappop(running)
        if cores is None:
            clock = until
        else:
            clock += (until - done) * max(1.0, demand / cores.number)
            demand -= cores.demand[op]
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
    linked: bool = False,
) -> tuple[float, Sequence[int]]:
    """Return the makespan in seconds and the order in which ops end.

    ``seconds``: gives an op's duration (default: the plan's own estimate). The slots of a transfer lane share its
    bandwidth; several devices divide the compute slots evenly. ``by_workers``: transfers that compute workers run.
    ``linked``: moves between devices take a link of their receiver, one after the other, and no compute slot.
    """
    planned = graph.seconds if seconds is None else np.array([seconds(op) for op in range(len(graph))])
    shares = [1 if kind.lane == Lane.COMPUTE else slots[kind.lane] for kind in OpKind]
    each = slots | {Lane.COMPUTE: max(1, slots[Lane.COMPUTE] // graph.devices)}
    of, free = lanes(graph, each)
    if by_workers is not None and of is None:
        of = np.where(by_workers, Lane.COMPUTE, lanes_of_kinds(graph.kind)).astype(np.uint8).tobytes()
    if linked and of is not None:
        between, n = graph.between_devices(), max(free) + 1
        of = np.where(between, n + graph.op_devices().astype(np.int64), of).tolist()
        free = dict(free) | dict.fromkeys(range(n, n + graph.devices), 1)
    taken = array("d", (planned * np.array(shares)[graph.kind]).tobytes())
    ran = run(graph, policy(graph), free, taken, of, cores=cores)
    return ran.makespan, ran.order
