"""The contenders of ``clusters.py``: einturnip, dask.array and Cubed on Dask workers, and Ray actors."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from harness.cluster_cases import GROUPS, ClusterCase, create

OURS = "einturnip"
# The package of each contender.
PACKAGES = {OURS: "distributed", "dask.array": "dask", "Cubed": "cubed", "Ray actors": "ray"}
# Bytes that Cubed sets aside for Python and libraries in a worker: what an idle worker takes, and some more.
_RESERVED_NBYTES = 160 << 20
_RAY_STORE_NBYTES = 80 << 20

Work = Callable[[], dict[str, Any]]
"""Runs a case, and returns what it measured: ``between``, bytes that workers received from each other."""


def present() -> list[str]:
    """The contenders that can be imported here, einturnip first."""
    return [name for name, package in PACKAGES.items() if find_spec(package) is not None]


def takes(name: str, case: ClusterCase) -> bool:
    """True if a contender has this work: Ray actors are written by hand for the product alone."""
    return name != "Ray actors" or case.kind == "product"


@contextmanager
def workers(name: str, count: int, memory: int) -> Iterator[tuple[Any, list[int]]]:
    """Context with a contender's workers, each with one thread, and the ids of their processes.

    Dask bounds the memory of workers for dask.array and Cubed; einturnip does it itself, and for Ray actors nobody.
    """
    if name == "Ray actors":
        ray = import_module("ray")
        ray.init(
            num_cpus=count, include_dashboard=False, object_store_memory=_RAY_STORE_NBYTES, log_to_driver=False,
            logging_level="critical", runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}},
        )  # fmt: skip
        try:
            actors = [ray.remote(ProductPanels).options(num_cpus=1).remote() for _ in range(count)]
            yield actors, ray.get([actor.process.remote() for actor in actors])
        finally:
            ray.shutdown()
        return
    distributed = import_module("distributed")
    with (
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, host="127.0.0.1", memory_limit=0 if name == OURS else memory,
            dashboard_address="127.0.0.1:0", silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        client.wait_for_workers(count, timeout=120)
        yield client, list(client.run(os.getpid).values())


def work(name: str, case: ClusterCase, there: Any, inputs: Mapping[str, Path], out: Path, memory: int) -> Work:
    """The work of a contender on its workers, ``there``, from stores to a store."""
    match name:
        case "dask.array":
            return _dask(case, there, inputs, out)
        case "Cubed":
            return _cubed(case, there, inputs, out, memory)
        case "Ray actors":
            return _ray(case, there, inputs, out)
        case _:
            return _einturnip(case, there, inputs, out, memory)


def _einturnip(case: ClusterCase, client: Any, inputs: Mapping[str, Path], out: Path, memory: int) -> Work:
    import einturnip as et

    program = et.compile(case.program)

    def run() -> dict[str, Any]:
        files = {name: str(path) for name, path in inputs.items()}
        report = program(data=files, client=client, memory=memory, out={"Z": str(out)}).report
        between = sum(sum(site.received_nbytes.values()) for site in report.sites)
        return {"between": between, "run_seconds": report.wall_seconds}

    return run


def _log_all(dask_worker: Any) -> None:
    """Let a worker log every transfer, from now on; it keeps the last thousand otherwise."""
    dask_worker.transfer_incoming_log = deque()


def _received(dask_worker: Any) -> int:
    """The bytes that a worker received from others."""
    return sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log)


def _dask(case: ClusterCase, client: Any, inputs: Mapping[str, Path], out: Path) -> Work:
    da = import_module("dask.array")

    def run() -> dict[str, Any]:
        client.run(_log_all)
        result = _formula(da, case, [da.from_zarr(str(path)) for path in inputs.values()])
        da.store(result.rechunk(case.result.chunks), create(out, case.result), lock=False)
        return {"between": sum(client.run(_received).values())}

    return run


def _cubed(case: ClusterCase, client: Any, inputs: Mapping[str, Path], out: Path, memory: int) -> Work:
    cubed, xp = import_module("cubed"), import_module("cubed.array_api")
    dask = import_module("cubed.runtime.executors.dask")
    # It asks a client that does not know workers yet, since distributed 2025, and finds none. Their memory is the same.
    vars(dask)["check_runtime_memory"] = lambda spec, client: None
    executor = dask.DaskExecutor(compute_kwargs={"address": client.scheduler.address})
    spec = cubed.Spec(work_dir=str(out.parent), allowed_mem=memory, reserved_mem=_RESERVED_NBYTES, zarr_compressor=None)

    def run() -> dict[str, Any]:
        client.run(_log_all)
        result = _formula(xp, case, [cubed.from_zarr(str(path), spec=spec) for path in inputs.values()])
        cubed.to_zarr(result.rechunk(case.result.chunks), str(out), executor=executor)
        return {"between": sum(client.run(_received).values())}

    return run


def _formula(xp: Any, case: ClusterCase, arrays: list[Any]) -> Any:
    """The result in operations of an array library, as its documentation writes them."""
    match case.kind, arrays:
        case "product", [a, b]:
            return xp.matmul(a, b)
        case "chain", [a, b, e]:
            return xp.matmul(xp.matmul(a, b), e)
        case "mttkrp", [x, b, c]:
            if hasattr(xp, "einsum"):
                return xp.einsum("ijk,jr,kr->ir", x, b, c, optimize=True)
            return xp.sum(xp.tensordot(x, c, axes=((2,), (0,))) * xp.expand_dims(b, axis=0), axis=1)
        case "attention", [q, k, v]:
            if hasattr(xp, "einsum"):
                scores = xp.einsum("hsd,htd->hst", q, k) * np.float32(1 / math.sqrt(q.shape[-1]))
            else:
                scores = xp.matmul(q, xp.permute_dims(k, (0, 2, 1))) * (1 / math.sqrt(q.shape[-1]))
            weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
            return xp.matmul(weights, v) / xp.sum(weights, axis=-1, keepdims=True)
        case _, [key, x]:
            blocks, columns = math.ceil(x.shape[0] / case.inputs["X"].chunks[0]), x.shape[1]
            chunks = ((1,) * blocks, (GROUPS,), (columns,))
            parts = xp.map_blocks if hasattr(xp, "map_blocks") else import_module("cubed").map_blocks
            sums = parts(group_sums, xp.expand_dims(key, axis=1), x, dtype=np.float32, chunks=chunks, new_axis=[1])
            return xp.sum(sums, axis=0)
    raise ValueError(case.kind)


def group_sums(key: Any, rows: Any) -> Any:
    """The sums by key of one block, as one row of blocks."""
    order = np.argsort(key[:, 0].astype(np.int16), kind="stable")  # which sorts by digits
    found, first = np.unique(key[order, 0], return_index=True)
    out = np.zeros((1, GROUPS, rows.shape[1]), rows.dtype)
    out[0, found] = np.add.reduceat(rows[order], first, axis=0)
    return out


class ProductPanels:
    """A Ray actor that computes one block of a product, panel by panel from the stores."""

    def process(self) -> int:
        """The id of its process."""
        return os.getpid()

    def compute(self, a: str, b: str, z: str, rows: tuple[int, int], columns: tuple[int, int], step: int) -> None:
        """Compute ``Z[rows, columns]``, of which no chunk is another actor's.

        ``step``: length of the sum, and rows, that are in memory at a time.
        """
        zarr = import_module("zarr")
        left, right, out = (zarr.open_array(path, mode="r+" if path == z else "r") for path in (a, b, z))
        (top, bottom), (first, last) = rows, columns
        total = np.zeros((bottom - top, last - first), np.float32)
        for k in range(0, left.shape[1], step):
            panel = right[k : k + step, first:last]
            for i in range(top, bottom, step):
                total[i - top : i - top + step] += left[i : min(i + step, bottom), k : k + step] @ panel
        out[top:bottom, first:last] = total


def _ray(case: ClusterCase, actors: list[Any], inputs: Mapping[str, Path], out: Path) -> Work:
    ray, n = import_module("ray"), case.result.shape[0]

    def run() -> dict[str, Any]:
        create(out, case.result)
        halves, paths = ((0, n // 2), (n // 2, n)), [str(path) for path in (*inputs.values(), out)]
        blocks = [(rows, columns) for rows in halves for columns in halves]
        step = case.inputs["A"].chunks[1]
        ray.get([a.compute.remote(*paths, *block, step) for a, block in zip(actors, blocks, strict=True)])
        return {"between": 0}  # every panel comes from a store

    return run
