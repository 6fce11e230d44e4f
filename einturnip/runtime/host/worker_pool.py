"""WorkerPool: host threads that take ops from a queue, with a number of threads for each lane."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from einturnip.memgraph.types import Lane


class PoolWork(Protocol):
    """A run whose ops the pool's threads execute."""

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """Run ops, and further ops that this makes ready. Raises nothing.

        ``thread``: number of the calling thread within the lane.
        """


class AssignedOps(NamedTuple):
    """Ops that one thread shall run, in this order."""

    run: PoolWork
    ops: Sequence[int]


class WorkerPool:
    """Host threads that wait for ops, a number of them for each lane.

    One pool can serve several runs, one after another.
    """

    def __init__(self, threads: dict[Lane, int]) -> None:
        self._queues: dict[Lane, SimpleQueue[AssignedOps | None]] = {lane: SimpleQueue() for lane in Lane}
        self._threads = dict(threads)
        self._workers = [
            threading.Thread(
                target=_wait, args=(self._queues[lane], lane, n), name=f"einturnip-{lane.name.lower()}-{n}"
            )
            for lane in Lane
            for n in range(threads[lane])
        ]
        for worker in self._workers:
            worker.daemon = True
            worker.start()

    def submit(self, lane: Lane, ops: AssignedOps) -> None:
        """Queue ops for a thread of the lane."""
        self._queues[lane].put(ops)

    @classmethod
    def acquire(cls, threads: dict[Lane, int]) -> WorkerPool:
        """Return an idle pool of an earlier run, or a new one. Starting threads takes longer than a small run."""
        try:
            process, pool = _idle.pop(tuple(threads.items()))
        except KeyError:
            return cls(threads)
        return pool if process == os.getpid() else cls(threads)  # after a fork, the parent's threads do not exist

    def release(self) -> None:
        """Keep the pool for a later run; no op is running. A second idle pool of the same size is closed."""
        key, mine = tuple(self._threads.items()), (os.getpid(), self)
        other = _idle.setdefault(key, mine)  # one atomic step, so that concurrent releases lose no pool
        if other is not mine:
            if other[0] == mine[0]:
                self.close()
            else:
                _idle[key] = mine

    def close(self) -> None:
        """End the threads; no op is running."""
        for lane in Lane:
            for _ in range(self._threads[lane]):
                self._queues[lane].put(None)
        for worker in self._workers:
            worker.join()


_idle: dict[tuple[tuple[Lane, int], ...], tuple[int, WorkerPool]] = {}
"""Idle pools, at most one for each number of threads, with the id of the process that started their threads."""


def _wait(queue: SimpleQueue[AssignedOps | None], lane: Lane, thread: int) -> None:
    while (assigned := queue.get()) is not None:
        assigned.run.work(assigned.ops, lane, thread)
        del assigned  # keeps the run's arrays alive no longer than the run
