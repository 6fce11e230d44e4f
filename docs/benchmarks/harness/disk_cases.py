"""The cases out of core: programs whose data are in files larger than their memory."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Elements per write, and of a Zarr chunk.
_CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class DiskCase:
    """One case. ``shapes``: of each input; ``result``: of ``Z``; ``flops``: multiplications and additions.

    ``kind`` and ``detail`` define the work for peers (``harness.disk_peers``).
    """

    name: str
    kind: str
    detail: str
    program: str
    shapes: Mapping[str, tuple[int, ...]]
    result: tuple[int, ...]
    flops: float

    @property
    def data_nbytes(self) -> int:
        """Bytes of all inputs and the output, of which memory is a share."""
        return 4 * sum(map(math.prod, [*self.shapes.values(), self.result]))

    @property
    def result_nbytes(self) -> int:
        """Bytes of the output."""
        return 4 * math.prod(self.result)

    @property
    def compute_bound(self) -> bool:
        """True if arithmetic takes longer than moving every byte once (about 100 operations per byte)."""
        return self.flops > 100 * self.data_nbytes


def on_disk(small: bool = False) -> list[DiskCase]:
    """Every case; ``small`` ones take milliseconds, to test the harness."""
    heads, length, six = (4, 256, 24) if small else (256, 8192, 112)
    return [
        *[_matmul(n) for n in ((512,) if small else (10_000, 20_000))],
        _attention(heads, length),
        _contraction(six),
        _elementwise(512 if small else 16_384),
    ]


def _matmul(n: int) -> DiskCase:
    program = "input A : f32[i,k], B : f32[k,j]\nZ[i,j] = A[i,k] * B[k,j]\noutput Z\n"
    return DiskCase(f"matmul {n}", "matmul", "", program, dict(A=(n, n), B=(n, n)), (n, n), 2.0 * n**3)


def _attention(heads: int, length: int) -> DiskCase:
    shape = (heads, length, 64)
    program = (
        "import std.nn\ninput Q : f32[h,s,d], K : f32[h,t,d], V : f32[h,t,d]\n"
        "Z[h,s,d] = attention(Q[h,s,d], K[h,t,d], V[h,t,d])\noutput Z\n"
    )
    flops = 4.0 * math.prod(shape) * length
    return DiskCase("attention", "attention", "", program, dict(Q=shape, K=shape, V=shape), shape, flops)


def _contraction(n: int) -> DiskCase:
    program = "input A : f32[a,e,b,f], B : f32[f,d,e,c]\nZ[a,b,c,d] = A[a,e,b,f] * B[f,d,e,c]\noutput Z\n"
    four = (n, n, n, n)
    return DiskCase("aebf,fdec->abcd", "einsum", "aebf,fdec->abcd", program, dict(A=four, B=four), four, 2.0 * n**6)


def _elementwise(n: int) -> DiskCase:
    program = "import std.nn\ninput X : f32[i,j], Y : f32[i,j]\nZ[i,j] = silu(X[i,j]) * Y[i,j]\noutput Z\n"
    return DiskCase("elementwise", "swiglu", "", program, dict(X=(n, n), Y=(n, n)), (n, n), 5.0 * n * n)


def prepare(case: DiskCase, form: str, folder: Path) -> dict[str, Path]:
    """Create the case's missing inputs as files: normal numbers, the same in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for k, (name, shape) in enumerate(case.shapes.items()):
        path = folder / f"{case.name.replace(' ', '-').replace('>', '')}-{name}.{form}"
        made[name] = path
        if path.exists():
            continue
        torn = path.with_name("torn-" + path.name)
        shutil.rmtree(torn) if torn.is_dir() else torn.unlink(missing_ok=True)  # from an interrupted run
        rng, array = np.random.default_rng(k), create(torn, shape, form)
        rows = max(1, _CHUNK_ELEMENTS // math.prod(shape[1:]))
        for begin in range(0, shape[0], rows):
            count = min(rows, shape[0] - begin)
            array[begin : begin + count] = rng.standard_normal((count, *shape[1:]), np.float32)
        del array
        torn.rename(path)
    return made


def create(path: Path, shape: tuple[int, ...], form: str) -> Any:
    """A new array in a file: a memory map of ``.npy``, or Zarr with square chunks of at most 16 MiB."""
    if form == "npy":
        return np.lib.format.open_memmap(path, "w+", np.float32, shape)
    import zarr

    return zarr.create_array(str(path), shape=shape, dtype="f4", chunks=chunks(shape), compressors=None)


def chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The chunks of a Zarr array: the longest side is halved until a chunk is small enough."""
    sides = list(shape)
    while math.prod(sides) > _CHUNK_ELEMENTS:
        longest = sides.index(max(sides))
        sides[longest] = -(-sides[longest] // 2)
    return tuple(sides)
