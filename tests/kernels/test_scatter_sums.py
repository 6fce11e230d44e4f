"""Sums by key: accurate for any number of groups, tiling and code."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.ir.dtypes import F32, F64, I64
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.partial_sums import ScatterCode
from einturnip.kernels.numpy import scatter, scatter_sums
from einturnip.kernels.select import prepare_code

from .test_keys import segments

CODES = [ScatterCode("add", F32), ScatterCode("add", F64), ScatterCode("add", I64)]


@pytest.fixture(params=["machine code", "NumPy"])
def code(request, monkeypatch):
    """Who folds."""
    if request.param == "NumPy":
        for module in (scatter, scatter_sums):
            monkeypatch.setattr(module.code_cache, "find", lambda _: None)
    elif code_cache.available():
        prepare_code(CODES)
    else:
        pytest.skip("no compiler for this machine")
    return request.param


def keys(kind: str, n: int, groups: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    k = rng.integers(0, groups, n)
    if kind == "one group has most":
        k[rng.random(n) < 0.7] = groups // 3
    return np.sort(k) if kind == "sorted" else np.arange(n) % groups if kind == "cyclic" else k


def sums(x: np.ndarray, k: np.ndarray, groups: int) -> np.ndarray:
    """Each group's sum, correctly rounded to f64."""
    order = np.argsort(k, kind="stable")
    parts = np.split(x[order], np.searchsorted(k[order], np.arange(1, groups)))
    return np.array([[math.fsum(column) for column in part.T] or [0.0] * x.shape[1] for part in parts])


def check(found, x, k, groups, dtype, average=False):
    """Errors are at most 4 log2(n) ulp of a group's sum; all terms are positive."""
    n = np.maximum(np.bincount(k, minlength=groups), 1)[:, None]
    by = n if average else 1
    exact = sums(x.astype(np.float64), k, groups) / by
    bound = np.abs(exact) * np.finfo(dtype).eps * 4 * np.maximum(np.log2(n), 1)
    error = np.abs(found.astype(np.float64) - exact)
    assert (error <= bound).all(), (error / bound).max()


def touched(x, k, groups, tiles, op="sum"):
    """Tile by tile, the state of a scatter of all rows."""
    einsum = segments(groups, x.shape[1], len(x), op, F32 if x.dtype == np.float32 else F64)
    state = tuple(np.empty((groups, x.shape[1]), d.numpy) for d in einsum.state_dtypes)
    edges = np.linspace(0, len(x), tiles + 1).astype(int)
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        kernel = select.compile_kernel(einsum, (groups, x.shape[1], int(b - a)), "accumulate")
        workspace = np.empty(kernel.workspace_nbytes, np.uint8)
        assert kernel(state, (x[a:b], k[a:b]), (0, 0, int(a)), bool(a == 0), workspace) == 0
    return state


@pytest.mark.parametrize("groups", [3, 700, 40_000])
@pytest.mark.parametrize("kind", ["evenly", "one group has most", "sorted", "cyclic"])
@pytest.mark.parametrize(("dtype", "tiles"), [(np.float32, 20), (np.float64, 1)])
def test_sums_of_many_rows(code, kind, groups, tiles, dtype):
    x = np.full((100_000, 1), 0.1, dtype)
    k = keys(kind, len(x), groups)
    found, *counts = touched(x, k, groups, tiles, "mean")
    check(found, x, k, groups, dtype)
    assert np.array_equal(counts[0][:, 0], np.bincount(k, minlength=groups))


@pytest.mark.parametrize("columns", [2, 37])
@pytest.mark.parametrize("groups", [5, 2000])
def test_rows_of_several_columns(code, groups, columns):
    x = np.random.default_rng(2).random((30_000, columns), np.float32)
    k = keys("one group has most", len(x), groups)
    found, *_ = touched(x, k, groups, 6)
    check(found, x, k, groups, np.float32)


def test_a_large_term_does_not_swallow_the_others(code):
    x = np.ones((100_000, 1), np.float32)
    x[0] = 2**24
    found, *_ = touched(x, np.zeros(len(x), np.int64), 1, 10)
    assert abs(float(found[0, 0]) - (2**24 + 99_999)) <= 4 * math.log2(len(x)) * 2


@given(st.data())
def test_small_integers_are_exact_and_rows_may_be_left_out(data):
    if code_cache.available():
        prepare_code(CODES)
    groups, columns = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 40))
    n = data.draw(st.integers(1, 3000))
    rng = np.random.default_rng(n)
    x, k = rng.integers(-9, 9, (n, columns)).astype(np.float32), rng.integers(0, groups, n)
    first = data.draw(st.integers(0, groups - 1))
    some = data.draw(st.integers(1, groups - first))
    einsum = segments(groups, columns, n)
    kernel = select.compile_kernel(einsum, (some, columns, n), "accumulate")
    state = (rng.integers(0, 5, (some, columns)).astype(np.float32),)
    expected = state[0].astype(np.float64)
    here = (k >= first) & (k < first + some)
    np.add.at(expected, k[here] - first, x[here])
    kernel(state, (x, k), (first, 0, 0), False, np.empty(kernel.workspace_nbytes, np.uint8))
    assert np.array_equal(state[0], expected)


def test_infinite_terms_are_no_invalid_operation(code):
    x = np.ones((3000, 17), np.float32)
    x[5], x[2000] = np.inf, -np.inf
    k = np.arange(3000) % 2  # the infinities meet in no group
    found, *_ = touched(x, k, 2, 1)
    assert (found[1] == np.inf).all() and (found[0] == -np.inf).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "c64"])
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_programs_over_other_types(code, op, dtype):
    program = et.compile(f"input X : {dtype}[n], k : i64[n]\nS[k[n]: 3] = {op}[n] X[n]\noutput S\n")
    x = np.full(150_000, 0.125)
    k = keys("evenly", len(x), 3)
    if dtype == "c64":
        x[:] = 0.1
        found = program(X=x.astype(np.complex64), k=k)["S"].real[:, None]
        check(found, x.astype(np.float32)[:, None], k, 3, np.float32, op == "mean")
    else:
        values = x.astype(np.float16 if dtype == "f16" else np.float32)
        if dtype == "bf16":
            ml_dtypes = pytest.importorskip("ml_dtypes")
            values = values.astype(ml_dtypes.bfloat16)
        found = program(X=values, k=k)["S"].astype(np.float64)
        expected = np.bincount(k, x, 3) / (np.bincount(k) if op == "mean" else 1)
        assert np.allclose(found, expected, rtol=2**-8)


@pytest.mark.parametrize("arena", [None, "64KiB"])
def test_counts_and_logsumexp_in_any_arena(code, arena):
    text = "input X : f32[n], k : i64[n]\nC[k[n]: 2] = sum[n] f32(X[n] > 0)\n"
    program = et.compile(text + "L[k[n]: 2] = logsumexp[n] X[n]\noutput C, L\n")
    n = 20_000
    x, k = np.full(n, 0.1, np.float32), keys("one group has most", n, 2)
    found = program(X=x, k=k, arena=arena)
    assert np.array_equal(found["C"], np.bincount(k))
    assert np.allclose(found["L"], np.log(np.bincount(k)) + 0.1, rtol=3e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_means_over_a_second_label(code, workers):
    program = et.compile("input X : f32[n,m], k : i64[n]\nS[k[n]: 3] = mean[n,m] X[n,m]\noutput S\n")
    x, k = np.full((5000, 40), 0.1, np.float32), keys("evenly", 5000, 3)
    assert np.allclose(program(X=x, k=k, workers=workers)["S"], 0.1, rtol=1e-6)


@pytest.mark.slow
def test_the_mean_of_twenty_million_ones(code):
    program = et.compile("input X : f32[n], k : i64[n]\nS[k[n]: 2] = mean[n] X[n]\noutput S\n")
    n = 20_000_000
    assert program(X=np.ones(n, np.float32), k=np.zeros(n, np.int64))["S"][0] == 1


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_long_complex_sums(code, op, dtype):
    program = et.compile(f"input X : {dtype}[n], k : i64[n]\nS[k[n]: 1] = {op}[n] X[n]\noutput S\n")
    part = np.float32 if dtype == "c64" else np.float64
    # NumPy adds partial sums of 1,024 rows of c128 one after the other.
    rows = 200_000 if (code, dtype) == ("NumPy", "c128") else 2_000_000
    x = np.full(rows, part(0.1) - 1j * part(0.3), np.result_type(part, 1j))
    found = program(X=x, k=np.zeros(len(x), np.int64))["S"][0]
    expected = x[0] * (len(x) if op == "sum" else 1)
    for one, exact in ((found.real, expected.real), (found.imag, expected.imag)):
        assert abs(one - exact) <= 4 * math.log2(len(x)) * np.finfo(part).eps * abs(exact)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("layout", ["n,c", "c,n"])
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_complex_rows(code, op, layout, dtype):
    text = f"input X : {dtype}[{layout}], k : i64[n]\nS[k[n]: 5, c] = {op}[n] X[{layout}]\n"
    program = et.compile(text + f"T[c, k[n]: 5] = {op}[n] X[{layout}] * X[{layout}]\noutput S, T\n")
    rng, k = np.random.default_rng(3), np.random.default_rng(4).integers(0, 4, 2000)
    x = (rng.standard_normal((2000, 3)) + 1j * rng.standard_normal((2000, 3))).astype(
        {"c64": np.complex64, "c128": np.complex128}[dtype]
    )
    for arena in (None, "64KiB"):
        found = program(data={"X": x if layout == "n,c" else np.ascontiguousarray(x.T), "k": k}, arena=arena)
        for name, terms in (("S", x), ("T", (x * x))):
            expected = np.zeros((5, 3), np.complex128)
            np.add.at(expected, k, terms.astype(np.complex128))
            expected = expected / np.maximum(1, np.bincount(k, minlength=5))[:, None] if op == "mean" else expected
            value = found[name] if name == "S" else found[name].T
            np.testing.assert_allclose(value[:4], expected[:4], atol=1e-3 if dtype == "c64" else 1e-10)


@pytest.mark.parametrize("arena", ["1MiB", pytest.param("256KiB", marks=pytest.mark.slow)])
def test_few_rows_of_a_group_in_each_of_many_tiles(arena):
    n, groups = 1_000_000, 1000
    x, k = np.full(n, 0.1, np.float32), np.minimum(np.random.default_rng(1).zipf(1.3, n) - 1, groups - 1)
    program = et.compile(f"input X : f32[n], k : i64[n]\nS[k[n]: {groups}] = sum[n] X[n]\noutput S\n")
    found = program(data={"X": x, "k": k}, arena=arena, workers=1)["S"]
    counts = np.bincount(k, minlength=groups)
    exact = counts * float(np.float32(0.1))
    assert (np.abs(found - exact) <= (4 * np.log2(np.maximum(counts, 2)) + 1) * 2**-23 * exact).all()
