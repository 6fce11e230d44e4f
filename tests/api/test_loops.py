"""Programs with long loops: planned once, run within the memory, reported as a whole."""

from __future__ import annotations

import gc
import json
import mmap
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.api import step_plan
from einturnip.core.errors import CapacityError, Interrupted, RunError
from einturnip.core.process_resources import resident_nbytes
from einturnip.runtime.host.prepared_run import PreparedRun
from einturnip.runtime.scheduler.report import Progress
from tests.robustness.measuring import evict, measured
from tests.robustness.programs import finished

RECURRENCE = """
input A : f64[n, n]
input u : f64[T, n]
x[i: n] = 0.0
H[t: T, i: n] = 0.0
for t in 0 .. T {
  x[i] = sum[j] A[i,j] * x[j] + u[t, i]
  H[t, i] = x[i]
}
s = sum[t,i] H[t,i]
output s, x, H
"""


def by_hand(A: np.ndarray, u: np.ndarray) -> np.ndarray:
    x, rows = np.zeros(len(A)), []
    for row in u:
        x = A @ x + row
        rows.append(x)
    return np.array(rows)


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"A": rng.random((5, 5)) / 10, "u": rng.random((500, 5))}


def test_results_and_report(data: dict[str, np.ndarray]) -> None:
    result = et.compile(RECURRENCE)(**data)
    rows = by_hand(**data)
    np.testing.assert_allclose(result["H"], rows, rtol=1e-12)
    np.testing.assert_allclose(result["x"], rows[-1], rtol=1e-12)
    np.testing.assert_allclose(result["s"], rows.sum(), rtol=1e-12)
    assert result.report.ops["kernel"] >= 1000  # two in each iteration
    assert "sum[j] A[i,j] * x[j]" in result.analyze().text()


def test_a_plan_runs_again_and_explains_its_stages(data: dict[str, np.ndarray]) -> None:
    plan = et.compile(RECURRENCE).plan(**data)
    assert "one of 500 iterations" in plan.explain() and plan.prediction.seconds > 0 and plan.relations()
    first = plan.run()["H"]
    np.testing.assert_array_equal(plan.run()["H"], first)
    data["u"][...] = 0.0
    assert not plan.run()["H"].any()
    plan.close()
    with pytest.raises(RunError, match="closed"):
        plan.run()


def test_outputs_to_files_and_arrays(data: dict[str, np.ndarray], tmp_path: Path) -> None:
    x = np.empty(5)
    result = et.compile(RECURRENCE)(**data, out={"H": str(tmp_path / "H.npy"), "x": x})
    np.testing.assert_allclose(np.load(tmp_path / "H.npy"), by_hand(**data), rtol=1e-12)
    np.testing.assert_array_equal(x, np.load(tmp_path / "H.npy")[-1])
    assert result["x"] is x


def test_values_that_do_not_fit_in_memory_are_in_files(data: dict[str, np.ndarray]) -> None:
    for arena in ("2KiB", "64KiB"):
        result = et.compile(RECURRENCE)(**data, arena=arena)
        np.testing.assert_allclose(result["H"], by_hand(**data), rtol=1e-12)


def test_the_minimum_that_a_refusal_names_is_enough(data: dict[str, np.ndarray]) -> None:
    program = et.compile(RECURRENCE)
    with pytest.raises(CapacityError) as refusal:
        program(**data, arena="16B")
    np.testing.assert_allclose(program(**data, arena=refusal.value.needed)["H"], by_hand(**data), rtol=1e-12)


def test_progress_and_stop(data: dict[str, np.ndarray]) -> None:
    seen: list[Progress] = []
    plan = et.compile(RECURRENCE).plan(**data)
    plan.run(progress=seen.append)
    assert seen and seen[-1].done_ops == seen[-1].total_ops
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        plan.run(stop=stop)
    np.testing.assert_allclose(plan.run()["H"], by_hand(**data), rtol=1e-12)


def test_a_nan_in_an_iteration_is_reported() -> None:
    text = "input x : f64[T]\ny = 1.0\nfor t in 0 .. T {\n  y = y + sqrt(x[t])\n}\noutput y"
    x = np.ones(400)
    x[7] = -1.0
    result = et.compile(text)(x=x)
    assert np.isnan(result["y"])
    assert any(warning.kind == "nan" and warning.line == 4 for warning in result.report.warnings)


def test_an_index_out_of_range_names_its_statement() -> None:
    text = "input p : i64[T], x : f64[n]\ny = 0.0\nfor t in 0 .. T {\n  y = y + x[p[t]]\n}\noutput y"
    p = np.zeros(400, np.int64)
    p[300] = 9
    with pytest.raises(RunError, match="9") as error:
        et.compile(text)(p=p, x=np.ones(3))
    assert "line 4" in str(error.value)


def test_a_loop_that_takes_too_long_is_refused() -> None:
    text = (
        "input A : f64[n, n]\nv[i: n] = 1.0\nfor t in 0 .. 1000000000000 {\n  v[i] = sum[j] A[i,j] * v[j]\n}\noutput v"
    )
    with pytest.raises(CapacityError, match="line 3.*1,000,000,000,000 iterations"):
        et.compile(text).plan(A=np.ones((100, 100)))


def test_the_same_bits_in_any_memory(data: dict[str, np.ndarray]) -> None:
    runs = [
        et.compile(RECURRENCE)(**data, reproducible=True, workers=w, arena=a) for w, a in ((1, "64KiB"), (2, "1MiB"))
    ]
    for name in ("s", "x", "H"):
        np.testing.assert_array_equal(np.asarray(runs[0][name]), np.asarray(runs[1][name]))


@pytest.mark.parametrize("memory", [96 << 20, pytest.param(200 << 20, marks=pytest.mark.slow)])
def test_the_command_keeps_its_memory(memory: int, tmp_path: Path) -> None:
    """A matrix of 32 MB is read in each of 160 iterations."""
    (tmp_path / "p.ein").write_text(RECURRENCE)
    rng = np.random.default_rng(0)
    A, u = rng.random((2000, 2000)) / 4000, rng.random((160, 2000))
    np.save(tmp_path / "A.npy", A)
    np.save(tmp_path / "u.npy", u)
    expected = by_hand(A, u)
    arguments = ("-i", "A=A.npy", "-i", "u=u.npy", "-o", "H=H.npy", "--report", "r.json")
    evict(tmp_path)
    found = measured(tmp_path, memory, *arguments)
    assert found.code == 0, found.error
    assert found.peak <= memory
    np.testing.assert_allclose(np.load(tmp_path / "H.npy"), expected, rtol=1e-9)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["ops"]["kernel"] >= 320 and report["statements"]


@pytest.mark.parametrize(
    ("n", "T", "memory"), [(600, 100, 76 << 20), pytest.param(900, 100, 102 << 20, marks=pytest.mark.slow)]
)
def test_the_memory_of_carried_values_counts(n: int, T: int, memory: int, tmp_path: Path) -> None:
    """Matrices that a loop carries take a large part of the limit, before and after they are first written."""
    text = (
        f"input A : f64[n, n]\nX[i, j] = A[i, j]\nfor t in 0 .. {T} {{\n  Y[i, k] = sum[j] X[i, j] * A[j, k]\n"
        "  Z[i, k] = sum[j] Y[i, j] * A[j, k]\n  X[i, k] = sum[j] Z[i, j] * X[j, k]\n}\noutput X\n"
    )  # A is its own inverse
    (tmp_path / "p.ein").write_text(text)
    np.save(tmp_path / "A.npy", np.eye(n)[::-1])
    found = measured(tmp_path, memory, "-i", "A=A.npy", "-o", "X=X.npy")
    assert found.code == 0, found.error
    assert found.peak <= memory
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), np.eye(n))


def test_the_command_checks_a_loop_of_any_length(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(RECURRENCE)
    code, out, err = finished("check", "p.ein", "--dim", "n=5", "--dim", "T=1000000", cwd=tmp_path)
    assert code == 0, err
    assert "f64[1000000, 5]" in out


def test_the_command_plans_stages(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(RECURRENCE)
    code, out, err = finished("plan", "p.ein", "--dim", "n=5", "--dim", "T=1000000", "--format", "json", cwd=tmp_path)
    assert code == 0, err
    plan = json.loads(out)
    assert plan["schema"] == "einturnip.stages/1"
    assert [stage["iterations"] for stage in plan["stages"]] == [1, 10**6, 1]


def test_a_result_keeps_no_values() -> None:
    """A carried tensor of 48 MB is freed after the call, although the result can still be analyzed."""
    text = "input x : f64[n]\nv[i] = x[i]\nfor t in 0 .. 400 {\n  v[i] = v[i] + 1\n}\ns = sum[i] v[i]\noutput s"
    program, x = et.compile(text), np.zeros(6_000_000)
    program(x=x[:1000])
    before = resident_nbytes()
    result = program(x=x)
    assert result["s"] == 2.4e9 and resident_nbytes() - before < 24 << 20
    assert result.analyze().rows


AGAIN = """
input A : f64[n, n]
input x : f64[n]
y[i] = x[i]
for t in 0 .. 400 {
  y[i] = 0.5 * (sum[j] A[i,j] * y[j]) + x[i]
}
z[i] = 2 * y[i]
output z
"""


def again(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    y = x
    for _ in range(400):
        y = 0.5 * A @ y + x
    return 2 * y


def test_the_next_call_uses_prepared_runs_and_its_own_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()

    class Counted(PreparedRun):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            made.append(1)
            super().__init__(*arguments, **named)

    monkeypatch.setattr(step_plan, "PreparedRun", Counted)
    monkeypatch.setattr(step_plan.StepPlan, "_compile", lambda _: 0)  # newly compiled kernels need new runs
    rng, program = np.random.default_rng(0), et.compile(AGAIN)
    A, x = rng.random((128, 128)) / 128, rng.random(128)
    first = program(A=A, x=x)["z"]
    np.testing.assert_allclose(first, again(A, x))
    n_made = len(made)
    A *= 0.5
    np.testing.assert_allclose(program(A=A, x=x)["z"], again(A, x))
    assert len(made) == n_made > 0
    with ThreadPoolExecutor(4) as pool:
        others = [(rng.random((128, 128)) / 128, rng.random(128)) for _ in range(8)]
        for (B, b), found in zip(others, pool.map(lambda o: program(A=o[0], x=o[1])["z"], others), strict=True):
            np.testing.assert_allclose(found, again(B, b))
    memory = mmap.mmap(-1, A.nbytes)
    reference = weakref.ref(memory)
    program(A=np.frombuffer(memory).reshape(A.shape), x=x)
    del memory
    gc.collect()
    assert reference() is None, "memory that is not NumPy's own is not kept"


def test_a_call_that_fails_leaves_nothing_for_the_next_one() -> None:
    text = "input k : i64[n]\nx[i: n] = 1.0\nfor t in 0 .. 400 {\n  x[i] = 0.5 * x[k[i]]\n}\noutput x"
    program, k = et.compile(text), np.arange(8)
    assert program(k=k)["x"][3] == 0.5**400
    with pytest.raises(et.RunError, match="out of range|outside"):
        program(k=k + 1)
    assert program(k=k)["x"][3] == 0.5**400
