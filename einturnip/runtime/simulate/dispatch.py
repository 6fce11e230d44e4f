"""Dispatch orders for simulated runs: the free order, and the baselines with which studies compare it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from einturnip.memgraph.columns import with_dependencies
from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.scheduler.policies import Ranks, critical_path, fixed_order
from einturnip.runtime.scheduler.state_machine import successors
from einturnip.runtime.simulate.virtual_clock import run

Slots: TypeAlias = Mapping[int, int]


@dataclass(frozen=True)
class DispatchPlan:
    """A graph to run with the rank of each op.

    ``in_order``: each lane starts its ops strictly by rank; an op that is not ready blocks the ones behind it.
    """

    graph: MemGraph
    ranks: Ranks
    in_order: bool


Dispatcher: TypeAlias = Callable[[MemGraph, Sequence[int], Slots, int], DispatchPlan]


def free_order(graph: MemGraph, lanes: Sequence[int], slots: Slots, seed: int) -> DispatchPlan:
    """Start any op that is ready; among several, the one with the longest path to the end of the run.

    On several devices it is the one with the earliest latest start. Source: TURNIP (arXiv 2405.16283); the priority of
    one device is Kohler's (1975).
    """
    return DispatchPlan(graph, critical_path(graph), False)


def fixed(graph: MemGraph, lanes: Sequence[int], slots: Slots, seed: int) -> DispatchPlan:
    """Run the ops of each lane in the serial order.

    As in a CUDA stream, an op that waits blocks the ones behind it.
    """
    return DispatchPlan(graph, fixed_order(graph), True)


def double_buffered(graph: MemGraph, lanes: Sequence[int], slots: Slots, seed: int) -> DispatchPlan:
    """Like ``fixed``, but delay each load until one round of kernels before the kernel that reads it.

    A load that the serial order places earlier than that waits for the kernel before its place in that order. The
    delays are dependencies that are added to the graph.
    """
    is_kernel = np.isin(graph.kind, (OpKind.KERNEL, OpKind.MOVE, OpKind.AGGREGATE)) & ~graph.between_devices()
    device = graph.op_devices()
    kernels = [np.flatnonzero(is_kernel & (device == k)) for k in range(graph.devices)]
    ptr, successor = successors(graph)
    place = {x: n for mine in kernels for n, x in enumerate(mine.tolist())}
    added: list[tuple[int, int]] = []
    for x in np.flatnonzero((graph.kind == OpKind.LOAD) | (graph.kind == OpKind.RELOAD)).tolist():
        mine = kernels[device[x]]
        served = min((place[s] for s in successor[ptr[x] : ptr[x + 1]] if s in place), default=-1)
        latest = int(np.searchsorted(mine, x)) - 1
        wait = min(served - 1 - slots[Lane.COMPUTE], latest)
        if wait >= 0:
            added.append((x, int(mine[wait])))
    return DispatchPlan(with_dependencies(graph, added), fixed_order(graph), True)


def list_scheduled(graph: MemGraph, lanes: Sequence[int], slots: Slots, seed: int) -> DispatchPlan:
    """Compute the order of free dispatch for the predicted times, then keep to that order.

    Source: Graham's list scheduling with critical-path priorities.
    """
    begins = run(graph, critical_path(graph), slots, graph.seconds.tolist(), lanes).begin
    place = np.argsort(np.array(begins), kind="stable")
    ranks = np.empty(len(graph))
    ranks[place] = np.arange(len(graph))
    return DispatchPlan(graph, ranks.tolist(), True)


def random(graph: MemGraph, lanes: Sequence[int], slots: Slots, seed: int) -> DispatchPlan:
    """Start any op that is ready; among several, a random one."""
    return DispatchPlan(graph, np.random.default_rng(seed).random(len(graph)).tolist(), False)


DISPATCHERS: dict[str, Dispatcher] = {
    "free": free_order,
    "fixed": fixed,
    "double-buffering": double_buffered,
    "list": list_scheduled,
    "random": random,
}
