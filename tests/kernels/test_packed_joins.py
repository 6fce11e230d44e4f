"""Aggregations over joins of two packed operands against NumPy's kernels: any layout, edges, several calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core import process_resources
from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.llvm.contraction import PackedContraction
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from einturnip.kernels.select import compile_tile
from einturnip.lang import compile_text
from tests.drawn import examples

pytestmark = [pytest.mark.machine_code, pytest.mark.usefixtures("own_cache")]

BOUNDS = {"b": 2, "i": 61, "j": 75, "k": 150, "h": 2}
# Operands by the labels of their axes, and a join with its fold.
EQUATIONS = [
    ("ik jk", "ij", "sum[k] (X[{0}] - Y[{1}])^2"),
    ("ik jk", "ij", "max[k] (X[{0}] + Y[{1}])"),
    ("ik kj", "ij", "min[k] (X[{0}] - Y[{1}])^2"),
    ("ki jk", "ij", "sum[k] abs(X[{0}] - Y[{1}])"),
    ("ki jk", "ij", "min[k] (Y[{1}] - X[{0}])"),
    ("bik bjk", "bij", "sum[k] (2 * X[{0}] - abs(Y[{1}])) * Y[{1}]"),
    ("ihk jkh", "ij", "sum[h,k] (X[{0}] - Y[{1}])^2"),
    ("bi jk", "bij", "sum[k] (X[{0}] - Y[{1}])^2"),
    ("ik k j", "ij", "min[k] (X[{0}] + Y[{1}] * V[{2}])^2"),
    ("ik jk k", "ij", "sum[k] V[{2}] * (X[{0}] - Y[{1}])^2"),
    ("ik jk ki", "ij", "max[k] (X[{0}] - Y[{1}]) * V[{2}]"),
    ("ik jk i", "ij", "max[k] abs(X[{0}] * abs(V[{2}]) - Y[{1}])"),
    ("ik kj kj", "ij", "sum[k] abs(X[{0}] - Y[{1}]) * V[{2}]"),
]
DTYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64}


def einsum_of(read: str, out: str, right: str, dtype: str, bounds: dict[str, int]) -> Einsum:
    """The one einsum of an equation whose operands have these labels."""
    axes, names = [",".join(labels) for labels in read.split()], "XYV"
    declared = "".join(f"input {x} : {dtype}[{a}]\n" for x, a in zip(names, axes, strict=False))
    left = f"Z[{','.join(out)}]" if out else "Z"
    text = f"{declared}{left} = {right.format(*axes)}\noutput Z\n"
    shapes = {x: tuple(bounds[p] for p in labels) for x, labels in zip(names, read.split(), strict=False)}
    nodes = build(compile_text(text, "k.ein"), shapes, {}).nodes
    (node,) = [n for n in nodes if isinstance(n, EinsumNode)]
    assert isinstance(node.einsum, Einsum)
    return node.einsum


def numbers(shape: tuple[int, ...], dtype: str, seed: int, turned: bool) -> np.ndarray:
    """Small whole numbers, so that sums are exact in any order; ``turned``: not as NumPy lays them out."""
    made = np.random.default_rng(seed).integers(-9, 9, shape).astype(DTYPES[dtype])
    return np.asfortranarray(made) if turned else made


def agree(einsum: Einsum, extents: tuple[int, ...], operands: list[np.ndarray], accumulate: bool) -> None:
    """Machine code and NumPy over a tile of these extents: the same numbers, also where a state is added to."""
    mode: select.Mode = "accumulate" if accumulate else "full"
    made = kernel_spec(einsum, mode)
    assert made is not None and made.packing is not None
    assert select.prepare_kernels([(einsum, mode)]) == 1
    found = []
    for native in (False, True):
        kernel = compile_tile(einsum, extents, mode, native)
        assert isinstance(kernel, PackedContraction) == native
        outs = (np.full(extents[: einsum.n_out], 77, einsum.dtype.numpy),)
        workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
        for first in (True, False) if accumulate else (True,):
            kernel(outs, tuple(operands), (0,) * len(extents), first, workspace)
        found.append(outs[0])
    np.testing.assert_array_equal(*found)


@given(st.data())
@settings(max_examples=examples(60))
def test_as_numpy_does(data: st.DataObject) -> None:
    read, out, right = data.draw(st.sampled_from(EQUATIONS))
    dtype = data.draw(st.sampled_from(sorted(DTYPES)))
    einsum = einsum_of(read, out, right, dtype, BOUNDS)
    extents = tuple(data.draw(st.sampled_from([b, 1, 23, 24, 48, 49])) if b > 2 else b for b in einsum.bounds)
    extents = tuple(min(e, b) for e, b in zip(extents, einsum.bounds, strict=True))
    operands = [
        numbers(einsum.operand_extents(slot, extents), dtype, slot, data.draw(st.booleans()))
        for slot in range(len(einsum.dtypes))
    ]
    agree(einsum, extents, operands, data.draw(st.booleans()))


@pytest.mark.parametrize("columns", [1040, 1041])
@pytest.mark.parametrize("terms", [8, 130])
def test_large_results(columns: int, terms: int) -> None:
    """Whole vectors that are put once go past the caches; the others do not."""
    einsum = einsum_of("ik jk", "ij", EQUATIONS[0][2], "f32", {"i": 1050, "j": columns, "k": terms})
    operands = [numbers(einsum.operand_extents(s, einsum.bounds), "f32", s, False) for s in (0, 1)]
    agree(einsum, einsum.bounds, operands, False)


def test_with_few_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles of processors without AVX-512."""
    monkeypatch.setattr(process_resources, "processor_features", frozenset)
    einsum = einsum_of("ik jk", "ij", EQUATIONS[0][2], "f32", {**BOUNDS, "i": 62})
    operands = [numbers(einsum.operand_extents(s, einsum.bounds), "f32", s, False) for s in (0, 1)]
    made = kernel_spec(einsum, "full")
    assert made is not None and made.packing is not None and made.packing.shape == (6, 1)
    agree(einsum, einsum.bounds, operands, False)


def test_what_packing_does_not_help_is_not_packed() -> None:
    bounds = {"i": 64, "j": 64, "k": 64}
    for read, right in (
        ("ijk jk", "sum[k] (X[{0}] - Y[{1}])^2"),
        ("ik jk", "sum[k] (X[{0}] - Y[{1}] + k)^2"),
        ("ik jk", "sum[k] exp(X[{0}] - Y[{1}])"),
        ("ik kj", "max[k] (X[{0}] + Y[{1}])"),
    ):
        made = kernel_spec(einsum_of(read, "ij", right, "f32", bounds), "full")
        assert made is None or made.packing is None


@pytest.mark.parametrize("where", [(0, 0), (60, 149)])
def test_a_nan_and_what_made_it(where: tuple[int, int]) -> None:
    """Infinities less infinities are reported, a NaN that was there is not; lanes past the edges are no numbers."""
    einsum = einsum_of("ik jk", "ij", EQUATIONS[0][2], "f32", BOUNDS)
    x, y = (numbers(einsum.operand_extents(s, einsum.bounds), "f32", s, False) for s in (0, 1))
    select.prepare_kernels([(einsum, "full")])
    kernel = compile_tile(einsum, einsum.bounds, "full")
    for value, other, expected in ((np.inf, 1.0, 0), (np.nan, 1.0, 0), (np.inf, np.inf, INVALID)):
        x[where], y[3, where[1]] = value, other
        out = np.empty(einsum.bounds[:2], np.float32)
        bits = kernel((out,), (x, y), (0, 0, 0), True, np.empty(max(1, kernel.workspace_nbytes), np.uint8))
        assert bits & INVALID == expected
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, ((x[:, None] - y) ** 2).sum(2, dtype=np.float32))
