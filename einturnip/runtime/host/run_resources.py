"""What a run of a plan takes of the host, kept for the plan's next run: arena, threads, ranks, the spill file."""

from __future__ import annotations

import os
from functools import cached_property

from einturnip.devices.host import HostArena
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.host.worker_pool import WorkerPool
from einturnip.runtime.scheduler.policies import Policy, Ranks
from einturnip.storage.io.spill_file import SpillFile


class RunResources:
    """All is made when it is first asked for. For one run at a time.

    The arena's pages stay resident in between: a plan made meanwhile has so much less.
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
        """``shared``: for one run, whose threads may be those of an earlier one and those of the next."""
        self.graph, self.lanes = graph, lanes
        self._policy, self._spill, self._shared = policy, (spill, spill_limit), shared

    @cached_property
    def arena(self) -> HostArena:
        """The plan's arena."""
        return HostArena(max(self.graph.capacity, os.sysconf("SC_PAGE_SIZE")))

    @cached_property
    def crew(self) -> WorkerPool:
        """Threads for each lane."""
        return WorkerPool.waiting(self.lanes) if self._shared else WorkerPool(self.lanes)

    @cached_property
    def ranks(self) -> Ranks:
        """What of the ops that are ready goes first."""
        return self._policy(self.graph)

    @cached_property
    def spill(self) -> SpillFile | None:
        """The spill file, with its room on the disk; None where nothing is spilled.

        Raises:
            StoreError: the disk has no room.
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

    def leave(self) -> None:
        """Give all of it back after a run that ended well; shared threads wait for the next."""
        if self._shared and "crew" in self.__dict__:
            self.__dict__.pop("crew").leave()
        self.close()

    def close(self) -> None:
        """Give all of it back; twice is allowed."""
        made = self.__dict__
        if "crew" in made:
            made.pop("crew").close()
        for name in ("arena", "spill"):
            held = made.pop(name, None)
            if held is not None:
                held.close()
