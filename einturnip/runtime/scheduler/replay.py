"""Replays a recorded schedule: a state machine that launches ops in the order of an earlier run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import BindError
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.scheduler.policies import fixed_order
from einturnip.runtime.scheduler.state_machine import SchedulerState

DAMAGED = "the recording is damaged: {}"


def digest(graph: MemGraph) -> str:
    """Return a hash of a plan's ops and addresses.

    Plans with equal hashes can replay each other's recordings.
    """
    found = hashlib.sha256()
    tasks = graph.taskgraph
    columns = (graph.kind, graph.task, graph.unit, graph.read, graph.write, graph.after_ptr, graph.after)
    for column in (*columns, tasks.kind, tasks.node, tasks.value, tasks.key, tasks.read, tasks.box):
        found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()


class ReplayState(SchedulerState):
    """Launches ops in the order of a recording.

    An op that ends earlier than in the recording is remembered until the recording reaches its end.

    ``events``: ``op`` for a launch, ``~op`` for an end, in the order in which the recorded dispatcher saw them.

    Raises:
        BindError: the events are not a schedule of the graph.
    """

    def __init__(self, graph: MemGraph, slots: Mapping[Lane, int] | Mapping[int, int], events: Sequence[int]) -> None:
        super().__init__(graph, fixed_order(graph), slots)
        check_events(graph, np.asarray(events, np.int64))
        self.recorded = events
        self.position = 0
        self.early: set[int] = set()

    def start(self) -> list[int]:
        """Return the ops to launch first."""
        return self._follow()

    def ended(self, op: int) -> list[int]:
        """Record that ``op`` has ended; return the ops that the recording launches before the next end."""
        self.early.add(op)
        return self._follow()

    def _follow(self) -> list[int]:
        launches = []
        while self.position < len(self.recorded):
            event = self.recorded[self.position]
            op = event if event >= 0 else ~event
            lane = self.lane[op]
            if event >= 0:
                launches.append(op)
            elif op not in self.early:
                break
            else:
                self.early.remove(op)
                self.remaining -= 1
            self.running[lane] += 1 if event >= 0 else -1
            self.events.append(event)
            self.position += 1
        return launches


def check_events(graph: MemGraph, events: NDArray[np.int64]) -> None:
    """Check that events launch and end each op once, after its dependencies have ended.

    Raises:
        BindError: the events break one of these rules, or run two ops of one unit at the same time.
    """
    n = len(graph)
    ops = np.where(events >= 0, events, ~events)
    if len(events) != 2 * n or len(ops) and ops.max() >= n:
        raise BindError(DAMAGED.format(f"{len(events):,} launches and ends, of {n:,} ops"))
    launched, ended = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    places = np.arange(len(events))
    launched[ops[events >= 0]] = places[events >= 0]
    ended[ops[events < 0]] = places[events < 0]
    if n and (launched.min() < 0 or ended.min() < 0 or (ended < launched).any()):
        raise BindError(DAMAGED.format("an op is not launched once and then ended"))
    waiting = np.repeat(np.arange(n), np.diff(graph.after_ptr))
    early = np.flatnonzero(launched[waiting] < ended[graph.after])
    if len(early):
        op, before = int(waiting[early[0]]), int(graph.after[early[0]])
        raise BindError(DAMAGED.format(f"op {op} is launched before op {before} has ended"))
    _check_units(graph, launched, ended)


def _check_units(graph: MemGraph, launched: NDArray[np.int64], ended: NDArray[np.int64]) -> None:
    """Check that ops of one unit do not overlap in time."""
    mine = np.flatnonzero(graph.unit >= 0)
    mine = mine[np.lexsort((launched[mine], graph.unit[mine]))]
    same = graph.unit[mine[1:]] == graph.unit[mine[:-1]]
    if (same & (launched[mine[1:]] < ended[mine[:-1]])).any():
        raise BindError(DAMAGED.format("two ops update one accumulator at the same time"))
