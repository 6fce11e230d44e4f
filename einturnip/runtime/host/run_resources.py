"""Resources of the host that runs of one plan reuse: arena, worker pool, ranks, spill file."""

from __future__ import annotations

import os
from functools import cached_property

from einturnip.devices.host import HostArena
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.host.worker_pool import WorkerPool
from einturnip.runtime.scheduler.policies import Policy, Ranks
from einturnip.storage.io.spill_file import SpillFile


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
