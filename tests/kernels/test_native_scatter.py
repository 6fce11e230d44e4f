"""Rows aggregated by key in machine code: the bits of NumPy's ``ufunc.at``."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.ir.aggregations import MONOIDS
from einturnip.ir.dtypes import F32, F64, I32, I64, U8
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.partial_sums import ScatterCode
from einturnip.kernels.llvm.scatter import arguments
from einturnip.kernels.select import prepare_code

pytestmark = pytest.mark.machine_code

UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
CODES = [ScatterCode(op, dtype) for op in UFUNCS for dtype in (F32, F64, I32, I64, U8)]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    prepare_code(CODES)
    assert all(code_cache.find(code) is not None for code in CODES)


@given(
    st.sampled_from(CODES),
    st.integers(0, 40),
    st.integers(1, 140),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.sampled_from([np.int32, np.int64]),
)
def test_rows_are_folded_as_numpy_folds_them(code, n_rows, n_columns, n_places, apart, some, kind):
    rng = np.random.default_rng(n_rows)
    values = (rng.standard_normal((n_rows, n_columns)) * 9).astype(code.dtype.numpy)
    if code.dtype.is_float:
        values[rng.random(values.shape) < 0.02] = np.nan
    step = 2 if apart else 1
    columns = np.arange(n_columns) * step + 1
    if apart:
        rng.shuffle(columns)
    rows = (rng.integers(0, n_places, n_rows) * (n_columns * step + 1)).astype(kind)
    state = rng.integers(0, 5, n_places * (n_columns * step + 1)).astype(code.dtype.numpy)
    mask = rng.random(n_rows) < 0.5 if some else None
    expected = state.copy()
    kept = np.ones(n_rows, bool) if mask is None else mask
    UFUNCS[code.op].at(expected, rows[kept][:, None] + columns, values[kept])
    made = arguments(state, rows, columns, values, not apart, mask)
    code_cache.find(code)(made.buffer_info()[0])
    assert np.array_equal(state, expected, equal_nan=code.dtype.is_float)


def test_places_outside_the_state_are_left_out():
    state, rows, columns = np.zeros(12, np.float32), np.array([-4, 9, 8, 1 << 60, 0]), np.arange(4)
    made = arguments(state, rows, columns, np.ones((5, 4), np.float32), True, None)
    code_cache.find(ScatterCode("add", F32))(made.buffer_info()[0])
    assert state.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("arena", [None, "32KiB"])
@pytest.mark.parametrize("key", ["i32", "i64"])
def test_programs_fold_the_same_groups(op, dtype, arena, key):
    program = et.compile(f"input X : {dtype}[n,d], k : {key}[n]\nS[k[n]: 450, d] = {op}[n] X[n,d]\noutput S\n")
    numpy = {"f32": np.float32, "f64": np.float64, "i64": np.int64}[dtype]
    rng = np.random.default_rng(5)
    X, k = rng.integers(1, 3, (1200, 18)).astype(numpy), rng.integers(0, 450, 1200)
    k[:450] = np.arange(450)
    expected = np.full((450, 18), {"max": 0, "min": 9, "prod": 1}.get(op, 0)).astype(numpy)
    UFUNCS[MONOIDS[op].combine].at(expected, k, X)
    if op == "mean":
        expected = expected / np.bincount(k)[:, None]
    found = program(X=X, k=k.astype(f"i{int(key[1:]) // 8}"), arena=arena)["S"]
    assert np.allclose(found, expected, rtol=1e-6)


def test_what_overflows_is_told():
    program = et.compile("input X : f32[n,d], k : i64[n]\nS[k[n]: 3, d] = sum[n] X[n,d]\noutput S\n")
    X, k = np.full((70_000, 16), 3e38, np.float32), np.zeros(70_000, np.int64)
    result = program(X=X, k=k)
    assert np.isinf(result["S"][0]).all()
    assert [(w.line, w.kind) for w in result.report.warnings] == [(2, "overflow")]
