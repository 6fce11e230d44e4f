"""Runs one site's part in a process of its own: its ops on host threads, its transfers over a wire."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from einturnip.core.errors import EinturnipError, RunError
from einturnip.memgraph.types import Lane
from einturnip.runtime.host.event_loop import MessageArrived, OpEnded, OpIssued, drive
from einturnip.runtime.host.executor import OpExecutor
from einturnip.runtime.host.run_resources import AssignedOps, WorkerPool
from einturnip.runtime.scheduler.state_machine import lanes_of_kinds
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.sites.part import SitePart
from einturnip.sites.site_run import SiteRun
from einturnip.sites.types import Role
from einturnip.sites.wires.protocol import Arrivals, Wire
from einturnip.tuning.memory import RECEIVE_WINDOW


class FetchingWire(Wire, Protocol):
    """A wire whose receives are ops of the run.

    ``launch``: called by ``get_into``, which queues the op; the engine then calls ``fetch``. The wire posts the end of
    the op to the run's queue.
    """

    launch: Callable[[int], None]

    def fetch(self, op: int) -> None:
        """Copy a value from its site."""
        ...

    def stop(self) -> None:
        """Give up all transfers."""
        ...


class SiteSchedule:
    """The run of one site; implements ``Schedule`` (see ``state_machine``). A receive counts as a read.

    ``last_kernel``: the op of the kernel that was started last; -1 before the first.
    """

    def __init__(self, part: SitePart, slots: Mapping[Lane, int], wire: FetchingWire) -> None:
        plan = part.plan
        lane = lanes_of_kinds(plan.graph.kind)
        lane[plan.op[plan.role == Role.RECEIVE]] = Lane.IN
        self.lane: Sequence[int] = lane.tolist()
        self.running: dict[int, int] = Counter(dict.fromkeys(Lane, 0))
        self.receives = frozenset(plan.op[plan.role == Role.RECEIVE].tolist())
        self.last_kernel = -1
        self._launches: list[int] = []
        wire.launch = self._launches.append
        self.run = SiteRun(plan, part.ranks.tolist(), slots, RECEIVE_WINDOW, wire, self._launches.append)

    @property
    def remaining(self) -> int:
        """The number of ops, ends of transfers included, that have not ended."""
        return self.run.state.remaining

    @property
    def events(self) -> Sequence[int]:
        """The launches and ends of the site's plan."""
        return self.run.state.events

    @property
    def done(self) -> bool:
        """True when every op has ended."""
        return self.run.done

    def start(self) -> list[int]:
        """Return the ops to launch first."""
        self.run.start()
        return self._launched()

    def issued(self, op: int) -> list[int]:
        """See Schedule; host threads queue no ops."""
        raise NotImplementedError

    def ended(self, op: int) -> list[int]:
        """Record that ``op`` has ended; return the ops to launch now, in order."""
        self.running[self.lane[op]] -= 1
        (self.run.fetched if op in self.receives else self.run.local_ended)(op)
        return self._launched()

    def delivered(self, report: Callable[[Arrivals], None]) -> list[int]:
        """Deliver a message to the site; return the ops to launch now."""
        report(self.run)
        return self._launched()

    def _launched(self) -> list[int]:
        launches = self._launches.copy()
        self._launches.clear()
        for op in launches:
            self.running[self.lane[op]] += 1
            if self.lane[op] == Lane.COMPUTE:
                self.last_kernel = op
        return launches


class SiteEngine:
    """The host threads and the wire of one site as an Engine.

    ``queue``: the ends of ops, messages for the site as callables, and errors of the wire. ``waited``: by site, seconds
    in which no kernel ran because a value of that site was awaited. ``written``: stores and offloads that have ended.
    """

    def __init__(
        self,
        executor: OpExecutor,
        schedule: SiteSchedule,
        pool: WorkerPool,
        wire: FetchingWire,
        queue: SimpleQueue[Any],
    ) -> None:
        self._executor, self._schedule, self._pool, self._wire, self._queue = executor, schedule, pool, wire, queue
        self.waited: dict[int, float] = defaultdict(float)
        self.written: list[int] = []

    def start(self, op: int) -> None:
        """See Engine."""
        if op in self._schedule.receives:
            self._wire.fetch(op)
        else:
            self._pool.submit(Lane(self._schedule.lane[op]), AssignedOps(self, (op,)))

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """See PoolWork."""
        for op in ops:
            begin, failure = time.perf_counter(), None
            try:
                self._executor.run(op)
                if lane == Lane.OUT:
                    self.written.append(op)
            except BaseException as error:
                failure = error
            self._queue.put(OpEnded(op, thread, begin, time.perf_counter(), failure))

    def wait(self, timeout: float) -> OpEnded | OpIssued | MessageArrived | None:
        """See Engine."""
        peer = None if self._schedule.running[Lane.COMPUTE] else self._schedule.run.awaited_site()
        begin = time.perf_counter()
        try:
            found = self._queue.get(timeout=timeout)
        except Empty:
            found = None
        if peer is not None:
            self.waited[peer] += time.perf_counter() - begin
        if isinstance(found, OpEnded):
            if found.error is not None:
                self._wire.stop()
            return found
        if isinstance(found, Exception):
            self._wire.stop()
            return MessageArrived(partial(_fail, found))
        return None if found is None else MessageArrived(partial(self._schedule.delivered, found))

    def now(self) -> float:
        """See Engine."""
        return time.perf_counter()

    def close(self) -> None:
        """See Engine."""


def _fail(error: Exception) -> list[int]:
    raise error if isinstance(error, EinturnipError) else RunError(f"{type(error).__name__}: {error}") from error


def run_part(
    executor: OpExecutor,
    schedule: SiteSchedule,
    engine: SiteEngine,
    tick: Callable[[RunTrace], None] | None,
    stop: threading.Event,
) -> RunTrace:
    """Run every op of the site; raises as ``event_loop.run_ops`` does."""
    return drive(schedule, engine, executor.describe, 1, tick, stop)
