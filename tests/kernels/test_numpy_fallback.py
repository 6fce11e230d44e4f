"""Where a plan expects machine code, NumPy computes instead within the small workspace of the plan."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels.fused.block_layout import lay_out
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.select import compile_kernel, planned_workspace_nbytes
from einturnip.lang import compile_text
from tests.kernels.regions import attention

PROGRAMS = {
    "map": "input x : f64[n,m]\ny[i,j] = tanh(x[i,j]) * exp(x[i,j]) + sqrt(abs(x[i,j]) + x[i,j]^2)\noutput y\n",
    "fold": "input x : f64[n,m]\ny[i] = max[j] (x[i,j] * x[i,j] - 3 * abs(x[i,j]))\noutput y\n",
    "columns": "input x : f64[n,m]\ny[j] = sum[i] (x[i,j] * x[i,j] - 3 * abs(x[i,j]))\noutput y\n",
    "where": "input x : f64[n,m]\ny[i,j] = where(x[i,j] > 0, x[i,j] * 2, -x[i,j])\noutput y\n",
}


def _einsum(text: str, shape: tuple[int, ...]) -> Einsum:
    graph = build(compile_text(text, "k.ein"), {"x": shape}, {})
    (node,) = (node for node in graph.nodes if isinstance(node, EinsumNode))
    assert isinstance(node.einsum, Einsum)
    return node.einsum


@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_keeps_to_the_bytes_that_were_planned_for_machine_code(name: str) -> None:
    x = np.random.default_rng(0).integers(-9, 10, (600, 700)).astype(np.float64)
    einsum = _einsum(PROGRAMS[name], x.shape)
    kernel = compile_kernel(einsum, einsum.bounds, "full")
    slow = kernel.fallback if isinstance(kernel, MachineCodeKernel) else kernel
    assert isinstance(slow, BlockedKernel)
    lean = planned_workspace_nbytes(einsum, einsum.bounds, "full", True)
    full = planned_workspace_nbytes(einsum, einsum.bounds, "full", False)
    assert lean < full == slow.workspace_nbytes
    outs = []
    for nbytes in (full, lean):
        room = np.full(nbytes + 64, 7, np.uint8)
        out = np.zeros([einsum.bounds[p] for p in range(einsum.n_out)])
        slow((out,), (x,) * len(einsum.accesses), (0, 0), True, room[:nbytes])
        assert (room[nbytes:] == 7).all()
        outs.append(out)
    np.testing.assert_array_equal(outs[0], outs[1])


@pytest.mark.parametrize("mode", ["full", "accumulate"])
def test_what_lies_over_scores_has_no_place_of_its_own(mode: str) -> None:
    made = attention(np.random.default_rng(0), 1, 1, 96, 160, 8, 8)
    kernel = compile_kernel(made.region, made.region.bounds, mode)  # type: ignore[arg-type]
    assert isinstance(kernel, RegionKernel)
    every = lay_out(kernel.spec.region, kernel.spec.blocks, mode == "full").nbytes
    scores = 4 * 96 * 160
    assert scores < kernel.spec.layout.nbytes <= every - scores
