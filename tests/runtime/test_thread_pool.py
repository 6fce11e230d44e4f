"""Worker threads that call the state machine: every op runs once, in an order that the graph allows."""

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
from einturnip.runtime.host import thread_pool
from einturnip.runtime.host.event_loop import run_ops
from einturnip.runtime.host.run_resources import WorkerPool
from einturnip.runtime.host.thread_pool import TransferStats
from einturnip.runtime.scheduler.replay import ReplayState, check_events
from einturnip.runtime.scheduler.state_machine import SchedulerState
from tests.runtime.test_scheduler_machine import graphs

SLOTS = {Lane.COMPUTE: 2, Lane.IN: 2, Lane.OUT: 1}
SECONDS = {"short": 1e-6, "long": 1.0}


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    found = WorkerPool(SLOTS)
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
def test_any_mix_of_short_and_long_ops_runs_once_and_in_order(pool: WorkerPool, graph: Any, seed: Any) -> None:
    n = len(graph)
    state = SchedulerState(graph, [seed.random() for _ in range(n)], SLOTS)
    ran: list[int] = []
    trace = run_ops(graph, state, ran.append, str, SLOTS, pool=pool)
    assert sorted(ran) == list(range(n)) and sorted(trace.order) == list(range(n))
    check_events(graph, np.array(trace.events))
    for lane in Lane:
        rows = {int(trace.timeline.thread[op]) for op in range(n) if OpKind(graph.kind[op]).lane == lane}
        assert rows == set(range(len(rows)))
    again = ReplayState(graph, SLOTS, trace.events)
    repeated = run_ops(graph, again, lambda op: None, str, SLOTS, pool=pool)
    assert list(repeated.events) == list(trace.events)


@given(graph=runs(), seed=st.randoms(use_true_random=False))
def test_after_a_failure_nothing_starts_and_what_runs_ends(pool: WorkerPool, graph: Any, seed: Any) -> None:
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
        run_ops(graph, SchedulerState(graph, range(n), SLOTS), execute, "op {}".format, SLOTS, pool=pool)
    assert begun - ended == {bad}
    after = {x for x in range(n) if bad in graph.after[graph.after_ptr[x] : graph.after_ptr[x + 1]]}
    assert not after & begun


def test_what_interrupts_the_caller_is_raised_once_the_ops_under_way_have_ended(pool: WorkerPool) -> None:
    graph = Sized(
        kind=np.full(3, OpKind.KERNEL, np.uint8),
        unit=np.full(3, -1, np.int32),
        after_ptr=np.array([0, 0, 1, 2]),
        after=np.array([0, 1], np.int32),
        seconds=np.full(3, 1.0),
    )
    going, ran = threading.Event(), list[int]()

    def execute(op: int) -> None:
        going.wait()
        ran.append(op)

    def tick(trace: Any) -> None:
        going.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ops(graph, SchedulerState(graph, range(3), SLOTS), execute, str, SLOTS, tick, pool=pool)  # type: ignore[arg-type]
    assert ran and ran == list(range(len(ran)))


def _loads(n: int) -> Sized:
    return Sized(
        kind=np.full(n, OpKind.LOAD, np.uint8),
        unit=np.full(n, -1, np.int32),
        after_ptr=np.zeros(n + 1, np.int64),
        after=np.zeros(0, np.int32),
        seconds=np.full(n, 1.0),
    )


@pytest.mark.parametrize(("busy", "lane"), [(0.0, "compute"), (2.0, "in")])
def test_long_transfers_run_where_kernels_do_while_they_keep_a_core_busy(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, busy: float, lane: str
) -> None:
    monkeypatch.setattr(thread_pool, "CPU_BOUND_SHARE", busy)
    graph, names = _loads(9), list[str]()

    def execute(op: int) -> None:
        names.append(threading.current_thread().name)

    run_ops(graph, SchedulerState(graph, range(9), SLOTS), execute, str, SLOTS, pool=pool)  # type: ignore[arg-type]
    assert len(names) == 9 and {name.split("-")[1] for name in names} == {lane}


@given(st.lists(st.floats(0, 1), max_size=20), st.booleans())
def test_transfers_are_told_by_what_the_last_ones_of_their_kind_kept_busy(parts: list[float], waits: bool) -> None:
    stats = TransferStats(_loads(1))
    assert stats.is_cpu_bound(0)
    for part in parts:
        stats.record(0, 0.01, part * 0.01)
    for _ in range(40):
        stats.record(0, 0.01, 0.0001 if waits else 0.0099)
        stats.record(0, 1e-5, 0.0)  # too short to tell
    assert stats.is_cpu_bound(0) != waits


def test_a_transfer_that_is_ready_goes_before_kernels(pool: WorkerPool) -> None:
    graph = Sized(
        kind=np.array([OpKind.KERNEL, OpKind.KERNEL, OpKind.LOAD], np.uint8),
        unit=np.full(3, -1, np.int32),
        after_ptr=np.array([0, 0, 1, 2]),
        after=np.zeros(2, np.int32),
        seconds=np.full(3, 1.0),
    )
    one = {Lane.COMPUTE: 1, Lane.IN: 1, Lane.OUT: 1}
    only, ran = WorkerPool(one), list[int]()
    try:
        run_ops(graph, SchedulerState(graph, range(3), one), ran.append, str, one, pool=only)  # type: ignore[arg-type]
    finally:
        only.close()
    assert ran == [0, 2, 1]
