"""Partial states of regions: how they are combined, and how exact long sums are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.ir.evaluate import State
from einturnip.ir.region import Region
from einturnip.kernels import select
from einturnip.kernels.fused import block_iterator, block_layout, partial_states, recorder, region_spec
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import compile_kernel, prepare_kernels
from tests.eingraph.fused import graphs, regions
from tests.kernels.regions import CASES, Array, attention
from tests.reference.region import combine_spaces, evaluate_space, identity_space

VARIANCE = "mu[n] = mean[m] X[n,m]\nZ[n] = mean[m] (X[n,m]-mu[n])^2\n"
SPREAD = "mu[n] = mean[m] X[n,m]\nlow[n] = sum[m] 3*(X[n,m]-mu[n])^2\nZ[n] = low[n] + mu[n]\n"
BOTH = "M[n] = max[m] X[n,m]\nL[n] = min[m] X[n,m]\nZ[n] = sum[m] exp(X[n,m]-M[n]) / sum[m] exp(L[n]-X[n,m])\n"
SOFTMAX = "M[n] = max[m] X[n,m]\nS[n] = sum[m] exp(X[n,m]-M[n])\nZ[n,d] = sum[m] exp(X[n,m]-M[n])*V[m,d] / S[n]\n"
EXPONENTIALS = "T[n,m] = exp(X[n,m])\nA[n] = sum[m] T[n,m]\nB[n] = sum[m] T[n,m]^2\nZ[n] = A[n]+B[n]\n"
TEXTS = (VARIANCE, SPREAD, BOTH, SOFTMAX, EXPONENTIALS)


@pytest.fixture
def own_kernels(own_cache: None) -> Iterator[None]:
    """No machine code to begin with."""
    code_cache.forget()
    select.forget()
    yield


def program(text: str, dtype: str = "f32") -> str:
    values = f"input V : {dtype}[m,d]\n" if "V[" in text else ""
    return f"input X : {dtype}[n,m]\n{values}{text}output Z\n"


def region_of(text: str, n: int, m: int, d: int = 3) -> Region:
    (found,) = regions(graphs(program(text), {"X": (n, m), "V": (m, d)} if "V[" in text else {"X": (n, m)})[1])
    assert isinstance(found.einsum, Region)
    return found.einsum


def drawn_regions() -> Iterator[tuple[Region, Sequence[Array]]]:
    for number, case in enumerate(CASES):
        made = case(np.random.default_rng(number))
        yield made.region, made.operands
    rng = np.random.default_rng(1)
    for text in TEXTS:
        region = region_of(text, 5, 12)
        shapes = [[region.bounds[p] for p in access if isinstance(p, int)] for access in region.accesses]
        yield region, [(4 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def run(region: Region, mode: Mode, outs: Sequence[Array], operands: Sequence[Array], first: bool = True) -> Any:
    kernel = compile_kernel(region, region.bounds, mode)
    workspace = np.full(kernel.workspace_nbytes, 0xFF, np.uint8)
    assert kernel(tuple(outs), tuple(operands), (0,) * len(region.bounds), first, workspace) == 0
    return kernel


def states_of(region: Region, operands: Sequence[Array]) -> list[State]:
    """The states of both halves of the last streamed label, and that of nothing."""
    p = max(q for q in region.aggregated if q not in region.whole)
    found = [identity_space(region, region.shape)]
    for ends in ((0, region.bounds[p] // 2), (region.bounds[p] // 2, region.bounds[p])):
        box = [ends if q == p else (0, n) for q, n in enumerate(region.bounds)]
        parts = [x[tuple(slice(*e) for e in region.operand_box(s, box))] for s, x in enumerate(operands)]
        found.append(evaluate_space(region, parts, [a for a, _ in box], [b - a for a, b in box], "state"))
    return found


@pytest.mark.parametrize("number", range(len(CASES) + len(TEXTS)))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_states_combine_by_the_law(number: int) -> None:
    region, operands = [*drawn_regions()][number]
    for upper, lower in product(states_of(region, operands), repeat=2):
        combined = [np.array(component) for component in upper]
        run(region, "combine", combined, lower, first=False)
        scale = 1e-5 if region.dtype.itemsize == 4 else 1e-12
        for found, expected in zip(combined, combine_spaces(region, upper, lower), strict=True):
            np.testing.assert_allclose(found, expected, rtol=scale, atol=scale)
        run(region, "combine", combined, lower, first=True)
        for found, expected in zip(combined, lower, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_large_states_combine_in_chunks() -> None:
    rng = np.random.default_rng(0)
    made = attention(rng, 1, 2, 300, 40, 3, 50)
    states = states_of(made.region, made.operands)[1:]
    combined = [component.copy() for component in states[0]]
    run(made.region, "combine", combined, states[1], first=False)
    for found, expected in zip(combined, combine_spaces(made.region, *states), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("mode", ["full", "accumulate"])
def test_any_number_of_partial_states(number: int, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_states, "ADDITIONS_PER_STATE", 2)
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 16)
    monkeypatch.setattr(block_layout, "MAX_STREAMED_POINTS", 2)
    select.forget()
    made = CASES[number](np.random.default_rng(number))
    region, out = made.region, np.empty(made.region.shape, made.region.dtype.numpy)
    if mode == "full":
        kernel = run(region, "full", [out], made.operands)
    else:
        state = [np.empty(shape, dtype.numpy) for shape, dtype in region.components(region.bounds)]
        kernel = run(region, "accumulate", state, made.operands)
        run(region, "finalize", [out], state)
    assert kernel.spec.levels.partial >= (1 if partial_states.carries_rounded_sums(region) else 0)
    np.testing.assert_allclose(out, made.expected, rtol=2e-5, atol=2e-5)
    select.forget()


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.machine_code
@pytest.mark.parametrize("mask", ["", "causal"])
def test_replayed_combinations_give_the_bits_of_the_steps(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_states, "ADDITIONS_PER_STATE", 2)
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 11)
    monkeypatch.setattr(region_spec, "MAX_PACKED_VALUE_NBYTES", 1 << 11)
    monkeypatch.setattr(block_layout, "MAX_STREAMED_POINTS", 16)
    monkeypatch.setattr(block_iterator, "_STRIP", 5)
    monkeypatch.setattr(recorder, "region_product", lambda kernel: None)  # by BLAS, as in steps
    made = attention(np.random.default_rng(0), 2, 3, 100, 130, 16, 24, mask)
    assert prepare_kernels([(made.region, "full")])
    kernel = compile_kernel(made.region, made.region.bounds, "full")
    assert isinstance(kernel, RegionKernel) and kernel.spec.levels.partial and kernel.command_lists is not None
    kernel.spec.scratch_nbytes = kernel.workspace_nbytes = 1 << 22  # so that steps halve no block
    outs = []
    for lists in (kernel.command_lists, kernel.command_lists, None):  # recorded, replayed from the cache, in steps
        kernel.command_lists = lists
        outs.append(np.full(made.region.shape, np.nan, np.float32))
        workspace = np.full(kernel.workspace_nbytes, 0xFF, np.uint8)
        assert kernel((outs[-1],), made.operands, (0,) * len(made.region.bounds), True, workspace) == 0
    np.testing.assert_array_equal(outs[0], outs[2])
    np.testing.assert_array_equal(outs[1], outs[2])
    np.testing.assert_allclose(outs[0], made.expected, rtol=2e-5, atol=2e-5)


def exact(text: str, x: Array, v: Array) -> Array:
    wide, values = x.astype(np.float64), v.astype(np.float64)
    if text == EXPONENTIALS:
        return np.exp(wide).sum(1) + np.exp(2 * wide).sum(1)
    weights = np.exp(wide - wide.max(1, keepdims=True))
    return weights @ values / weights.sum(1, keepdims=True)


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("mode", ["full", "accumulate"])
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("text", [EXPONENTIALS, SOFTMAX], ids=["exponentials", "softmax"])
def test_equal_terms(text: str, d: int, mode: Mode, native: bool) -> None:
    """One tile of many terms, which every state takes in long blocks."""
    rows, terms = 4, 400_000
    region = region_of(text, rows, terms, d)
    if native:
        prepare_kernels([(region, mode)])
    for term in (0.1, 0.37):
        x, v = np.full((rows, terms), term, np.float32), np.full((terms, d), term, np.float32)
        x[0, 0] = 1.0
        out, operands = np.empty(region.shape, np.float32), (x, v)[: len(region.accesses)]
        if mode == "full":
            run(region, "full", [out], operands)
        else:
            state = [np.empty(shape, dtype.numpy) for shape, dtype in region.components(region.bounds)]
            run(region, "accumulate", state, operands)
            run(region, "finalize", [out], state)
        expected = exact(text, x, v)
        assert (np.abs(out - expected) / expected).max() <= (4 * math.log2(terms) + 1) * 2**-23


@pytest.mark.parametrize("arena", [pytest.param("256KiB", marks=pytest.mark.slow), "1MiB", None])
def test_equal_terms_in_any_arena(arena: str | None) -> None:
    x, v = np.full((4, 400_000), 0.1, np.float32), np.full((400_000, 8), 0.1, np.float32)
    found = et.compile(program(SOFTMAX))(workers=1, arena=arena, data={"X": x, "V": v})["Z"]
    assert (np.abs(found - 0.1) / 0.1).max() <= (4 * math.log2(400_000) + 1) * 2**-23
