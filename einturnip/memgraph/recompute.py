"""Recomputes values instead of spilling them where that is cheaper.

A value that goes to the spill file costs a write, and a read for each return. Recomputing it costs its kernel and the
return of its operands: nothing if they are in memory, a read if they are in a file, their own kernels if they were
freed. The choice is made by formula, value by value; the planner then simulates both plans.

Source: Chen et al., "Training deep nets with sublinear memory cost" (2016, arXiv 1604.06174).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import reload_seconds
from einturnip.memgraph.types import DISK, MemGraph, OpKind
from einturnip.taskgraph.rematerialize import Rematerialization, rematerialize
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import MAX_RECOMPUTED_DEPTH

# Only single kernels and copies give the same bits again: ops that accumulate may run in another order.
_REPEATED = (TaskKind.KERNEL, TaskKind.MOVE)


@dataclass
class _Trip:
    """A spilled value: seconds of writing and reading it, and the tasks that it is reloaded for."""

    seconds: float
    before: list[int] = field(default_factory=list)


def recompute_spilled(graph: MemGraph, machine: Machine, worth: float) -> TaskGraph | None:
    """Return the tasks with the spilled values recomputed that are cheaper so, or None.

    None if that saves less than ``worth``: seconds, summed over all lanes.
    """
    if graph.devices > 1 or not (graph.kind == OpKind.OFFLOAD).any():
        return None
    spilled = _spilled(graph)
    if sum(v.seconds for v in spilled.values()) < worth:
        return None
    prices = _Prices(graph, machine, spilled)
    chosen: dict[int, tuple[int, ...]] = {}
    saved = 0.0
    for v, trip in spilled.items():
        recomputing = sum(prices.made(v, task, MAX_RECOMPUTED_DEPTH) for task in trip.before)
        if trip.before and recomputing < trip.seconds:
            chosen[v] = tuple(trip.before)
            saved += trip.seconds - recomputing
    return rematerialize(graph.taskgraph, Rematerialization(chosen, prices.makers)) if saved > worth else None


class _Prices:
    """Prices of having a value in memory again right before a task."""

    def __init__(self, graph: MemGraph, machine: Machine, spilled: Mapping[int, _Trip]) -> None:
        self.t = tasks = graph.taskgraph
        self.machine, self.spilled = machine, spilled
        users = np.repeat(np.arange(len(tasks)), np.diff(tasks.read_ptr))
        self.last = np.full(tasks.n_values, -1, np.int64)
        np.maximum.at(self.last, tasks.read, users)
        self.loads = np.full(tasks.n_values, -1, np.int64)
        loads = np.flatnonzero(tasks.kind == TaskKind.LOAD)
        self.loads[tasks.value[loads]] = loads
        self.makers = _Makers(tasks)

    def made(self, v: int, task: int, deep: int) -> float:
        """Return the seconds that recomputing ``v`` right before ``task`` takes; infinite if it is impossible.

        A value that several moves assemble may be spilled between two of them. Right before ``task`` it is incomplete
        then, and the sources of the other moves may not exist yet.
        """
        makers = self.makers(v) if deep else []
        if not makers or makers[-1] >= task:
            return math.inf
        near = set(self._reads(task))
        seconds = 0.0
        for i in makers:
            seconds += float(self.t.seconds[i]) / self.machine.workers
            seconds += sum(self._at_hand(u, task, deep) for u in self._reads(i) if u not in near)
        return seconds

    def _at_hand(self, u: int, task: int, deep: int) -> float:
        """Return the seconds that it takes to have an operand in memory right before ``task``."""
        if self.loads[u] >= 0:
            first = float(self.t.seconds[self.loads[u]])
            return reload_seconds(int(self.t.value_nbytes[u]), False, first, self.machine)
        if self.last[u] < task:
            return self.made(u, task, deep - 1)
        return reload_seconds(int(self.t.value_nbytes[u]), True, None, self.machine) if u in self.spilled else 0.0

    def _reads(self, i: int) -> list[int]:
        found: list[int] = self.t.read[self.t.read_ptr[i] : self.t.read_ptr[i + 1]].tolist()
        return found


def _spilled(graph: MemGraph) -> dict[int, _Trip]:
    """Return the complete values that are spilled; partial states cannot be recomputed."""
    first = graph.read[np.minimum(graph.read_ptr[:-1], max(0, len(graph.read) - 1))]
    values, tiers = first[:, 3], first[:, 0]
    found: dict[int, _Trip] = {}
    for op in np.flatnonzero(graph.kind == OpKind.OFFLOAD).tolist():
        if values[op] < graph.taskgraph.n_values:
            found[int(values[op])] = _Trip(float(graph.seconds[op]))
    running = np.flatnonzero((graph.task >= 0) & (graph.kind != OpKind.LOAD) & (graph.kind != OpKind.RELOAD))
    back = np.flatnonzero((graph.kind == OpKind.RELOAD) & (tiers == DISK))
    follows = running[np.searchsorted(running, back)]
    for op, task in zip(back.tolist(), graph.task[follows].tolist(), strict=True):
        trip = found.get(int(values[op]))
        if trip is not None:
            trip.seconds += float(graph.seconds[op])
            trip.before.append(task)
    return found


class _Makers:
    """The tasks that make a value; empty if it cannot be recomputed."""

    def __init__(self, tasks: TaskGraph) -> None:
        made = np.flatnonzero(tasks.kind != TaskKind.STORE)
        self._tasks = made[np.argsort(tasks.value[made], kind="stable")]
        self._begin = np.searchsorted(tasks.value[self._tasks], np.arange(tasks.n_values + 1))
        self._repeatable = np.isin(tasks.kind, _REPEATED)

    def __call__(self, v: int) -> list[int]:
        makers = self._tasks[self._begin[v] : self._begin[v + 1]]
        return makers.tolist() if self._repeatable[makers].all() else []
