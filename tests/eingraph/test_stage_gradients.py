"""Gradients that pass long loops: those of the unrolled program, in any memory, by graphs that do not grow."""

from __future__ import annotations

import math
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
from tests.eingraph.test_while import arenas

RNG = np.random.default_rng(0)
REAL = RNG.normal

RECURRENT = """
input W : f64[n, n], X : f64[T, n], h0 : f64[n]
h[i] = h0[i] * 2
loss = 0.0
for t in 0 .. T {
  h[i] = tanh(sum[j] W[i,j] * h[j] + X[t, i])
  loss = loss + sum[i] h[i]^2 * 0.5
}
gW[i,j] = grad(loss, W[i,j])
gX[t,i] = grad(loss, X[t,i])
gh[i] = grad(loss, h0[i])
output gW, gX, gh, loss
"""

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "states, slices and tensors that every iteration reads": (
        RECURRENT,
        {"W": REAL(size=(4, 4)) * 0.5, "X": REAL(size=(9, 4)), "h0": REAL(size=4)},
    ),
    "slices that are read before and after they are written": (
        """
input X : f64[T, n], H0 : f64[T, n], c : f64[n]
H[t, i] = H0[t, i] * 3
s = 0.0
for t in 0 .. T {
  a[i] = X[t, i] * c[i] + 0.5 * X[t-1 ? 1.0, i] * H[t-1 ? 2.0, i] + sin(H[t-2 ? 0.1, i]) + H[t+1 ? 0.25, i]^2
  H[t, i] = a[i]
  s = s + a[0] * t + X[T-1-t, 1]^2
}
loss = s^2 * 0.01 + sum[t,i] H[t,i] * X[t,i]
gX[t,i] = grad(loss, X[t,i])
gH[t,i] = grad(loss, H0[t,i])
gc[i] = grad(loss, c[i])
output gX, gH, gc
""",
        {"X": REAL(size=(9, 3)), "H0": REAL(size=(9, 3)), "c": REAL(size=3)},
    ),
    "slices from both ends, with steps, and at one place": (
        """
input A : f64[L, n, n], B : f64[m, n], D : f64[q, n, n]
left[i: L, a: n] = 1.0
right[i: L, a: n] = B[0, a]
E[i, a, b] = D[i, a, b] * 2
for i in 1 .. L {
  left[i, a] = sum[b] left[i-1, b] * A[i-1, b, a] * B[2*i, a]
  right[L-1-i, a] = sum[b] A[L-i, a, b] * right[L-i, b] + E[i, 1, a] * E[3, 1, a]
  E[2*i-1, 0, a] = left[i, a] * E[2*i-1, 1, a]
}
z = sum[i,a] left[i,a] * right[i,a] + sum[i,a,b] E[i,a,b]^2
gA[i,a,b] = grad(z, A[i,a,b])
gB[i,a] = grad(z, B[i,a])
gD[i,a,b] = grad(z, D[i,a,b])
output gA, gB, gD
""",
        {"A": REAL(size=(6, 2, 2)), "B": REAL(size=(13, 2)), "D": REAL(size=(12, 2, 2))},
    ),
    "two loops, what is between them, tensors that change places, and a step": (
        """
input x : f64[n], M : f64[n, n]
a[i] = x[i] * 2
p[i] = sum[j] M[i,j] * x[j]
for t in 0 .. 9 {
  b[i] = tanh(sum[j] M[i,j] * a[j])
  a[i] = p[i]
  p[i] = b[i] * x[i] + a[i] * 0.1 * t
}
mid[i] = a[i] * p[i] + x[i]
c[i] = mid[i]
k = 1
for t in 2 .. 11 {
  c[i] = cos(c[i]) + a[i] * t * 0.1 * k
  k = k + t % 2
}
loss = sum[i] c[i]^2 * p[i]
g1[i] = grad(loss, x[i])
g2[i,j] = grad(loss, M[i,j])
g3[i] = grad(loss, mid[i])
g4[i] = grad(loss, p[i])
other = sum[i] a[i]^3
g5[i] = grad(other, x[i])
y[i] = x[i] - 0.1 * g1[i]
for t in 0 .. 9 {
  y[i] = y[i] - 0.01 * g1[i] * t
}
z = sum[i] y[i]^2
output g1, g2, g3, g4, g5, z
""",
        {"x": REAL(size=3), "M": REAL(size=(3, 3))},
    ),
}


def rolled(iterations: int | None) -> pytest.MonkeyPatch:
    """Build loops with at least this number of iterations in stages; None: no loop."""
    patch = pytest.MonkeyPatch()
    patch.setattr(stages, "ROLLED_EQUATIONS", 10**9 if iterations is None else 1)
    patch.setattr(stages, "ROLLED_ITERATIONS", iterations or 1)
    return patch


def results(text: str, rolls: bool, arena: int | None = None, **inputs: Any) -> dict[str, Any]:
    patch = rolled(1 if rolls else None)
    try:
        return {name: np.asarray(value) for name, value in et.compile(text)(arena=arena, **inputs).items()}
    finally:
        patch.undo()


def staged(text: str, in_segments: bool = False, **inputs: Any) -> StagedProgram | None:
    patch = rolled(1)
    try:
        shapes = {name: np.shape(value) for name, value in inputs.items()}
        return build_stages(compile_text(text, "text"), shapes, in_segments=in_segments)
    finally:
        patch.undo()


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_unrolled_program(name: str) -> None:
    text, inputs = PROGRAMS[name]
    expected = results(text, False, **inputs)
    program = staged(text, **inputs)
    assert program is not None and any(s.iterations and s.iterations.values.step < 0 for s in program.stages)
    patch = rolled(1)
    try:
        found = list(arenas(et.compile(text), **inputs))
    finally:
        patch.undo()
    for arena in found:
        made = results(text, True, arena, **inputs)
        for output, value in expected.items():
            np.testing.assert_allclose(made[output], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("iterations", [0, 1, 2, 50])
def test_any_number_of_iterations(iterations: int) -> None:
    inputs = {"W": REAL(size=(2, 2)), "X": REAL(size=(iterations, 2)), "h0": REAL(size=2)}
    expected = results(RECURRENT, False, **inputs)
    for arena in (None, 2048):
        made = results(RECURRENT, True, arena, **inputs)
        for output, value in expected.items():
            np.testing.assert_allclose(made[output], value, rtol=1e-10, atol=1e-12)


def test_stages_do_not_grow_with_the_iterations() -> None:
    given = [{"W": np.ones((2, 2)), "X": np.broadcast_to(0.0, (n, 2)), "h0": np.ones(2)} for n in (300, 10**4)]
    few, many = (staged(RECURRENT, **inputs) for inputs in given)
    assert few is not None and many is not None
    assert [len(s.graph.nodes) for s in few.stages] == [len(s.graph.nodes) for s in many.stages]
    assert len(many.values) == len(few.values)


def test_only_states_that_the_derivative_reads_are_kept() -> None:
    text = "input x : f64\nv = x\nfor t in 0 .. 400 {\n  v = 0.5 * v + t\n}\ng = grad(v, x)\noutput g"
    program = staged(text)
    assert program is not None and program.in_segments is None and not any(".tape" in v.name for v in program.values)


def test_segments_keep_about_the_square_root_of_the_states() -> None:
    inputs = {"W": np.ones((2, 2)), "X": np.broadcast_to(0.0, (10**4, 2)), "h0": np.ones(2)}
    whole = staged(RECURRENT, **inputs)
    assert whole is not None and whole.in_segments is not None
    (tape,) = (v.shape for v in whole.values if ".tape" in v.name)
    assert tape == (10**4, 2)
    parts = staged(RECURRENT, in_segments=True, **inputs)
    assert parts is not None and parts.in_segments is None
    kept = [math.prod(v.shape) for v in parts.values if ".tape" in v.name or ".saved" in v.name]
    assert kept == [200, 200]
    (replay,) = (s for s in parts.stages if s.iterations is not None and s.iterations.replays)
    assert replay.iterations is not None and len(replay.iterations.states) == 1  # the loss is not computed again


@given(
    st.integers(2, 6),
    st.integers(1, 3),
    st.sampled_from(
        ["X[t, i]", "X[t-1 ? 0.5, i] * v[i]", "X[T-1-t, i]^2", "sin(v[i])", "t * v[i]", "H[t-1 ? 1.0, i]^2", "1.5"]
    ),
    st.sampled_from(
        ["v[i]^2", "H[t-1 ? 1.0, i] * c[i]", "X[t, n-1-i]", "where(t > 1, v[i] * c[i], 2.0)", "max[j] v[j]"]
        + ["H[t+1 ? 0.25, i]", "u * c[i]"]
    ),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(16))
def test_drawn_bodies(iterations: int, n: int, first: str, second: str, writes_first: bool, small: bool) -> None:
    write, compute = f"H[t, i] = {first}", f"v[i] = 0.5 * v[i] * c[i] + {second}"
    body = "\n  ".join([write, compute] if writes_first else [compute, write])
    text = (
        "input X : f64[T, n], c : f64[n]\nv[i] = c[i]\nH[t: T, i: n] = c[i]\nu = 1.0\nfor t in 0 .. T {\n  "
        f"{body}\n  u = u + sum[i] v[i] * c[i]\n}}\nz = u + sum[t,i] H[t,i]^2 * X[t,i] + sum[i] v[i]\n"
        "g[t,i] = grad(z, X[t,i])\nk[i] = grad(z, c[i])\noutput g, k"
    )
    inputs = {"X": RNG.random((iterations, n)), "c": RNG.random(n)}
    expected = results(text, False, **inputs)
    found = results(text, True, 4096 if small else None, **inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-12)


UNROLLED = {
    "a gradient of a gradient": "t = g[0]^2\nw[i] = grad(t, x[i])\noutput w",
    "a tensor that the last iteration reads": "w[i] = grad(u, v[i])\noutput w",
}


@pytest.mark.parametrize("name", UNROLLED)
def test_loops_that_cannot_be_derived_are_unrolled(name: str) -> None:
    text = (
        "input x : f64[n]\nv[i] = x[i]\nu = 0.0\nfor t in 0 .. 9 {\n  v[i] = v[i]^2 * 0.5\n  u = u + sum[i] v[i]^2\n}\n"
        f"g[i] = grad(u, x[i])\n{UNROLLED[name]}"
    )
    x = REAL(size=3)
    assert staged(text, x=x) is None
    np.testing.assert_allclose(results(text, True, x=x)["w"], results(text, False, x=x)["w"])


# -- while


WHILE = """
input a : f64, v : f64[n], M : f64[n, n]
dim N
x[i] = v[i] * a
k = 0
r = 1.0
while r > 1e-2, at most N {
  y[i] = tanh(sum[j] M[i,j] * x[j]) + 0.1 * v[i]
  r = max[i] abs(y[i] - x[i])
  x[i] = y[i]
  k = k + 1
}
loss = sum[i] x[i]^2 * i
gv[i] = grad(loss, v[i])
gM[i,j] = grad(loss, M[i,j])
ga = grad(loss, a)
output gv, gM, ga, k
"""


@pytest.mark.parametrize("bound", [0, 1, 2, 50, 10**6])
def test_the_derivative_of_a_while_is_that_of_the_iterations_that_ran(bound: int) -> None:
    inputs = {"a": np.array(1.5), "v": REAL(size=3), "M": REAL(size=(3, 3)) * 0.4}
    program = et.compile(WHILE)
    result = program(**inputs, dims={"N": bound})
    k = int(result["k"])
    assert k == bound if bound <= 2 else 2 < k < 50
    counted = WHILE.replace("while r > 1e-2, at most N", "for t in 0 .. N")
    expected = et.compile(counted)(**inputs, dims={"N": k})
    given = [None] if bound == 10**6 else arenas(program, **inputs, dims={"N": bound})
    for arena in given:
        result = program(**inputs, dims={"N": bound}, arena=arena)
        for name, value in expected.items():
            np.testing.assert_allclose(result[name], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "while s < 100, at most 9 {\n  s = s * 2\n  t = s + v[0]\n  g[i] = grad(t, v[i])\n}\noutput s",
        "while s < 100, at most 9 {\n  s = s * s\n}\ng[i] = grad(s, v[i])\nt = g[0]\nw[i] = grad(t, v[i])\noutput w",
    ],
)
def test_a_gradient_that_would_unroll_a_while_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="E217.*\n.*--> <text>:") as error:
        et.compile(f"input v : f64[n]\ns = sum[i] v[i]\n{text}")(v=np.ones(3))
    assert "while" in str(error.value) and "grad(" in str(error.value)
