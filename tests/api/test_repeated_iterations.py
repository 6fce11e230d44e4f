"""Iterations of a loop that one call runs give what iterations one by one give."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.api import inline_iterations, plan_cache
from einturnip.api.step_plan import StepPlan, StepRun
from einturnip.core.errors import Interrupted
from einturnip.eingraph.build.positions import Position, linear_steps
from einturnip.ir.dtypes import F32
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.runtime.host import compilation
from einturnip.runtime.host.command_lists import EXECUTOR
from einturnip.runtime.host.packing_scratch import PackingScratch
from einturnip.runtime.host.prepared_ops import rows_of
from tests.drawn import examples

pytest.importorskip("llvmlite")
if not code_cache.available():
    pytest.skip("no machine code on this kind of machine", allow_module_level=True)

HEAD = "dim T, n\ninput A : f64[n, n], u : f64[m, n]\nx[i: n] = 0.0\nc = 0.0\nH[t: m, i: n] = 0.0\n"
BODIES = {
    "slices": "  x[i] = sum[j] A[i,j] * x[j] + u[t, i]\n  H[t, i] = x[i] + t\n",
    "slices in reverse": "  x[i] = sum[j] A[i,j] * x[j] + u[T - 1 - t, i]\n  H[T - 1 - t, i] = x[i]\n",
    "guarded reads": "  x[i] = 0.5 * x[i] + (u[t - 2 ? 0, i] - u[t + 3 ? 0, i])\n  H[t, i] = x[i]\n",
    "two states": "  y[i] = x[i] + c\n  c = 0.5 * c + sum[i] u[t, i] * x[i] / n\n  x[i] = y[n - 1 - i] * 0.5 + 1\n",
    "the variable as a number": "  x[i] = 0.5 * x[i] + t * A[0, i]\n  c = c + where(t == 3, x[0], 0.0)\n",
}


@pytest.fixture(autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile all kernels, and command lists, at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    for name in ("WORTH_LOADING", "START_SECONDS", "COMPILE_SECONDS", "LOAD_SECONDS"):
        monkeypatch.setattr(compilation, name, 0.0)
    code_cache.prepare([EXECUTOR])
    yield
    code_cache.forget()
    select.forget()


class Counted:
    """Results of a program, the number of iterations of each run of a body, and what the report says."""

    def __init__(self, text: str, sizes: dict[str, int], arrays: dict[str, Any], at_once: bool) -> None:
        self.counts = list[int]()
        run_inline, can_repeat = StepPlan.run_inline, StepPlan.can_repeat

        def counted(plan: StepPlan, *arguments: Any) -> StepRun:
            run = run_inline(plan, *arguments)
            self.counts.append(run.count)
            return run

        plan_cache.forget()
        with pytest.MonkeyPatch.context() as now:
            now.setattr(StepPlan, "run_inline", counted)
            now.setattr(StepPlan, "can_repeat", lambda plan, new: at_once and can_repeat(plan, new))
            now.setattr(inline_iterations, "REPEATED_SECONDS", 1e9)
            result = et.compile(text)(**arrays, dims=sizes)
            self.values = {name: np.asarray(result[name]).tobytes() for name in result}
        self.ops, self.warnings = result.report.ops, result.report.warnings
        self.loops = result.report.loops


def compare(text: str, sizes: dict[str, int], **arrays: Any) -> Counted:
    one_by_one, at_once = (Counted(text, sizes, arrays, repeated) for repeated in (False, True))
    assert one_by_one.values == at_once.values
    assert one_by_one.ops == at_once.ops and one_by_one.loops == at_once.loops
    assert one_by_one.warnings == at_once.warnings
    assert set(one_by_one.counts) <= {1} and sum(one_by_one.counts) == sum(at_once.counts)
    return at_once


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 200])
@pytest.mark.parametrize("body", BODIES)
def test_the_same_as_one_by_one(body: str, rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    text = f"{HEAD}for t in 0 .. T {{\n{BODIES[body]}}}\noutput x, c, H\n"
    arrays = {"A": rng.random((5, 5)) / 10, "u": rng.random((max(rounds, 1) + 2, 5))}
    found = compare(text, {"T": rounds}, **arrays)
    assert rounds < 200 or max(found.counts) > 8


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(300, 420), st.integers(0, 3), st.integers(-2, 2), st.integers(1, 2), st.booleans())
def test_drawn_slices(rounds: int, offset: int, shift: int, step: int, backward: bool) -> None:
    index = f"{step} * t + {offset}" if not backward else f"{step} * (T - 1 - t) + {offset}"
    text = f"""
dim T
input u : f64[m, n]
x[i: n] = 1.0
H[t: m, i: n] = 0.0
for t in 0 .. T {{
  x[i] = 0.5 * x[i] + u[{index}, i] - u[{index} + {shift} ? 0, i]
  H[{index}, i] = x[i]
}}
output x, H
"""
    u = np.random.default_rng(offset).random((step * rounds + offset, 3))
    assert max(compare(text, {"T": rounds}, u=u).counts) > 1


WHILE = """
input u : f64[n]
x[i: n] = 0.0
d = 1.0
k = 0
while d > 0.001, at most 1000 {
  y[i] = 0.95 * x[i] + u[i]
  d = max[i] abs(y[i] - x[i])
  x[i] = y[i]
  k = k + 1
}
output x, d, k
"""


def test_a_while_ends_in_the_iteration_in_which_its_condition_fails() -> None:
    found = compare(WHILE, {}, u=np.arange(4.0))
    assert max(found.counts) > 8
    (loop,) = found.loops
    assert 50 < loop.iterations < 1000 and not loop.reached_bound


def test_large_states_in_two_buffers() -> None:
    body = "for t in 0 .. 300 {\n  x[i] = x[n-1-i] * 0.5 + u[i]\n}\noutput x"
    text = f"input x0 : f32[n], u : f32[n]\nx[i: n] = x0[i]\n{body}"
    rng = np.random.default_rng(0)
    for n in (70_000, 3):
        compare(text, {}, x0=rng.random(n, np.float32), u=rng.random(n, np.float32))


def test_events_name_the_iteration_in_which_they_happen() -> None:
    body = "for t in 0 .. T {\n  y = y + sqrt(x[t])\n  z = z + 1 / x[t]\n}\noutput y, z"
    text = f"input x : f64[T]\ny = 1.0\nz = 0.0\n{body}"
    for bad in ({7: -1.0}, {0: -1.0, 399: 0.0}, {5: 0.0, 100: 0.0, 101: -1.0, 200: 0.0, 300: 0.0}, {398: np.nan}):
        x = np.ones(400)
        x[list(bad)] = list(bad.values())
        assert max(compare(text, {}, x=x).counts) > 8


def test_gradients_of_loops() -> None:
    text = """
input w : f64[n], u : f64[T, n]
x[i: n] = 1.0
for t in 0 .. T {
  x[i] = tanh(w[i] * x[i] + u[t, i])
}
loss = sum[i] x[i]
g[i] = grad(loss, w[i])
output loss, g
"""
    rng = np.random.default_rng(5)
    compare(text, {}, w=rng.random(4), u=rng.random((350, 4)))


LAYERS = """
input W : f32[k, d], V : f32[k, k], X : f32[b, T, d]
h[b, k] = 0.0
H[b, t: T, k] = 0.0
for t in 0 .. T {
  h[b, k] = tanh((sum[d] X[b, t, d] * W[k, d]) + (sum[j: k] h[b, j] * V[k, j]))
  H[b, t, k] = h[b, k]
}
output H
"""


def layers(W: Any, V: Any, X: Any) -> Any:
    h, found = np.zeros((len(X), len(W)), np.float32), np.empty((*X.shape[:2], len(W)), np.float32)
    for t in range(X.shape[1]):
        h = found[:, t] = np.tanh(X[:, t] @ W.T + h @ V.T)
    return found


def test_packed_copies_of_constant_operands_are_those_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may be interrupted, and its caller may change arrays between two runs."""
    kept = list[int]()
    make = PackingScratch.of

    def counted(*arguments: Any) -> PackingScratch:
        found = make(*arguments)
        kept.append(len(found._kept))
        return found

    monkeypatch.setattr(PackingScratch, "of", counted)
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {
        "W": rng.random((128, 64), np.float32) / 64,
        "V": rng.random((128, 128), np.float32) / 128,
        "X": rng.random((32, 200, 64), np.float32),
    }
    code_cache.prepare([PackedSpec.product(F32)])
    plan, stop = et.compile(LAYERS).plan(**arrays), threading.Event()
    for _ in range(3):
        np.testing.assert_allclose(plan.run()["H"], layers(**arrays), rtol=1e-4)
        arrays["V"][...] = rng.random(arrays["V"].shape, np.float32) / 128
        arrays["W"] *= -1
        stop.set()
        with pytest.raises(Interrupted):
            plan.run(stop=stop)
        arrays["V"] *= 0.5
    assert max(kept) == 2


@pytest.mark.parametrize("order", ["C", "F"])
def test_slices_along_any_axis(order: Any) -> None:
    text = """
input u : f64[a, T, b]
x[a, b] = 0.0
H[a, b, t: T] = 0.0
for t in 0 .. T {
  x[a, b] = 0.5 * x[a, b] + u[a, t, b]
  H[a, b, t] = x[a, b]
}
output x, H
"""
    u = np.random.default_rng(0).random((3, 320, 4))
    found = compare(text, {}, u=np.asarray(u, order=order))
    assert (max(found.counts) > 8) == (order == "C"), "slices of which no axis is contiguous are copied one by one"


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(shapes, st.data())
def test_rows_of(shape: list[int], data: st.DataObject) -> None:
    whole = np.arange(float(np.prod([n + 1 for n in shape]))).reshape([n + 1 for n in shape])
    array = whole[tuple([data.draw(st.sampled_from([slice(0, n), slice(0, n + 1), slice(0, n, 2), 0])) for n in shape])]
    if (found := rows_of(array)) is None:
        return
    rows, nbytes, step = found
    assert rows * nbytes == array.nbytes
    words = np.ravel(whole)
    begin = 0 if not array.size else int(array.flat[0])
    row = [words[begin + k * step // 8 :][: nbytes // 8] for k in range(rows)]
    np.testing.assert_array_equal(np.concatenate(row), np.ravel(array))


positions = st.builds(Position, st.integers(-3, 3), st.integers(-9, 9), st.integers(1, 3), st.integers(0, 5))


@given(positions, st.integers(1, 9), st.integers(-5, 5), st.integers(1, 12), st.sampled_from([1, -1, 2]))
def test_linear_steps(position: Position, extent: int, first: int, n: int, step: int) -> None:
    values = range(first, first + n * step, step)
    at = [min(max(position.at(value), 0), extent - 1) for value in values]
    nbytes, fitting = linear_steps(position, extent, values)
    assert at[:fitting] == [at[0] + k * nbytes for k in range(fitting)]
    assert fitting == n or at[fitting] != at[0] + fitting * nbytes
