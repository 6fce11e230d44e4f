"""Rows of a table gathered by machine code: NumPy's bytes for every layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.take_rows import STREAMED_NBYTES, arguments
from einturnip.kernels.numpy.indexed_load import TAKER
from einturnip.kernels.select import prepare_code

pytestmark = pytest.mark.machine_code


@pytest.fixture(scope="module", autouse=True)
def take():
    assert prepare_code([TAKER]) == 1
    return code_cache.find(TAKER)


def taken(table, step, last, numbers, nbytes, out, to):
    made = arguments(table, step, last, numbers, nbytes, out, to)
    code_cache.find(TAKER)(made.buffer_info()[0])


@given(
    st.integers(1, 9),
    st.integers(1, 150),
    st.lists(st.integers(-3, 12), min_size=1, max_size=20),
    st.integers(0, 70),
    st.sampled_from([np.int32, np.int64]),
)
def test_rows_of_any_length_go_anywhere(n, nbytes, numbers, gap, kind):
    table = np.random.default_rng(n).integers(0, 256, (n, nbytes)).astype(np.uint8)
    out = np.full(len(numbers) * (nbytes + gap) + 1, 77, np.uint8)
    taken(table, nbytes, n - 1, np.array(numbers, kind), nbytes, out, nbytes + gap)
    rows = np.lib.stride_tricks.as_strided(out, (len(numbers), nbytes + gap), (nbytes + gap, 1))
    assert (rows[:, :nbytes] == table[np.clip(numbers, 0, n - 1)]).all()
    assert (rows[:-1, nbytes:] == 77).all() and out[-1] == 77, "it wrote beside its rows"


def test_large_results_are_stored_past_the_caches():
    table = np.random.default_rng(0).standard_normal((3000, 512)).astype(np.float32)
    numbers = np.random.default_rng(1).integers(0, 3000, 2 * STREAMED_NBYTES // 2048)
    place = np.zeros(numbers.size * 512 + 16, np.float32)
    for skip in (-place.ctypes.data % 64 // 4, -place.ctypes.data % 64 // 4 + 1):
        out = place[skip : skip + numbers.size * 512]
        out[:] = 0
        made = arguments(table, 2048, 2999, numbers, 2048, out, 2048)
        assert bool(made[-1]) == (out.ctypes.data % 64 == 0)
        code_cache.find(TAKER)(made.buffer_info()[0])
        assert (out.reshape(-1, 512) == table[numbers]).all()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "c128"])
def test_programs_take_the_same_rows(dtype):
    program = et.compile(f"input X : {dtype}[v,a,b], k : i64[s,t]\nZ[s,a,b,t] = X[k[s,t],a,b]\noutput Z\n")
    rows = et.compile(f"input X : {dtype}[v,d], k : i64[s]\nZ[s,d] = X[k[s],d]\noutput Z\n")
    rng = np.random.default_rng(2)
    numpy = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "c128": np.complex128}[dtype]
    X, k = rng.integers(-9, 9, (40, 6, 5)).astype(numpy), rng.integers(0, 40, (30, 7))
    assert (program(X=X, k=k)["Z"] == np.moveaxis(X[k], 1, -1)).all()
    flat, some = X.reshape(40, 30), rng.integers(0, 40, 5000)
    for memory in ("100MiB", None):
        assert (rows(X=flat, k=some, memory=memory)["Z"] == flat[some]).all()
    assert (rows(X=flat[:, 3:20], k=some)["Z"] == flat[some, 3:20]).all()


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("wrong", [40, -1])
def test_a_number_that_is_no_row_is_an_error(dtype, wrong):
    rows = et.compile(f"input X : f32[v,d], k : {dtype}[s]\nZ[s,d] = X[k[s],d]\noutput Z\n")
    X, k = np.ones((40, 512), np.float32), np.full(5000, 39, f"i{int(dtype[1:]) // 8}")
    k[77] = wrong
    with pytest.raises(et.RunError, match=f"line 2.*{wrong}"):
        rows(X=X, k=k)
