"""The cases of ``clusters.py``: programs on workers, from Zarr stores to a Zarr store."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GROUPS = 1000


@dataclass(frozen=True)
class ChunkedTensor:
    """A tensor in a store, whose shape its chunks divide.

    ``dtype``: f4, or i8 for keys below ``GROUPS``.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str = "f4"

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * int(self.dtype[1:])


@dataclass(frozen=True)
class ClusterCase:
    """One case. ``result``: the tensor ``Z``; ``flops``: multiplications and additions.

    ``kind`` defines the work for peers (``harness.cluster_peers``).
    """

    name: str
    kind: str
    program: str
    inputs: Mapping[str, ChunkedTensor]
    result: ChunkedTensor
    flops: float

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and the output."""
        return self.result.nbytes + sum(tensor.nbytes for tensor in self.inputs.values())


def on_workers(small: bool = False) -> list[ClusterCase]:
    """Every case; ``small`` ones take milliseconds, to test the harness and to warm up workers."""
    return [
        _product(*((64, 16) if small else (10_000, 2500))),
        _chain(*((64, 16) if small else (8000, 2000))),
        _mttkrp(*((32, 8, 4) if small else (800, 200, 32))),
        _attention(*((2, 64, 16) if small else (8, 8192, 2048))),
        _group_by(*((512, 64, 8) if small else (4_000_000, 125_000, 64))),
    ]


def _product(n: int, chunk: int) -> ClusterCase:
    square = ChunkedTensor((n, n), (chunk, chunk))
    program = "input A : f32[i,k], B : f32[k,j]\nZ[i,j] = A[i,k] * B[k,j]\noutput Z\n"
    return ClusterCase(f"product of {n:,}²", "product", program, {"A": square, "B": square}, square, 2.0 * n**3)


def _chain(n: int, chunk: int) -> ClusterCase:
    square = ChunkedTensor((n, n), (chunk, chunk))
    program = "input A : f32[i,k], B : f32[k,m], E : f32[m,j]\nD[i,m] = A[i,k] * B[k,m]\n"
    program += "Z[i,j] = D[i,m] * E[m,j]\noutput Z\n"
    return ClusterCase(f"A·B·E of {n:,}²", "chain", program, dict.fromkeys("ABE", square), square, 4.0 * n**3)


def _mttkrp(n: int, chunk: int, rank: int) -> ClusterCase:
    factor = ChunkedTensor((n, rank), (chunk, rank))
    inputs = {"X": ChunkedTensor((n, n, n), (chunk, chunk, chunk)), "B": factor, "C": factor}
    program = "input X : f32[i,j,k], B : f32[j,r], C : f32[k,r]\n"
    program += "Z[i,r] = sum[j,k] X[i,j,k] * B[j,r] * C[k,r]\noutput Z\n"
    return ClusterCase(f"MTTKRP of {n:,}³, rank {rank}", "mttkrp", program, inputs, factor, 2.0 * n**3 * rank)


def _attention(heads: int, length: int, chunk: int) -> ClusterCase:
    tensor = ChunkedTensor((heads, length, 64), (1, chunk, 64))
    program = (
        "import std.nn\ninput Q : f32[h,s,d], K : f32[h,t,d], V : f32[h,t,d]\n"
        "Z[h,s,d] = attention(Q[h,s,d], K[h,t,d], V[h,t,d])\noutput Z\n"
    )
    name = f"attention, {heads} heads of {length:,} × 64"
    return ClusterCase(name, "attention", program, dict.fromkeys("QKV", tensor), tensor, 256.0 * heads * length**2)


def _group_by(rows: int, chunk: int, columns: int) -> ClusterCase:
    inputs = {
        "key": ChunkedTensor((rows,), (chunk,), "i8"),
        "X": ChunkedTensor((rows, columns), (chunk, columns)),
    }
    result = ChunkedTensor((GROUPS, columns), (GROUPS, columns))
    program = f"input key : i64[i], X : f32[i,d]\nZ[key[i] : {GROUPS}, d] = sum[i] X[i,d]\noutput Z\n"
    name = f"group-by of {rows:,} rows of {columns}"
    return ClusterCase(name, "group-by", program, inputs, result, float(rows * columns))


def prepare(case: ClusterCase, folder: Path) -> dict[str, Path]:
    """Create the case's missing inputs as Zarr stores: normal numbers, and drawn keys."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for k, (name, tensor) in enumerate(case.inputs.items()):
        path = made[name] = folder / f"{case.kind}-{'x'.join(map(str, tensor.shape))}-{name}.zarr"
        if path.exists():
            continue
        torn = path.with_name("torn-" + path.name)
        shutil.rmtree(torn, ignore_errors=True)  # from an interrupted run
        rng, array, rows = np.random.default_rng(k), create(torn, tensor), tensor.chunks[0]
        for begin in range(0, tensor.shape[0], rows):
            shape = (rows, *tensor.shape[1:])
            keys = tensor.dtype == "i8"
            array[begin : begin + rows] = rng.integers(0, GROUPS, shape) if keys else rng.standard_normal(shape, "f4")
        torn.rename(path)
    return made


def create(path: Path, tensor: ChunkedTensor) -> Any:
    """A new array in a Zarr store, not compressed: random numbers gain nothing by it."""
    import zarr

    return zarr.create_array(str(path), shape=tensor.shape, dtype=tensor.dtype, chunks=tensor.chunks, compressors=None)
