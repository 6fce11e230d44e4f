"""Programs with long loops as stages: the same results as unrolled, and graphs that do not grow with the iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import SourceError
from einturnip.eingraph.build import stages
from einturnip.eingraph.build.stage_types import StagedProgram
from einturnip.eingraph.build.stages import build_stages
from einturnip.lang import compile_text
from tests.drawn import examples

RNG = np.random.default_rng(0)
REAL, INTEGERS = RNG.random, RNG.integers

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "a state and a slice of an input": (
        """
input A : f64[n, n], u : f64[T, n]
x[i: n] = 0.0
for t in 0 .. T {
  x[i] = 0.1 * sum[j] A[i,j] * x[j] + u[t, i] + 0.5 * t
}
output x
""",
        {"A": REAL((4, 4)), "u": REAL((9, 4))},
    ),
    "slices that are written and read again": (
        """
input X : f64[T, n]
H[t: T, i: n] = 0.0
s = 0.0
for t in 0 .. T {
  H[t, i] = X[t, i] + 0.5 * X[t-1 ? 1.0, i] + H[t-1 ? 2.0, i]
  s = s + H[t, 0] * t
}
output H, s
""",
        {"X": REAL((9, 3))},
    ),
    "slices from both ends": (
        """
input A : f64[L, n, n]
left[i: L, a: n] = 1.0
right[i: L, a: n] = 1.0
for i in 1 .. L {
  left[i, a] = sum[b] left[i-1, b] * A[i-1, b, a]
  right[L-1-i, a] = sum[b] A[L-i, a, b] * right[L-i, b]
}
z = sum[i,a] left[i,a] * right[i,a]
output left, right, z
""",
        {"A": REAL((9, 3, 3))},
    ),
    "a tensor that is read whole and written by slices": (
        """
input x : f64[n]
D[k: n+1, i: n] = where(i == 0, 0.0, 1.0)
for k in 0 .. n {
  D[k+1, i] = x[i] + sum[j] D[k, j] + 0.1 * sum[j,i2] D[j,i2]
}
output D
""",
        {"x": REAL(8)},
    ),
    "indices of labels and the variable": (
        """
input x : f64[m], w : f64[k]
y = 0.0
for t in 0 .. m - k + 1 {
  y = y + sum[i: k] x[i + t] * w[i]
}
output y
""",
        {"x": REAL(12), "w": REAL(4)},
    ),
    "division, remainder, f32 and an inner loop": (
        """
input x : f32[n]
v[i] = x[i]
for t in 0 .. 9 {
  v[i] = v[i] + x[(i + t) % n] * (t // 2) * 0.25
  for u in 0 .. 3 {
    v[i] = v[i] * 0.5 + u * t
  }
}
output v
""",
        {"x": REAL(7).astype(np.float32)},
    ),
    "a gradient in each iteration": (
        """
input X : f64[m, n], y : f64[m]
w[i: n] = 0.0
for t in 0 .. 9 {
  r[a] = sum[i] X[a,i] * w[i] - y[a]
  loss = sum[a] r[a]^2
  g[i] = grad(loss, w[i])
  w[i] = w[i] - 0.01 * g[i]
}
output w
""",
        {"X": REAL((8, 3)), "y": REAL(8)},
    ),
    "tensors that change places": (
        """
input a : i64[n], b : i64[n]
x[i] = a[i]
y[i] = b[i]
for t in 0 .. 9 {
  z[i] = x[i] + y[i]
  x[i] = y[i]
  y[i] = z[i] % 1000
}
output x, y
""",
        {"a": INTEGERS(0, 9, 5), "b": INTEGERS(0, 9, 5)},
    ),
    "gathers by the variable": (
        """
input p : i64[n], x : f64[n]
v[i] = x[i]
for t in 0 .. n {
  v[i] = v[i] + v[p[t]] + x[p[(t + 1) % n]]
}
output v, p
""",
        {"p": np.array([3, 1, 0, 2, 5, 4, 7, 6, 8]), "x": REAL(9)},
    ),
    "two loops, with outputs made before and between them": (
        """
input x : f64[n]
a[i] = x[i] * 2
first[i] = a[i] + 1
for t in 0 .. 9 {
  a[i] = a[i] + 1
}
b[i] = a[i] * x[i]
c[i] = b[i]
for t in 0 .. 9 {
  c[i] = c[i] + b[i] * t
  a[i] = a[i] - c[i]
}
d = sum[i] a[i]
output first, a, b, c, d
""",
        {"x": REAL(4)},
    ),
    "a function with a loop": (
        """
fn power(A[a, b], v[a], n) {
  for step in 0 .. n {
    w[a] = sum[b] A[a,b] * v[b]
    v[a] = w[a] / sqrt(sum[a] w[a]^2)
  }
  return v[a]
}
input M : f64[m, m]
v[i: m] = 1.0
v[i] = power(M[i,j], v[i], 9)
output v
""",
        {"M": REAL((4, 4))},
    ),
}

UNROLLED: dict[str, str] = {
    "a size depends on the variable": "for t in 0 .. n {\n  s = s + sum[i: t] x[i]\n}\noutput s",
    "a gradient within the loop, by a tensor from before": (
        "for t in 0 .. 9 {\n  s = s + sum[i] x[i]^2\n  g[i] = grad(s, x[i])\n}\noutput s"
    ),
    "a label whose range the variable gives": "for t in 0 .. n {\n  s = s + sum[i] x[i + t]\n}\noutput s",
}


@pytest.fixture
def every_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are built in stages whatever the number of iterations."""
    monkeypatch.setattr(stages, "ROLLED_EQUATIONS", 1)
    monkeypatch.setattr(stages, "ROLLED_ITERATIONS", 1)
    yield


def staged(text: str, **inputs: Any) -> StagedProgram | None:
    return build_stages(compile_text(text, "text"), {name: np.shape(value) for name, value in inputs.items()})


def results(
    text: str, monkeypatch: pytest.MonkeyPatch, rolls: bool, arena: str | None, **inputs: Any
) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        patch.setattr(stages, "ROLLED_EQUATIONS", 1 if rolls else 10**9)
        patch.setattr(stages, "ROLLED_ITERATIONS", 1)
        return {name: np.asarray(value) for name, value in et.compile(text)(arena=arena, **inputs).items()}


@pytest.mark.parametrize("arena", [None, "64KiB", "4KiB"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_compute_what_the_unrolled_program_does(
    name: str, arena: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, inputs = PROGRAMS[name]
    expected = results(text, monkeypatch, False, None, **inputs)
    found = results(text, monkeypatch, True, arena, **inputs)
    assert list(found) == list(expected)
    for output, value in expected.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-5 if value.dtype == np.float32 else 1e-12)


@pytest.mark.usefixtures("every_loop")
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_one_of_these_programs_is_built_in_stages(name: str) -> None:
    text, inputs = PROGRAMS[name]
    found = staged(text, **inputs)
    assert found is not None and any(stage.iterations is not None for stage in found.stages)


@pytest.mark.usefixtures("every_loop")
@pytest.mark.parametrize("name", UNROLLED)
def test_loops_whose_iterations_differ_are_unrolled(name: str) -> None:
    text = f"input x : f64[n]\ns = sum[i] x[i]\n{UNROLLED[name]}"
    assert staged(text, x=np.ones(9)) is None
    et.compile(text)(x=np.ones(9))  # as before


@pytest.mark.usefixtures("every_loop")
def test_an_index_divided_by_zero_is_an_error_of_the_program() -> None:
    text = "dim z = 0\ninput x : f64[n]\ns = 0.0\nfor t in 0 .. 9 {\n  s = s + x[t % z]\n}\noutput s"
    assert staged(text, x=np.ones(9)) is None
    with pytest.raises(SourceError, match="t = 0"):
        et.compile(text)(x=np.ones(9))


@pytest.mark.usefixtures("every_loop")
@pytest.mark.parametrize("iterations", [0, 1, 2, 50])
def test_any_number_of_iterations(iterations: int) -> None:
    text = "input x : f64[n]\ndim k\nv[i] = x[i]\nfor t in 0 .. k {\n  v[i] = v[i] * 0.5 + t\n}\noutput v"
    expected = np.arange(4.0)
    for t in range(iterations):
        expected = expected * 0.5 + t
    np.testing.assert_allclose(et.compile(text)(x=np.arange(4.0), dims={"k": iterations})["v"], expected)


@pytest.mark.usefixtures("every_loop")
def test_graphs_do_not_grow_with_the_iterations() -> None:
    text = "input x : f64[T, n]\nv[i: n] = 0.0\nfor t in 0 .. T {\n  v[i] = 0.5 * v[i] + x[t, i]\n}\noutput v"
    few, many = (staged(text, x=np.broadcast_to(0.0, (n, 3))) for n in (10, 10**7))
    assert few is not None and many is not None
    assert [len(s.graph.nodes) for s in few.stages] == [len(s.graph.nodes) for s in many.stages]
    (loop,) = (s.iterations for s in many.stages if s.iterations is not None)
    assert len(loop.values) == 10**7 and len(loop.states) == 1 and len(loop.reads) == 1 and not loop.writes


def test_short_loops_are_unrolled() -> None:
    assert staged("input x : f64[n]\nfor t in 0 .. 9 {\n  x[i] = x[i] + t\n}\noutput x", x=np.ones(3)) is None


@given(
    st.integers(2, 6),
    st.integers(1, 4),
    st.sampled_from(
        ["X[t, i]", "X[t-1 ? 0.5, i]", "X[T-1-t, i]", "v[i]", "t", "t % 3", "X[(t * 2) % T, i]", "H[t-1 ? 1.0, i]"]
    ),
    st.sampled_from(["v[i]", "H[t, i]", "X[t, n-1-i]", "where(t > 1, v[i], 2.0)", "max[j] v[j]", "H[t+1 ? 0.25, i]"]),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(40))
def test_drawn_bodies(iterations: int, n: int, first: str, second: str, writes_first: bool) -> None:
    """Reads of slices before and after the tensor is written, in two orders."""
    write, compute = f"H[t, i] = {first}", f"v[i] = 0.5 * v[i] + {second}"
    body = [write, compute] if writes_first else [compute, write]
    text = (
        "input X : f64[T, n]\nv[i: n] = 1.0\nH[t: T, i: n] = 0.0\nfor t in 0 .. T {\n  "
        + "\n  ".join(body)
        + "\n}\noutput v, H"
    )
    X = RNG.random((iterations, n))
    with pytest.MonkeyPatch.context() as patch:
        expected = results(text, patch, False, None, X=X)
        found = results(text, patch, True, None, X=X)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12)
