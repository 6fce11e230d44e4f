"""Calls of functions by which the process that begins a run asks all workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client
from distributed.comm import CommClosedError

from einturnip.core.errors import DeviceError, WorkerLost
from einturnip.sites.wires.dask_chunks import no_answer
from einturnip.tuning.memory import ANSWER_SECONDS, ANSWER_SECONDS_EACH


def run_on_workers(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, Any]:
    """Return the results of a function that workers run on their event loops, by the worker's address.

    One message goes to all of them. If one does not answer, each is asked by itself whether its event loop runs.

    ``seconds``: a worker whose event loop runs answers within this time, and each further one a little later.

    Raises:
        WorkerLost: a worker does not answer. DeviceError: a worker failed, or the scheduler does not answer.
    """
    seconds += len(workers) * ANSWER_SECONDS_EACH

    async def answer(asked: Sequence[str], *call: Any) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.wait_for(client.run(*call, workers=[*asked], on_error="return"), seconds)
        return found

    async def silent(address: str) -> bool:
        try:
            return isinstance((await answer([address], os.getpid))[address], Exception)
        except TimeoutError:
            return True

    async def replies() -> dict[str, Any]:
        try:
            return await answer(workers, function, *arguments)
        except TimeoutError as error:
            lost = [
                a
                for a, is_silent in zip(workers, await asyncio.gather(*map(silent, workers)), strict=True)
                if is_silent
            ]
            return dict.fromkeys(lost or workers[:1], error)

    try:
        found: dict[str, Any] = client.sync(replies) if workers else {}
    except OSError as error:
        raise no_answer(error) from error
    for address, result in found.items():
        if isinstance(result, (TimeoutError, CommClosedError)):
            raise WorkerLost(
                f"worker {address} does not answer: it is stopped, its process has ended, or its machine is not "
                "reachable. If it is stopped, continue it (kill -CONT) or end it."
            )
        # Dask sends an error in loading a function as a plain Exception with the error's text.
        if isinstance(result, ImportError) or "ModuleNotFoundError(" in str(result):
            raise DeviceError(f"worker {address} lacks a package: {result}. help: pip install 'einturnip[dask]' there")
        if isinstance(result, Exception):
            raise DeviceError(f"worker {address} failed: {type(result).__name__}: {result}")
    return found
