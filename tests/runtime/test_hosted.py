"""Threads that ask the state machine themselves: every op once, in an order that the graph allows, whoever runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.errors import RunError
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.crew import Crew
from einturnip.runtime.loop import run_ops
from einturnip.runtime.replay import Replay, check_events
from einturnip.runtime.state import State
from tests.runtime.test_scheduler_machine import graphs

SLOTS = {Lane.COMPUTE: 2, Lane.IN: 2, Lane.OUT: 1}
SECONDS = {"short": 1e-6, "long": 1.0}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    found = Crew(SLOTS)
    yield found
    found.close()


class Sized(SimpleNamespace):
    """The drawn graph with planned seconds: what is short is not handed over, what is long goes to its lane."""

    def __len__(self) -> int:
        return len(self.kind)


@st.composite
def runs(draw: st.DrawFn) -> Any:
    graph = draw(graphs())
    lengths = draw(st.lists(st.sampled_from(sorted(SECONDS)), min_size=len(graph), max_size=len(graph)))
    return Sized(**vars(graph), seconds=np.array([SECONDS[length] for length in lengths]))


@given(graph=runs(), seed=st.randoms(use_true_random=False))
def test_any_mix_of_short_and_long_ops_runs_once_and_in_order(crew: Crew, graph: Any, seed: Any) -> None:
    n = len(graph)
    state = State(graph, [seed.random() for _ in range(n)], SLOTS)
    ran: list[int] = []
    trace = run_ops(graph, state, ran.append, str, SLOTS, crew=crew)
    assert sorted(ran) == list(range(n)) and sorted(trace.order) == list(range(n))
    check_events(graph, np.array(trace.events))
    for lane in Lane:
        rows = {int(trace.timeline.thread[op]) for op in range(n) if OpKind(graph.kind[op]).lane == lane}
        assert rows == set(range(len(rows)))
    again = Replay(graph, SLOTS, trace.events)
    repeated = run_ops(graph, again, lambda op: None, str, SLOTS, crew=crew)
    assert list(repeated.events) == list(trace.events)


@given(graph=runs(), seed=st.randoms(use_true_random=False))
def test_after_a_failure_nothing_starts_and_what_runs_ends(crew: Crew, graph: Any, seed: Any) -> None:
    n = len(graph)
    bad = seed.randrange(n)
    begun: set[int] = set()
    ended: set[int] = set()

    def execute(op: int) -> None:
        begun.add(op)
        if op == bad:
            raise ValueError("no such thing")
        ended.add(op)

    with pytest.raises(RunError, match=f"op {bad}: ValueError: no such thing"):
        run_ops(graph, State(graph, range(n), SLOTS), execute, "op {}".format, SLOTS, crew=crew)
    assert begun - ended == {bad}
    after = {x for x in range(n) if bad in graph.after[graph.after_ptr[x] : graph.after_ptr[x + 1]]}
    assert not after & begun


def test_what_interrupts_the_caller_is_raised_once_the_ops_under_way_have_ended(crew: Crew) -> None:
    graph = Sized(
        kind=np.full(3, OpKind.KERNEL, np.uint8),
        unit=np.full(3, -1, np.int32),
        after_ptr=np.array([0, 0, 1, 2]),
        after=np.array([0, 1], np.int32),
        seconds=np.full(3, 1.0),
    )
    going, ran = threading.Event(), list[int]()

    def execute(op: int) -> None:
        going.wait(10)
        ran.append(op)

    def tick(trace: Any) -> None:
        going.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ops(graph, State(graph, range(3), SLOTS), execute, str, SLOTS, tick, crew=crew)  # type: ignore[arg-type]
    assert ran and ran == list(range(len(ran)))
