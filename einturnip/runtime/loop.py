"""The event loop: threads run ops, completions come back, the state machine says what starts next.

All that waits is here. A lane has threads of its own, so transfers overlap kernels (NumPy, BLAS and the kernel's file
calls release the GIL).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

import numpy as np

from einturnip.core.errors import EinturnipError, Interrupted, RunError
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.lanes import lane_kind
from einturnip.runtime.state import State
from einturnip.runtime.types import Timeline

# How often the loop looks at the stop event and reports progress while nothing ends. Seconds.
TICK = 0.1


class Ended(NamedTuple):
    """An op has ended, on a thread of its lane; when it began and ended by its engine's clock, and what went wrong."""

    op: int
    thread: int
    begin: float
    end: float
    error: BaseException | None


class Issued(NamedTuple):
    """A device holds an op, which has not ended; whatever depends on it may be given to the device too."""

    op: int


class Engine(Protocol):
    """What runs ops: threads of the host, or the streams of a device."""

    def start(self, op: int) -> None:
        """Run an op as soon as can be; ``wait`` tells what becomes of it."""

    def wait(self, timeout: float) -> Ended | Issued | None:
        """The next news; None where there is none for ``timeout`` seconds."""

    def now(self) -> float:
        """Seconds on the clock by which ops begin and end."""

    def close(self) -> None:
        """Give back what runs took; no op is running."""


class Trace:
    """When each op ran, in the order of ending, and how long compute workers stood still, by cause."""

    def __init__(self, n_ops: int) -> None:
        self.order: list[int] = []
        self.events: Sequence[int] = ()
        self.busy = {lane: 0.0 for lane in Lane}
        self.stalls = {"reads": 0.0, "writes": 0.0, "memory": 0.0}
        self.seconds = 0.0
        self.timeline = Timeline(np.zeros(n_ops), np.zeros(n_ops), np.zeros(n_ops, np.uint8))

    def ended(self, op: int, lane: Lane, thread: int, begin: float, end: float) -> None:
        """Note that an op ran on a thread of a lane. Seconds since the run began."""
        self.order.append(op)
        self.busy[lane] += end - begin
        self.timeline.begin[op], self.timeline.end[op], self.timeline.thread[op] = begin, end, thread


def run_ops(
    graph: MemGraph,
    state: State,
    execute: Callable[[int], None],
    describe: Callable[[int], str],
    threads: dict[Lane, int],
    tick: Callable[[Trace], None] | None = None,
    stop: threading.Event | None = None,
    here: Callable[[int], bool] | None = None,
    crew: Crew | None = None,
) -> Trace:
    """Run every op, on the threads of ``crew`` where there is one, else on new ones.

    ``here``: of an op whether it takes no time, so that handing it to a thread would take longer.

    Raises:
        Interrupted: ``stop`` was set; running ops have ended.
        RunError: an op failed; no further op was started and those running have ended.
    """
    mine = Crew(threads) if crew is None else crew
    try:
        return drive(state, Threads(state, execute, mine, here), describe, threads[Lane.COMPUTE], tick, stop)
    finally:
        if crew is None:
            mine.close()


class Crew:
    """Host threads that wait for ops, so many for each lane; they may serve one run after another."""

    def __init__(self, threads: dict[Lane, int]) -> None:
        self._queues: dict[Lane, SimpleQueue[_Asked | None]] = {lane: SimpleQueue() for lane in Lane}
        self._threads = dict(threads)
        self._workers = [
            threading.Thread(target=_work, args=(self._queues[lane], n), name=f"einturnip-{lane.name.lower()}-{n}")
            for lane in Lane
            for n in range(threads[lane])
        ]
        for worker in self._workers:
            worker.daemon = True
            worker.start()

    def ask(self, lane: Lane, asked: _Asked) -> None:
        """Have a thread of the lane run an op."""
        self._queues[lane].put(asked)

    @classmethod
    def waiting(cls, threads: dict[Lane, int]) -> Crew:
        """One that an earlier run left (starting threads takes longer than a small run), or a new one."""
        try:
            process, crew = _idle.pop(tuple(threads.items()))
        except KeyError:
            return cls(threads)
        return crew if process == os.getpid() else cls(threads)

    def leave(self) -> None:
        """Wait for another run; no op is running."""
        key, mine = tuple(self._threads.items()), (os.getpid(), self)
        other = _idle.get(key)
        if other is not None and other[0] == mine[0]:
            self.close()
        else:
            _idle[key] = mine

    def close(self) -> None:
        """Let the threads end; no op is running."""
        for lane in Lane:
            for _ in range(self._threads[lane]):
                self._queues[lane].put(None)
        for worker in self._workers:
            worker.join()


# Crews that wait, one for each number of threads, with the process whose threads they are.
_idle: dict[tuple[tuple[Lane, int], ...], tuple[int, Crew]] = {}


class _Asked(NamedTuple):
    """An op that a thread is to run, and where it tells that it has ended."""

    execute: Callable[[int], None]
    op: int
    news: SimpleQueue[Ended]


class Threads:
    """An engine of host threads."""

    def __init__(
        self, state: State, execute: Callable[[int], None], crew: Crew, here: Callable[[int], bool] | None = None
    ) -> None:
        self._lane, self._execute, self._crew, self._here = state.lane, execute, crew, here
        self._news: SimpleQueue[Ended] = SimpleQueue()

    def start(self, op: int) -> None:
        """See Engine."""
        asked = _Asked(self._execute, op, self._news)
        if self._here is not None and self._here(op):
            _run(asked, 0)
        else:
            self._crew.ask(Lane(self._lane[op]), asked)

    def wait(self, timeout: float) -> Ended | None:
        """See Engine."""
        try:
            return self._news.get(timeout=timeout)
        except Empty:
            return None

    def now(self) -> float:
        """See Engine."""
        return time.perf_counter()

    def close(self) -> None:
        """See Engine; the threads are the crew's."""


def _work(queue: SimpleQueue[_Asked | None], thread: int) -> None:
    while (asked := queue.get()) is not None:
        _run(asked, thread)
        del asked  # a run's arrays are held no longer than the run


def _run(asked: _Asked, thread: int) -> None:
    failed: BaseException | None = None
    begin = time.perf_counter()
    try:
        asked.execute(asked.op)
    except BaseException as error:
        failed = error
    asked.news.put(Ended(asked.op, thread, begin, time.perf_counter(), failed))


def drive(
    state: State,
    engine: Engine,
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[Trace], None] | None = None,
    stop: threading.Event | None = None,
) -> Trace:
    """Run every op on an engine, which is closed at the end; see ``run_ops`` for what is raised."""
    try:
        return _dispatch(state, engine, describe, compute_slots, tick, stop)
    finally:
        engine.close()


def _dispatch(
    state: State,
    engine: Engine,
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[Trace], None] | None,
    stop: threading.Event | None,
) -> Trace:
    trace = Trace(state.left)
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
        _note_stall(trace, state, compute_slots, now - last)
        last = now
        launches = []
        match news:
            case Issued(op):
                launches = state.issued(op) if failure is None else []
            case Ended(op, thread, started, finished, error):
                running -= 1
                trace.ended(op, lane_kind(state.lane[op]), thread, started - begin, finished - begin)
                following = state.ended(op)
                if error is not None and failure is None:
                    failure = _named(error, describe(op))
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


def _named(error: BaseException, what: str) -> EinturnipError:
    if isinstance(error, EinturnipError):
        error.args = (f"{what}: {error}",) if what not in str(error) else error.args
        return error
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RunError(f"{what}: {detail}")


def _note_stall(trace: Trace, state: State, compute_slots: int, seconds: float) -> None:
    running = state.running
    idle = compute_slots - running[Lane.COMPUTE]
    if len(running) > len(Lane):  # several devices
        idle = sum(max(0, compute_slots - n) for lane, n in running.items() if lane_kind(lane) == Lane.COMPUTE)
    if idle <= 0 or state.left == 0:
        return
    if running[Lane.IN]:
        cause = "reads"
    elif running[Lane.OUT]:
        cause = "writes"
    else:
        cause = "memory"
    trace.stalls[cause] += idle * seconds
