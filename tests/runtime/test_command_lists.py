"""Command lists give what separate kernel calls give, on the arrays of each call."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.api import plan_cache
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.runtime.host import compilation, prepared_run
from einturnip.runtime.host.command_lists import EXECUTOR, OpCommandList
from tests.drawn import examples

pytestmark = pytest.mark.machine_code


@pytest.fixture
def played(tmp_path_factory, monkeypatch):
    """How many ops each tape that is made has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    code_cache.prepare([EXECUTOR])
    assert code_cache.find(EXECUTOR) is not None
    made = []

    class Noted(OpCommandList):
        def __init__(self, taped, *others):
            super().__init__(taped, *others)
            made.append(len(taped))

    monkeypatch.setattr(prepared_run, "OpCommandList", Noted)
    plan_cache.forget()
    yield made
    plan_cache.forget()
    code_cache.forget()
    select.forget()


@pytest.fixture(params=[False, True], ids=["NumPy", "machine code"])
def compiled(request, monkeypatch):
    """Whether whatever can be compiled is, at once."""
    for name in ("WORTH_LOADING", "START_SECONDS", "COMPILE_SECONDS") if request.param else ():
        monkeypatch.setattr(compilation, name, 0.0)
    return request.param


def numbers(rng, *shape, dtype=np.float64):
    return rng.integers(-3, 4, shape).astype(dtype)


HEADS = "input A : f64[a,b], B : f64[b,c], C : f64[c,d]\n"
CHAIN = HEADS + "Z[a,d] = A[a,b] * B[b,c] * C[c,d]\noutput Z\n"
MIXED = (
    HEADS
    + "X[a,c] = A[a,b] * B[b,c]\nY[a,c] = max(X[a,c], 0) + 1\nZ[a,d] = Y[a,c] * C[c,d]\ns = sum[a,d] Z[a,d]\n"
    + "output Z, s\n"
)
SIDES = st.integers(1, 90)


def mixed(A, B, C):
    Z = (np.maximum(A @ B, 0) + 1) @ C
    return {"Z": Z, "s": Z.sum()}


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(SIDES, SIDES, SIDES, SIDES), st.lists(st.integers(0, 3), min_size=9, max_size=9), st.booleans())
def test_each_call_reads_its_own_arrays(compiled, played, sides, turned, holds):
    """Arrays and their layouts change from call to call; results are kept, or dropped at once."""
    rng, program, kept = np.random.default_rng(sum(sides)), et.compile(MIXED), []
    for k in range(0, 9, 3):
        arrays = {}
        for name, rows, columns, way in zip("ABC", sides, sides[1:], turned[k:], strict=False):
            x = numbers(rng, rows, 2 * columns + 1)
            arrays[name] = [x[:, :columns], x[:, 1::2], np.asfortranarray(x[:, :columns]), x[:, :columns].copy()][way]
        for _ in range(3):
            result, wanted = program(**arrays), mixed(**arrays)
            assert (result["Z"] == wanted["Z"]).all() and result["s"] == wanted["s"]
            if holds:
                kept.append((result, wanted))
            arrays["B"][...] = numbers(rng, *arrays["B"].shape)
    assert all((result["Z"] == wanted["Z"]).all() for result, wanted in kept), "a later call wrote to it"


def test_products_in_a_row_are_one_call(played):
    rng, program = np.random.default_rng(0), et.compile(CHAIN)
    for _ in range(6):
        A, B, C = numbers(rng, 64, 128), numbers(rng, 128, 64), numbers(rng, 64, 128)
        assert (program(A=A, B=B, C=C)["Z"] == A @ B @ C).all()
    assert played and played[-1] == 2


@pytest.mark.parametrize("dtype", ["f32", "f64", "c128"])
def test_one_array_given_twice_and_then_two(played, dtype):
    """Which factor is which is not told by where they stood when the tape was made."""
    rng, program = np.random.default_rng(1), et.compile(CHAIN.replace("f64", dtype))
    kind = {"f32": np.float32, "f64": np.float64, "c128": np.complex128}[dtype]
    for k in range(6):
        A = numbers(rng, 128, 128, dtype=kind)
        B, C = (A, A) if k < 3 else (numbers(rng, 128, 128, dtype=kind) for _ in range(2))
        assert (program(A=A, B=B, C=C)["Z"] == A @ B @ C).all()
    assert played or dtype == "c128"


def test_inputs_that_share_memory(played):
    rng, program = np.random.default_rng(2), et.compile(CHAIN)
    whole = numbers(rng, 200, 200)
    for k in range(6):
        A, B, C = whole[k : k + 80, :80], whole[:80, k : k + 80], whole[k : k + 80, k : k + 80]
        assert (program(A=A, B=B, C=C)["Z"] == A @ B @ C).all()
    assert played


def test_what_happened_is_told_of_the_op_that_it_happened_in(played):
    """An overflow in the second product, something invalid in the third, nothing in others: as of ops one by one."""
    program, B = et.compile(CHAIN), np.ones((128, 64))
    mixed = np.where(np.arange(64 * 128).reshape(64, 128) % 2, 1e200, -1e200)
    cases = [
        (1, 1),
        (1e200, 1),
        (1, 1e200),
        (1e200, 1e200),
        (mixed, mixed),
        (np.nan, 1),
        (1, np.inf),
        (np.sign(mixed) * np.inf, 1),
    ]
    cases = [(a * np.ones((64, 128)), c * np.ones((64, 128))) for a, c in cases]
    told = []
    for taped in (False, True):
        plan_cache.forget()
        with pytest.MonkeyPatch.context() as now:
            if not taped:
                now.setattr(prepared_run.code_cache, "find", lambda _: None)
            found = [program(A=A, B=1e120 * B, C=C) for A, C in cases for _ in range(3)]
        told.append([(r.report.warnings, r["Z"].tobytes()) for r in found])
    assert played and told[0] == told[1] and len({str(warnings) for warnings, _ in told[0]}) > 2


def test_ops_played_together_are_timed_one_by_one(played):
    rng, program = np.random.default_rng(3), et.compile(CHAIN)
    arrays = {"A": numbers(rng, 64, 128), "B": numbers(rng, 128, 64), "C": numbers(rng, 64, 128)}
    reports = [program(**arrays).report for _ in range(4)]
    assert played
    for report in reports:
        line = report.timeline
        assert sorted(report.order) == list(range(len(line.end)))
        order = list(report.order)
        assert (line.begin <= line.end).all() and (line.begin[order][1:] >= line.end[order][:-1] - 1e-9).all()
        assert np.count_nonzero(line.begin < line.end) >= 2 and report.lanes["compute"] > 0


def test_threads_call_at_once(played):
    program, wrong = et.compile(CHAIN), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            A, B, C = numbers(rng, 64, 128), numbers(rng, 128, 64), numbers(rng, 64, 128)
            if not (program(A=A, B=B, C=C)["Z"] == A @ B @ C).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert played and not wrong


def test_steps_of_a_session_are_played(played):
    heads = "state x : f64[n,m]\ninput W : f64[m,m]\n"
    text = heads + "y[i,k] = x[i,j] * W[j,k]\nz[i,k] = y[i,j] * W[j,k]\nx[i,k] <- z[i,k]\noutput z\n"
    rng = np.random.default_rng(4)
    W, x = np.roll(np.eye(64), 3, 1), numbers(rng, 48, 64)
    with et.compile(text).session(W=W, x=x) as session:
        for _ in range(6):
            x = x @ W @ W
            assert (session.step()["z"] == x).all()
