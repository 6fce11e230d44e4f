"""Machine code of region steps against NumPy: any mask, ragged blocks, infinities, several calls, NaN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from einturnip.ir.dtypes import BOOL, F64, I64
from einturnip.ir.scalar import LabelValue, ScalarCall, ScalarConst
from einturnip.kernels import select
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.fused import block_iterator, block_layout
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.row_function import RowFunctionCall
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.mask import LabelMask
from tests.kernels.regions import CASES, Array, Made, attention

pytestmark = [pytest.mark.machine_code, pytest.mark.usefixtures("own_cache")]


def ran(made: Made, mode: select.Mode = "full") -> tuple[Array, int, RegionKernel]:
    """The result of machine code over the whole space, in a workspace full of ones."""
    assert select.prepare_kernels([(made.region, mode)]) > 0
    kernel = select.compile_tile(made.region, made.region.bounds, mode)
    assert isinstance(kernel, RegionKernel) and kernel.spec.native
    out = np.full(made.region.shape, np.nan).astype(made.region.dtype.numpy)
    workspace = np.full(kernel.workspace_nbytes, 0xFF, np.uint8)
    bits = kernel((out,), made.operands, (0,) * len(made.region.bounds), True, workspace)
    return out, bits, kernel


def close(made: Made, found: Array) -> None:
    scale = 1e-12 if made.region.dtype == F64 else 2e-5
    np.testing.assert_allclose(found, made.expected, rtol=scale, atol=scale)


@pytest.mark.parametrize("nbytes", [64, 1 << 19])
@pytest.mark.parametrize("case", range(3))
def test_whole(case: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", nbytes)
    made = CASES[case](np.random.default_rng(case))
    out, bits, _ = ran(made)
    assert bits == 0
    close(made, out)


@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("mask", ["", "causal", "window"])
def test_ragged_blocks(mask: str, tempered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 14)
    monkeypatch.setattr(block_iterator, "_STRIP", 7)
    made = attention(np.random.default_rng(1), 2, 2, 131, 173, 16, 24, mask, tempered=tempered)
    out, bits, kernel = ran(made)
    assert bits == 0
    close(made, out)
    programs = [p for p in kernel.spec.programs.values() if p is not None]
    bands = [a for p in programs for a in p.actions if isinstance(a, RowFunctionCall)]
    assert bands and all(a.function is not None and None not in a.templates.values() for a in bands)


def test_a_maximum_that_moves_and_rows_without_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 256)
    made = attention(np.random.default_rng(0), 1, 1, 6, 48, 2, 2)
    q, k, v = made.operands
    q[...] = 1
    k[...] = np.arange(48)[:, None] * 300.0
    expected = np.broadcast_to(v[:, :, 47:], made.expected.shape)
    close(Made(made.region, (q, k, v), expected), ran(made)[0])
    close(made := attention(np.random.default_rng(0), 1, 1, 40, 40, 2, 2, "window"), ran(made)[0])


def test_a_nan_that_was_there_is_no_news_and_one_that_is_made_is() -> None:
    made = attention(np.random.default_rng(0), 1, 1, 20, 40, 4, 4)
    made.operands[0][0, 0, 3] = np.nan
    out, bits, _ = ran(made)
    assert bits == 0 and np.isnan(out[0, 0, 3]).all() and np.isfinite(np.delete(out, 3, axis=2)).all()
    made.operands[0][0, 0, 3] = np.inf
    made.operands[1][0, 0, 5] = np.abs(made.operands[1][0, 0, 5])
    assert ran(made)[1] & INVALID


def test_nothing_more_in_the_workspace_than_numpy_takes() -> None:
    made = attention(np.random.default_rng(0), 1, 2, 300, 700, 16, 16, "causal")
    slow = select.compile_tile(made.region, made.region.bounds, "full").workspace_nbytes
    assert ran(made)[2].workspace_nbytes <= slow


def test_without_part_of_its_code_all_of_a_region_is_left_to_numpy() -> None:
    """Attention's code is part of causal attention's: steps made for code, of which some is missing, would crawl."""
    full, causal = (attention(np.random.default_rng(0), 1, 2, 32, 64, 8, 8, mask) for mask in ("", "causal"))
    code_cache.forget()
    select.prepare_kernels([(full.region, "full")])
    shared = [code_cache.find(code) is not None for code in select.machine_code(causal.region, "full")]
    assert any(shared) and not all(shared)
    kernel = select.compile_tile(causal.region, causal.region.bounds, "full")
    assert isinstance(kernel, RegionKernel) and not kernel.spec.native
    close(causal, ran(causal)[0])


def test_of_many_conditions_none_is_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 10)
    made = attention(np.random.default_rng(0), 1, 1, 48, 48, 4, 4, "window")
    region, first = made.region, made.region.steps[1]
    row, column, join = LabelValue(2), LabelValue(3), first.einsum.join
    for n in range(3):  # column - row is at most n
        near = ScalarCall("le", (ScalarCall("sub", (column, row), I64), ScalarConst(n, I64)), BOOL)
        join = ScalarCall("where", (near, join, ScalarConst(-np.inf, join.dtype)), join.dtype)
    steps = (region.steps[0], replace(first, einsum=replace(first.einsum, join=join)), *region.steps[2:])
    many = Made(replace(region, steps=steps), made.operands, made.expected)
    assert len(LabelMask(many.region).conditions) > 3
    out, _, kernel = ran(many)
    close(many, out)
    programs = [p for p in kernel.spec.programs.values() if p is not None]
    assert all(a.function is not None for p in programs for a in p.actions if isinstance(a, RowFunctionCall))
