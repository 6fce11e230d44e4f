"""Chunks of Dask arrays as the coordinator of a run finds them, and as workers read them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import dask
import numpy as np
from dask.core import flatten
from dask.optimization import cull
from distributed import Client, Future, futures_of, wait
from distributed.protocol.pickle import dumps, loads

from einturnip.core.errors import BindError, DeviceError, RunError
from einturnip.sites.wires.dask import Address, RunInbox
from einturnip.sites.wires.messages import PeerLost
from einturnip.storage.chunks.chunk_grid import Index
from einturnip.storage.placed_chunks import WorkerChunks
from einturnip.storage.types import Array
from einturnip.tuning.memory import ANSWER_SECONDS, GRAPH_NBYTES, GRAPH_SHARE, SHARED_TASKS, TICK_SECONDS

Key = Any
"""The name of a value in a cluster: a string, or a tuple of a string and numbers."""

_COMPUTED_BY: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The worker of each block of an output that stayed on the workers. No other worker can compute it again."""


def scheduler_answers(client: Client) -> bool:
    """Return whether a client is connected; calls of one that is not wait for a scheduler to come back."""
    return bool(client.status == "running")


def known_workers(client: Client) -> list[str]:
    """Return the addresses of the workers that the scheduler has.

    The client's own ``scheduler_info`` may return what its periodic update has just stored, which names no worker.

    Raises:
        DeviceError: it does not answer.
    """
    try:  # a client waits long for a scheduler that is gone to come back
        found = client.sync(client.scheduler.ncores, callback_timeout=ANSWER_SECONDS)
    except OSError as error:
        raise no_answer(error) from error
    return [*found]


def no_answer(error: OSError) -> DeviceError:
    """Return the error for a scheduler that does not answer a question."""
    return DeviceError(f"the cluster does not answer: {error}")


def set_worker(futures: Iterable[Future], worker: str) -> None:
    """Record which worker alone can compute some values."""
    for future in futures:
        _COMPUTED_BY[future] = worker


def _wait(client: Client, futures: Sequence[Future], used: Sequence[Future], name: str) -> None:
    """Wait until values are there, or have failed. ``used``: values that they are computed from.

    Raises:
        RunError: no worker can compute one.
    """
    while True:
        if not scheduler_answers(client):
            raise RunError(f"{name}: the scheduler of the cluster that has it is gone. help: start it and run again")
        for future in used:
            if future in _COMPUTED_BY and future.status != "finished":
                raise RunError(
                    f"{name}: a run has computed it, and a part of it was lost with worker {_COMPUTED_BY[future]}. "
                    "help: compute it again; in a session, load a checkpoint"
                )
        try:
            wait(futures, timeout=TICK_SECONDS)
        except TimeoutError:
            if scheduler_answers(client) and not known_workers(client):
                raise RunError(f"{name}: workers compute it, and the cluster has none. help: start some") from None
        except CancelledError as error:
            raise RunError(f"{name}: Dask has cancelled it: {error}. help: run again") from error
        else:
            return


@dataclass(frozen=True, slots=True)
class ChunkTasks:
    """Tasks of Dask that compute the chunks of an array, each by itself."""

    name: str
    graph: Mapping[Key, Any]

    def encoded(self, chunks: Iterable[Index]) -> bytes:
        """Return the tasks that compute some chunks.

        They are functions of the caller, which only pickle carries.
        """
        found, _ = cull(self.graph, [(self.name, *index) for index in chunks])
        data: bytes = dumps(found)
        return data

    @classmethod
    def decoded(cls, name: str, data: Any) -> ChunkTasks:
        """Return the tasks that ``encoded`` has returned, in another process."""
        return cls(name, loads(bytes(data)))

    def compute(self, index: Index) -> Array:
        """Compute a chunk in the calling thread."""
        key = (self.name, *index)
        tasks, _ = cull(self.graph, [key])
        return np.asarray(dask.get(tasks, key))


def worker_chunks(client: Client, array: Any, name: str) -> WorkerChunks | None:
    """Return where the chunks of a persisted array are; None for an array of another kind.

    Waits for those that are being computed.

    Raises:
        RunError: a chunk could not be computed. BindError: the array is in another cluster.
    """
    graph, keys = array.__dask_graph__(), _chunk_keys(array)
    futures = dict[Index, Any]()
    for index, key in keys.items():
        value = graph[key]
        if not isinstance(value, Future):
            return None
        futures[index] = value
    if any(future.client.scheduler.address != client.scheduler.address for future in futures.values()):
        raise BindError(f"input {name}: its chunks are in another cluster than that of client=")
    while True:
        _wait(client, [*futures.values()], [*futures.values()], f"input {name}")
        for index, future in futures.items():
            if future.status == "error":
                raise RunError(f"input {name}: its chunk {list(index)} was not computed: {future.exception()!r}")
        holders = client.who_has([*futures.values()])
        if all(holders[future.key] for future in futures.values()):
            break
        time.sleep(TICK_SECONDS)  # a worker is gone, which the client hears next
    return WorkerChunks(
        {index: future.key for index, future in futures.items()},
        {index: tuple(holders[future.key]) for index, future in futures.items()},
    )


def is_on_workers(array: Any) -> bool:
    """Return whether tasks of an array use values in the memory of workers."""
    return bool(futures_of(array))


def chunk_tasks(array: Any) -> ChunkTasks | None:
    """Return the tasks of an array's chunks; None if the chunks have many tasks in common."""
    (found,) = dask.optimize(array)
    graph, keys = dict(found.__dask_graph__()), _chunk_keys(found)
    tasks = sum(len(cull(graph, [key])[0]) for key in keys.values())
    return None if tasks > SHARED_TASKS * len(graph) else ChunkTasks(found.name, graph)


def can_be_sent(tasks: ChunkTasks, array: Any) -> bool:
    """Return whether the tasks of an array can travel, and are small: do not contain the array's data."""
    limit, sent = max(GRAPH_NBYTES, int(GRAPH_SHARE * array.nbytes)), 0
    for index in _chunk_keys(array):
        try:
            sent += len(tasks.encoded([index]))
        except Exception:  # an open file, a lock: anything that pickle refuses
            return False
        if sent > limit:
            return False
    return True


def persist(client: Client, array: Any) -> Any:
    """Return the array with its chunks in the memory of workers."""
    return client.persist(array)


def computed_here(block: Any) -> Any:
    """Compute a block in the calling thread, without the cluster, whose workers are busy during a run."""
    return block.compute(scheduler="sync")


def computed_there(client: Client, name: str, block: Any) -> Any:
    """Compute a block on the cluster, between runs.

    Raises:
        RunError: no worker can compute it.
    """
    found = client.compute(block)
    _wait(client, [found], futures_of(block), name)
    return found.result()


def _chunk_keys(array: Any) -> dict[Index, Key]:
    return {tuple(int(k) for k in key[1:]): key for key in flatten(array.__dask_keys__())}


class PeerChunks:
    """Reads parts of chunks from the memory of this worker and of others.

    ``received``: bytes by the site that they came from.
    """

    def __init__(self, worker: Any, address: Address, inbox: RunInbox) -> None:
        self._worker, self._address, self._inbox = worker, address, inbox
        self.received: dict[int, int] = defaultdict(int)

    def serve(self, pieces: Mapping[int, tuple[Any, ...]]) -> None:
        """Let other sites read pieces.

        ``pieces``: by number the key of a chunk, a region, and the chunk's shape and dtype. The chunks stay in memory
        during the run, also if the cluster drops them here since others have them too.
        """
        for number, (key, *piece) in pieces.items():
            chunk = self._worker.data.get(key)
            self._inbox.pieces[number] = partial(_piece, self._worker.address, key, chunk, *piece)

    def fetch(self, number: int, sites: Sequence[int]) -> Array:
        """Return the elements of a piece, from the first of the sites that has its chunk."""
        for site in sites[:-1]:
            with suppress(ChunkGone):
                return self._fetch(number, site)
        return self._fetch(number, sites[-1])

    def _fetch(self, number: int, site: int) -> Array:
        if site == self._address.site:
            return self._inbox.value(number)
        return asyncio.run_coroutine_threadsafe(self._get(number, site), self._worker.loop.asyncio_loop).result()

    async def _get(self, number: int, site: int) -> Array:
        to, address = self._address.sites[site], self._address
        message = {"run": address.run, "token": address.token, "value": number}
        try:
            reply = await self._inbox.until_over(self._worker.rpc(to).einturnip_get(**message))
            data = np.frombuffer(reply["data"], np.uint8)
            await self._inbox.until_over(self._worker.rpc(to).einturnip_acknowledge(**message))
        except OSError as error:
            raise PeerLost(f"the worker {to} does not answer: {error}") from error
        self.received[site] += data.nbytes
        return data


class ChunkGone(RunError):
    """A worker no longer has a chunk: the cluster keeps one copy of each, and may drop others."""


def _piece(
    address: str, key: Key, chunk: Any, within: tuple[slice, ...], shape: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    if chunk is None:
        raise ChunkGone(f"the chunk {key} of a Dask array is no longer on {address}. help: run again")
    array = np.asarray(chunk)
    if array.shape != tuple(shape) or array.dtype != dtype:
        raise DeviceError(
            f"the chunk {key} of a Dask array is {array.dtype}{list(array.shape)}, and should be {dtype}{list(shape)}"
        )
    place: Any = (*within, ...)
    return np.asarray(array[place])
