"""The event loop: threads run ops, completions come back, the state machine says what starts next.

All that waits is here. A lane has threads of its own, so transfers overlap kernels (NumPy, BLAS and the kernel's file
calls release the GIL).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

import numpy as np

from einturnip.core.errors import EinturnipError, Interrupted, RunError
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.state import State
from einturnip.runtime.types import Timeline

# How often the loop looks at the stop event and reports progress while nothing ends. Seconds.
TICK = 0.1


# An op, the thread of its lane, when it began and ended, and what went wrong.
Ended: TypeAlias = tuple[int, int, float, float, BaseException | None]


class Trace:
    """When each op ran, in the order of ending, and how long compute workers stood still, by cause."""

    def __init__(self, n_ops: int) -> None:
        self.order: list[int] = []
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
) -> Trace:
    """Run every op.

    Raises:
        Interrupted: ``stop`` was set; running ops have ended.
        RunError: an op failed; no further op was started and those running have ended.
    """
    ended: SimpleQueue[Ended] = SimpleQueue()
    queues: dict[Lane, SimpleQueue[int | None]] = {lane: SimpleQueue() for lane in Lane}
    workers = [
        threading.Thread(
            target=_work, args=(queues[lane], ended, execute, n), name=f"einturnip-{lane.name.lower()}-{n}"
        )
        for lane in Lane
        for n in range(threads[lane])
    ]
    for worker in workers:
        worker.daemon = True
        worker.start()
    try:
        return _dispatch(state, queues, ended, describe, threads[Lane.COMPUTE], tick, stop)
    finally:
        for lane in Lane:
            for _ in range(threads[lane]):
                queues[lane].put(None)
        for worker in workers:
            worker.join()


def _work(
    queue: SimpleQueue[int | None],
    ended: SimpleQueue[Ended],
    execute: Callable[[int], None],
    thread: int,
) -> None:
    while (op := queue.get()) is not None:
        begin = time.perf_counter()
        try:
            execute(op)
        except BaseException as error:
            ended.put((op, thread, begin, time.perf_counter(), error))
        else:
            ended.put((op, thread, begin, time.perf_counter(), None))


def _dispatch(
    state: State,
    queues: dict[Lane, SimpleQueue[int | None]],
    ended: SimpleQueue[Ended],
    describe: Callable[[int], str],
    compute_slots: int,
    tick: Callable[[Trace], None] | None,
    stop: threading.Event | None,
) -> Trace:
    trace = Trace(state.left)
    begin = last = shown = time.perf_counter()
    running = 0
    failure: EinturnipError | None = None
    launches = state.start()
    while True:
        for op in launches:
            queues[Lane(state.lane[op])].put(op)
        running += len(launches)
        if running == 0:
            break
        try:
            op, thread, started, finished, error = ended.get(timeout=TICK)
        except Empty:
            op = -1
        now = time.perf_counter()
        _note_stall(trace, state, compute_slots, now - last)
        last = now
        launches = []
        if op >= 0:
            running -= 1
            trace.ended(op, Lane(state.lane[op]), thread, started - begin, finished - begin)
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
    trace.seconds = time.perf_counter() - begin
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
    idle = compute_slots - state.running[Lane.COMPUTE]
    if idle <= 0 or state.left == 0:
        return
    if state.running[Lane.IN]:
        cause = "reads"
    elif state.running[Lane.OUT]:
        cause = "writes"
    else:
        cause = "memory"
    trace.stalls[cause] += idle * seconds
