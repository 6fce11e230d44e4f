"""The wire between the workers of a Dask cluster.

Values go from worker to worker, by handlers that are added to each.
A message names its run, the run's token and a number of the whole plan, nothing else. ``dask_cluster`` is the other
end of a ``CoordinatorConnection``, which connects each worker with the process that began the run.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
from distributed.core import connect
from distributed.protocol import to_serialize

from einturnip.core.errors import InternalError, Interrupted, RunError
from einturnip.memgraph.views import Array, OpViews
from einturnip.runtime.host.event_loop import OpEnded
from einturnip.sites.part import SitePart
from einturnip.sites.wires.messages import NumberedTransfers, PeerLost, SiteInbox
from einturnip.storage.io.file_source import as_bytes
from einturnip.tuning.memory import RECEIVE_WINDOW

EXTENSION = "einturnip"
CONNECT_SECONDS = 20.0
"""Seconds after which a connection that is not established counts as failed."""


class RunInbox(SiteInbox):
    """Messages for one run at one worker.

    ``pieces``: by number, parts of chunks of Dask arrays that are in this worker's memory; other sites read them.
    """

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token
        # Values in transit from here may be copies, so the account of memory bounds their number.
        self.outgoing = asyncio.Semaphore(RECEIVE_WINDOW)
        self.leaving = Counter[int]()
        self.pieces: dict[int, Callable[[], Array]] = {}
        self._calls, self._queued = set[asyncio.Future[Any]](), set[asyncio.Future[Any]]()
        self._has_stopped = self.is_over = False

    def close(self) -> None:
        """End the calls that are under way, and those of others that wait here: the run is over."""
        self.is_over = True
        self.stop_calls()
        for waiting in [*self._queued]:
            waiting.cancel()

    def stop_calls(self) -> None:
        """End the calls that are under way: this site has failed, or the run is over.

        One whose process no longer listens would try to connect for half a minute, and the worker's task with it.
        """
        self._has_stopped = True
        for call in [*self._calls]:
            call.cancel()

    async def until_over(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a call of another process, unless this site fails or the run ends before.

        Raises:
            Interrupted: the run is over.
        """
        return await self._awaited(call, self._calls, self._has_stopped)

    async def free_slot(self) -> None:
        """Wait until another value may leave.

        One whose receiver was killed keeps its slot, so the end of the run ends this.

        Raises:
            Interrupted: the run is over.
        """
        await self._awaited(self.outgoing.acquire(), self._queued, self.is_over)

    async def _awaited(self, call: Coroutine[Any, Any, Any], under_way: set[asyncio.Future[Any]], ended: bool) -> Any:
        if ended:
            call.close()
            raise Interrupted("the run is over")
        task = asyncio.ensure_future(call)
        under_way.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted("the run is over") from None
        finally:
            under_way.discard(task)

    def arrived_at_peer(self, number: int) -> None:
        """Allow another value to be sent."""
        if self.leaving[number]:
            self.leaving[number] -= 1
            self.outgoing.release()

    def value(self, number: int) -> Array:
        """Return the bytes of a value that this site has offered, or of a piece."""
        return self.pieces[number]() if number in self.pieces else super().value(number)


class WorkerInboxes:
    """The handlers of one worker, for all runs."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.runs: dict[str, RunInbox] = {}
        handlers = {"notify": self.notify, "get": self.get, "acknowledge": self.acknowledge}
        worker.handlers.update({f"einturnip_{name}": handler for name, handler in handlers.items()})

    @classmethod
    def of(cls, worker: Any) -> WorkerInboxes:
        """Return the inboxes of a worker; its handlers are added at the first call."""
        found: WorkerInboxes = worker.extensions.get(EXTENSION) or worker.extensions.setdefault(EXTENSION, cls(worker))
        return found

    def site_ended(self, run: str) -> None:
        """Forget a run whose task here has ended.

        If other sites may still read pieces of chunks from here, the end of the coordinator's connection ends it.
        """
        inbox = self.runs.get(run)
        if inbox is not None and inbox.pieces and not inbox.is_over:
            inbox.detach()
        else:
            self.runs.pop(run, None)

    async def notify(self, run: str, token: str, value: int) -> str:
        """Handle the offer of a value."""
        inbox = self._inbox(run, token)
        inbox.noticed(value)
        return "OK"

    async def get(self, run: str, token: str, value: int) -> dict[str, Any]:
        """Return the bytes of a value; at most RECEIVE_WINDOW values leave at the same time."""
        inbox = self._inbox(run, token)
        if value in inbox.numbered or value in inbox.pieces:  # tiles of outputs, which are neither, take no slot
            await inbox.free_slot()
            inbox.leaving[value] += 1
        try:
            return {"data": to_serialize(as_bytes(np.ascontiguousarray(inbox.value(value))))}
        except BaseException:  # nothing leaves, so nobody acknowledges it
            inbox.arrived_at_peer(value)
            raise

    async def acknowledge(self, run: str, token: str, value: int) -> str:
        """Handle the arrival of a value at another site."""
        inbox = self._inbox(run, token)
        inbox.arrived_at_peer(value)
        if value not in inbox.pieces:
            inbox.acknowledged(value)
        return "OK"

    def _inbox(self, run: str, token: str) -> RunInbox:
        found = self.runs.get(run)
        if found is None or not hmac.compare_digest(found.token, token):
            raise RunError(f"the worker {self.worker.address} has no such run")
        return found


@dataclass(frozen=True, slots=True)
class Address:
    """A worker's place in a run. ``sites``: the addresses of all workers."""

    run: str
    token: str
    site: int
    sites: tuple[str, ...]


class DaskWire(NumberedTransfers):
    """One site's end of the wire."""

    def __init__(
        self,
        worker: Any,
        address: Address,
        inbox: RunInbox,
        part: SitePart,
        views: OpViews,
        post: Callable[[Any], None],
    ) -> None:
        super().__init__(part, views, post)
        self._worker, self._address, self._inbox = worker, address, inbox
        self._tasks: set[Any] = set()
        self._stopped = False

    def notify(self, transfer: int, peer: int) -> None:
        """Notify the receiver that a value can be fetched."""
        self._begin(self._say("einturnip_notify", transfer, peer))

    def acknowledge(self, transfer: int, peer: int) -> None:
        """Notify the sender that the value has arrived."""
        self._begin(self._say("einturnip_acknowledge", transfer, peer))

    def fetch(self, op: int) -> None:
        """Copy a value from its site; posts the end of the op, also if it is cancelled before it starts."""
        begin = time.perf_counter()

        def ended(task: asyncio.Future[Any]) -> None:
            failure = Interrupted("interrupted") if task.cancelled() else task.exception()
            self.post(OpEnded(op, 0, begin, time.perf_counter(), failure))

        self._begin(self._fetch(op), ended)

    def stop(self) -> None:
        """Give up all transfers and other calls of this site; those that are under way end with an error."""
        self._worker.loop.asyncio_loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._stopped = True
        self._inbox.stop_calls()
        for task in [*self._tasks]:
            task.cancel()

    def _begin(
        self, work: Coroutine[Any, Any, None], ended: Callable[[asyncio.Future[Any]], None] | None = None
    ) -> None:
        def start() -> None:
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if ended is not None:  # a task that is cancelled before its first step runs none of its own code
                task.add_done_callback(ended)
            if self._stopped:
                task.cancel()

        self._worker.loop.asyncio_loop.call_soon_threadsafe(start)

    async def _say(self, message: str, transfer: int, peer: int) -> None:
        try:
            await self._call(message, transfer, peer)
        except asyncio.CancelledError:
            return
        except Exception as error:
            self.post(error)

    async def _fetch(self, op: int) -> None:
        peer = self.peer[op]
        reply = await self._call("einturnip_get", op, peer)
        target = self.target(op)
        data = np.frombuffer(reply["data"], np.uint8)
        if data.nbytes != target.nbytes:
            raise InternalError(f"a value of {target.nbytes} bytes arrived as {data.nbytes}")
        target[...] = data.view(target.dtype).reshape(target.shape)
        self.received[peer] += data.nbytes

    async def _call(self, message: str, transfer: int, peer: int) -> Any:
        to, address = self._address.sites[peer], self._address
        try:
            return await getattr(self._worker.rpc(to), message)(
                run=address.run, token=address.token, value=self.number[transfer]
            )
        except OSError as error:
            raise PeerLost(f"the worker {to} does not answer: {error}") from error


class CoordinatorConnection:
    """A worker's connection to the coordinator of a run; a closed one stops the run.

    Methods are called by the thread of the run, except those that begin with an underscore.
    """

    def __init__(self, worker: Any, address: str, run: str, token: str, site: int) -> None:
        self._worker, self._address, self._run, self._token, self.site = worker, address, run, token, site
        self.stopped = threading.Event()
        self.on_stop: Callable[[], None] = self.stopped.set
        self._inbox: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._comm: Any = None
        self._reading: Any = None
        self._has_closed = False
        self._calls: RunInbox
        self._do(self._open())

    def message(self) -> dict[str, Any]:
        """Wait for the coordinator's next message.

        Raises:
            Interrupted: it has stopped the run, or is gone.
        """
        found = self._inbox.get()
        if found["do"] == "stop":
            raise Interrupted("interrupted")
        return found

    def say(self, state: str, **content: Any) -> None:
        """Send a message to the coordinator.

        Raises:
            Interrupted: it is gone.
        """
        try:
            self._do(self._comm.write({"state": state, **content}))
        except OSError as error:
            raise Interrupted("the coordinator of the run is gone") from error

    def get(self, number: int) -> Any:
        """Return the bytes of a tile in the coordinator's memory. Called by any thread of the run."""
        return self._do(self._ask("einturnip_get", number))["data"]

    def offer(self, number: int) -> None:
        """Let the coordinator fetch a tile, and wait until it has it."""
        self._do(self._ask("einturnip_offer", number))

    def close(self) -> None:
        """End the connection.

        If other sites may still read pieces of chunks from here, the coordinator ends it.
        """
        self.on_stop = self.stopped.set
        self._do(self._close())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._worker.loop.asyncio_loop).result()

    async def _open(self) -> None:
        inbox = WorkerInboxes.of(self._worker).runs.get(self._run)
        if inbox is None:
            raise Interrupted("the run is over")
        self._calls, arguments = inbox, self._worker.connection_args
        self._comm = await inbox.until_over(connect(self._address, timeout=CONNECT_SECONDS, **arguments))
        message = {"run": self._run, "token": self._token, "value": self.site}
        await self._comm.write({"op": "einturnip_site", "reply": False, **message})
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while True:
            try:
                message = await self._comm.read()
            except OSError:
                message = {"do": "stop"}
            self._inbox.put(message)
            if message["do"] == "stop":
                self.stopped.set()
                self._calls.close()
                self.on_stop()
                if self._has_closed:
                    WorkerInboxes.of(self._worker).runs.pop(self._run, None)
                    await self._comm.close()
                return

    async def _ask(self, message: str, number: int) -> Any:
        rpc = self._worker.rpc(self._address)
        try:
            call = getattr(rpc, message)(run=self._run, token=self._token, value=number)
            return await self._calls.until_over(call)
        except OSError as error:
            raise PeerLost(f"the process that began the run does not answer: {error}") from error

    async def _close(self) -> None:
        self._has_closed = True
        if self._calls.is_over or not self._calls.pieces:
            self._reading.cancel()
            await self._comm.close()
