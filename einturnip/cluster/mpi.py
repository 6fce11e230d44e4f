"""The ranks of an MPI job as sites of a run: rank 0 plans, coordinates, and is a site like the others."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from einturnip.caches import Piece
from einturnip.cluster.mpi_rank import JobRank, Message, ignored, numbered, serve, this_rank
from einturnip.cluster.mpi_states import BlockReader, RankBlocks, RankSource
from einturnip.cluster.transport import Blocks
from einturnip.cluster.workers import Worker, accepted
from einturnip.core.errors import DeviceError, RunError
from einturnip.cost.site_rates import MachineLink
from einturnip.sites.wires.messages import Event
from einturnip.sites.wires.mpi import Control, Tag, contiguous
from einturnip.storage.chunks.chunk_grid import Index
from einturnip.storage.types import Array, Source
from einturnip.tuning.memory import END_SECONDS, JOIN_SECONDS, MPI_BANDWIDTH, MPI_LATENCY


class RankConnections:
    """The coordinator's connections to all ranks in one run; implements ``SiteConnections``."""

    def __init__(
        self, rank: JobRank, reader: BlockReader, tile: Callable[[int], Array], store: Callable[[int, Any], None]
    ) -> None:
        self._rank, self._reader, self._tile, self._store = rank, reader, tile, store
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._run = rank.runs = rank.runs + 1
        self._settled, self._changed = set[int](), threading.Condition()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # One thread, so that one tile at a time is in memory.
        self._server = threading.Thread(target=self._serve, name="einturnip-tiles", daemon=True)
        self._server.start()
        rank.states = self._said
        rank.port.controls |= {
            Control.WANTED: lambda source, number, nbytes: self._work.put(partial(self._send, source, number)),
            Control.OFFER: lambda source, number, nbytes: self._work.put(partial(self._take, source, number, nbytes)),
        }

    def submit(self, parts: Callable[[int], Iterator[list[Piece]]]) -> None:
        """Send each site its part.

        That of this rank comes last, when the encoded parts of others are no longer in memory.

        Raises:
            DeviceError: a rank does not answer.
        """
        for site in [*range(1, self._rank.port.size), 0]:
            sent = threading.Event()
            pieces = (piece for batch in parts(site) for piece in batch)
            self._rank.port.send(site, Tag.PART, numbered(self._run, pieces), sent.set)
            if not sent.wait(JOIN_SECONDS):
                raise DeviceError(f"rank {site} does not answer within {JOIN_SECONDS} s. Nothing was written")
            self.events.put(("joined", site, {}))

    def say(self, do: str) -> None:
        """See SiteConnections."""
        for site in range(self._rank.port.size):
            self._rank.say(site, {"do": do})

    def missing(self) -> list[int]:
        """Return no site: if a rank is gone, the launcher ends all others."""
        return []

    def blocks(self, name: str, indices: Sequence[Index], site_of: Mapping[Index, int]) -> Blocks:
        """See SiteConnections."""
        return RankBlocks(self._reader, f"{name}-{self._run}", {index: site_of.get(index, 0) for index in indices})

    def close(self) -> None:
        """Wait until no transfer uses the memory of a site, and let all sites free it.

        If one does not answer, all ranks are ended when this process has reported its error.
        """
        self._work.put(None)
        until = time.monotonic() + END_SECONDS
        with self._changed:
            settled = self._changed.wait_for(lambda: len(self._settled) == self._rank.port.size, END_SECONDS)
        self._server.join(max(0.0, until - time.monotonic()))
        if not settled or self._server.is_alive():
            atexit.register(self._rank.port.abort)
            return
        self.say("close")
        # The rank keeps its handlers until the next run, but the plan and the data can go.
        self._rank.states, self._tile, self._store = ignored, _over, _over

    def _said(self, site: int, message: Message) -> None:
        state = message.pop("state")
        if state in ("done", "settled"):
            with self._changed:
                self._settled.add(site)
                self._changed.notify_all()
        if state != "settled":
            self.events.put((state, site, message))

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _send(self, site: int, number: int) -> None:
        sent = threading.Event()
        try:
            data = contiguous(self._tile(number))
        except Exception as error:
            self.events.put(("failed", site, {"kind": type(error).__name__, "text": str(error)}))
            return
        self._rank.port.send(site, Tag.TILE, data, sent.set)
        sent.wait()

    def _take(self, site: int, number: int, nbytes: int) -> None:
        data, arrived = np.empty(nbytes, np.uint8), threading.Event()
        self._rank.port.fetch(site, Tag.STORED, data, self._run, Control.GIVE, number, arrived.set)
        arrived.wait()
        try:
            self._store(number, data)
        except Exception as error:
            self.events.put(("failed", site, {"kind": type(error).__name__, "text": str(error)}))
            return
        self._rank.port.control(site, self._run, Control.TAKEN, number)


def _over(*_: Any) -> Any:
    raise RunError("the run is over")


class MpiCluster:
    """The ranks of this job, of which this process is rank 0; implements ``Cluster``."""

    plans_within_memory = True
    link = MachineLink(MPI_BANDWIDTH, MPI_LATENCY)

    def __init__(self, rank: JobRank) -> None:
        self._rank, self._reader = rank, BlockReader(rank)

    def workers(self) -> tuple[Worker, ...]:
        """See Cluster."""
        every, here = range(self._rank.port.size), self._rank.here
        here.clear()
        for r in every:
            self._rank.say(r, {"do": "describe"})
        with self._rank.joined:
            if not self._rank.joined.wait_for(lambda: len(here) == len(every), JOIN_SECONDS):
                late = next(r for r in every if r not in here)
                raise DeviceError(
                    f"rank {late} has not begun within {JOIN_SECONDS} s. help: look at its node's messages"
                )
        return accepted({f"rank {r}": here[r] for r in every})

    def locate(self, sources: Mapping[str, Source], memory: int | None) -> None:
        """Do nothing: blocks stay at the ranks that have made them."""

    def kept_source(self, name: str, array: Any) -> Source:
        """See Cluster."""
        return RankSource(name, array)

    def begin(
        self,
        sites: Sequence[str],
        parts: Callable[[int], Iterator[list[Piece]]],
        tile: Callable[[int], Array],
        store: Callable[[int, Any], None],
        site_of: Callable[[int], int],
    ) -> RankConnections:
        """See Cluster."""
        connections = RankConnections(self._rank, self._reader, tile, store)
        try:
            connections.submit(parts)
        except BaseException:
            connections.say("stop")
            connections.close()
            raise
        return connections

    def answers(self) -> bool:
        """See Cluster."""
        return True


@contextmanager
def ranks() -> Iterator[MpiCluster]:
    """Context in which the other ranks take part in the runs of this one, rank 0."""
    rank = this_rank()
    cluster = MpiCluster(rank)
    site = threading.Thread(target=serve, args=(rank,), name="einturnip-site", daemon=True)
    site.start()
    try:
        yield cluster
    finally:
        rank.end()
        site.join(END_SECONDS)
