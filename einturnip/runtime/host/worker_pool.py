"""Threads of the host that wait for ops, so many for each lane."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from einturnip.memgraph.types import Lane


class PoolWork(Protocol):
    """A run whose ops threads take."""

    def work(self, ops: Sequence[int], lane: Lane, thread: int) -> None:
        """Run ops, and those that are left to this thread meanwhile; it is the lane's ``thread``-th. Raises nothing."""


class AssignedOps(NamedTuple):
    """Ops that one thread is to run."""

    run: PoolWork
    ops: Sequence[int]


class WorkerPool:
    """Host threads that wait for ops, so many for each lane; they may serve one run after another."""

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

    def ask(self, lane: Lane, asked: AssignedOps) -> None:
        """Have a thread of the lane run ops."""
        self._queues[lane].put(asked)

    @classmethod
    def waiting(cls, threads: dict[Lane, int]) -> WorkerPool:
        """One that an earlier run left (starting threads takes longer than a small run), or a new one."""
        try:
            process, crew = _idle.pop(tuple(threads.items()))
        except KeyError:
            return cls(threads)
        return crew if process == os.getpid() else cls(threads)

    def leave(self) -> None:
        """Wait for another run; no op is running."""
        key, mine = tuple(self._threads.items()), (os.getpid(), self)
        other = _idle.setdefault(key, mine)  # in one step: of two crews, one would be forgotten with its threads
        if other is not mine:
            if other[0] == mine[0]:
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
_idle: dict[tuple[tuple[Lane, int], ...], tuple[int, WorkerPool]] = {}


def _wait(queue: SimpleQueue[AssignedOps | None], lane: Lane, thread: int) -> None:
    while (asked := queue.get()) is not None:
        asked.run.work(asked.ops, lane, thread)
        del asked  # a run's arrays are held no longer than the run
