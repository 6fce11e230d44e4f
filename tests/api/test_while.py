"""Programs with ``while``: runs within the memory, reports, progress, files, and what refuses them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.api import call_planning
from einturnip.core.errors import CapacityError, Interrupted
from einturnip.report.trace import read
from einturnip.runtime.scheduler.report import Progress, WhileReport
from tests.robustness.measuring import evict, measured
from tests.robustness.programs import finished

POWER = """
input A : f64[n, n]
dim N
v[i: n] = 1.0
change = 1.0
while change > 1e-6, at most N {
  w[i] = sum[j] A[i,j] * v[j]
  u[i] = w[i] / sqrt(sum[i] w[i]^2)
  change = max[i] abs(u[i] - v[i])
  v[i] = u[i]
}
output v, change
"""


def by_hand(A: np.ndarray, bound: int = 1 << 60) -> tuple[np.ndarray, int]:
    v, change, iterations = np.ones(len(A)), 1.0, 0
    while change > 1e-6 and iterations < bound:
        w = A @ v
        u = w / np.sqrt(w @ w)
        change, v, iterations = np.abs(u - v).max(), u, iterations + 1
    return v, iterations


@pytest.fixture
def A() -> np.ndarray:
    return np.random.default_rng(0).random((40, 40))


def test_the_report_says_how_each_loop_ended(A: np.ndarray) -> None:
    program = et.compile(POWER)
    v, iterations = by_hand(A)
    result = program(A=A, dims={"N": 1000})
    np.testing.assert_allclose(result["v"], v, rtol=1e-10)
    statement = "while change > 1e-6, at most N {"
    assert result.report.loops == (WhileReport(6, statement, iterations, 1000, False),)
    assert result.report.to_json()["loops"][0]["iterations"] == iterations
    result = program(A=A, dims={"N": 3})
    np.testing.assert_allclose(result["v"], by_hand(A, 3)[0], rtol=1e-10)
    assert result.report.loops == (WhileReport(6, statement, 3, 3, True),)


def test_a_further_call_uses_the_plans_of_the_first(A: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    program, expected = et.compile(POWER, dims={"N": 1000}), [by_hand(A + k)[0] for k in range(4)]
    program(A=A)
    monkeypatch.setattr(call_planning, "bind_stages", lambda *_: pytest.fail("planned again"))
    for k in (1, 2):
        np.testing.assert_allclose(program(A=A + k)["v"], expected[k], rtol=1e-10)
    found: dict[int, np.ndarray] = {}
    threads = [threading.Thread(target=lambda k=k: found.update({k: program(A=A + k)["v"]})) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        np.testing.assert_allclose(found[k], expected[k], rtol=1e-10)
    monkeypatch.undo()
    np.testing.assert_allclose(program(A=A[:7, :7])["v"], by_hand(A[:7, :7])[0], rtol=1e-10)


def test_work_is_counted_for_the_iterations_that_ran(A: np.ndarray) -> None:
    plan = et.compile(POWER).plan(A=A, dims={"N": 10**6})
    few, many = (et.compile(POWER).plan(A=A, dims={"N": n}).run().report for n in (1, 3))
    v, iterations = by_hand(A)
    result = plan.run()
    each = (many.ops["kernel"] - few.ops["kernel"]) // 2
    assert result.report.ops["kernel"] == few.ops["kernel"] + (iterations - 1) * each
    assert plan.prediction.seconds > 1000 * result.report.predicted.seconds
    assert "sum[j] A[i,j] * v[j]" in result.analyze().text()


def test_no_iteration_leaves_what_was_before(tmp_path: Path) -> None:
    body = "y[i] = y[i] * 2\n  x[i] = x[i] + y[i]"
    text = f"input x : f64[n]\ny[i] = x[i] + 1\nwhile x[0] > 1, at most 5 {{\n  {body}\n}}\noutput x, y"
    x = np.arange(3.0)
    result = et.compile(text)(x=x, out={"y": str(tmp_path / "y.npy")})
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x + 1)
    np.testing.assert_array_equal(result["x"], x)
    assert result.report.loops[0].iterations == 0 and result.analyze().rows


def test_a_plan_runs_again_and_says_that_it_is_for_the_bound(A: np.ndarray) -> None:
    plan = et.compile(POWER).plan(A=A, dims={"N": 1000})
    assert "line 6: one of at most 1,000 iterations" in plan.explain()
    first = plan.run()
    assert plan.run().report.loops == first.report.loops
    A[...] = np.eye(len(A))
    assert plan.run().report.loops[0].iterations == by_hand(A)[1] == 2
    plan.close()


def test_a_bound_that_is_not_reached_does_not_refuse_a_program(A: np.ndarray) -> None:
    assert et.compile(POWER)(A=A, dims={"N": 10**15}).report.loops[0].iterations == by_hand(A)[1]


def test_files_in_and_out_with_values_in_files(A: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", A)
    v, _ = by_hand(A)
    for arena in ("3KiB", "64KiB", None):
        inputs, out = {"A": str(tmp_path / "A.npy")}, {"v": str(tmp_path / "v.npy")}
        et.compile(POWER)(data=inputs, dims={"N": 1000}, out=out, arena=arena)
        np.testing.assert_allclose(np.load(tmp_path / "v.npy"), v, rtol=1e-10)


def test_the_minimum_that_a_refusal_names_is_enough(A: np.ndarray) -> None:
    program = et.compile(POWER)
    with pytest.raises(CapacityError) as refusal:
        program(A=A, dims={"N": 9}, arena="16B")
    result = program(A=A, dims={"N": 9}, arena=refusal.value.needed)
    np.testing.assert_allclose(result["v"], by_hand(A, 9)[0], rtol=1e-10)


def test_the_same_bits_in_any_memory(A: np.ndarray) -> None:
    options = ({"workers": 1, "arena": "64KiB"}, {"workers": 2, "arena": "1MiB"})
    runs = [et.compile(POWER)(A=A, dims={"N": 99}, reproducible=True, **each) for each in options]
    np.testing.assert_array_equal(runs[0]["v"], runs[1]["v"])
    assert runs[0].report.loops == runs[1].report.loops


def test_progress_and_stop(A: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einturnip.api.stage_progress.PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr("einturnip.api.inline_iterations.REPEATED_SECONDS", 0.0)  # one iteration a call
    seen: list[Progress] = []
    plan = et.compile(POWER).plan(A=A, dims={"N": 10**6})
    plan.run(progress=seen.append)
    assert any(each.statement == "iteration 2 of at most 1,000,000 of line 6" for each in seen)
    assert seen[-1].done_ops == seen[-1].total_ops and seen[-1].done_nbytes == seen[-1].total_nbytes
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        plan.run(stop=stop)
    assert plan.run().report.loops[0].iterations == by_hand(A)[1]


def test_an_error_in_the_data_of_an_iteration_names_its_statement() -> None:
    text = "input p : i64[n]\nk = 0\nwhile k >= 0, at most 99 {\n  k = p[k]\n}\noutput k"
    with pytest.raises(et.RunError, match="line 4"):
        et.compile(text)(p=np.array([1, 2, 7]))
    assert et.compile(text)(p=np.array([1, 2, -1])).report.loops[0].iterations == 3


@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_a_nan_is_reported_in_whichever_iteration(iterations: int) -> None:
    body = "y = sqrt(y)\n  k = k + 1"
    text = f"input x : f64, n : i64\ny = x\nk = 0\nwhile k < n, at most 99 {{\n  {body}\n}}\noutput y"
    warnings = et.compile(text)(x=np.array(-1.0), n=np.array(iterations)).report.warnings
    assert [(warning.kind, warning.line) for warning in warnings] == [("nan", 5)]


# -- the command line


def write(folder: Path, text: str = POWER, **arrays: np.ndarray) -> None:
    (folder / "p.ein").write_text(text)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def test_the_command_says_how_the_loop_ended(A: np.ndarray, tmp_path: Path) -> None:
    write(tmp_path, A=A)
    arguments = ("run", "p.ein", "-i", "A=A.npy", "--report", "r.json", "--dim")
    code, out, err = finished(*arguments, "N=1000", cwd=tmp_path)
    iterations = by_hand(A)[1]
    assert code == 0 and f"loop     line 6: {iterations} of at most 1,000 iterations" in out and "warning" not in err
    assert json.loads((tmp_path / "r.json").read_text())["loops"][0]["reached_bound"] is False
    code, out, err = finished(*arguments, "N=3", cwd=tmp_path)
    assert code == 0 and "line 6: its bound, 3 iterations; its condition still holds" in out
    warning = (
        "warning: line 6: the loop ended at its bound of 3 iterations, and its condition still holds: while change"
    )
    assert warning in err
    code, out, err = finished("run", "p.ein", "-i", "A=A.npy", "--dim", "N=3", "-q", cwd=tmp_path)
    assert code == 0 and not out and warning in err


def test_the_command_checks_and_plans(tmp_path: Path) -> None:
    write(tmp_path)
    code, out, err = finished("check", "p.ein", "--dim", "n=5", "--dim", "N=9", cwd=tmp_path)
    assert code == 0 and "for each iteration" in out, err
    code, out, err = finished("plan", "p.ein", "--dim", "n=5", "--dim", "N=1000000", cwd=tmp_path)
    assert code == 0 and "one of at most 1,000,000 iterations" in out and "all stages and iterations: at most " in out
    code, out, err = finished("plan", "p.ein", "--dim", "n=5", "--dim", "N=9", "--format", "json", cwd=tmp_path)
    stages = json.loads(out)["stages"]
    assert [(stage["iterations"], stage["at_most"]) for stage in stages] == [(1, False), (9, True), (1, False)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--record", "r.bin"),
        ("run", "--device", "sim"),
        ("plan", "--emit", "taskgraph"),
        ("plan", "--sites", "2"),
        ("plan", "--parts", "2"),
        ("plan", "--device", "sim"),
        ("run", "p.ein"),
    ],
)
def test_options_that_unroll_loops_refuse_it_with_its_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path)
    given = ("--dim", "n=5", "--dim", "N=9", *(("--random",) if arguments[0] == "run" else ()))
    code, _, err = finished(arguments[0], "p.ein", *arguments[1:], *given, cwd=tmp_path)
    assert code == 2 and "E216" in err and "p.ein:6:7" in err, err
    assert not list(tmp_path.glob("*.npy"))


def test_a_trace_has_every_iteration(A: np.ndarray, tmp_path: Path) -> None:
    write(tmp_path, A=A)
    arguments = ("run", "p.ein", "-i", "A=A.npy", "--dim", "N=1000", "--trace", "t.json", "--report", "r.json")
    code, _, err = finished(*arguments, cwd=tmp_path)
    assert code == 0, err
    recorded = read(tmp_path / "t.json")
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(recorded.kind) == sum(report["ops"].values()) >= 3 * report["loops"][0]["iterations"]
    lines = [recorded.tensors[node][1] for node in recorded.node.tolist()]
    assert {2, 4, 7, 8, 9} <= {*lines}
    assert (recorded.begin <= recorded.end).all() and recorded.end.max() <= recorded.seconds * 1.001
    last, first = np.flatnonzero(np.array(lines) == 9)[-1], lines.index(7)
    assert recorded.begin[last] > recorded.end[first]
    code, out, err = finished("trace", "t.json", cwd=tmp_path)
    assert code == 0 and "line 7" in out, err


def test_sessions_run_it(A: np.ndarray) -> None:
    with et.compile(POWER, dims={"N": 1000}).session() as session:
        for matrix in (A, A.T, A[:9, :9], A):
            result = session.step(A=matrix)
            v, iterations = by_hand(matrix)
            np.testing.assert_allclose(result["v"], v, rtol=1e-10)
            assert result.report.loops[0].iterations == iterations
    with et.compile(POWER).session(dims={"N": 3}, A=A) as session:
        first, second = session.step(), session.step()
        assert first.analyze().report.loops == second.report.loops


def test_the_command_keeps_its_memory(tmp_path: Path) -> None:
    """A matrix of 32 MB is read in each iteration."""
    rng = np.random.default_rng(0)
    A = rng.random((2000, 2000))
    write(tmp_path, A=A)
    v, iterations = by_hand(A)
    for memory in (96 << 20, 200 << 20):
        evict(tmp_path)
        found = measured(tmp_path, memory, "-i", "A=A.npy", "-o", "v=v.npy", "--dim", "N=500", "--report", "r.json")
        assert found.code == 0, found.error
        assert found.peak <= memory
        np.testing.assert_allclose(np.load(tmp_path / "v.npy"), v, rtol=1e-9)
        assert json.loads((tmp_path / "r.json").read_text())["loops"][0]["iterations"] == iterations
