"""Recorded blocks of regions against the same done step by step: bits, places, masks, invalid operations."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from einturnip.kernels import select
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.fused import block_iterator, block_layout, recorder, region_spec, replay
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CommandListExecutor
from tests.kernels.regions import Array, Made, attention

pytestmark = [pytest.mark.machine_code, pytest.mark.usefixtures("own_cache")]


def kernel_of(made: Made, extents: tuple[int, ...] = (), mode: select.Mode = "full") -> RegionKernel:
    assert select.prepare_kernels([(made.region, mode)]) > 0
    kernel = select.compile_tile(made.region, extents or made.region.bounds, mode)
    assert isinstance(kernel, RegionKernel) and kernel.command_lists is not None
    return kernel


def run(kernel: RegionKernel, operands: tuple[Array, ...], origins: tuple[int, ...] = ()) -> tuple[Array, int]:
    out = np.full(kernel.spec.extents[: kernel.spec.region.n_out], np.nan, np.float32)
    workspace = np.full(kernel.workspace_nbytes, 0xFF, np.uint8)
    return out, kernel((out,), operands, origins or (0,) * len(kernel.spec.extents), True, workspace)


def in_steps(kernel: RegionKernel, operands: tuple[Array, ...]) -> tuple[Array, int]:
    """The same where no tape can be played."""
    found = code_cache.find
    with mock.patch.object(code_cache, "find", lambda code: None if code == CommandListExecutor() else found(code)):
        return run(kernel, operands)


@pytest.mark.parametrize("mask", ["", "causal", "window"])
def test_tapes_give_the_bits_of_the_steps(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 13)
    monkeypatch.setattr(block_iterator, "_STRIP", 5)
    monkeypatch.setattr(recorder, "region_product", lambda kernel: None)  # as steps are: by BLAS
    made = attention(np.random.default_rng(0), 2, 3, 100, 130, 16, 24, mask)
    kernel = kernel_of(made)
    kernel.spec.scratch_nbytes = kernel.workspace_nbytes = 1 << 22  # so that steps halve no block
    out, bits = run(kernel, made.operands)
    assert kernel.command_lists is not None and {"open", "first", "finalize"} <= {
        part for part, *_ in kernel.command_lists.recorded
    }
    assert mask or None not in kernel.command_lists.recorded.values()
    expected, in_steps_bits = in_steps(kernel, made.operands)
    np.testing.assert_array_equal(out, expected)
    assert bits == in_steps_bits == 0


def test_one_tape_for_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tiles of other arrays that lie alike, and one that lies otherwise."""
    made = attention(np.random.default_rng(0), 2, 3, 32, 64, 8, 8, "causal")
    kernel = kernel_of(made, (1, 1, 32, 8, 64, 8))
    for b in range(2):
        for h in range(3):
            parts = tuple(x[b : b + 1, h : h + 1] for x in made.operands)
            out, _ = run(kernel, parts, (b, h, 0, 0, 0, 0))
            np.testing.assert_allclose(out, made.expected[b : b + 1, h : h + 1], rtol=2e-5, atol=2e-5)
    assert kernel.command_lists is not None
    assert sorted(part for part, *_ in kernel.command_lists.recorded) == ["finalize", "first", "open"]
    wide = tuple(np.concatenate([x[:1, :1], x[:1, :1]], axis=3)[..., : x.shape[3]] for x in made.operands)
    np.testing.assert_allclose(run(kernel, wide)[0], made.expected[:1, :1], rtol=2e-5, atol=2e-5)
    assert len(kernel.command_lists.recorded) == 6


def test_a_mask_is_met_where_the_tile_lies() -> None:
    made = attention(np.random.default_rng(0), 1, 1, 64, 64, 8, 8, "causal")
    q, k, v = made.operands
    kernel = kernel_of(made, (1, 1, 16, 8, 64, 8))
    for s in (0, 16, 32, 48):
        out, _ = run(kernel, (q[:, :, s : s + 16], k, v), (0, 0, s, 0, 0, 0))
        np.testing.assert_allclose(out, made.expected[:, :, s : s + 16], rtol=2e-5, atol=2e-5)
        ((*_, (_, last), _), _) = kernel.spec.iterator.streamed(((0, 1), (0, 1), (s, s + 16), (0, 8), (0, 64), (0, 8)))[
            -1
        ]
        assert last == s + 16, "it stops where its rows see no more"


def test_rows_under_a_mask_share_their_tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many blocks a row has, and wherever they lie, few tapes are made."""
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 15)
    made = attention(np.random.default_rng(0), 1, 1, 2048, 2048, 16, 16, "causal")
    kernel = kernel_of(made)
    out, _ = run(kernel, made.operands)
    np.testing.assert_allclose(out, made.expected, rtol=2e-5, atol=2e-5)
    assert kernel.command_lists is not None and None not in kernel.command_lists.recorded.values()
    assert len(kernel.command_lists.recorded) <= 20 < 2048 // kernel.spec.blocks[2]


def test_a_tape_goes_on_after_an_invalid_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 14)
    monkeypatch.setattr(recorder, "region_product", lambda kernel: None)  # as steps are: by BLAS
    made = attention(np.random.default_rng(0), 1, 2, 96, 128, 16, 16)
    made.operands[0][0, 1, 3] = np.inf
    made.operands[1][0, 1, 5] = np.abs(made.operands[1][0, 1, 5])
    kernel = kernel_of(made)
    played = replay._run_calls
    with mock.patch.object(replay, "_run_calls", wraps=played) as asked:
        out, bits = run(kernel, made.operands)
    assert asked.call_count == 1 and bits & INVALID
    expected, bits = in_steps(kernel, made.operands)
    assert bits & INVALID
    np.testing.assert_array_equal(out, expected)


def test_more_than_one_call_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_MAX_WORDS", 1)
    monkeypatch.setattr(replay, "_MAX_LISTS", 1)
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 14)
    made = attention(np.random.default_rng(0), 1, 2, 96, 128, 16, 16, "causal")
    np.testing.assert_allclose(run(kernel_of(made), made.operands)[0], made.expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 13, 1 << 18])
@pytest.mark.parametrize("mask", ["", "causal", "window"])
def test_right_sides_that_stay_packed_are_those_of_the_block(
    mask: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of blocks by one packing, blocks along the mask of other extents; then other values in their place."""
    monkeypatch.setattr(region_spec, "MAX_PACKED_VALUE_NBYTES", nbytes)
    rng = np.random.default_rng(0)
    made = attention(rng, 2, 2, 100, 130, 24, 40, mask)
    kernel = kernel_of(made)
    np.testing.assert_allclose(run(kernel, made.operands)[0], made.expected, rtol=2e-5, atol=2e-5)
    other = attention(rng, 2, 2, 100, 130, 24, 40, mask)
    for old, new in zip(made.operands, other.operands, strict=True):
        old[...] = new
    for _ in range(2):
        np.testing.assert_allclose(run(kernel, made.operands)[0], other.expected, rtol=2e-5, atol=2e-5)


def test_a_tile_met_before_is_played_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mask wherever it lies, with one where it lay."""
    for mask, times in (("", 1), ("causal", 2)):
        made = attention(np.random.default_rng(0), 1, 1, 64, 64, 32, 32, mask)
        kernel = kernel_of(made, (1, 1, 32, 32, 64, 32))
        assert kernel.command_lists is not None
        for _ in range(2):
            for s in (0, 32):
                q, k, v = made.operands
                out, _ = run(kernel, (q[:, :, s : s + 32], k, v), (0, 0, s, 0, 0, 0))
                np.testing.assert_allclose(out, made.expected[:, :, s : s + 32], rtol=2e-5, atol=2e-5)
        assert len(kernel.command_lists.replays) == times
