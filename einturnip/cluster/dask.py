"""The workers of a Dask cluster as sites of a run."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from einturnip.caches import Piece
from einturnip.cluster.dask_arrays import locate
from einturnip.cluster.site_task import describe, take_part
from einturnip.cluster.workers import Worker, accepted
from einturnip.core.errors import EinturnipError, Interrupted, WorkerLost
from einturnip.cost.site_rates import MachineLink
from einturnip.memgraph.views import OpViews
from einturnip.sites.part import SitePart
from einturnip.sites.wires.dask import Address, CoordinatorConnection, DaskWire, RunInbox, WorkerInboxes
from einturnip.sites.wires.dask_calls import run_on_workers
from einturnip.sites.wires.dask_chunks import PeerChunks, known_workers, scheduler_answers
from einturnip.sites.wires.dask_cluster import (
    WorkerConnections,
    close_inbox,
    is_ending,
    open_inbox,
    require_processes,
    this_worker,
)
from einturnip.sites.wires.messages import Report
from einturnip.storage.chunks.chunk_grid import Index
from einturnip.storage.dask_arrays import DaskSource
from einturnip.storage.types import Array, Source
from einturnip.tuning.memory import ANSWER_SECONDS, DASK_BANDWIDTH, DASK_LATENCY, JOIN_SECONDS, TICK_SECONDS


class DaskCluster:
    """The workers of a client's cluster; implements ``Cluster``."""

    plans_within_memory = False
    link = MachineLink(DASK_BANDWIDTH, DASK_LATENCY)

    def __init__(self, client: Any) -> None:
        self.client = client

    def workers(self) -> tuple[Worker, ...]:
        """See Cluster."""
        require_processes(self.client)
        while True:
            every, until = sorted(known_workers(self.client)), time.monotonic() + ANSWER_SECONDS
            try:
                run_on_workers(self.client, every, os.getpid)  # answered at once, while loading a module may take long
                return accepted(run_on_workers(self.client, every, describe_worker, seconds=JOIN_SECONDS))
            except WorkerLost:
                # The scheduler hears a moment later that a worker has ended. Then the others are asked again.
                while sorted(known_workers(self.client)) == every:
                    if time.monotonic() > until:
                        raise
                    time.sleep(TICK_SECONDS)

    def locate(self, sources: Mapping[str, Source], memory: int | None) -> None:
        """See Cluster."""
        locate(self.client, sources, memory, self.workers)

    def kept_source(self, name: str, array: Any) -> Source:
        """See Cluster."""
        source = DaskSource(name, array)
        self.locate({name: source}, None)
        return source

    def begin(
        self,
        sites: Sequence[str],
        parts: Callable[[int], Iterator[list[Piece]]],
        tile: Callable[[int], Array],
        store: Callable[[int, Any], None],
        site_of: Callable[[int], int],
    ) -> WorkerConnections:
        """See Cluster."""
        run, token = secrets.token_hex(8), secrets.token_hex(16)
        run_on_workers(self.client, sites, open_inbox, run, token)

        def ended() -> None:
            if self.answers():
                with suppress(EinturnipError, OSError):
                    known = known_workers(self.client)
                    run_on_workers(self.client, [site for site in sites if site in known], close_inbox, run)

        connections = WorkerConnections(self.client, run, token, sites, parts, tile, store, site_of, ended)
        try:
            connections.submit(run_site)
        except BaseException:
            connections.close()
            raise
        return connections

    def answers(self) -> bool:
        """See Cluster."""
        return scheduler_answers(self.client)


def describe_worker(dask_worker: Any) -> dict[str, Any]:
    """Return what a worker reports about itself; called on its event loop."""
    return describe() | {
        "threads": dask_worker.state.nthreads,
        "limit": dask_worker.memory_manager.memory_limit,
    }


def run_site(run: str, token: str, coordinator: str, site: int) -> dict[tuple[str, Index], Array]:
    """Take part in a run as one of Dask's tasks. Returns the blocks of outputs that stay here."""
    worker = this_worker()
    try:
        end = WorkerEnd(worker, coordinator, run, token, site)
        _reset_peak()
        return take_part(end)
    except Interrupted:  # another site has ended the run
        return {}
    finally:
        WorkerInboxes.of(worker).site_ended(run)


class WorkerEnd(CoordinatorConnection):
    """A worker's connections in one run; implements ``SiteEnd``."""

    def __init__(self, worker: Any, coordinator: str, run: str, token: str, site: int) -> None:
        super().__init__(worker, coordinator, run, token, site)
        self._place = Address(run, token, site, ())
        self._messages: RunInbox = WorkerInboxes.of(worker).runs[run]
        self._chunks = PeerChunks(worker, self._place, self._messages)

    def connect_sites(self, sites: tuple[str, ...], served: Mapping[int, tuple[Any, ...]]) -> None:
        """See SiteEnd."""
        self._place = replace(self._place, sites=sites)
        self._chunks = PeerChunks(self._worker, self._place, self._messages)
        self._chunks.serve(served)

    def wire(self, part: SitePart, views: OpViews, post: Callable[[Any], None]) -> DaskWire:
        """See SiteEnd."""
        return DaskWire(self._worker, self._place, self._messages, part, views, post)

    def attach(self, post: Callable[[Report], None], value: Callable[[int], Array], numbered: dict[int, int]) -> None:
        """See SiteEnd."""
        self._messages.attach(post, value, numbered)

    def fetch_piece(self, number: int, sites: Sequence[int], nbytes: int) -> Array:
        """See SiteEnd."""
        return self._chunks.fetch(number, sites)

    def received_pieces(self) -> Mapping[int, int]:
        """See SiteEnd."""
        return self._chunks.received

    def is_ending(self) -> bool:
        """See SiteEnd."""
        return is_ending(self._worker)

    def settle(self) -> None:
        """Do nothing: values are copied between the arena and Dask's messages."""


def _reset_peak() -> None:
    """Let the process's peak memory begin anew, so that it is that of this run."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
