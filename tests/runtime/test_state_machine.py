"""The state machine launches every op once, after its dependencies, and never two of one unit together."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.errors import Interrupted, RunError
from einturnip.memgraph.types import Lane
from einturnip.runtime.host.event_loop import run_ops
from einturnip.runtime.scheduler.policies import POLICIES
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.simulate.virtual_clock import SharedCores, simulate
from tests.memgraph.cases import PROGRAMS
from tests.memgraph.test_build import tight

names = st.sampled_from(sorted(PROGRAMS))
SLOTS = {Lane.COMPUTE: 2, Lane.IN: 2, Lane.OUT: 1}


@given(names, st.sampled_from(sorted(POLICIES)), st.data())
def test_any_order_of_completion_runs_all(name: str, policy: str, data: st.DataObject) -> None:
    graph = tight(name)
    state = SchedulerState(graph, POLICIES[policy](graph), SLOTS)
    running = state.start()
    ended: set[int] = set()
    while running:
        for op in running:
            assert set(graph[op].after) <= ended
        units = [graph[op].unit for op in running if graph[op].unit >= 0]
        assert len(units) == len(set(units))
        for lane in Lane:
            assert sum(graph[op].kind.lane == lane for op in running) <= SLOTS[lane]
        op = running.pop(data.draw(st.integers(0, len(running) - 1)))
        ended.add(op)
        running += state.ended(op)
    assert state.done and len(ended) == len(graph)


@given(names, st.lists(st.floats(0.1, 10), min_size=1, max_size=50))
def test_the_simulated_order_is_a_linear_extension(name: str, delays: list[float]) -> None:
    graph = tight(name)
    seconds, order = simulate(graph, POLICIES["critical-path"], SLOTS, lambda op: delays[op % len(delays)])
    place = {op: n for n, op in enumerate(order)}
    assert all(place[p] < place[op.id] for op in graph for p in op.after)
    assert seconds >= max(delays[op % len(delays)] for op in range(len(graph)))


@given(names, st.lists(st.floats(0.1, 10), min_size=1, max_size=50), st.integers(1, 8), st.floats(0, 1))
def test_ops_share_the_cores(name: str, delays: list[float], number: int, asked: float) -> None:
    graph = tight(name)
    rank, seconds = POLICIES["critical-path"], [delays[op % len(delays)] for op in range(len(graph))]
    alone, _ = simulate(graph, rank, SLOTS, seconds.__getitem__)
    shared, order = simulate(graph, rank, SLOTS, seconds.__getitem__, SharedCores(number, [asked] * len(graph)))
    busy = sum(asked * x for x in seconds) / number
    assert sorted(order) == list(range(len(graph)))
    assert shared >= busy * (1 - 1e-9)
    if sum(SLOTS.values()) * asked <= number:  # nobody waits for a core
        assert shared == pytest.approx(alone)


@given(names)
def test_transfers_by_workers_leave_their_lanes_to_others(name: str) -> None:
    graph = tight(name)
    every = np.ones(len(graph), bool)
    one = {Lane.COMPUTE: 1, Lane.IN: 1, Lane.OUT: 1}
    seconds, _ = simulate(graph, POLICIES["fixed"], one, lambda op: 1.0, by_workers=every)
    assert seconds == len(graph)  # one thread runs all


def run(execute: object, stop: threading.Event | None = None) -> object:
    graph = tight("chain")
    state = SchedulerState(graph, POLICIES["fixed"](graph), SLOTS)
    return run_ops(graph, state, execute, lambda op: f"op {op}", SLOTS, None, stop)  # type: ignore[arg-type]


def test_an_error_in_an_op_stops_the_run_and_names_it() -> None:
    started: list[int] = []
    before = set(threading.enumerate())

    def execute(op: int) -> None:
        started.append(op)
        if op == 5:
            raise ValueError("no such thing")

    with pytest.raises(RunError, match="op 5: ValueError: no such thing"):
        run(execute)
    assert len(started) < len(tight("chain"))
    assert not [t for t in threading.enumerate() if t.name.startswith("einturnip-") and t not in before]


def test_a_set_event_interrupts() -> None:
    stop = threading.Event()

    def execute(op: int) -> None:
        if op == 3:
            stop.set()

    with pytest.raises(Interrupted):
        run(execute, stop)
