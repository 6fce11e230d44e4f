"""A recorded schedule is repeated event by event; one that does not belong to the plan is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.errors import BindError
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.host.event_loop import OpEnded, drive
from einturnip.runtime.scheduler.policies import POLICIES
from einturnip.runtime.scheduler.replay import ReplayState, check_events, digest
from einturnip.runtime.scheduler.state_machine import SchedulerState
from tests.memgraph.cases import PROGRAMS
from tests.memgraph.test_build import tight

SLOTS = {Lane.COMPUTE: 3, Lane.IN: 2, Lane.OUT: 1}
names = st.sampled_from(sorted(PROGRAMS))
seeds = st.integers(0, 2**32)


class Drawn:
    """An engine in which any op under way may end next."""

    def __init__(self, seed: int) -> None:
        self.random, self.under_way = random.Random(seed), list[int]()

    def start(self, op: int) -> None:
        self.under_way.append(op)

    def wait(self, timeout: float) -> OpEnded:
        return OpEnded(self.under_way.pop(self.random.randrange(len(self.under_way))), 0, 0.0, 0.0, None)

    def now(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


def events(state: SchedulerState, seed: int) -> list[int]:
    return list(drive(state, Drawn(seed), str, 3).events)


def recorded(graph: MemGraph, seed: int) -> list[int]:
    return events(SchedulerState(graph, POLICIES["random"](graph), SLOTS), seed)


@given(names, seeds, seeds)
def test_whatever_ends_first_the_schedule_is_the_recorded_one(name: str, seed: int, other: int) -> None:
    graph = tight(name)
    first = recorded(graph, seed)
    assert events(ReplayState(graph, SLOTS, first), other) == first


@given(names, seeds, st.data())
def test_a_launch_before_what_it_waits_for_is_refused(name: str, seed: int, data: st.DataObject) -> None:
    graph = tight(name)
    first = recorded(graph, seed)
    op = data.draw(st.sampled_from([x for x in range(len(graph)) if graph[x].after]))
    launch, end = first.index(op), first.index(~graph[op].after[0])
    first.insert(end, first.pop(launch))
    with pytest.raises(BindError, match="is launched before op"):
        check_events(graph, np.array(first))


@given(names, seeds, st.data())
def test_what_is_missing_or_twice_is_refused(name: str, seed: int, data: st.DataObject) -> None:
    graph = tight(name)
    first = recorded(graph, seed)
    place = data.draw(st.integers(0, len(first) - 1))
    wrong: Any = first[:place] + first[place + 1 :]
    with pytest.raises(BindError, match="damaged"):
        check_events(graph, np.array(wrong))
    other = data.draw(st.sampled_from([e for e in first if e != first[place]]))
    with pytest.raises(BindError, match="damaged"):
        check_events(graph, np.array([*first[:place], other, *first[place + 1 :]]))


@given(names)
def test_two_touches_of_one_unit_at_once_are_refused(name: str) -> None:
    graph = tight(name)
    first = recorded(graph, 0)
    units = [e for e in first if e >= 0 and graph.unit[e] >= 0]
    pairs = [(a, b) for a in units for b in units if graph.unit[a] == graph.unit[b] and first.index(a) < first.index(b)]
    free = [(a, b) for a, b in pairs if all(p not in graph[b].after for p in [a])]
    for a, b in free[:3]:
        moved = list(first)
        moved.insert(moved.index(~a), moved.pop(moved.index(b)))
        with pytest.raises(BindError, match="damaged"):
            check_events(graph, np.array(moved))


def test_a_plan_is_known_by_its_ops_and_places() -> None:
    graph = tight("chain")
    assert digest(graph) == digest(tight("chain")) != digest(tight("product"))
    read = graph.read.copy()
    read[0, 1] += 64
    assert digest(replace(graph, read=read)) != digest(graph)
