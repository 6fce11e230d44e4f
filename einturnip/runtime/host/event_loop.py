"""The event loop: ops end, the state machine says what starts. Threads of the host ask it; a device is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from einturnip.core.errors import EinturnipError, Interrupted, RunError
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.host.thread_pool import ThreadPoolDriver, TransferStats
from einturnip.runtime.host.worker_pool import WorkerPool
from einturnip.runtime.scheduler.lanes import lane_kind
from einturnip.runtime.scheduler.state_machine import ScheduledOps, SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace

# How often the loop looks at the stop event and reports progress while nothing ends. Seconds.
TICK = 0.1


class OpEnded(NamedTuple):
    """An op has ended, on a thread of its lane; when it began and ended by its engine's clock, and what went wrong."""

    op: int
    thread: int
    begin: float
    end: float
    error: BaseException | None


class OpIssued(NamedTuple):
    """A device holds an op, which has not ended; whatever depends on it may be given to the device too."""

    op: int


class Engine(Protocol):
    """What runs ops: the streams of a device."""

    def start(self, op: int) -> None:
        """Run an op as soon as can be; ``wait`` tells what becomes of it."""

    def wait(self, timeout: float) -> OpEnded | OpIssued | None:
        """The next news; None where there is none for ``timeout`` seconds."""

    def now(self) -> float:
        """Seconds on the clock by which ops begin and end."""

    def close(self) -> None:
        """Give back what runs took; no op is running."""


def run_ops(
    graph: ScheduledOps,
    state: SchedulerState,
    execute: Callable[[int], None],
    describe: Callable[[int], str],
    threads: dict[Lane, int],
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
    here: Callable[[int], bool] | None = None,
    crew: WorkerPool | None = None,
    joins: bool = False,
) -> RunTrace:
    """Run every op, on the threads of ``crew`` where there is one, else on new ones.

    ``here``: of an op whether it takes no time, so that handing it to a thread would take longer. ``joins``: the
    caller's thread computes too, so that one thread less has to be woken; it is not free to look at ``stop`` then.

    Raises:
        Interrupted: ``stop`` was set; running ops have ended.
        RunError: an op failed; no further op was started and those running have ended.
    """
    mine = WorkerPool(threads) if crew is None else crew
    run = ThreadPoolDriver(state, execute, mine, threads, TransferStats(graph, here), stop)
    try:
        _watch(run, tick, stop, joins)
    finally:
        if crew is None:
            mine.close()
    if run.failure is not None:
        error, op = run.failure
        if not isinstance(error, Exception):  # an interrupt, not a kernel's fault
            raise error
        failure = named(error, describe(op)) if op >= 0 else error
        raise failure from (error if failure is not error else None)
    assert state.done
    run.trace.numbered(np.array([kind.lane for kind in OpKind], np.uint8)[graph.kind])
    return run.trace


def _watch(
    run: ThreadPoolDriver, tick: Callable[[RunTrace], None] | None, stop: threading.Event | None, joins: bool
) -> None:
    """Begin a run and wait for its end; whatever interrupts this thread lets the ops under way end first."""
    run.begin(joins)
    try:
        while not run.over.wait(TICK):
            if stop is not None and stop.is_set():
                run.fail(Interrupted("interrupted"))
            if tick is not None:
                run.trace.seconds = run.seconds()
                tick(run.trace)
    except BaseException as error:
        run.fail(error)
        run.over.wait()
        raise


def drive(
    state: SchedulerState,
    engine: Engine,
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
) -> RunTrace:
    """Run every op on an engine, which is closed at the end; see ``run_ops`` for what is raised."""
    try:
        return _dispatch(state, engine, describe, compute_slots, tick, stop)
    finally:
        engine.close()


def _dispatch(
    state: SchedulerState,
    engine: Engine,
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[RunTrace], None] | None,
    stop: threading.Event | None,
) -> RunTrace:
    trace = RunTrace(state.left)
    begin = last = shown = engine.now()
    running = 0
    failure: EinturnipError | None = None
    launches = state.start()
    while True:
        for op in launches:
            engine.start(op)
        running += len(launches)
        if running == 0:
            break
        news = engine.wait(TICK)
        now = engine.now()
        trace.stood(state, compute_slots, now - last)
        last = now
        launches = []
        match news:
            case OpIssued(op):
                launches = state.issued(op) if failure is None else []
            case OpEnded(op, thread, started, finished, error):
                running -= 1
                trace.ended(op, lane_kind(state.lane[op]), thread, started - begin, finished - begin)
                following = state.ended(op)
                if error is not None and failure is None:
                    failure = named(error, describe(op))
                    failure.__cause__ = error
                if failure is None:
                    launches = following
        if failure is None and stop is not None and stop.is_set():
            failure, launches = Interrupted("interrupted"), []
        if tick is not None and now - shown >= TICK:
            shown = now
            trace.seconds = now - begin
            tick(trace)
    trace.seconds, trace.events = engine.now() - begin, state.events
    if failure is not None:
        raise failure
    assert state.done
    return trace


def named(error: BaseException, what: str) -> EinturnipError:
    """What went wrong, as a user is told of it. ``what``: where."""
    if isinstance(error, EinturnipError):
        error.args = (f"{what}: {error}",) if what not in str(error) else error.args
        return error
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RunError(f"{what}: {detail}")
