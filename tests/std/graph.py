"""Calls of std.graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csgraph

from tests.std.harness import Call

rng = np.random.default_rng(14)
n = 6
A = (rng.random((n, n)) < 0.4).astype(np.float64)
A[2] = 0  # from here no edge leads on
U = np.triu(rng.random((n, n)) < 0.6, 1).astype(np.float64)
U = U + U.T
lengths = np.where(rng.random((n, n)) < 0.5, rng.integers(1, 9, (n, n)), np.inf)
D = csgraph.floyd_warshall(np.where(np.isinf(lengths), 0, lengths))
google = np.where(A.sum(1, keepdims=True) > 0, A / np.maximum(A.sum(1, keepdims=True), 1), 1 / n)
r = rng.dirichlet(np.ones(n))
X, W = rng.normal(size=(n, 3)), rng.normal(size=(3, 2))
source, target = rng.integers(n, size=9), rng.integers(n - 1, size=9)  # nothing arrives at the last
M = np.zeros((n, n))
np.add.at(M, (target, source), 1)
largest = np.stack([X[source[target == v]].max(0, initial=-np.inf) for v in range(n)])
arrivals = M.sum(1)
root = np.diag(1 / np.sqrt(arrivals + 1))


def graph(equation: str, expected: Any, **inputs: Any) -> Call:
    function = equation.split("= ")[1].split("(")[0]
    return Call("graph", function, equation, inputs, {equation.split("=")[0].split("[")[0].strip(): expected})


CALLS = [
    graph("q[j] = pagerank_step(A[i,j], r[i])", 0.85 * r @ google + 0.15 / n, A=A, r=r),
    graph("q[j] = pagerank_step(A[i,j], r[i], 0.5)", 0.5 * r @ google + 0.5 / n, A=A, r=r),
    graph(
        "q[i] = pagerank(A[i,j], 5)",
        np.full(n, 1 / n) @ np.linalg.matrix_power(0.85 * google + 0.15 / n, 5),
        A=A,
    ),
    graph("E[i,j] = min_plus_square(D[i,j])", np.min(lengths[:, :, None] + lengths, 1), D=lengths),
    graph("D[i,j] = shortest_paths(W[i,j], 3)", D, W=lengths),
    graph("R[i,j] = reachable(A[i,j], 3)", np.isfinite(D), A=np.isfinite(lengths)),
    graph("t = triangles(A[i,j])", np.trace(U @ U @ U) / 6, A=U),
    graph("L[i,j] = laplacian(A[i,j])", csgraph.laplacian(U), A=U),
    graph("d[v] = in_degree(t[e], 6)", np.bincount(target, minlength=n), t=target),
    graph("Y[v,d] = messages_sum(X[v,d], s[e], t[e])", M @ X, X=X, s=source, t=target),
    graph(
        "Y[v,d] = messages_mean(X[v,d], s[e], t[e])",
        M @ X / np.maximum(arrivals, 1)[:, None],
        X=X,
        s=source,
        t=target,
    ),
    graph("Y[v,d] = messages_max(X[v,d], s[e], t[e])", largest, X=X, s=source, t=target),
    graph(
        "Y[v,f] = graph_convolution(X[v,d], s[e], t[e], W[d,f])",
        root @ (M + np.eye(n)) @ root @ X @ W,
        X=X,
        s=source,
        t=target,
        W=W,
    ),
]
