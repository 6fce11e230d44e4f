"""Kernels of regions against plain NumPy: whole and in several calls, any order of tiles, masks, memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.eingraph.check_region import check_region
from einturnip.ir.dtypes import F32, F64
from einturnip.ir.region import Region
from einturnip.kernels.fused import block_layout
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.value_layout import streamed_first
from einturnip.kernels.mask import LabelMask
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import compile_kernel, compile_tile
from tests.drawn import examples
from tests.kernels.regions import CASES, Array, Made, attention, distances

Box = tuple[tuple[int, int], ...]


def close(made: Made, found: Array) -> None:
    scale = 1e-12 if made.region.dtype == F64 else 2e-5
    np.testing.assert_allclose(found, made.expected, rtol=scale, atol=scale)


def run(
    region: Region, mode: Mode, outs: Sequence[Array], operands: Sequence[Array], box: Box, first: bool = True
) -> int:
    """A kernel over one box, in a workspace full of ones."""
    kernel = compile_tile(region, tuple(hi - lo for lo, hi in box), mode)
    workspace = np.full(kernel.workspace_nbytes + 64, 0xFF, np.uint8)
    start = -workspace.ctypes.data % 64
    place = workspace[start : start + kernel.workspace_nbytes]
    return kernel(tuple(outs), tuple(operands), tuple(lo for lo, _ in box), first, place)


def cut(region: Region, operands: Sequence[Array], box: Box) -> list[Array]:
    return [x[tuple(slice(*ends) for ends in region.operand_box(s, box))] for s, x in enumerate(operands)]


def in_tiles(made: Made, pieces: Sequence[int], order: st.DataObject | None) -> Array:
    """Every output tile accumulated in any order, then finalized."""
    region, fixed = made.region, made.region.whole
    step = [n if p in fixed else max(1, -(-n // pieces[p])) for p, n in enumerate(region.bounds)]
    ends = [[(lo, min(lo + w, n)) for lo in range(0, n, w)] for n, w in zip(region.bounds, step, strict=True)]
    out = np.full(region.shape, np.nan).astype(region.dtype.numpy)
    for kept in product(*ends[: region.n_out]):
        shape = [hi - lo for lo, hi in kept] + list(region.bounds[region.n_out :])
        state = [np.full(x, 1).astype(d.numpy) for x, d in region.components(shape)]
        rest = list(product(*ends[region.n_out :]))
        for n, inner in enumerate(order.draw(st.permutations(rest)) if order is not None else rest):
            run(region, "accumulate", state, cut(region, made.operands, kept + inner), kept + inner, n == 0)
        box = kept + tuple((0, n) for n in region.bounds[region.n_out :])
        run(region, "finalize", [out[tuple(slice(*e) for e in kept)]], state, box)
    return out


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("nbytes", [1, 64, 1 << 19])
def test_whole(case: int, nbytes: int) -> None:
    made = CASES[case](np.random.default_rng(case))
    out = np.full(made.region.shape, np.nan).astype(made.region.dtype.numpy)
    box = tuple((0, n) for n in made.region.bounds)
    with mock.patch.object(block_layout, "MAX_VALUE_NBYTES", nbytes):
        assert run(made.region, "full", [out], made.operands, box) == 0
    close(made, out)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_in_tiles(data: st.DataObject) -> None:
    made = data.draw(st.sampled_from(CASES))(np.random.default_rng(data.draw(st.integers(0, 99))))
    pieces = data.draw(st.lists(st.integers(1, 4), min_size=8, max_size=8))
    with mock.patch.object(block_layout, "MAX_VALUE_NBYTES", data.draw(st.sampled_from([1, 64, 1 << 19]))):
        close(made, in_tiles(made, pieces, data))


def test_a_row_without_terms_yet() -> None:
    """Early blocks of a window hold rows whose every score is masked; they must leave no nan behind."""
    made = attention(np.random.default_rng(0), 1, 1, 24, 24, 2, 2, "window", F64)
    for pieces in ([1, 1, 1, 1, 4, 1], [1, 1, 3, 1, 5, 1], [1, 1, 24, 1, 24, 1]):
        close(made, in_tiles(made, pieces, None))


def test_rising_scores_and_infinite_values() -> None:
    """The maximum moves at every block, by far more than exp can hold."""
    made = attention(np.random.default_rng(0), 1, 1, 6, 12, 2, 2, "", F64)
    q, k, v = made.operands
    q[...] = 1
    k[...] = np.arange(12)[:, None] * 300.0
    v[...] = np.arange(24).reshape(12, 2)
    close(
        Made(made.region, (q, k, v), np.broadcast_to(v[:, :, 11:], made.expected.shape)), in_tiles(made, [12] * 6, None)
    )
    q[0, 0, 0] = -np.inf
    k[0, 0, 0] = 1
    found = in_tiles(made, [1, 1, 1, 1, 4, 1], None)
    assert np.isnan(found[0, 0, 0]).all() or np.isfinite(found[0, 0, 0]).all()
    np.testing.assert_allclose(found[0, 0, 1:], np.broadcast_to(v[0, 0, 11], (5, 2)))


def test_what_a_mask_decides() -> None:
    mask = LabelMask(attention(np.random.default_rng(0), 1, 1, 64, 64, 2, 2, "causal").region)
    assert mask.is_idle(((0, 1), (0, 1), (0, 16), (0, 2), (16, 32), (0, 2)))
    assert not mask.is_idle(((0, 1), (0, 1), (0, 17), (0, 2), (16, 32), (0, 2)))
    assert mask.evaluate(((0, 1), (0, 1), (31, 48), (0, 2), (16, 32), (0, 2))) == (True,)
    assert mask.evaluate(((0, 1), (0, 1), (30, 48), (0, 2), (16, 32), (0, 2))) == (None,)


def test_blocks_that_a_mask_empties_are_not_computed() -> None:
    """Half of the score blocks, and the diagonal."""
    made = attention(np.random.default_rng(0), 1, 1, 64, 64, 4, 4, "causal")
    with mock.patch.multiple(block_layout, MAX_VALUE_NBYTES=8 * 8 * 4, MAX_STREAMED_POINTS=8):
        kernel = compile_tile(made.region, made.region.bounds, "full")
    assert isinstance(kernel, RegionKernel)
    out = np.empty(made.region.shape, np.float32)
    with mock.patch.object(kernel.spec, "program", wraps=kernel.spec.program) as asked:
        kernel((out,), made.operands, (0,) * 6, True, np.empty(kernel.workspace_nbytes, np.uint8))
    found = [kernel.spec.program(*c.args) for c in asked.call_args_list]
    assert len(found) == 8 * 9 // 2 and None not in found
    close(made, out)


def test_nothing_is_allocated() -> None:
    """A call takes no memory that grows with the tile, and little workspace."""
    made = attention(np.random.default_rng(0), 1, 2, 700, 900, 16, 16, "causal")
    kernel = compile_kernel(made.region, made.region.bounds, "full")
    assert kernel.workspace_nbytes <= 4 << 20
    out, workspace = np.empty(made.region.shape, np.float32), np.empty(kernel.workspace_nbytes, np.uint8)
    kernel((out,), made.operands, (0,) * 6, True, workspace)
    tracemalloc.start()
    kernel((out,), made.operands, (0,) * 6, True, workspace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 10
    close(made, out)


def test_empty_ranges() -> None:
    made = distances(np.random.default_rng(0), 3, 0, 2)
    out = np.empty(3)
    run(made.region, "full", [out], made.operands, ((0, 3), (0, 0), (0, 2)))
    assert (out == -np.inf).all()


def test_long_rows_of_scores_lie_with_the_streamed_label_first() -> None:
    """So that folds run over contiguous rows; nothing else changes, and short rows stay as they are."""
    long, short = (attention(np.random.default_rng(0), 1, 1, n, 130, 8, 4, "causal").region for n in (80, 11))
    before, after = long.steps[0], streamed_first(long, [1, 1, 80, 4, 130, 8]).steps[0]
    assert [before.labels, after.labels] == [(0, 1, 2, 4, 5), (4, 0, 1, 2, 5)]
    check_region("turned", streamed_first(long, [1, 1, 80, 4, 130, 8]))
    assert streamed_first(short, [1, 1, 11, 4, 130, 8]) is short
    for mask, dtype in (("", F32), ("causal", F64), ("window", F32)):
        made = attention(np.random.default_rng(1), 1, 2, 96, 96, 4, 4, mask, dtype)
        out = np.full(made.region.shape, np.nan).astype(dtype.numpy)
        assert run(made.region, "full", [out], made.operands, tuple((0, n) for n in made.region.bounds)) == 0
        close(made, out)
        close(made, in_tiles(made, [1, 1, 1, 1, 2, 1], None))
