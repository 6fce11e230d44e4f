"""A Dask cluster as the coordinator of a run sees it: workers, their tasks, a connection to each."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, get_worker
from distributed.comm import get_address_host, parse_address, parse_host_port
from distributed.core import Server
from distributed.protocol import to_serialize
from distributed.security import Security
from distributed.utils import get_ip

from einturnip.caches import Piece
from einturnip.core.errors import BindError, DeviceError, RunError
from einturnip.memgraph.views import Array
from einturnip.sites.wires.dask import RunInbox, WorkerInboxes
from einturnip.sites.wires.dask_blocks import KeptBlocks, block_of
from einturnip.sites.wires.dask_chunks import known_workers, scheduler_answers, set_worker
from einturnip.sites.wires.dask_listener import listen
from einturnip.sites.wires.messages import Event
from einturnip.storage.chunks.chunk_grid import Index
from einturnip.storage.io.file_source import as_bytes
from einturnip.tuning.memory import CLUSTER_START_SECONDS, END_SECONDS, SENT_PARTS

DASK_HANDLERS = ("identity", "echo", "connection_stream", "dump_state")
"""The handlers that Dask gives to each server."""


@contextmanager
def cluster_at(at: str, insecure: bool) -> Iterator[Client]:
    """Context with a client of the cluster that ``--at`` names: ``local:P``, or a scheduler.

    Raises:
        BindError: it names none. DeviceError: there is no scheduler, or the network may be read by others.
    """
    kind, _, rest = at.partition(":")
    if kind == "local":
        if not rest.isdecimal() or not 1 <= int(rest) <= 64:
            raise BindError(f"--at {at}: name 1 to 64 workers, as in local:4")
        # Workers state their memory to einturnip alone, so Dask shall neither limit nor spill.
        options = {
            "memory_limit": 0,
            "dashboard_address": "127.0.0.1:0",
            "silence_logs": logging.CRITICAL,
            "preload": [__name__],
        }
        with (
            LocalCluster(
                n_workers=int(rest), threads_per_worker=1, processes=True, host="127.0.0.1", **options
            ) as cluster,
            Client(cluster) as client,
        ):
            _await_workers(client, int(rest))
            yield client
        return
    if kind not in ("tcp", "tls") or not rest.startswith("//"):
        raise BindError(f"--at {at}: name local:4, mpi, or a Dask scheduler, as in tcp://host:8786")
    host = _host(at, kind)
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise DeviceError(f"--at {at}: the host {host} is not known: {error.strerror}. help: check its name") from error
    if kind == "tcp" and not insecure and not all(ipaddress.ip_address(a).is_loopback for a in addresses):
        raise DeviceError(
            f"--at {at}: others on the network can read and change what plain tcp carries. help: use tls:// "
            "(distributed.dask.org, section TLS/SSL), or accept that with --insecure"
        )
    if kind == "tls":
        _require_certificates(at)
    try:
        client = Client(at, timeout=10)
    except OSError as error:
        raise DeviceError(f"--at {at}: no Dask scheduler answers. help: start one, dask scheduler: {error}") from error
    except TypeError as error:  # another server of Dask does not take a scheduler's message
        raise DeviceError(
            f"--at {at}: what answers is no Dask scheduler. help: give the address that dask scheduler prints, "
            "not that of a worker"
        ) from error
    with client:
        yield client


def _host(at: str, kind: str) -> str:
    """Return the host of a scheduler's address.

    Raises:
        BindError: the address is not of the form tcp://host:port.
    """
    try:
        _, port = parse_host_port(parse_address(at)[1])
        reason = "" if 1 <= port <= 65535 else f"there is no port {port}"
    except ValueError as error:
        reason = "its port is no number" if "invalid literal" in str(error) else str(error)
    if reason:
        raise BindError(f"--at {at}: {reason}. help: name host and port, as in {kind}://host:8786")
    return str(get_address_host(at))


def _await_workers(client: Client, count: int) -> None:
    """Wait until the workers of a cluster have started.

    Raises:
        DeviceError: not all have in time.
    """
    try:
        client.wait_for_workers(count, timeout=CLUSTER_START_SECONDS)
    except TimeoutError:
        raise DeviceError(
            f"only {len(known_workers(client))} of {count} workers have started within {CLUSTER_START_SECONDS} s. "
            "help: start fewer, or try again when the machine is less busy"
        ) from None


def _require_certificates(at: str) -> None:
    """Refuse a cluster over TLS if Dask's configuration has no certificate for it.

    Raises:
        DeviceError: says where to name them.
    """
    try:
        found = Security().get_connection_args("client").get("ssl_context")
    except (OSError, ValueError) as error:
        raise DeviceError(f"--at {at}: the certificates that Dask's configuration names: {error}") from error
    if found is None:
        raise DeviceError(
            f"--at {at}: Dask's configuration names no certificates. help: distributed.comm.tls.ca-file and "
            "distributed.comm.tls.client (distributed.dask.org, section TLS/SSL)"
        )


def dask_setup(worker: Any) -> None:
    """Let a worker that the command started ignore Ctrl-C, which a terminal sends to it too.

    Dask calls this in the worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def require_processes(client: Client) -> None:
    """Refuse clients whose cluster no run can use.

    Raises:
        DeviceError: says what to do.
    """
    if not isinstance(client, Client):
        raise DeviceError(f"client= is {type(client).__name__}. help: give a distributed.Client, Client(address)")
    if client.asynchronous:
        raise DeviceError("the client is asynchronous. help: give one that is not, Client(address)")
    address = client.scheduler.address
    if address.partition(":")[0] not in ("tcp", "tls"):
        raise DeviceError(
            f"the cluster at {address} has no worker processes. help: LocalCluster(processes=True, "
            "threads_per_worker=1, memory_limit=0)"
        )


def open_inbox(run: str, token: str, dask_worker: Any) -> None:
    """Let a worker receive messages of a run; called on its event loop."""
    WorkerInboxes.of(dask_worker).runs[run] = RunInbox(token)


def close_inbox(run: str, dask_worker: Any) -> None:
    """Forget a run; called on the worker's event loop."""
    inbox = WorkerInboxes.of(dask_worker).runs.pop(run, None)
    if inbox is not None:
        inbox.close()


def is_ending(worker: Any) -> bool:
    """Return whether a worker closes, for example because its scheduler is gone."""
    return bool(worker.status.name != "running")


def this_worker() -> Any:
    """Return the worker that runs the calling task."""
    return get_worker()


def _over(*_: Any) -> Any:
    raise RunError("the run is over")


class WorkerConnections:
    """The connections to the workers of one run.

    ``parts``: yields the encoded part of a site, in batches of pieces; ``tile``: the tile of an input that an op loads;
    ``store``: takes the tile of an output that an op stores. ``ended``: called after the end. ``events``: the reports
    of the sites.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        token: str,
        sites: Sequence[str],
        parts: Callable[[int], Iterator[list[Piece]]],
        tile: Callable[[int], Array],
        store: Callable[[int, Any], None],
        site_of: Callable[[int], int],
        ended: Callable[[], None],
    ) -> None:
        self._ended = ended
        self._client, self._run, self._token, self._sites = client, run, token, sites
        self._parts, self._tile, self._store, self._site_of = parts, tile, store, site_of
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._comms: dict[int, Any] = {}
        self._sending = asyncio.Semaphore(SENT_PARTS)
        self._futures: list[Any] = []
        handlers = {"einturnip_site": self._site, "einturnip_get": self._get, "einturnip_offer": self._offer}
        # The port takes no message of Dask's own, which anyone could send without the token of the run.
        self._server = Server(
            handlers, connection_args=client.connection_args, needs_workdir=False, blocked_handlers=DASK_HANDLERS
        )
        self.address: str = client.sync(self._listen)

    def submit(self, task: Callable[[str, str, str, int], Any]) -> None:
        """Submit one task for each site, pinned to its worker."""
        self._futures = [
            self._client.submit(
                task,
                *(self._run, self._token, self.address, site),
                key=f"einturnip-{self._run}-{site}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            for site, address in enumerate(self._sites)
        ]

    def say(self, do: str) -> None:
        """Send a message to all sites that are connected."""
        with suppress(OSError, TimeoutError):
            self._client.sync(self._say, {"do": do}, callback_timeout=END_SECONDS)

    def missing(self) -> list[int]:
        """Return the sites whose workers the scheduler no longer has."""
        with suppress(DeviceError):
            known = known_workers(self._client)
            return [site for site, address in enumerate(self._sites) if address not in known]
        return []

    def blocks(self, name: str, indices: Sequence[Index], site_of: Mapping[Index, int]) -> KeptBlocks:
        """Make each block of an output, which its site's task returns, a value of the cluster, where it is."""
        array, futures, workers = f"{name}-{self._run}", dict[Index, Any](), dict[Index, str]()
        for site, (task, address) in enumerate(zip(self._futures, self._sites, strict=True)):
            mine = [index for index in indices if site_of.get(index, 0) == site]
            keys = [(array, *index) for index in mine]
            if mine:
                blocks = [(name, index) for index in mine]
                found = self._client.map(block_of, [task] * len(mine), blocks, key=keys, workers=[address], pure=False)
                set_worker(found, address)
                futures.update(zip(mine, found, strict=True))
                workers.update(dict.fromkeys(mine, address))
        return KeptBlocks(self._client, array, futures, workers)

    def close(self) -> None:
        """End the connections, the tasks and the inboxes of the workers."""
        with suppress(OSError, TimeoutError):
            self._client.sync(self._close, callback_timeout=END_SECONDS)
        for future in self._futures:
            future.release()
        self._futures = []
        # Dask caches the handlers of servers, and with them this object, but the plan and the data can go.
        self._parts = self._tile = self._store = self._site_of = _over
        self._ended()

    async def _listen(self) -> str:
        protocol, _, _ = self._client.scheduler.address.partition("://")
        host = get_ip(get_address_host(self._client.scheduler.address))
        await self._server
        arguments = self._client.security.get_listen_args("client")
        listener = await listen(protocol, host, self._server.handle_comm, **arguments)
        self._server.listeners.append(listener)
        return str(listener.contact_address)

    async def _close(self) -> None:
        try:
            if scheduler_answers(self._client):
                # Tasks that have ended are only released: cancelling one would also end blocks that were taken from it.
                running = [future for future in self._futures if future.status == "pending"]
                await self._client.cancel(running, force=True, asynchronous=True)
        finally:
            await self._server.close()

    async def _say(self, message: dict[str, Any]) -> None:
        for comm in list(self._comms.values()):
            with suppress(OSError):
                await comm.write(message)

    async def _site(self, comm: Any, run: str, token: str, value: int) -> None:
        self._require(run, token)
        self._comms[value] = comm
        try:
            async with self._sending:
                await self._send_part(comm, value)
            self.events.put(("joined", value, {}))
            while True:
                message = await comm.read()
                self.events.put((message.pop("state"), value, message))
        except OSError as error:
            self.events.put(("lost", value, {"error": str(error)}))
        except Exception as error:
            self.events.put(("failed", value, {"kind": "RunError", "text": f"{type(error).__name__}: {error}"}))
        finally:
            self._comms.pop(value, None)

    async def _send_part(self, comm: Any, site: int) -> None:
        # The site asks for the next batch, so that one at a time is in transit.
        batch, following = None, self._parts(site)
        while (batch := await asyncio.to_thread(next, following, None)) is not None:
            await comm.write({"do": "part", "data": [to_serialize(piece) for piece in batch], "more": True})
            await comm.read()
        await comm.write({"do": "part", "data": [], "more": False})

    async def _get(self, run: str, token: str, value: int) -> dict[str, Any]:
        self._require(run, token)
        tile = await asyncio.to_thread(self._tile, value)
        return {"data": to_serialize(as_bytes(np.ascontiguousarray(tile)))}

    async def _offer(self, run: str, token: str, value: int) -> str:
        self._require(run, token)
        rpc = self._client.rpc(self._sites[self._site_of(value)])
        reply = await rpc.einturnip_get(run=run, token=token, value=value)
        await asyncio.to_thread(self._store, value, reply["data"])
        return "OK"

    def _require(self, run: str, token: str) -> None:
        if run != self._run or not hmac.compare_digest(token, self._token):
            raise RunError("no such run")
