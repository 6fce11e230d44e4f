"""Fetches between Dask workers that are stopped: each ends, whenever the stop comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from einturnip.core.errors import Interrupted
from einturnip.sites.wires.dask import Address, DaskWire


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
    wire = DaskWire(worker, Address("run", "token", 0, ("a", "b")), part, views, posted.append)
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
