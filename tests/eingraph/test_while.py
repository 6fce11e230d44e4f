"""``while`` loops: the reference's results in any memory after any number of iterations, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import CapacityError, SourceError
from einturnip.eingraph.build.program import build
from einturnip.eingraph.build.stages import build_stages
from einturnip.lang import compile_text
from tests.drawn import examples
from tests.reference.program import evaluate
from tests.reference.program_check import check

RNG = np.random.default_rng(0)
REAL, INTEGERS = RNG.random, RNG.integers

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "a scalar": (
        """
input a : f64
dim N
x = a
k = 0
while abs(x * x - a) > 1e-9, at most N {
  x = 0.5 * (x + a / x)
  k = k + 1
}
output x, k
""",
        {"a": np.array(7.0)},
    ),
    "a product with a matrix until nothing moves": (
        """
input A : f64[n, n]
dim N
v[i: n] = 1.0
change = 1.0
k = 0
while change > 1e-8, at most N {
  w[i] = sum[j] A[i,j] * v[j]
  u[i] = w[i] / sqrt(sum[i] w[i]^2)
  change = max[i] abs(u[i] - v[i])
  v[i] = u[i]
  k = k + 1
}
output v, k
""",
        {"A": REAL((6, 6))},
    ),
    "labels that spread along edges": (
        """
input a : i64[e], b : i64[e]
dim v = 9, N
c[i: v] = i
changed = true
k = 0
while changed, at most N {
  x[a[e]: v] = min[e] c[b[e]]
  y[b[e]: v] = min[e] c[a[e]]
  new[i] = min(c[i], x[i], y[i])
  changed = any[i] (new[i] != c[i])
  c[i] = new[i]
  k = k + 1
}
output c, k
""",
        {"a": np.arange(8), "b": np.arange(8) + 1},
    ),
    "a gradient in each iteration": (
        """
input X : f64[m, n], y : f64[m]
dim N
w[i: n] = 0.0
size = inf
k = 0
while size > 0.1, at most N {
  r[a] = sum[i] X[a,i] * w[i] - y[a]
  loss = mean[a] r[a]^2
  g[i] = grad(loss, w[i])
  w[i] = w[i] - 0.5 * g[i]
  size = max[i] abs(g[i])
  k = k + 1
}
output w, size, k
""",
        {"X": REAL((4, 2)), "y": REAL(4)},
    ),
    "f32, an inner loop and slices that are replaced": (
        """
input x : f32[n, m]
dim N
v[i, j] = x[i, j]
k = 0
while sum[i,j] v[i,j] < 20, at most N {
  for t in 0 .. n {
    v[t, j] = v[t, j] * 1.25 + 0.125 * t
  }
  k = k + 1
}
output v, k
""",
        {"x": REAL((3, 2)).astype(np.float32)},
    ),
    "values of each iteration, kept by a counter": (
        """
input a : f64
dim N, room = 60
H[t: room] = 0.0
x = a
k = 0
while x > 1, at most N {
  H[t] = where(t == k, x, H[t])
  x = where(k % 2 == 0, x / 2, x - 0.5)
  k = k + 1
}
output H, x, k
""",
        {"a": np.array(100.0)},
    ),
    "two loops, a condition that calls a function, a loop in a function": (
        """
fn norm(v[i]) = sqrt(sum[i] v[i]^2)
fn halve(v[i], limit, N) {
  while norm(v[i]) > limit, at most N {
    v[i] = v[i] / 2
  }
  return v[i]
}
input x : f64[n]
dim N
a[i] = halve(x[i], 0.3, N)
b[i] = a[i] * 5
k = 0
while norm(b[i]) > 0.1 and k < 40, at most N {
  b[i] = b[i] * 0.75 - a[i] * 0.001
  k = k + 1
}
c = norm(b[i]) + norm(a[i])
output a, b, c, k
""",
        {"x": REAL(5) + 1},
    ),
    "inputs that are carried themselves": (
        """
input x : i64[n], y : i64[n], go : bool
dim N
k = 0
while go, at most N {
  z[i] = x[i]
  x[i] = y[i]
  y[i] = z[i] + 1
  go = x[0] < 10
  k = k + 1
}
output x, y, k
""",
        {"x": INTEGERS(0, 5, 4), "y": INTEGERS(0, 5, 4), "go": np.array(True)},
    ),
}


def arenas(program: et.Program, **given: Any) -> Iterator[int | None]:
    """Ample memory, the minimum, and half of what would be used of the ample one, if that is more."""
    yield None
    try:
        program.plan(arena=1, **given).close()
    except CapacityError as error:
        least = error.needed
        yield least
        with_all = program.plan(**given)
        yield max(least, sum(with_all.prediction.peak_nbytes.values()) // 2)
        with_all.close()


@pytest.mark.parametrize("bound", [0, 1, 2, 50])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_reference(name: str, bound: int) -> None:
    text, inputs = PROGRAMS[name]
    typed = compile_text(text, "text")
    check(typed)
    expected = evaluate(typed, inputs, {"N": bound})
    program = et.compile(text)
    for arena in arenas(program, dims={"N": bound}, **inputs):
        result = program(arena=arena, dims={"N": bound}, **inputs)
        for output, value in expected.items():
            np.testing.assert_allclose(result[output], value, rtol=1e-5 if value.dtype == np.float32 else 1e-10)
        loop = result.report.loops[-1]
        assert loop.bound == bound and loop.iterations == expected["k"]
        assert loop.reached_bound == (bound <= 2) and (bound <= 2 or 2 < loop.iterations < bound)


@pytest.mark.parametrize("condition", ["a > 5", "false", "sqrt(0 - a) > 0", "nan != nan and a > 5"])
def test_a_condition_that_is_false_at_first_or_nan(condition: str) -> None:
    text = f"input a : f64\nx = a\nwhile {condition}, at most 9 {{\n  x = x + 1\n}}\noutput x"
    result = et.compile(text)(a=np.array(2.0))
    assert result["x"] == 2 and result.report.loops[0].iterations == 0 and not result.report.loops[0].reached_bound


def test_a_condition_that_becomes_nan_ends_the_loop() -> None:
    text = "input x : f64\nk = 0\nwhile x > 0, at most 100 {\n  y = x - x\n  x = y / y\n  k = k + 1\n}\noutput x, k"
    result = et.compile(text)(x=np.array(2.0))
    assert np.isnan(result["x"]) and result["k"] == 1
    assert any(warning.kind == "nan" and warning.line == 5 for warning in result.report.warnings)


@given(
    st.sampled_from(
        [
            "k < stop",
            "sum[i] v[i] < 3 * stop",
            "any[i] (v[i] < 0.5 * stop)",
            "not (max[i] v[i] > stop)",
            "v[0] < stop and k < 4",
            "0.25 * stop < M[0, 0] or k == 0",
        ]
    ),
    st.lists(
        st.sampled_from(
            [
                "v[i] = v[i] + 0.25",
                "v[i] = 0.5 * sum[j] M[i,j] * v[j] + 1",
                "v[i] = max(v[i], v[n-1-i]) * 1.5",
                "M[i, j] = M[j, i] * 0.9",
                "M[i, j] = M[i, j] + 0.125 * v[i] * v[j]",
                "M[0, j] = v[j]",
                "u[i] = v[i]\n  v[i] = u[i] * M[i,i] + k",
                "v[i] = cumulative[i]\n  cumulative[i] = cumulative[i] + v[i]",
            ]
        ),
        max_size=3,
    ),
    st.integers(1, 4),
    st.floats(0, 6),
    st.integers(0, 12),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(40))
def test_drawn_bodies(condition: str, body: list[str], n: int, stop: float, bound: int, least: bool) -> None:
    lines = "\n  ".join([*body, "k = k + 1"])
    text = (
        "input M : f64[n, n], v : f64[n], stop : f64\ncumulative[i: n] = 1.0\nk = 0\n"
        f"while {condition}, at most {bound} {{\n  {lines}\n}}\noutput v, M, cumulative, k"
    )
    inputs = {"M": RNG.random((n, n)), "v": RNG.random(n), "stop": np.array(stop)}
    expected = evaluate(compile_text(text, "text"), inputs)
    program = et.compile(text)
    arena = list(arenas(program, **inputs))[1] if least else None
    result = program(arena=arena, **inputs)
    assert result.report.loops[0].iterations == expected["k"]
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-10)


def test_a_long_loop_and_a_while() -> None:
    text = """
input x : f64[n]
a[i] = x[i]
for t in 0 .. 400 {
  a[i] = a[i] + 0.01 * t
}
while max[i] a[i] > 1, at most 100 {
  a[i] = a[i] / 2
}
for t in 0 .. 400 {
  a[i] = a[i] + 0.01
}
output a
"""
    x = REAL(4)
    np.testing.assert_allclose(et.compile(text)(x=x)["a"], evaluate(compile_text(text), {"x": x})["a"], rtol=1e-10)


def test_graphs_do_not_grow_with_the_bound() -> None:
    text = "input x : f64\ndim N\nwhile x > 1, at most N {\n  x = x / 2\n}\noutput x"
    few, many = (build_stages(compile_text(text), {}, {"N": n}) for n in (10, 10**12))
    assert few is not None and many is not None
    assert [len(s.graph.nodes) for s in few.stages] == [len(s.graph.nodes) for s in many.stages]
    assert et.compile(text)(x=np.array(2.0**40), dims={"N": 10**12}).report.loops[0].iterations == 40


# -- gradients


def test_gradients_that_pass_no_loop() -> None:
    text = """
input v : f64[n]
s = 1.0
t = sum[i] v[i]^3
first[i] = grad(t, v[i])
while s < 10, at most 9 {
  s = s * 2
  u = sum[i] v[i]^2
  inner[i] = grad(u, v[i])
}
z = s * sum[i] v[i]^2
last[i] = grad(z, v[i])
q = s^2
by_carried = grad(q, s)
output s, first, last, by_carried
"""
    inputs = {"v": np.array([0.5, -1.25, 0.125])}
    result, expected = et.compile(text)(**inputs), evaluate(compile_text(text), inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-9)  # of finite differences


# -- errors


def refused(text: str, **shapes: tuple[int, ...]) -> str:
    with pytest.raises(SourceError) as error:
        build_stages(compile_text(text, "text"), shapes, {})
    return str(error.value)


def test_a_carried_tensor_that_changes_its_shape() -> None:
    text = "input x : f64[n]\nwhile x[0] < 1, at most 9 {\n  x[i: n+1] = x[i-1 ? 0]\n}\noutput x"
    message = refused(text, x=(3,))
    assert "E212" in message and "text:3:3" in message and "E216" not in message


def test_an_error_in_the_body_is_reported_alone() -> None:
    text = "input x : f64[n], y : f64[m]\nwhile x[0] < 1, at most 9 {\n  x[i] = x[i] + y[i]\n}\noutput x"
    message = refused(text, x=(3,), y=(4,))
    assert "E207" in message and "text:3:" in message and "E216" not in message


def test_an_error_in_the_condition_is_reported_once() -> None:
    text = "input x : f64[n]\nwhile x[9] < 1, at most 9 {\n  x[i] = x[i] + 1\n}\noutput x"
    assert refused(text, x=(3,)).count("E209") == 1


def test_an_unrolled_graph_is_refused_with_its_line() -> None:
    text = "input x : f64\nwhile x < 1, at most 9 {\n  x = x + 1\n}\noutput x"
    with pytest.raises(SourceError, match="E216") as error:
        build(compile_text(text, "text"), {})
    assert "text:2:7" in str(error.value)
