"""The memory that a product packs in addition to its tiles is bounded, measured from outside."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

import einturnip as et
from einturnip.core.units import MIB
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.contraction_choice import packed_nbytes
from einturnip.kernels.llvm.pack_loops import PackedBlocks
from einturnip.kernels.llvm.pack_plan import packed
from einturnip.tuning.memory import THREAD_NBYTES
from tests.robustness.programs import ENVIRONMENT

SIZES = [(256, 256, 256), (1120, 256, 1264), (300, 1000, 2000), (6000, 200, 160), (3000, 400, 500)]
NAMES = {"f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"}
# One product by BLAS on one thread, of operands and a result that stand already; by how many bytes the process grew.
GREW = """
import sys
import numpy as np
m, k, n, dtype = *map(int, sys.argv[1:4]), sys.argv[4]
A, B, C = np.ones((m, k), dtype), np.ones((k, n), dtype), np.ones((m, n), dtype)
np.matmul(A[:2, :2].copy(), B[:2, :2].copy())
def resident():
    return int(open("/proc/self/status").read().partition("RssAnon:")[2].split()[0]) << 10
before = resident()
np.matmul(A, B, out=C)
print(resident() - before)
"""


def einsum_of(join: str, dtype: str = "f32", out: str = "i,j") -> Einsum | Region:
    text = f"input A : {dtype}[i,k], B : {dtype}[k,j]\nC[{out}] = {join}\noutput C\n"
    graph = et.compile(text).plan(arena="4MiB", dims=dict(i=64, k=64, j=64), workers=1)._job.planned.graph
    (found,) = (node.einsum for node in graph.nodes if isinstance(node, EinsumNode))
    return found


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_blas_packs_no_more(dtype: str, m: int, k: int, n: int) -> None:
    environment = ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1"}
    line = [sys.executable, "-c", GREW, str(m), str(k), str(n), NAMES[dtype]]
    grew = int(subprocess.run(line, env=environment, text=True, capture_output=True, check=True).stdout)
    assert grew <= packed_nbytes(einsum_of("sum[k] A[i,k] * B[k,j]", dtype), (m, n, k)) + THREAD_NBYTES


def test_what_is_no_product_packs_nothing() -> None:
    assert packed_nbytes(einsum_of("max[k] (A[i,k] + B[k,j])"), (4096, 4096, 4096)) == 0


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("join", ["(A[i,k] - B[k,j])^2", "(A[i,k] - B[k,j]) * abs(B[k,j])"])
def test_joins_pack_no_more(dtype: str, join: str) -> None:
    einsum = einsum_of(f"max[k] {join}", dtype)
    code = packed(einsum) if isinstance(einsum, Einsum) else None
    assert code is not None
    for m, n, k in itertools.product((48, 300, 5000), repeat=3):
        assert PackedBlocks.of(code, m, n, k).places["end"] <= packed_nbytes(einsum, (m, n, k))


def test_smaller_tiles_pack_no_more() -> None:
    einsum = einsum_of("sum[k] A[i,k] * B[k,j]")
    sizes = [packed_nbytes(einsum, (n, n, n)) for n in (64, 512, 1024, 4096, 1 << 16)]
    assert sizes == sorted(sizes) and sizes[0] > 0 and sizes[-1] == 32 * MIB


def test_rows_are_those_of_the_result() -> None:
    one, other = (einsum_of("sum[k] A[i,k] * B[k,j]", out=out) for out in ("i,j", "j,i"))
    for m, n in ((300, 5000), (5000, 300)):
        assert packed_nbytes(one, (m, n, 400)) == packed_nbytes(other, (m, n, 400))
    assert packed_nbytes(one, (300, 5000, 400)) < packed_nbytes(one, (5000, 300, 400))
