"""Protocols of the engine that connects the processes of a run: Dask or MPI.

The messages of a run, between the coordinator and each site:

1. The coordinator sends the site its part (``Cluster.begin``); the site is ``joined``.
2. The site opens files, compiles kernels, checks its memory, and says ``ready``.
3. When all sites are ready, the coordinator says ``go``.
4. The site says ``progress`` from time to time, and ``done`` or ``failed`` at the end.
5. The coordinator says ``stop`` when all are done or one has failed or is lost. Over MPI each site then waits for its
   transfers (``SiteEnd.settle``) and says ``settled``, and the coordinator says ``close``.

Over MPI, rank 0 also sends messages between runs: ``describe``, which a rank answers by ``here``; ``read``, for a part
of a block that the rank keeps; ``forget``, which frees the blocks of an array; and ``end``, after the last run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from einturnip.caches import Piece
from einturnip.cluster.workers import Worker
from einturnip.cost.site_rates import MachineLink
from einturnip.memgraph.views import OpViews
from einturnip.sites.part import SitePart
from einturnip.sites.process_run import FetchingWire
from einturnip.sites.wires.messages import Event, Report
from einturnip.storage.chunks.chunk_grid import Index
from einturnip.storage.types import Array, Source


class Blocks(Protocol):
    """The blocks of an output that stay where they were computed."""

    def is_complete(self, seconds: float) -> bool:
        """Wait until all blocks are there; False if they are not yet.

        Raises:
            RunError: one is lost.
        """
        ...

    def array(self, extents: tuple[tuple[int, ...], ...], dtype: Any) -> Any:
        """Return the output as an array of blocks with these extents."""
        ...


class SiteConnections(Protocol):
    """The coordinator's connections to the sites of one run. ``events``: the reports of the sites."""

    events: SimpleQueue[Event]

    def say(self, do: str) -> None:
        """Send a message to all sites that are connected."""
        ...

    def missing(self) -> list[int]:
        """Return the sites that are known to be gone."""
        ...

    def blocks(self, name: str, indices: Sequence[Index], site_of: Mapping[Index, int]) -> Blocks:
        """Return the blocks of an output that stay at the sites."""
        ...

    def close(self) -> None:
        """End the run at all sites."""
        ...


class Cluster(Protocol):
    """The processes that run a plan, as the coordinator sees them.

    ``plans_within_memory``: the coordinator is one of them, so that their memory limit bounds planning too. ``link``:
    the rate and latency at which they receive values from each other, unless the user states another.
    """

    plans_within_memory: bool
    link: MachineLink

    def workers(self) -> tuple[Worker, ...]:
        """Return the processes, by site.

        Raises:
            DeviceError: there are none, or one cannot take part; names it, and what to do.
        """
        ...

    def locate(self, sources: Mapping[str, Source], memory: int | None) -> None:
        """Decide how the processes read inputs in chunks (Dask arrays).

        Raises:
            CapacityError, RunError: they cannot.
        """
        ...

    def kept_source(self, name: str, array: Any) -> Source:
        """Return an output whose blocks have stayed at the sites as an input of later runs.

        ``array``: what ``Blocks.array`` has returned.
        """
        ...

    def begin(
        self,
        sites: Sequence[str],
        parts: Callable[[int], Iterator[list[Piece]]],
        tile: Callable[[int], Array],
        store: Callable[[int, Any], None],
        site_of: Callable[[int], int],
    ) -> SiteConnections:
        """Begin a run on the processes with these addresses.

        ``parts``: yields the encoded part of a site, in batches of pieces; ``tile``: the tile of an input that an op
        loads; ``store``: takes the tile of an output that an op stores; ``site_of``: returns the site of an op.
        """
        ...

    def answers(self) -> bool:
        """Return whether the scheduler still answers; always True over MPI."""
        ...


class SiteEnd(Protocol):
    """A site's connections in one run: to the coordinator and to other sites.

    ``stopped``: set when the run is over for all; ``on_stop`` is then called.
    """

    site: int
    stopped: threading.Event
    on_stop: Callable[[], None]

    def message(self) -> dict[str, Any]:
        """Wait for the coordinator's next message.

        Raises:
            Interrupted: it has stopped the run, or is gone.
        """
        ...

    def say(self, state: str, **content: Any) -> None:
        """Send a message to the coordinator."""
        ...

    def get(self, number: int) -> Any:
        """Return the bytes of a tile in the coordinator's memory."""
        ...

    def offer(self, number: int) -> None:
        """Let the coordinator fetch a tile, and wait until it has it."""
        ...

    def connect_sites(self, sites: tuple[str, ...], served: Mapping[int, tuple[Any, ...]]) -> None:
        """Set the addresses of all sites, and the pieces of chunks that other sites read here."""
        ...

    def wire(self, part: SitePart, views: OpViews, post: Callable[[Any], None]) -> SiteWire:
        """Return the site's end of the wire. ``post``: receives the ends of ops, reports and errors."""
        ...

    def attach(self, post: Callable[[Report], None], value: Callable[[int], Array], numbered: dict[int, int]) -> None:
        """Deliver messages of other sites from now on, and serve values.

        ``numbered``: the ops of this part by their number in the whole plan.
        """
        ...

    def fetch_piece(self, number: int, sites: Sequence[int], nbytes: int) -> Array:
        """Return a piece of a chunk, of ``nbytes``, from the first of the sites that has it."""
        ...

    def received_pieces(self) -> Mapping[int, int]:
        """Return the bytes of pieces by the site that they came from."""
        ...

    def is_ending(self) -> bool:
        """Return whether this process is ending, for example because its scheduler no longer answers."""
        ...

    def settle(self) -> None:
        """After a failure, wait until no transfer uses the site's memory."""
        ...

    def close(self) -> None:
        """End the connections."""
        ...


class SiteWire(FetchingWire, Protocol):
    """A wire between processes. ``received``: bytes by the site that they came from."""

    received: dict[int, int]

    def value(self, number: int) -> Array:
        """Return the bytes of a value that this site sends."""
        ...
