"""Resources of the host that runs reuse: worker pools, and a plan's arena, ranks and spill file."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cached_property
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from einturnip.devices.host import HostArena
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.scheduler.policies import Policy, Ranks
from einturnip.storage.io.spill_file import SpillFile


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


class RunResources:
    """The reusable resources of one plan, each created at its first use. For one run at a time.

    The arena's pages stay resident between runs, which leaves less memory for plans that are made meanwhile.
    """

    def __init__(
        self,
        graph: MemGraph,
        lanes: dict[Lane, int],
        policy: Policy,
        spill: str | None = None,
        spill_limit: int | None = None,
        shared: bool = False,
    ) -> None:
        """``shared``: the worker pool may come from an earlier run of any plan, and is left for a later one."""
        self.graph, self.lanes = graph, lanes
        self._policy, self._spill, self._shared = policy, (spill, spill_limit), shared

    @cached_property
    def arena(self) -> HostArena:
        """The plan's arena."""
        return HostArena(max(self.graph.capacity, os.sysconf("SC_PAGE_SIZE")))

    @cached_property
    def pool(self) -> WorkerPool:
        """The worker pool, with threads for each lane."""
        return WorkerPool.acquire(self.lanes) if self._shared else WorkerPool(self.lanes)

    @cached_property
    def ranks(self) -> Ranks:
        """The rank of each op by the dispatch policy."""
        return self._policy(self.graph)

    @cached_property
    def spill(self) -> SpillFile | None:
        """The spill file with its disk space reserved; None if the plan spills nothing.

        Raises:
            StoreError: the disk has too little free space.
        """
        if not self.graph.spill_nbytes:
            return None
        file = SpillFile(*self._spill)
        try:
            file.reserve(self.graph.spill_nbytes)
        except BaseException:
            file.close()
            raise
        return file

    def release(self) -> None:
        """Release everything after a successful run; a shared worker pool is kept for later runs."""
        if self._shared and "pool" in self.__dict__:
            self.__dict__.pop("pool").release()
        self.close()

    def close(self) -> None:
        """Release everything; may be called again."""
        made = self.__dict__
        if "pool" in made:
            made.pop("pool").close()
        for name in ("arena", "spill"):
            resource = made.pop(name, None)
            if resource is not None:
                resource.close()
