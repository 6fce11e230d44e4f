"""Regions of rows as kernels: machine code and NumPy against the reference, tiles, flags, NaN, infinities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from einturnip.eingraph.build.program import build
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.region import Region
from einturnip.kernels import select
from einturnip.kernels.fp_status import DIVIDE, INVALID, OVERFLOW
from einturnip.kernels.fused import block_layout
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.row_kernel import RowsKernel
from einturnip.kernels.llvm import code_cache
from einturnip.lang import compile_text
from tests.reference.region import evaluate_region

Array = np.ndarray[Any, np.dtype[Any]]
X = "import std.nn\ninput X: f32[i, j]\n"
NORM = "input g: f32[j], b: f32[j]\nZ[i,j] = layernorm(X[i,j], g[j], b[j])\noutput Z"
PROGRAMS = {
    "softmax": f"{X}Z[i,j] = softmax(X[i,j])\noutput Z",
    "layernorm": f"{X}{NORM}",
    "layernorm f64": f"{X}{NORM}".replace("f32", "f64"),
    "rmsnorm": f"{X}input g: f32[j]\nZ[i,j] = rmsnorm(X[i,j], g[j])\noutput Z",
    "masked": f"{X}S[i,j] = where(j <= i, X[i,j], -inf)\nZ[i,j] = softmax(S[i,j])\noutput Z",
    "over columns": f"{X}Z[i,j] = exp(X[i,j]) / (1 + max[i] abs(X[i,j]))\noutput Z",
    "gradient": f"{X}input Y: f32[i,j]\nZ[i,j] = X[i,j] * (Y[i,j] - sum[j] X[i,j]*Y[i,j])\noutput Z",
    "argmax": f"{X}Z[i,j] = where(j == argmax[j] X[i,j], X[i,j], 0)\noutput Z",
}


def region_of(text: str, rows: int, columns: int) -> tuple[Region, tuple[Array, ...]]:
    """The region of a program and normal numbers for it."""
    program = compile_text(text, "p.ein")
    known = {"X": (rows, columns), "Y": (rows, columns), "g": (columns,), "b": (columns,)}
    shapes = {x.name: known[x.name] for x in program.inputs}
    graph = fuse(rewrite(build(program, shapes)), EinsumInterner(), None, 0, rows=True)
    node = graph.nodes[graph.outputs[0][1]]
    assert isinstance(node, EinsumNode) and isinstance(node.einsum, Region) and node.einsum.of_rows
    rng = np.random.default_rng(rows)
    made = [rng.standard_normal(graph.nodes[o].shape).astype(graph.nodes[o].dtype.numpy) for o in node.operands]
    return node.einsum, tuple(made)


def ran(region: Region, operands: Sequence[Array], kernel: Any, out: Array | None = None) -> tuple[Array, int]:
    found = np.full(region.shape, np.nan, region.dtype.numpy) if out is None else out
    workspace = np.full(kernel.workspace_nbytes, 0xFF, np.uint8)
    bits = kernel((found,), tuple(operands), (0,) * len(region.bounds), True, workspace)
    return found, bits & (INVALID | OVERFLOW | DIVIDE)


@pytest.fixture
def compiled(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not code_cache.available():
        pytest.skip("no machine code on this kind of machine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    yield
    code_cache.forget()
    select.forget()


def native(region: Region) -> RowsKernel:
    assert select.prepare_kernels([(region, "full")]) == 1
    kernel = select.compile_tile(region, region.bounds, "full")
    assert isinstance(kernel, RowsKernel)
    return kernel


def close(region: Region, found: Array, operands: Sequence[Array]) -> None:
    with np.errstate(all="ignore"):
        (expected,) = evaluate_region(region, operands)
    scale = 1e-12 if region.dtype.name == "f64" else 3e-6
    np.testing.assert_allclose(found, expected, rtol=scale, atol=scale * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy(name: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", nbytes)
    monkeypatch.setattr(code_cache, "_loaded", {})  # another test may have prepared the same
    region, operands = region_of(PROGRAMS[name], 13, 37)
    kernel = select.compile_tile(region, region.bounds, "full")
    assert isinstance(kernel, RegionKernel)
    out, bits = ran(region, operands, kernel)
    assert bits == 0
    close(region, out, operands)


@pytest.mark.parametrize("name", ["masked", "gradient"])
def test_numpy_in_the_workspace_planned_for_machine_code(name: str) -> None:
    """Little of it is set aside; NumPy then takes shorter blocks, by itself or in place of machine code."""
    region, operands = region_of(PROGRAMS[name], 700, 2000)
    kernel = select.compile_tile(region, region.bounds, "full")
    assert isinstance(kernel, RegionKernel)
    most = select.planned_workspace_nbytes(region, region.bounds, "full", False)
    planned = select.planned_workspace_nbytes(region, region.bounds, "full", True)
    assert planned <= 256 << 10 and planned <= most == kernel.workspace_nbytes
    assert name != "masked" or most > 1 << 20
    out = np.full(region.shape, np.nan, region.dtype.numpy)
    kernel((out,), operands, (0, 0), True, np.full(planned, 0xFF, np.uint8))
    close(region, out, operands)


@pytest.mark.parametrize("columns", [8, 37, 300])
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "argmax"])
def test_machine_code(compiled: None, name: str, columns: int) -> None:
    region, operands = region_of(PROGRAMS[name], 19, columns)
    out, bits = ran(region, operands, native(region))
    assert bits == 0
    close(region, out, operands)


def test_tensors_that_lie_otherwise_are_left_to_numpy(compiled: None) -> None:
    region, (x,) = region_of(PROGRAMS["softmax"], 19, 40)
    kernel = native(region)
    turned = np.asfortranarray(x)
    out, _ = ran(region, (turned,), kernel)
    assert None in kernel.run.templates.values()
    close(region, out, (x,))
    wide = np.full((19, 50), np.nan, np.float32)
    ran(region, (x,), kernel, wide[:, 5:45])
    close(region, wide[:, 5:45], (x,))
    assert np.isnan(wide[:, :5]).all() and np.isnan(wide[:, 45:]).all()


def test_over_the_operand(compiled: None) -> None:
    """A result may overwrite its operand: each row is read before it is stored."""
    region, (x,) = region_of(PROGRAMS["layernorm"].replace("layernorm(X[i,j], g[j], b[j])", "softmax(X[i,j])").replace(
        "input g: f32[j], b: f32[j]\n", ""), 19, 40)  # fmt: skip
    (expected,) = evaluate_region(region, (x,))
    place = x.copy()
    ran(region, (place,), native(region), place)
    np.testing.assert_allclose(place, expected, rtol=3e-6)


def test_flags(compiled: None) -> None:
    """A NaN that was there is no news, one that is made is, as is a division by zero."""
    region, (x,) = region_of(PROGRAMS["softmax"], 19, 40)
    kernel = native(region)
    x[3, 5] = np.nan
    out, bits = ran(region, (x,), kernel)
    assert bits == 0 and np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, 0)).all()
    x[3, 5] = -np.inf
    out, bits = ran(region, (x,), kernel)
    assert bits == 0 and out[3, 5] == 0
    x[3] = -np.inf  # exp(-inf - -inf)
    out, bits = ran(region, (x,), kernel)
    assert bits & INVALID and np.isnan(out[3]).all()
    region, (x,) = region_of(f"{X}Z[i,j] = X[i,j] / sum[j] X[i,j]\noutput Z", 19, 40)
    x[4] = 0
    x[5] = 0
    x[5, :2] = [1, -1]
    out, bits = ran(region, (x,), native(region))
    assert bits & INVALID and bits & DIVIDE and np.isinf(out[5, 0])


def test_bits_are_those_of_any_tile(compiled: None) -> None:
    region, operands = region_of(PROGRAMS["layernorm"], 19, 301)
    whole, _ = ran(region, operands, native(region))
    (x,) = (o for o in operands if o.ndim == 2)
    for lo, hi in ((0, 1), (1, 8), (8, 19)):
        kernel = select.compile_tile(region, (hi - lo, 301), "full")
        assert isinstance(kernel, RowsKernel)
        out = np.empty((hi - lo, 301), np.float32)
        part = tuple(o[lo:hi] if o is x else o for o in operands)
        kernel((out,), part, (lo, 0), True, np.empty(kernel.workspace_nbytes, np.uint8))
        np.testing.assert_array_equal(out, whole[lo:hi])


def test_empty() -> None:
    region, _ = region_of(PROGRAMS["softmax"], 3, 5)
    kernel = select.compile_tile(region, (0, 5), "full")
    out = np.empty((0, 5), np.float32)
    assert kernel((out,), (np.empty((0, 5), np.float32),), (0, 0), True, np.empty(0, np.uint8)) == 0
