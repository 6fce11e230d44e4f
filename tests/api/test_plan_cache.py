"""A plan is made once; an equal request reuses it, with the data of its own call."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import threadpoolctl

import einturnip as et
from einturnip.api import call_cache, call_planning, plan_cache
from einturnip.cost.machine import Machine
from einturnip.devices import stored
from einturnip.runtime.host.driver_choice import call_driver

TEXT = """\
input X : f64[n, m]
input scale : f64 = 2
M[i] = max[j] X[i,j]
Y[i,j] = (X[i,j] - M[i]) * scale
s[j] = sum[i] Y[i,j]
output Y, s
"""


@pytest.fixture
def made(monkeypatch):
    """How many plans are made."""
    plan_cache.forget()
    call_cache._calls.clear()
    calls = []
    plan_job = call_planning.plan_job
    monkeypatch.setattr(call_planning, "plan_job", lambda *a: calls.append(a) or plan_job(*a))
    return calls


def expected(X, scale=2.0):
    Y = (X - X.max(axis=1, keepdims=True)) * scale
    return Y, Y.sum(axis=0)


def holds(result, X, scale=2.0):
    Y, s = expected(X, scale)
    return (result["Y"] == Y).all() and (result["s"] == s).all()


def test_calls_alike_share_a_plan_and_nothing_else(made):
    program, rng = et.compile(TEXT), np.random.default_rng(0)
    results = []
    for scale in (2.0, 3.0, 5.0):
        X = rng.integers(-9, 9, (6, 7)).astype(float)
        results.append((program(X=X, scale=scale), X, scale))
    assert len(made) == 1
    assert all(holds(*one) for one in results), "a later call changed an earlier one's result"


@pytest.mark.parametrize(
    "other",
    [
        {"X": np.ones((6, 8))},
        {"X": np.ones((7, 6)).T},
        {"memory": "100MiB"},
        {"arena": "1MiB"},
        {"workers": 1},
        {"policy": "fixed"},
        {"out": {"Y": np.zeros((6, 7))}},
    ],
    ids=str,
)
def test_what_a_plan_depends_on_asks_for_a_new_one(made, other):
    program = et.compile(TEXT)
    arguments = {"X": np.arange(42.0).reshape(6, 7), "memory": "200MiB"}
    program(**arguments)
    changed = arguments | other
    if "arena" in other:
        del changed["memory"]
    assert holds(program(**changed), changed["X"])
    assert len(made) == 2


def test_plans_and_runs_at_length_are_shared_too(made):
    program, X = et.compile(TEXT), np.random.default_rng(1).integers(-9, 9, (300, 200)).astype(float)
    first, second = (program(X=X, arena="256KiB") for _ in range(2))
    assert len(made) == 1 and holds(first, X) and holds(second, X)
    assert call_driver(made and program.plan(X=X, arena="256KiB")._job.planned.memgraph) != "inline"
    seen = []
    assert holds(program(X=X[:6, :7].copy(), progress=seen.append), X[:6, :7]) and seen


def test_files_and_arrays_of_one_shape_do_not_mix(made, tmp_path):
    program, X = et.compile(TEXT), np.arange(42.0).reshape(6, 7)
    np.save(tmp_path / "x.npy", X * 3)
    for value, data in ((X, X), (tmp_path / "x.npy", X * 3), (X, X), (tmp_path / "x.npy", X * 3)):
        assert holds(program(X=value, memory="100MiB"), data)
    target = tmp_path / "y.npy"
    for k in (1, 2):
        program(X=X * k, memory="100MiB", out={"Y": target})
        assert (np.load(target) == expected(X * k)[0]).all()


@pytest.mark.parametrize("n", [20, 100], ids=["copied", "where they stand"])
def test_what_is_called_again_computes_with_what_it_is_given(made, n):
    """Other arrays in each call; each call warns of inf * 0."""
    text = "input A : f32[i,k]\ninput B : f32[k,j]\nC[i,j] = A[i,k] * B[k,j]\nD[i,j] = A[i,j] - 1\noutput C, D\n"
    program, rng, before = et.compile(text), np.random.default_rng(3), blas_threads()
    for k in range(4):
        A, B = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in "AB")
        if k % 2:
            A[0, 0], B[0] = np.inf, 0
        result = program(A=A, B=B, memory="100MiB")
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(result["C"], A @ B)
        np.testing.assert_array_equal(result["D"], A - 1)
        assert len(result.report.warnings) == k % 2
    assert len(made) == 1 and blas_threads() == before


def blas_threads():
    return [i["num_threads"] for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"]


def test_a_small_run_is_reported_like_any(made):
    program = et.compile("input x : f64[n]\ny[i] = sqrt(x[i])\noutput y\n")
    x = np.array([4.0, -1.0])
    small = program(x=x, memory="100MiB")
    at_length = program(x=x, memory="100MiB", progress=lambda p: None)
    assert len(made) == 1
    assert small.report.warnings == at_length.report.warnings and small.report.warnings[0].line == 2
    assert small.report.link_bytes == at_length.report.link_bytes and small.report.ops == at_length.report.ops
    assert sorted(small.report.order) == sorted(at_length.report.order)
    assert small.report.lanes["compute"] > 0 and "sqrt" in small.analyze().text()


def test_an_error_of_a_small_run_names_its_statement_and_the_next_run_is_sound(made):
    program = et.compile("input X : f64[n]\ninput k : i64[m]\nY[i] = X[k[i]]\noutput Y\n")
    X = np.arange(5.0)
    for _ in range(2):
        with pytest.raises(et.RunError, match="line 3.*9"):
            program(X=X, k=np.array([0, 9]), memory="100MiB")
        assert program(X=X, k=np.array([1, 4]), memory="100MiB")["Y"].tolist() == [1, 4]


def test_an_output_array_that_does_not_fit_is_refused_every_time(made):
    program = et.compile(TEXT)
    for _ in range(2):
        with pytest.raises(et.BindError, match="output Y"):
            program(X=np.ones((6, 7)), out={"Y": np.empty((6, 8))})
        assert holds(program(X=np.ones((6, 7)), out={"Y": np.empty((6, 7))}), np.ones((6, 7)))


def test_threads_share_plans(made):
    program, wrong = et.compile(TEXT), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            X = rng.integers(-9, 9, (6, 7)).astype(float)
            if not holds(program(X=X, memory="100MiB"), X):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("order", ["C", "F"])
def test_einsum_again_is_einsum(made, order):
    rng = np.random.default_rng(2)
    for _ in range(3):
        a = np.asarray(rng.integers(-5, 5, (3, 4)), float, order=order)
        b = rng.integers(-5, 5, (4, 5)).astype(float)
        assert (et.einsum("ij,jk->ik", a, b) == a @ b).all()
        assert et.einsum("ij->", a) == a.sum() and isinstance(et.einsum("ij->", a), np.floating)
        assert et.einsum("ij,jk->ik", a, b, dtype="c16").dtype == np.complex128
        assert (et.einsum("ji", a) == a.T).all() or a.shape[0] == a.shape[1]
    assert len(made) == 4


def test_einsum_of_other_kinds_of_operands_still_works(made):
    a = np.arange(6.0).reshape(2, 3)
    for _ in range(2):
        assert (et.einsum("ij->ji", a.astype(">f8")) == a.T).all()
        assert (et.einsum("ij->ji", a.tolist()) == a.T).all()
        assert (et.einsum(a, [0, 1], [1, 0]) == a.T).all()
        out = np.empty((3, 2))
        assert et.einsum("ij->ji", a, out=out) is out and (out == a.T).all()


def test_what_is_kept_is_bounded(made, monkeypatch):
    program, X = et.compile(TEXT), np.ones((6, 7))
    program(X=X, memory="100MiB")
    size = next(iter(plan_cache._plans.values())).nbytes
    monkeypatch.setattr(plan_cache, "MAX_NBYTES", 3 * size)
    for extra in range(1, 8):
        program(X=np.ones((6, 7 + extra)), memory="100MiB")
    assert sum(kept.nbytes for kept in plan_cache._plans.values()) <= 3 * size
    program(X=np.ones((6, 14)), memory="100MiB")
    assert len(made) == 8
    program(X=X, memory="100MiB")
    assert len(made) == 9


def test_plans_are_kept_while_they_are_listed(made):
    """As by another thread, which may run wherever a key is compared."""
    program, X = et.compile(TEXT), np.ones((6, 7))
    program(X=X)
    (kept,) = plan_cache._plans.values()

    class Meanwhile:
        def __hash__(self):
            plan_cache.find(kept.key)
            return 7

    for _ in range(2):
        program(X=X, memory="100MiB")
        plan_cache._plans[Meanwhile()] = replace(kept, key=Meanwhile())
    plan_cache.release_idle_resources()
    assert plan_cache.find(kept.key) is kept


def test_a_kept_plan_holds_no_data(made):
    program = et.compile(TEXT)
    X = np.ones((6, 7))
    program(X=X, memory="100MiB")
    kept = next(iter(plan_cache._plans.values()))
    assert kept.planned.sources == {} and kept.prepared._idle_runs[0]._prepared.files == {}


def test_budgets_are_rounded_down_by_an_eighth_at_most():
    for n in (1, 15, 16, 17, 1000, 123_456_789, 2**40 + 5):
        assert 7 / 8 * n <= plan_cache.rounded(n) <= n


def test_a_budget_stays_while_it_is_free_and_not_half_of_what_could_be(monkeypatch):
    free = iter([64 << 30, 63 << 30, 80 << 30, 127 << 30, 128 << 30, 100 << 30])
    monkeypatch.setattr(plan_cache, "available_memory", lambda: next(free))
    monkeypatch.setattr(plan_cache, "FRESH", -1.0)
    monkeypatch.setattr(plan_cache, "_reading", (0.0, 0))
    budgets = [plan_cache.free_share() for _ in range(6)]
    assert [budget >> 30 for budget in budgets] == [32, 30, 30, 60, 60, 48]


def test_a_machine_measured_anew_gets_a_plan_of_its_own(made, tmp_path, monkeypatch):
    monkeypatch.setenv("EINTURNIP_CALIBRATION", str(tmp_path / "machine.json"))
    program, X = et.compile(TEXT), np.ones((6, 7))
    program(X=X)
    stored.store(replace(Machine(), read_bandwidth=1e8), "now", "here")
    monkeypatch.setattr(plan_cache, "FRESH", -1.0)
    program(X=X)
    program(X=X)
    assert len(made) == 2
