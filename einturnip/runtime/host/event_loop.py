"""Runs every op of a graph in the order that the scheduler's state machine allows.

``run_ops`` uses host threads; the thread that finishes an op asks the state machine for the next ones. ``drive`` waits
for events of an engine and asks the state machine itself. ``ProgressReporter`` reports
to the user's callback what has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from einturnip.core.errors import EinturnipError, Interrupted, RunError
from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.host.executor import TransferEnds
from einturnip.runtime.host.run_resources import WorkerPool
from einturnip.runtime.host.thread_pool import ThreadPoolDriver, TransferStats
from einturnip.runtime.scheduler.report import Progress
from einturnip.runtime.scheduler.state_machine import Schedule, ScheduledOps, SchedulerState, lane_kind
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.tuning.memory import TICK_SECONDS


class OpEnded(NamedTuple):
    """Event: an op has ended, or failed with ``error``. ``begin``, ``end``: seconds on the engine's clock."""

    op: int
    thread: int
    begin: float
    end: float
    error: BaseException | None


class OpIssued(NamedTuple):
    """Event: a device has queued an op that has not ended.

    Ops that depend on it can be issued to the device too.
    """

    op: int


class MessageArrived(NamedTuple):
    """Event: another site has sent a message.

    ``deliver`` returns the ops to launch, or raises an EinturnipError.
    """

    deliver: Callable[[], list[int]]


class Engine(Protocol):
    """Runs ops asynchronously, as the streams of a device do."""

    def start(self, op: int) -> None:
        """Start an op as soon as possible; ``wait`` returns the events that result."""

    def wait(self, timeout: float) -> OpEnded | OpIssued | MessageArrived | None:
        """Return the next event, or None if there is none for ``timeout`` seconds."""

    def now(self) -> float:
        """Return the seconds on the clock that measures when ops begin and end."""

    def close(self) -> None:
        """Release the engine's resources. No op is running."""


def run_ops(
    graph: ScheduledOps,
    state: SchedulerState,
    execute: Callable[[int], None],
    describe: Callable[[int], str],
    threads: dict[Lane, int],
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
    is_free: Callable[[int], bool] | None = None,
    pool: WorkerPool | None = None,
    joins: bool = False,
) -> RunTrace:
    """Run every op on the threads of ``pool``, or on new threads if it is None.

    ``is_free``: tells whether an op takes no time, so that handing it to another thread would take longer. ``joins``:
    the caller's thread runs ops too, so that one thread fewer has to be woken; meanwhile it does not check ``stop``.

    Raises:
        Interrupted: ``stop`` was set; running ops have ended.
        RunError: an op failed; no further op was started, and running ops have ended.
    """
    mine = WorkerPool(threads) if pool is None else pool
    run = ThreadPoolDriver(state, execute, mine, threads, TransferStats(graph, is_free), stop)
    try:
        _watch(run, tick, stop, joins)
    finally:
        if pool is None:
            mine.close()
    if run.failure is not None:
        error, op = run.failure
        if not isinstance(error, Exception):  # an interrupt, not a kernel's fault
            raise error
        failure = located_error(error, describe(op)) if op >= 0 else error
        raise failure from (error if failure is not error else None)
    assert state.done
    run.trace.renumber_threads(np.array([kind.lane for kind in OpKind], np.uint8)[graph.kind])
    return run.trace


def _watch(
    run: ThreadPoolDriver, tick: Callable[[RunTrace], None] | None, stop: threading.Event | None, joins: bool
) -> None:
    """Begin a run and wait for its end; an interrupt is raised only when running ops have ended."""
    run.begin(joins)
    try:
        while not run.over.wait(TICK_SECONDS):
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
    state: Schedule,
    engine: Engine,
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
) -> RunTrace:
    """Run every op on an engine and close it; raises as ``run_ops`` does."""
    try:
        return _dispatch(state, engine, describe, compute_slots, tick, stop)
    finally:
        engine.close()


def _dispatch(
    state: Schedule,
    engine: Engine,
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[RunTrace], None] | None,
    stop: threading.Event | None,
) -> RunTrace:
    trace = RunTrace(state.remaining)
    begin = last = shown = engine.now()
    running = 0
    failure: EinturnipError | None = None
    launches = state.start()
    while True:
        for op in launches:
            engine.start(op)
        running += len(launches)
        # While no op runs, an unfinished site waits for messages of others.
        if running == 0 and (state.done or failure is not None):
            break
        event = engine.wait(TICK_SECONDS)
        now = engine.now()
        trace.record_idle(state, compute_slots, now - last)
        last = now
        launches = []
        match event:
            case OpIssued(op):
                launches = state.issued(op) if failure is None else []
            case MessageArrived(deliver) if failure is None:
                try:
                    launches = deliver()
                except EinturnipError as error:
                    failure = error
            case OpEnded(op, thread, started, finished, error):
                running -= 1
                trace.ended(op, lane_kind(state.lane[op]), thread, started - begin, finished - begin)
                if error is not None and failure is None:
                    failure = located_error(error, describe(op))
                    failure.__cause__ = error
                if failure is None:  # else a schedule of one site would offer what the op has not written
                    launches = state.ended(op)
        if failure is None and stop is not None and stop.is_set():
            failure, launches = Interrupted("interrupted"), []
        if tick is not None and now - shown >= TICK_SECONDS:
            shown = now
            trace.seconds = now - begin
            tick(trace)
    trace.seconds, trace.events = engine.now() - begin, state.events
    if failure is not None:
        raise failure
    assert state.done
    return trace


def located_error(error: BaseException, place: str) -> EinturnipError:
    """Return the error for the user with its place; foreign exceptions become a RunError."""
    if isinstance(error, EinturnipError):
        error.args = (f"{place}: {error}",) if place not in str(error) else error.args
        return error
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RunError(f"{place}: {detail}")


class ProgressReporter:
    """Converts a run's trace to Progress and passes it to the callback."""

    def __init__(self, graph: MemGraph, executor: TransferEnds, progress: Callable[[Progress], None]) -> None:
        self.graph = graph
        self.executor = executor
        self.progress = progress
        tasks = graph.taskgraph
        self.flops = np.where(graph.task >= 0, tasks.flops[graph.task], 0)
        self.total_flops = int(self.flops.sum())
        self.total_nbytes = sum(graph.nbytes_by_link().values())
        self.done_flops = 0
        self.seen = 0
        self.statement = ""

    def __call__(self, trace: RunTrace) -> None:
        """Count the ops that ended since the last call, and report them."""
        fresh = trace.order[self.seen :]
        self.seen += len(fresh)
        self.done_flops += int(self.flops[fresh].sum())
        moved = sum(self.executor.moved.values())
        self.progress(
            Progress(
                self.seen,
                len(self.graph),
                self.done_flops,
                self.total_flops,
                moved,
                self.total_nbytes,
                trace.seconds,
                self._latest_statement(fresh),
            )
        )

    def _latest_statement(self, ops: Sequence[int]) -> str:
        """Return the statement of the last kernel among ``ops``, else of the last call."""
        computing = [op for op in ops if self.flops[op]]
        if computing:
            tasks = self.graph.taskgraph
            graph = tasks.decomposition.graph
            self.statement = graph.statement(graph.nodes[tasks.node[self.graph.task[computing[-1]]]].line)
        return self.statement
