"""Outputs of a run whose blocks stay in the memory of Dask's workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from distributed import Client, Future, wait

from einturnip.core.errors import WorkerLost
from einturnip.memgraph.views import Array
from einturnip.sites.wires.dask_calls import run_on_workers
from einturnip.sites.wires.dask_chunks import Key, no_answer, set_worker
from einturnip.storage.chunks.chunk_grid import Index
from einturnip.tuning.memory import ANSWER_SECONDS


def block_of(blocks: dict[tuple[str, Index], Array], which: tuple[str, Index]) -> Array:
    """Return one of the blocks that a site's task has returned."""
    return blocks[which]


def keep_blocks(array: str, name: str, dask_worker: Any) -> dict[Key, int]:
    """Make a worker's blocks of an array data under a new name, and return their bytes.

    Called on the worker's event loop.
    """
    mine = [key for key in dask_worker.data if isinstance(key, tuple) and key[0] == array]
    nbytes: dict[Key, int] = dask_worker.update_data({(name, *key[1:]): dask_worker.data[key] for key in mine})[
        "nbytes"
    ]
    return nbytes


class KeptBlocks:
    """The blocks of an output that stay on the workers. ``futures``, ``workers``: of each block."""

    def __init__(self, client: Client, name: str, futures: Mapping[Index, Any], workers: Mapping[Index, str]) -> None:
        self._client, self._name, self._futures, self._workers = client, name, futures, workers

    def is_complete(self, seconds: float) -> bool:
        """Wait until all blocks are there; False if they are not yet.

        Raises:
            WorkerLost: one is lost.
        """
        try:
            wait([*self._futures.values()], timeout=seconds)
        except TimeoutError:
            return False
        for index, future in self._futures.items():
            if future.status != "finished":
                raise self._lost(self._workers[index])
        return True

    def _lost(self, worker: str) -> WorkerLost:
        return WorkerLost(f"worker {worker} is gone, and with it a block of a result.")

    def array(self, extents: tuple[tuple[int, ...], ...], dtype: np.dtype[Any]) -> Any:
        """Return the output as a Dask array of blocks with these extents.

        Its blocks are data of the cluster, not results of tasks: Dask would compute a result that is lost with its
        worker again on that same worker, and wait for it forever.

        Raises:
            WorkerLost: one is lost. DeviceError: the scheduler does not answer.
        """
        from dask.array import Array as DaskArray

        client, name = self._client, f"{self._name}-data"
        found = run_on_workers(client, [*set(self._workers.values())], keep_blocks, self._name, name)
        nbytes = {key: size for of_worker in found.values() for key, size in of_worker.items()}
        where = {(name, *index): address for index, address in self._workers.items()}
        for key, address in where.items():
            if key not in nbytes:
                raise self._lost(address)
        holders = {key: [address] for key, address in where.items()}
        try:
            update = client.scheduler.update_data
            client.sync(update, who_has=holders, nbytes=nbytes, client=client.id, callback_timeout=ANSWER_SECONDS)
        except OSError as error:
            raise no_answer(error) from error
        graph = dict[Key, Future]()
        for key, address in where.items():
            graph[key] = Future(key, client)
            client.futures[key].finish(type=np.ndarray)
            set_worker([graph[key]], address)
        return DaskArray(graph, name, chunks=extents, dtype=dtype)
