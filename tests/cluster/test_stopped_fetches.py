"""Fetches of Dask workers that are stopped: each ends, whenever the stop comes."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from einturnip.core.errors import Interrupted
from einturnip.sites.wires import dask
from einturnip.sites.wires.dask import Address, CoordinatorConnection, DaskWire, RunInbox, WorkerInboxes
from einturnip.sites.wires.dask_chunks import PeerChunks
from einturnip.sites.wires.dask_cluster import close_inbox, open_inbox


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_fetch_ends_however_early_it_is_stopped(turns: int) -> None:
    """``turns``: of the event loop between the start of the fetch and the stop; with none it never runs."""
    loop, posted, asked = asyncio.new_event_loop(), list[Any](), list[int]()

    async def get(value: int, **_: Any) -> Any:
        asked.append(value)
        await asyncio.Event().wait()

    async def pause(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    worker = SimpleNamespace(
        loop=SimpleNamespace(asyncio_loop=loop), rpc=lambda address: SimpleNamespace(einturnip_get=get)
    )
    part: Any = SimpleNamespace(number=np.array([7]), plan=SimpleNamespace(op=np.array([0]), peer=np.array([1])))
    views: Any = None
    wire = DaskWire(worker, Address("run", "token", 0, ("a", "b")), RunInbox("token"), part, views, posted.append)
    try:
        wire.fetch(0)
        if turns:
            loop.run_until_complete(pause(turns))
        wire.stop()
        loop.run_until_complete(pause(5))
    finally:
        loop.close()
    assert asked == ([7] if turns else [])
    (end,) = posted
    assert end.op == 0 and isinstance(end.error, Interrupted)


@pytest.mark.parametrize("ends", ["coordinator", "inbox"])
@pytest.mark.parametrize("which", ["tile", "piece"])
def test_a_call_of_a_process_that_no_longer_listens_ends_with_the_run(which: str, ends: str) -> None:
    """Dask would try for half a minute to connect, and the next run would wait for the worker."""
    loop, asked, says = asyncio.new_event_loop(), asyncio.Event(), asyncio.Queue[Any]()

    async def never(**_: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    worker: Any = SimpleNamespace(
        loop=SimpleNamespace(asyncio_loop=loop),
        rpc=lambda address: SimpleNamespace(einturnip_get=never, einturnip_acknowledge=never),
        handlers={},
        extensions={},
        connection_args={},
    )
    comm = SimpleNamespace(write=mock.AsyncMock(), read=says.get, close=mock.AsyncMock())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        open_inbox("run", "token", worker)
        with mock.patch.object(dask, "connect", mock.AsyncMock(return_value=comm)):
            connection = CoordinatorConnection(worker, "c", "run", "token", 0)
        chunks = PeerChunks(worker, Address("run", "token", 0, ("a", "b")), WorkerInboxes.of(worker).runs["run"])
        get = connection.get if which == "tile" else lambda number: chunks.fetch(number, [1])

        async def end() -> None:
            await asked.wait()
            await says.put({"do": "stop"}) if ends == "coordinator" else close_inbox("run", worker)

        ending = asyncio.run_coroutine_threadsafe(end(), loop)
        for _ in range(2):  # the second call comes after the end
            with pytest.raises(Interrupted):
                get(7)
        ending.result()
        connection.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_fetch_that_waits_for_a_slot_ends_with_the_run() -> None:
    """Receivers that were killed acknowledge nothing, so their slots stay taken."""

    async def main() -> None:
        worker: Any = SimpleNamespace(handlers={}, extensions={}, address="w")
        open_inbox("run", "token", worker)
        every = WorkerInboxes.of(worker)
        every.runs["run"].pieces[0] = lambda: np.zeros(4)
        for _ in range(dask.RECEIVE_WINDOW):
            await every.get("run", "token", 0)
        waiting = asyncio.ensure_future(every.get("run", "token", 0))
        await asyncio.sleep(0)
        every.runs["run"].stop_calls()  # this site has failed, of which the other one knows nothing
        await asyncio.sleep(0)
        assert not waiting.done()
        every.site_ended("run")
        close_inbox("run", worker)
        with pytest.raises(Interrupted):
            await asyncio.wait_for(waiting, 20)

    asyncio.run(main())


@pytest.mark.parametrize("last", ["stop", "lost"])
def test_pieces_of_chunks_leave_with_the_connection_of_the_coordinator(last: str) -> None:
    """A coordinator that was killed tells nobody that its run is over."""
    loop, says = asyncio.new_event_loop(), asyncio.Queue[Any]()

    async def read() -> Any:
        if await says.get() == "lost":
            raise OSError("closed")
        return {"do": "stop"}

    worker: Any = SimpleNamespace(
        loop=SimpleNamespace(asyncio_loop=loop),
        handlers={},
        extensions={},
        connection_args={},
        address="a",
        data={"chunk": np.zeros(4)},
    )
    comm = SimpleNamespace(write=mock.AsyncMock(), read=read, close=mock.AsyncMock())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        open_inbox("run", "token", worker)
        every = WorkerInboxes.of(worker)
        with mock.patch.object(dask, "connect", mock.AsyncMock(return_value=comm)):
            connection = CoordinatorConnection(worker, "c", "run", "token", 0)
        chunks = PeerChunks(worker, Address("run", "token", 0, ("a", "b")), every.runs["run"])
        chunks.serve({3: ("chunk", (slice(1, 3),), (4,), np.dtype(float))})
        connection.close()
        every.site_ended("run")  # the task here has ended, and others may still read
        asked = asyncio.run_coroutine_threadsafe(every.get("run", "token", 3), loop)
        assert asked.result(20)["data"] is not None
        asyncio.run_coroutine_threadsafe(says.put(last), loop).result(20)
        connection.stopped.wait(20)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(20)
        assert every.runs == {}
        comm.close.assert_awaited()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
