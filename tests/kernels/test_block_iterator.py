"""Iteration along masks: every point that counts once, and none that is masked if a strip can leave it out."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.dtypes import BOOL, I64
from einturnip.ir.scalar import LabelValue, Scalar, ScalarConst
from einturnip.kernels.fused import block_iterator, block_layout
from einturnip.kernels.fused.block_iterator import BlockIterator
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.mask import LabelMask
from einturnip.kernels.select import compile_tile
from tests.drawn import examples
from tests.kernels.regions import Array, attention, call

_S, _T = 2, 4  # labels of rows and of columns


def times(label: int, factor: int) -> Scalar:
    return call("mul", LabelValue(label), ScalarConst(factor, I64), dtype=I64)


@st.composite
def masks(draw: st.DrawFn) -> tuple[Scalar, Array]:
    """A condition a s + b t + c >= 0, or two of them, and where it holds among 60 rows and 70 columns."""
    rows, columns = np.arange(60)[:, None], np.arange(70)
    found: list[tuple[Scalar, Array]] = []
    for _ in range(draw(st.integers(1, 2))):
        a, b, c = draw(st.integers(-2, 2)), draw(st.integers(-2, 2)), draw(st.integers(-80, 80))
        left = call("add", times(2, a), times(3, b), dtype=I64)
        found.append((call("ge", left, ScalarConst(-c, I64), dtype=BOOL), a * rows + b * columns + c >= 0))
    if len(found) == 1:
        return found[0]
    op = draw(st.sampled_from(["and", "or"]))
    both = np.logical_and if op == "and" else np.logical_or
    return call(op, found[0][0], found[1][0], dtype=BOOL), both(found[0][1], found[1][1])


@settings(max_examples=examples(150), deadline=None)
@given(masks(), st.tuples(st.integers(1, 33), st.integers(1, 33)), st.integers(1, 40), st.data())
def test_every_point_that_counts_is_met_once(
    drawn: tuple[Scalar, Array], blocks: tuple[int, int], strip: int, data: st.DataObject
) -> None:
    condition, holds = drawn
    made = attention(np.random.default_rng(0), 1, 1, 60, 70, 2, 2, condition)
    (lo, hi), (begin, end) = (sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in holds.shape)
    tile = ((0, 1), (0, 1), (lo, hi), (0, 2), (begin, end), (0, 2))
    with mock.patch.multiple(block_iterator, _STRIP=strip, _GRAIN=max(1, strip // 2)):
        walk = BlockIterator(made.region, (1, 1, blocks[0], 2, blocks[1], 2), LabelMask(made.region))
        met = np.zeros(holds.shape, int)
        for rows in walk.rows(tile):
            for block, held in walk.streamed(rows):
                part = tuple(slice(*block[p]) for p in (_S, _T))
                assert all(inner >= outer for (inner, _), (outer, _) in zip(block, rows, strict=True))
                assert all(inner <= outer for (_, inner), (_, outer) in zip(block, rows, strict=True))
                met[part] += 1
                assert held in ((None,), (bool(holds[part].all()),)) and (held != (True,) or holds[part].all())
                assert held != (False,)
    assert met.max(initial=0) <= 1
    there = np.zeros_like(holds)
    there[lo:hi, begin:end] = True
    assert (met[there & holds] == 1).all() and not met[~there].any()


def test_half_of_a_block_on_the_diagonal_is_left_out() -> None:
    """Of eight by eight blocks 28 lie before it, each of the others is walked in four strips: 5/8 of it."""
    made = attention(np.random.default_rng(0), 1, 1, 4096, 4096, 2, 2, "causal")
    walk = BlockIterator(made.region, (1, 1, 512, 2, 512, 2), LabelMask(made.region))
    found = [b for rows in walk.rows(tuple((0, n) for n in made.region.bounds)) for b, _ in walk.streamed(rows)]
    points = sum(math.prod(hi - lo for lo, hi in (block[_S], block[_T])) for block in found)
    assert points == 512 * 512 * (28 + 8 * 5 / 8)
    assert len(found) == 28 + 8 * 4


def test_what_many_blocks_have_in_common_is_asked_once() -> None:
    made = attention(np.random.default_rng(0), 1, 1, 4096, 4096, 2, 2, "causal")
    mask = LabelMask(made.region)
    walk = BlockIterator(made.region, (1, 1, 1, 2, 1, 2), mask)
    with mock.patch.object(mask, "evaluate", wraps=mask.evaluate) as asked:
        row = walk.streamed(((0, 1), (0, 1), (3000, 3001), (0, 2), (0, 4096), (0, 2)))
    assert len(row) == 3001 and asked.call_count < 100


@pytest.mark.parametrize("mask", ["causal", "window"])
@pytest.mark.parametrize("shape", [(33, 33), (64, 64), (31, 65), (63, 61), (50, 48)])
def test_strips_give_what_the_formula_says(mask: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of states in the workspace and outside it; a value of the rows alone is made anew for each strip."""
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 32 * 32 * 4)
    monkeypatch.setattr(block_layout, "MAX_STREAMED_POINTS", 32)
    monkeypatch.setattr(block_iterator, "_STRIP", 5)
    monkeypatch.setattr(block_iterator, "_GRAIN", 4)
    made = attention(np.random.default_rng(0), 2, 1, *shape, 4, 3, mask, tempered=True)
    region = made.region
    origins, place = (0,) * 6, tuple(region.bounds)
    whole = compile_tile(region, place, "full")
    assert isinstance(whole, RegionKernel)
    found = [
        block
        for rows in whole.spec.iterator.rows(tuple((0, n) for n in place))
        for block, _ in whole.spec.iterator.streamed(rows)
    ]
    assert any(block[_S][1] - block[_S][0] < whole.spec.blocks[_S] // 2 for block in found)
    out = np.full(region.shape, np.nan, np.float32)
    whole((out,), made.operands, origins, True, np.full(whole.workspace_nbytes, 0xFF, np.uint8))
    np.testing.assert_allclose(out, made.expected, rtol=2e-5, atol=2e-5)
    accumulate, finalize = (compile_tile(region, place, mode) for mode in ("accumulate", "finalize"))
    states = tuple(np.ones(n, d.numpy) for n, d in region.components(place))
    accumulate(states, made.operands, origins, True, np.full(accumulate.workspace_nbytes, 0xFF, np.uint8))
    finalize((out,), states, origins, True, np.full(finalize.workspace_nbytes, 0xFF, np.uint8))
    np.testing.assert_allclose(out, made.expected, rtol=2e-5, atol=2e-5)
