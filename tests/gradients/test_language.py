"""Gradients through every construction of the language, against the definition of a derivative."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.eingraph.types import EinsumNode
from einturnip.ir.aggregations import AGGREGATIONS, MONOIDS
from einturnip.ir.einsum import Einsum
from einturnip.ir.operators import Array
from tests.gradients.harness import assert_derived, graph_of, run, with_gradients

RNG = np.random.default_rng(0)
A, B, X = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2)), RNG.normal(size=(6, 3))
W, v, x = RNG.normal(size=(2, 3)), RNG.normal(size=6), RNG.normal(size=5)
Z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
IDS, GROUPS, PICKED = np.array([0, 2, 2, 5]), np.array([0, 2, 2, 1, 0, 0]), np.array([0, 2, 2, 1, 1, 0])
CELLS = RNG.integers(0, 5, size=(3, 4))

# name: body, which ends in the loss L; inputs
CASES: dict[str, tuple[str, dict[str, Array]]] = {
    "a product of matrices": ("C[i,k] = A[i,j] * B[j,k]\nL = sum[i,k] C[i,k]^2", {"A": A, "B": B}),
    "a label in all of several factors": ("L = sum[i,j] A[i,j] * A[i,j] * B[j,0]", {"A": A, "B": B}),
    "a shifted index": ("Y[i: 4] = x[i+1] - x[i]\nL = sum[i] Y[i]^3", {"x": x}),
    "a convolution": ("Y[i] = sum[p] X[i+p,0] * W[p,1]\nL = sum[i] Y[i]^2", {"X": X, "W": W}),
    "a convolution over the edge": (
        "Y[i: 6] = sum[p,c] X[i-p ? 0, c] * W[p,c]\nL = sum[i] Y[i]^2",
        {"X": X, "W": W},
    ),
    "strides": (
        "Y[i,c,o] = sum[p] X[2*i+p,c] * W[p,o]\nL = sum[i,c,o] sin(Y[i,c,o])",
        {"X": X, "W": W},
    ),
    "two axes convolved": (
        "Y[i,j] = sum[p,q] A[i+p,j+q] * W[p,q]\nL = sum[i,j] Y[i,j]^2",
        {"A": A, "W": W[:, :2].copy()},
    ),
    "a join that is no product along a diagonal": (
        "Y[i] = sum[p] (X[i+p,0] - W[p,1])^3\nL = sum[i] Y[i] * v[i+1]",
        {"X": X, "W": W, "v": v},
    ),
    "a diagonal": ("t = sum[i] A[i,i]^2\nL = t * 3", {"A": A[:, :3].copy()}),
    "an index backwards": ("Y[i: 3] = v[5-i] * v[i]\nL = sum[i] Y[i] * Y[i]", {"v": v}),
    "an index divided": ("Y[i: 12] = v[i // 2]^2\nL = sum[i: 12] Y[i] * i", {"v": v}),
    "an index by modulus": ("Y[i: 12] = v[i % 6]^2\nL = sum[i: 12] Y[i] * i", {"v": v}),
    "all of them": ("Y[i: 9] = v[(2*i+1) // 3 % 4]^2\nL = sum[i: 9] Y[i] * i", {"v": v}),
    "an element": ("Y[i: 4] = v[0] * v[i] + v[i+2]\nL = sum[i] Y[i]^2", {"v": v}),
    "guards": ("L = sum[i] v[i+2 ? 1]^2 * v[i] * v[i-1 ? 2]", {"v": v}),
    "merged axes": ("Z[(i j)] = A[i,j]\nL = sum[k] Z[k]^2 * k", {"A": A}),
    "split axes": ("Z[h: 2,e,c] = X[(h e),c]\nL = sum[h,e,c] Z[h,e,c]^2 * (h + 2*e)", {"X": X}),
    "joined axes": ("Z[i | j] = v[i] | x[j]\nL = sum[k] Z[k]^2 * k", {"v": v, "x": x}),
    "slices": ("Z[:] = v[0:4] * v[2:6]\nL = sum[i] Z[i]^2", {"v": v}),
    "a slice replaced by itself": ("Y[i,j] = A[i,j]\nY[1, j] = Y[0,j] * Y[1,j]\nL = sum[i,j] Y[i,j]^2", {"A": A}),
    "a gather": ("Y[i,c] = X[k[i],c]^2\nL = sum[i,c] Y[i,c] * (i+1)", {"X": X, "k": IDS}),
    "a gather of one element a row": ("Y[i] = X[i, k[i]]^2\nL = sum[i] Y[i] * (i+1)", {"X": X, "k": PICKED}),
    "a gather with a shifted axis": ("Y[i,c: 2] = X[k[i],c+1]^2\nL = sum[i,c] Y[i,c] * (i+1)", {"X": X, "k": IDS}),
    "a scatter": ("Y[k[i]: 3, c] = sum[i] X[i,c]^2\nL = sum[i,c] Y[i,c]^2 * (i+1)", {"X": X, "k": GROUPS}),
    "a scatter by two labels": ("Y[k[i,j]: 5] = sum[i,j] A[i,j] * A[i,0]\nL = sum[i] Y[i]^3", {"A": A, "k": CELLS}),
    "a scatter in rows": ("Y[i,k[i,j]: 5] = sum[j] A[i,j] * A[i,0]\nL = sum[i,k] Y[i,k]^3", {"A": A, "k": CELLS}),
    "missing labels": ("L = sum[i, j: 3] v[i] * (j+1) * v[5-i]", {"v": v}),
    "a loop that carries": (
        "h[c] = X[0,c]\nfor t in 1 .. 6 {\n  h[c] = tanh(h[c] * X[t,c]) + X[t,c]\n}\nL = sum[c] h[c]^2",
        {"X": X},
    ),
    "a loop that replaces slices": (
        "H[i] = v[i]\nfor t in 1 .. 6 {\n  H[t] = H[t-1] * v[t] + 1\n}\nL = sum[i] H[i]^2",
        {"v": v / 2},
    ),
    "functions": ("import std.nn\nP[i,j] = softmax(A[i,j])\nL = sum[i,j] P[i,j] * A[i,j]", {"A": A}),
    "attention": (
        "import std.nn\nO[s,e] = causal_attention(Q[s,d], K[t,d], V[t,e])\nL = sum[s,e] O[s,e]^2",
        {"Q": A, "K": RNG.normal(size=(3, 4)), "V": RNG.normal(size=(3, 2))},
    ),
    "layernorm": (
        "import std.nn\nY[i,j] = layernorm(A[i,j], g[j], b[j])\nL = sum[i,j] Y[i,j]^3",
        {
            "A": A,
            "g": RNG.normal(size=4),
            "b": RNG.normal(size=4),
        },
    ),
    "complex numbers": (
        "L = abs(sum[i] z[i] * z[i]) + real(sum[i] exp(z[i]) * conj(z[i])) + imag(prod[i] z[i]) + abs(z[0]^2.5)",
        {"z": Z},
    ),
    "real and complex": (
        "L = real(sum[i] z[i] * x[i]) + abs(sum[i] z[i] * exp(2j * x[i]))",
        {"z": Z, "x": x[:3].copy()},
    ),
    "ties by several": ("L = sum[i] max(v[i], v[5-i])^2 + sum[i] min(v[i], 0.1, v[5-i] * 2)", {"v": v}),
    "powers": ("L = sum[i] (abs(v[i]) + 1)^v[5-i] + 2^v[0] + v[1]^3 + v[2]^(-1)", {"v": v}),
    "remainders": ("L = sum[i] v[i] % 0.7 + sum[i] 3 % (v[i]^2 + 1)", {"v": v}),
    "casts": ("L = sum[i] real(c128(v[i])^2) * i64(v[i] * 2)", {"v": v}),
    "what is not derived": (
        "L = sum[i] v[i] * where(v[i] > 0, floor(v[i] * 3), sign(v[i])) + argmax[i] v[i]",
        {"v": v},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_construction(name: str) -> None:
    body, inputs = CASES[name]
    assert_derived(with_gradients(body, "L", inputs), inputs)


def test_an_aggregation_by_key() -> None:
    for op in (op for op in AGGREGATIONS if MONOIDS[op].derivative is not None):
        body = f"Y[k[i]: 2, c] = {op}[i] X[i,c]\nL = sum[i,c] Y[i,c]^2 * (i+1)"
        inputs = {"X": X, "k": np.array([0, 1, 1, 1, 0, 0])}
        assert_derived(with_gradients(body, "L", inputs), inputs)


def test_second_derivatives() -> None:
    text = (
        "input x : f64[n]\nL = sum[i] x[i]^3 * exp(x[0])\ng[i] = grad(L, x[i])\nh = sum[i] g[i]^2\n"
        "H[i] = grad(h, x[i])\noutput g, H\n"
    )
    assert_derived(text, {"x": RNG.normal(size=3)})


def test_gradient_descent_in_a_loop_can_be_derived_itself() -> None:
    text = """input x : f64[n]
y[i] = x[i]
for t in 0 .. 3 {
  L = sum[i] (y[i] - 1)^2 * y[i]
  y[i] = y[i] - 0.1 * grad(L, y[i])
}
M = sum[i] y[i]^2
g[i] = grad(M, x[i])
output y, g
"""
    assert_derived(text, {"x": RNG.normal(size=2) + 2})


def test_a_function_point_by_point_and_of_a_number() -> None:
    text = """input x : f64[n]
fn slope(x) {
  y = x * tanh(x)
  return grad(y, x)
}
g[i] = slope(x[i])
at = slope(2) + slope(0.5)
output g, at
"""
    found = run(text, {"x": x})
    np.testing.assert_allclose(found["g"], np.tanh(x) + x * (1 - np.tanh(x) ** 2))
    two = np.array([2, 0.5])
    np.testing.assert_allclose(found["at"], (np.tanh(two) + two * (1 - np.tanh(two) ** 2)).sum())


def test_indices_of_a_gradient_are_those_of_the_tensor() -> None:
    text = """input A : f64[n, n]
L = sum[i,j] A[i,j]^2 * (i + 2*j)
t[j,i] = grad(L, A[i,j])
d[i] = grad(L, A[i,i])
e = grad(L, A[1,2])
s[: , j] = grad(L, A[1:3, j])
output t, d, e, s
"""
    a = A[:, :3].copy()
    whole = 2 * a * (np.arange(3)[:, None] + 2 * np.arange(3))
    found = run(text, {"A": a})
    np.testing.assert_allclose(found["t"], whole.T)
    np.testing.assert_allclose(found["d"], np.diag(whole))
    np.testing.assert_allclose(found["e"], whole[1, 2])
    np.testing.assert_allclose(found["s"], whole[1:3])


def test_what_the_loss_does_not_hang_on_has_no_gradient() -> None:
    text = (
        "input x : f32[n]\nL = sum[i] x[i]^2\nx[i] = x[i] + 1\ng[i] = grad(L, x[i])\none = grad(L, L)\noutput g, one\n"
    )
    found = run(text, {"x": np.ones(3, np.float32)})
    assert found["g"].tolist() == [0, 0, 0] and found["one"] == 1


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "c128"])
def test_the_gradient_has_the_dtype_of_the_tensor(dtype: str) -> None:
    text = f"input x : {dtype}[n]\nL = f64(real(sum[i] x[i] * x[i]))\ng[i] = grad(L, x[i])\noutput g\n"
    graph = graph_of(text, {"x": np.ones(3)})
    assert graph.nodes[graph.outputs[0][1]].dtype.name == dtype


def test_several_gradients_of_one_loss_share_its_sweep() -> None:
    body = "H[n,h] = tanh(sum[d] X[n,d] * W[d,h])\nloss = sum[n,h] H[n,h]^2\n"
    head = "input X : f32[n, d]\ninput W : f32[d, h]\n"
    both = head + body + "gX[n,d] = grad(loss, X[n,d])\ngW[d,h] = grad(loss, W[d,h])\noutput gX, gW\n"
    inputs = {"X": np.ones((4, 3), np.float32), "W": np.ones((3, 2), np.float32)}
    nodes = [n for n in graph_of(both, inputs).nodes if isinstance(n, EinsumNode)]
    # two forward and the loss; H.grad, H.sum.grad, and one product for each of X and W
    assert len(nodes) == 7


def test_the_gradient_of_a_product_is_a_product() -> None:
    body = "C[i,k] = A[i,j] * B[j,k]\nL = sum[i,k] C[i,k] * D[i,k]"
    inputs = {"A": A, "B": B, "D": np.ones((3, 2))}
    graph = graph_of(with_gradients(body, "L", inputs), inputs)
    for name, node in graph.outputs:
        einsum = graph.nodes[node].einsum  # type: ignore[union-attr]
        if name in ("gA", "gB"):
            assert (
                isinstance(einsum, Einsum) and einsum.plain and len(einsum.aggregated) == 1 and len(einsum.dtypes) == 2
            )


def test_a_softmax_is_not_derived_through_its_maximum() -> None:
    body = "import std.nn\nP[i,j] = softmax(A[i,j])\nL = sum[i,j] P[i,j]^2"
    graph = graph_of(with_gradients(body, "L", {"A": A}), {"A": A})
    assert not any("max.grad" in node.name for node in graph.nodes)


def test_a_maximum_that_counts_is_derived() -> None:
    body = "m[i] = max[j] A[i,j]\nL = sum[i] exp(A[i,0] - m[i]) + sum[i] m[i]"
    assert_derived(with_gradients(body, "L", {"A": A}), {"A": A})


def test_slices_of_a_loop_cost_a_slice_each() -> None:
    body = "h[c] = X[0,c]\nfor t in 1 .. 6 {\n  h[c] = h[c] * X[t,c]\n}\nL = sum[c] h[c]"
    graph = graph_of(with_gradients(body, "L", {"X": X}), {"X": X})
    large = [n for n in graph.nodes if isinstance(n, EinsumNode) and n.shape == X.shape]
    assert not large
