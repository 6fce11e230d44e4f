"""Thread-pool driver: runs a memory graph on the host's worker threads.

There is no dispatcher thread. The worker that finishes an op takes the scheduler's lock, marks the op as ended, and
gets the ops that became ready. Waking another thread takes longer than a small kernel does.

Where a ready op runs:
- short ops (SHORT_KERNEL_SECONDS, SHORT_TRANSFER_SECONDS) on the worker that made them ready, whatever their lane;
- long transfers that are CPU-bound (files in memory or in the page cache) on compute workers, so that there are never
  more busy threads than cores;
- long transfers that wait for the disk on the threads of their I/O lane, so that they overlap with kernels.

NumPy, BLAS and file system calls release the GIL, so workers run in parallel.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from einturnip.core.errors import Interrupted
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.host.run_resources import AssignedOps, WorkerPool
from einturnip.runtime.scheduler.state_machine import ScheduledOps, SchedulerState, lane_kind
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.tuning.memory import (
    CPU_BOUND_SHARE,
    CPU_WEIGHT,
    DISK_WAIT_SECONDS,
    DURATION_WEIGHT,
    SHORT_KERNEL_SECONDS,
    SHORT_TRANSFER_SECONDS,
)


class TransferStats:
    """Classifies ops as short or long and as CPU-bound or not, from planned and measured durations."""

    def __init__(self, graph: ScheduledOps, is_free: Callable[[int], bool] | None = None) -> None:
        """``is_free``: tells whether an op takes no time."""
        kinds = np.array([SHORT_KERNEL_SECONDS if k.lane == Lane.COMPUTE else SHORT_TRANSFER_SECONDS for k in OpKind])
        self._planned_short = bytearray((graph.seconds <= kinds[graph.kind]).tobytes())
        self._kind, self._is_free = graph.kind.data, is_free
        self._mean_seconds = [0.0] * len(OpKind)
        self._cpu_fraction = [1.0] * len(OpKind)

    def is_short(self, op: int) -> bool:
        """Return whether the thread that made the op ready shall run it."""
        if self._planned_short[op] and self._mean_seconds[self._kind[op]] <= DISK_WAIT_SECONDS:
            return True
        return self._is_free is not None and self._is_free(op)

    def is_cpu_bound(self, op: int) -> bool:
        """Return whether transfers of the op's kind use a core for most of their duration, as kernels do."""
        return self._cpu_fraction[self._kind[op]] >= CPU_BOUND_SHARE

    def record(self, op: int, seconds: float, cpu_seconds: float) -> None:
        """Record the duration and the CPU time of a transfer."""
        kind = self._kind[op]
        self._mean_seconds[kind] += (seconds - self._mean_seconds[kind]) * DURATION_WEIGHT
        if seconds > DISK_WAIT_SECONDS / 10:  # the CPU time of shorter transfers is too imprecise
            self._cpu_fraction[kind] += (cpu_seconds / seconds - self._cpu_fraction[kind]) * CPU_WEIGHT


class ThreadPoolDriver:
    """Drives one run on the threads of a worker pool. ``over`` is set when the run has ended."""

    def __init__(
        self,
        state: SchedulerState,
        execute: Callable[[int], None],
        pool: WorkerPool,
        threads: dict[Lane, int],
        stats: TransferStats,
        stop: threading.Event | None,
    ) -> None:
        self.trace = RunTrace(state.remaining)
        self.over = threading.Event()
        self.failure: tuple[BaseException, int] | None = None  # the first error and its op (-1: outside any op)
        self._state, self._execute, self._pool, self._stats, self._stop = state, execute, pool, stats, stop
        self._lane: Sequence[int] = state.lane
        self._lanes = {lane: lane_kind(lane) for lane in state.free}
        self._threads = threads
        self._before = dict(zip(threads, accumulate(threads.values(), initial=0), strict=False))
        self._lock = threading.Lock()  # of the state machine, the trace and the fields below
        self._running = 0
        self._began = self._last = time.perf_counter()

    def begin(self, joins: bool = False) -> None:
        """Dispatch the first ops.

        With ``joins`` this thread runs one of them, and then ops that it makes ready.
        """
        launches = self._state.start()
        self._running = len(launches)
        if not launches:
            self.over.set()
        elif not joins:
            self._dispatch(launches)
        else:
            mine = deque[int]()
            try:
                self._dispatch(launches, Lane.COMPUTE, mine)
                self.work(mine, Lane.COMPUTE, self._threads[Lane.COMPUTE])
            except BaseException as error:  # an interrupt; ops of this thread are lost, so the run cannot complete
                self.failure = self.failure or (error, -1)
                self.over.set()
                raise

    def fail(self, error: BaseException, op: int = -1) -> None:
        """Record an error, so that no further op starts."""
        with self._lock:
            self.failure = self.failure or (error, op)

    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._began

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """See PoolWork."""
        mine = deque(ops)
        clock, cpu_clock, execute = time.perf_counter, time.thread_time, self._execute
        while mine:
            op = mine.popleft()
            failed: BaseException | None = None
            is_transfer = self._lanes[self._lane[op]] != Lane.COMPUTE
            cpu_begin = cpu_clock() if is_transfer else 0.0
            begin = clock()
            try:
                execute(op)
            except BaseException as error:
                failed = error
            end = clock()
            if is_transfer:
                self._stats.record(op, end - begin, cpu_clock() - cpu_begin)
            try:
                with self._lock:
                    launches = self._ended(op, lane, thread, begin, end, failed)
                if launches:
                    self._dispatch(launches, lane, mine)
            except BaseException as error:  # in the driver itself; launched ops are lost, so the run cannot complete
                self.failure = self.failure or (error, op)
                self.over.set()

    def _ended(
        self, op: int, lane: Lane, thread: int, begin: float, end: float, failed: BaseException | None
    ) -> Sequence[int]:
        """Record that an op has ended; return the ops to launch. The caller holds the lock."""
        state, trace = self._state, self.trace
        now = time.perf_counter()
        trace.record_idle(state, self._threads[Lane.COMPUTE], now - self._last)
        self._last = now
        own = self._lanes[self._lane[op]]
        if own != lane:  # a thread of another lane ran the op: it gets its own thread number in the trace
            thread += self._threads[own] + self._before[lane]
            trace.carried += end - begin if lane == Lane.COMPUTE else 0.0
        trace.ended(op, own, thread, begin - self._began, end - self._began)
        launches = state.ended(op)
        if failed is not None:
            self.failure = self.failure or (failed, op)
        elif self._stop is not None and self._stop.is_set():
            self.failure = self.failure or (Interrupted("interrupted"), -1)
        if self.failure is not None:
            launches = []
        self._running += len(launches) - 1
        if not self._running:
            trace.seconds, trace.events = self.seconds(), state.events
            self.over.set()
        return launches

    def _dispatch(self, launches: Sequence[int], lane: Lane | None = None, mine: deque[int] | None = None) -> None:
        """Assign each op to this thread or to another one, by the rules of the module's docstring.

        ``lane``: the lane of the calling thread; None if it runs no ops. ``mine``: the ops that this thread has still
        to run, to which its share is appended. Threads of transfer lanes run no kernels.
        """
        pool, stats = self._pool, self._stats
        kept, others = -1, list[int]()  # one long op for this thread; short ops that it cannot run
        for op in sorted(launches, key=self._is_kernel):  # transfers first, because kernels wait for them
            to = self._lanes[self._lane[op]]
            if stats.is_short(op):
                if mine is not None and (lane == Lane.COMPUTE or to != Lane.COMPUTE):
                    mine.append(op)
                else:
                    others.append(op)
                continue
            if to != Lane.COMPUTE and stats.is_cpu_bound(op):
                to = Lane.COMPUTE
            if to == lane and kept < 0:
                kept = op
            else:
                pool.submit(to, AssignedOps(self, (op,)))
        if others:
            pool.submit(Lane.COMPUTE, AssignedOps(self, others))
        if kept >= 0 and lane is not None and mine is not None:
            if mine:  # this thread has short ops to run first; another thread may be idle
                pool.submit(lane, AssignedOps(self, (kept,)))
            else:
                mine.append(kept)

    def _is_kernel(self, op: int) -> bool:
        return self._lanes[self._lane[op]] == Lane.COMPUTE
