"""States in the language: one step of a program, and what it reads and leaves."""

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import BindError
from einturnip.eingraph.build.program import build
from einturnip.lang import compile_text
from einturnip.lang.printer import show
from einturnip.lang.syntax.formatter import format_text
from tests.reference.eingraph import evaluate as evaluate_graph
from tests.reference.program import evaluate
from tests.reference.program_check import check

LEARN = """input X : f32[b, d]
input y : f32[b]
state W : f32[d] = 0
state M : f32[d] = 0
state k : i64 = 0
p[b] = sum[d] X[b, d] * W[d]
loss = mean[b] (p[b] - y[b]) ^ 2
g[d] = grad(loss, W[d])
output W
fn momentum(w[d], g[d], m[d], lr) {
  m2[d] = 0.5 * m[d] + g[d]
  return w[d] - lr * m2[d], m2[d]
}
W[d], M[d] <- momentum(W[d], g[d], M[d], 0.25)
k <- k + 1
V[d] = W[d] + k
output loss, k, V
"""


def data():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    return {"X": x, "y": np.array([1, 0, 2], np.float32)}


def by_hand(x, y, w):
    p = x @ w
    g = 2 * (p - y) @ x / len(y)
    return np.mean((p - y) ** 2), w - 0.25 * g


def test_all_but_output_reads_the_old_value() -> None:
    w = np.array([1, -1], np.float32)
    got = evaluate(compile_text(LEARN), {**data(), "W": w})
    loss, new = by_hand(data()["X"], data()["y"], w)
    np.testing.assert_allclose(got["W"], new, rtol=1e-3)  # the gradient here is by differences
    assert got["loss"] == loss and got["k"] == 1
    np.testing.assert_array_equal(got["V"], w)


def test_every_floor_and_a_run_agree() -> None:
    program, w = compile_text(LEARN), np.array([1, -1], np.float32)
    inputs = {**data(), "W": w, "M": np.zeros(2, np.float32), "k": np.array(0)}
    loss, new = by_hand(data()["X"], data()["y"], w)
    graph = build(program, {name: array.shape for name, array in inputs.items()})
    for got in (evaluate_graph(graph, inputs), et.compile(LEARN)(**data(), W=w, arena="4KiB")):
        np.testing.assert_allclose(got["W"], new, rtol=1e-6)
        np.testing.assert_allclose(got["loss"], loss, rtol=1e-6)
        np.testing.assert_array_equal(got["V"], w)
        assert got["k"] == 1


def test_a_program_with_states_prints_back() -> None:
    text = 'state W : f32[n, m] = "w.npy"\n'
    text += "state s : f64 = 0.5\nW[n, m] <- W[n, m] * 2\ns <- s + sum[n, m] W[n, m]\noutput W\n"
    program = compile_text(text)
    check(program)
    assert show(program) == "dim n\ndim m\n" + text
    assert format_text("state W:f32[n]=0\nW[n]<-W[n]-1") == "state W : f32[n] = 0\nW[n] <- W[n] - 1\n"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("W[i, j] <- W[j, i]", lambda w: w.T),
        ("W[i, j] <- 3", lambda w: np.full_like(w, 3)),
        ("W[1, j] <- 7", lambda w: np.stack([w[0], np.full(2, 7, w.dtype)])),
        ("W[:, j] <- W[:, j] + j", lambda w: w + np.arange(2)),
        ("W[...] <- W[...] + 1", lambda w: w + 1),
        ("W[K[i]: 2, j] <- sum[i] W[i, j]", lambda w: np.stack([np.zeros(2), w.sum(0)])),
        ("W[(a b), j] <- T[a, b, j]", lambda w: w + 5),
        ("W[i: 1 | k: 1, j] <- W[i + 1, j] | W[k, j]", lambda w: w[::-1]),
    ],
)
def test_the_left_of_an_update_is_that_of_an_equation(statement, expected) -> None:
    text = f"state W : f16[2, 2]\nK[i: 2] = 1\nT[a: 2, b: 1, j: 2] = W[a, j] + 5\n{statement}\noutput W"
    w = np.array([[1, 2], [3, 4]], np.float16)
    got = et.compile(text)(W=w)["W"]
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, expected(w))


def test_a_value_is_rounded_to_the_dtype_of_its_state() -> None:
    text = "state W : f16[n]\ninput x : f64\nW[i] <- W[i] + x\noutput W"
    got = et.compile(text)(W=np.ones(2, np.float16), x=1e-5)["W"]
    np.testing.assert_array_equal(got, np.ones(2, np.float16))
    assert got.dtype == np.float16


def test_a_step_whose_state_nobody_wants_does_not_compute_it() -> None:
    text = "state W : f32[n]\nW[i] <- sqrt(W[i])\nc = sum[i] W[i]\noutput c"
    result = et.compile(text)(W=-np.ones(2, np.float32))
    assert result["c"] == -2 and not result.report.warnings


def test_a_state_is_saved_where_the_caller_says(tmp_path) -> None:
    program = et.compile("state W : f32[2] = 1\nstate U : f32[3] = 2\nW[i] <- W[i] + 1\nc = sum[i] W[i]\noutput c")
    assert program.states == ("W", "U") and program.outputs == ("c",)
    result = program(out={"W": tmp_path / "w.npy", "U": tmp_path / "u.npy"})
    assert result["c"] == 2
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), [2, 2])
    np.testing.assert_array_equal(np.load(tmp_path / "u.npy"), [2, 2, 2])


def test_a_state_without_a_beginning_must_be_given() -> None:
    with pytest.raises(BindError, match="W"):
        et.compile("state W : f32[2]\nW[i] <- W[i] + 1\noutput W")()
