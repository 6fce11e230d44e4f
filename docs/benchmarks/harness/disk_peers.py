"""The alternatives for data in files: Dask, Cubed, memory maps. Each writes its result to a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from harness.disk_cases import DiskCase, chunks, create

OURS = "einturnip"
# The package of each peer.
PEERS = {"dask": "dask", "cubed": "cubed", "memmap": "numpy"}
# The peers that goals are about; memory maps have no limit.
LIMITED = ("dask", "cubed")
# Bytes of a memory map's rows that are processed at once.
_PANEL = 256 << 20

Work = Callable[[], None]


def present() -> list[str]:
    """The peers that can be imported here."""
    return [name for name, package in PEERS.items() if find_spec(package) is not None]


def work(name: str, case: DiskCase, inputs: Mapping[str, Path], out: Path, memory: int | None) -> Work | None:
    """The work of a contender, from files to a file; None if it lacks it."""
    match name:
        case "dask":
            return _dask(case, inputs, out)
        case "cubed":
            return _cubed(case, inputs, out, memory)
        case "memmap":
            return _memmap(case, inputs, out) if out.suffix == ".npy" else None
        case _:
            return _einturnip(case, inputs, out, memory)


def _einturnip(case: DiskCase, inputs: Mapping[str, Path], out: Path, memory: int | None) -> Work:
    import einturnip as et
    from einturnip.core.errors import CapacityError
    from einturnip.core.process_resources import callers_nbytes

    program = et.compile(case.program)
    given = {name: et.open(path) for name, path in inputs.items()}
    # The memory of a call is what it adds, with its modules; here the whole process is limited.
    callers = callers_nbytes()
    more = None if memory is None else max(1, memory - callers)

    def run() -> None:
        try:
            program(data=given, out={"Z": str(out)}, memory=more)
        except CapacityError as error:
            raise CapacityError(str(error), error.needed + callers) from None

    return run


def _open(path: Path) -> Any:
    return np.load(path, mmap_mode="r") if path.suffix == ".npy" else import_module("zarr").open_array(path, mode="r")


def _dask(case: DiskCase, inputs: Mapping[str, Path], out: Path) -> Work:
    da = import_module("dask.array")

    def read(path: Path) -> Any:
        if path.suffix == ".npy":
            return da.from_array(_open(path), chunks=chunks(_open(path).shape))
        return da.from_zarr(str(path))

    def run() -> None:
        result = _formula(da, case, [read(p) for p in inputs.values()])
        if out.suffix == ".npy":
            da.store(result, create(out, case.result, "npy"), lock=False)
        else:
            da.store(result.rechunk(chunks(case.result)), create(out, case.result, "zarr"), lock=False)

    return run


def _cubed(case: DiskCase, inputs: Mapping[str, Path], out: Path, memory: int | None) -> Work | None:
    if out.suffix == ".npy" or case.kind == "attention":
        return None  # it reads and writes Zarr only, and its softmax does not stream
    cubed, xp = import_module("cubed"), import_module("cubed.array_api")
    spec = cubed.Spec(work_dir=str(out.parent), allowed_mem=memory or 8 << 30, reserved_mem=100 << 20)

    def run() -> None:
        arrays = [cubed.from_zarr(str(p), spec=spec) for p in inputs.values()]
        cubed.to_zarr(_formula(xp, case, arrays), str(out), executor=_threads(cubed))

    return run


def _threads(cubed: Any) -> Any:
    return import_module("cubed.runtime.executors.local").ThreadsExecutor()


def _formula(xp: Any, case: DiskCase, arrays: list[Any]) -> Any:
    """The result in terms of the array libraries."""
    match case.kind, arrays:
        case "matmul", [a, b]:
            return xp.matmul(a, b)
        case "einsum", [a, b]:  # aebf,fdec->abcd
            return _tensordot(xp, a, b)
        case "swiglu", [x, y]:
            return x / (1 + xp.exp(-x)) * y
        case _:
            q, k, v = arrays
            heads = chunks(q.shape)[0]
            whole = [x.rechunk((max(1, heads // 4), *x.shape[1:])) for x in (q, k, v)]
            return xp.map_blocks(_attend, *whole, dtype=np.float32)


def _tensordot(xp: Any, a: Any, b: Any) -> Any:
    """A[a,e,b,f] B[f,d,e,c] summed over e and f, as [a, b, c, d] with c and d in their order."""
    product = xp.tensordot(a, b, axes=((1, 3), (2, 0)))  # a b d c
    return xp.permute_dims(product, (0, 1, 3, 2)) if hasattr(xp, "permute_dims") else product.transpose((0, 1, 3, 2))


def _attend(q: Any, k: Any, v: Any) -> Any:
    """Attention head by head, with queries in blocks, as written by hand."""
    out, rows = np.empty_like(q), 1024
    for h in range(len(q)):
        for i in range(0, q.shape[1], rows):
            s = q[h, i : i + rows] @ k[h].T * np.float32(1 / math.sqrt(q.shape[-1]))
            np.exp(s - s.max(1, keepdims=True), out=s)
            out[h, i : i + rows] = (s @ v[h]) / s.sum(1, keepdims=True)
    return out


def _memmap(case: DiskCase, inputs: Mapping[str, Path], out: Path) -> Work:
    def run() -> None:
        arrays, result = [_open(p) for p in inputs.values()], create(out, case.result, "npy")
        first = arrays[0]
        rows = max(1, _PANEL // (4 * math.prod(first.shape[1:])))
        for i in range(0, len(first), rows):
            here = slice(i, i + rows)
            match case.kind, arrays:
                case "matmul", [a, b]:
                    np.matmul(a[here], b, out=result[here])
                case "einsum", [a, b]:
                    result[here] = np.einsum(case.detail, a[here], b, optimize=True)
                case "swiglu", [x, y]:
                    result[here] = x[here] / (1 + np.exp(-x[here])) * y[here]
                case _:
                    result[here] = _attend(*(x[here] for x in arrays))

    return run
