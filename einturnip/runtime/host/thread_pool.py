"""A run on threads of the host: who ends an op asks the state machine what may start, and goes on with it.

No thread only dispatches: an op that ended would be reported, looked at, and its thread woken for the next one, which
takes longer than small kernels do. The state machine is asked by one thread at a time.

What takes less time than waking a thread is run by the thread that made it ready, whatever its lane. Longer transfers
go to the threads that compute while they keep a core busy, as those of files in memory or in the page cache do: more
threads than cores would only be in each other's way, and the system may leave two on one core while another stands
still. Transfers that wait for a disk go to their lane's threads, so that they overlap kernels (NumPy, BLAS and the
system's file calls release the GIL).
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
from einturnip.runtime.host.worker_pool import AssignedOps, WorkerPool
from einturnip.runtime.scheduler.lanes import lane_kind
from einturnip.runtime.scheduler.state_machine import ScheduledOps, SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace

# Planned seconds up to which an op is short: of kernels, whose work two threads could share; of transfers, most of
# whose time at such sizes goes to Python and the system's calls, which threads do not share.
SHORT_KERNEL, SHORT_TRANSFER = 100e-6, 400e-6
# Seconds that transfers of a kind take on average from which on their lane's threads get them, whatever was planned:
# they wait for the disk.
WAITS = 1e-3
# The part of its time for which a transfer keeps a core busy from which on threads that compute run it.
BUSY = 0.5
_RECENT, _RECENTLY_BUSY = 1 / 32, 1 / 8


class TransferStats:
    """Who runs an op: by what was planned and by what transfers of its kind took so far."""

    def __init__(self, graph: ScheduledOps, here: Callable[[int], bool] | None = None) -> None:
        """``here``: of an op whether it only counts."""
        kinds = np.array([SHORT_KERNEL if k.lane == Lane.COMPUTE else SHORT_TRANSFER for k in OpKind])
        self._planned = bytearray((graph.seconds <= kinds[graph.kind]).tobytes())
        self._kind, self._here = graph.kind.data, here
        self._mean = [0.0] * len(OpKind)
        self._busy = [1.0] * len(OpKind)  # of such times the part that a core was kept busy

    def short(self, op: int) -> bool:
        """Whether the thread that made an op ready runs it."""
        if self._planned[op] and self._mean[self._kind[op]] <= WAITS:
            return True
        return self._here is not None and self._here(op)

    def keeps_busy(self, op: int) -> bool:
        """Whether a long transfer is as a kernel is: it takes a core for most of its time."""
        return self._busy[self._kind[op]] >= BUSY

    def took(self, op: int, seconds: float, busy: float) -> None:
        """Note what a transfer took, and how long it kept a core busy."""
        kind = self._kind[op]
        self._mean[kind] += (seconds - self._mean[kind]) * _RECENT
        if seconds > WAITS / 10:  # shorter ones tell little
            self._busy[kind] += (busy / seconds - self._busy[kind]) * _RECENTLY_BUSY


class ThreadPoolDriver:
    """One run: its ops as the crew's threads take them."""

    def __init__(
        self,
        state: SchedulerState,
        execute: Callable[[int], None],
        crew: WorkerPool,
        threads: dict[Lane, int],
        runners: TransferStats,
        stop: threading.Event | None,
    ) -> None:
        self.trace = RunTrace(state.left)
        self.over = threading.Event()
        self.failure: tuple[BaseException, int] | None = None  # what went wrong first, and in which op (-1: none)
        self._state, self._execute, self._crew, self._runners, self._stop = state, execute, crew, runners, stop
        self._lane: Sequence[int] = state.lane
        self._lanes = {lane: lane_kind(lane) for lane in state.free}
        self._threads = threads
        self._before = dict(zip(threads, accumulate(threads.values(), initial=0), strict=False))
        self._turn = threading.Lock()
        self._under_way = 0
        self._began = self._last = time.perf_counter()

    def begin(self, joins: bool = False) -> None:
        """Hand out the first ops; with ``joins`` this thread runs one of them, and what it may start after it."""
        launches = self._state.start()
        self._under_way = len(launches)
        if not launches:
            self.over.set()
        elif not joins:
            self._hand_out(launches)
        else:
            mine = deque[int]()
            try:
                self._hand_out(launches, Lane.COMPUTE, mine)
                self.work(mine, Lane.COMPUTE, self._threads[Lane.COMPUTE])
            except BaseException as error:  # an interrupt; ops of this thread are lost
                self.failure = self.failure or (error, -1)
                self.over.set()
                raise

    def fail(self, error: BaseException, op: int = -1) -> None:
        """Start no further op."""
        with self._turn:
            self.failure = self.failure or (error, op)

    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._began

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """See crew.Work."""
        mine = deque(ops)
        clock, busy, execute = time.perf_counter, time.thread_time, self._execute
        while mine:
            op = mine.popleft()
            failed: BaseException | None = None
            moves = self._lanes[self._lane[op]] != Lane.COMPUTE
            begun = busy() if moves else 0.0
            begin = clock()
            try:
                execute(op)
            except BaseException as error:
                failed = error
            end = clock()
            if moves:
                self._runners.took(op, end - begin, busy() - begun)
            try:
                with self._turn:
                    launches = self._ended(op, lane, thread, begin, end, failed)
                if launches:
                    self._hand_out(launches, lane, mine)
            except BaseException as error:  # ours; ops that were launched are lost
                self.failure = self.failure or (error, op)
                self.over.set()

    def _ended(
        self, op: int, lane: Lane, thread: int, begin: float, end: float, failed: BaseException | None
    ) -> Sequence[int]:
        """An op has ended: what starts now."""
        state, trace = self._state, self.trace
        now = time.perf_counter()
        trace.stood(state, self._threads[Lane.COMPUTE], now - self._last)
        self._last = now
        own = self._lanes[self._lane[op]]
        if own != lane:  # a row of its own in what is shown of the run
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
        self._under_way += len(launches) - 1
        if not self._under_way:
            trace.seconds, trace.events = self.seconds(), state.events
            self.over.set()
        return launches

    def _hand_out(self, launches: Sequence[int], lane: Lane | None = None, mine: deque[int] | None = None) -> None:
        """Give each op to who runs it. ``lane``, ``mine``: of the thread that asks, and what it has still to run.

        Threads of the lanes for transfers leave kernels to those that compute.
        """
        crew, runners = self._crew, self._runners
        kept, shared = -1, list[int]()
        for op in sorted(launches, key=self._computes):  # transfers first: kernels wait for them
            to = self._lanes[self._lane[op]]
            if runners.short(op):
                if mine is not None and (lane == Lane.COMPUTE or to != Lane.COMPUTE):
                    mine.append(op)
                else:
                    shared.append(op)
                continue
            if to != Lane.COMPUTE and runners.keeps_busy(op):
                to = Lane.COMPUTE
            if to == lane and kept < 0:
                kept = op
            else:
                crew.ask(to, AssignedOps(self, (op,)))
        if shared:
            crew.ask(Lane.COMPUTE, AssignedOps(self, shared))
        if kept >= 0 and lane is not None and mine is not None:
            if mine:  # another thread may be free
                crew.ask(lane, AssignedOps(self, (kept,)))
            else:
                mine.append(kept)

    def _computes(self, op: int) -> bool:
        return self._lanes[self._lane[op]] == Lane.COMPUTE
