"""Calls of std.linalg."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sl
from scipy.spatial.distance import cdist

from tests.std.harness import Call

rng = np.random.default_rng(12)
A, B = rng.normal(size=(4, 5)), rng.normal(size=(5, 3))
S = rng.normal(size=(4, 4))
T = rng.normal(size=(3, 4, 4))
P = S @ S.T + 5 * np.eye(4)
x, y = rng.normal(size=4), rng.normal(size=3)
X, Y = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
values, vectors = np.linalg.eigh(P)
leading = vectors[:, -1] * np.sign(vectors[:, -1] @ x)
L = np.linalg.cholesky(P)


def linalg(equation: str, expected: Any, looser: float = 1, **inputs: Any) -> Call:
    function = equation.split("= ")[1].split("(")[0]
    return Call("linalg", function, equation, inputs, {equation.split("=")[0].split("[")[0].strip(): expected}, looser)


CALLS = [
    linalg("s = dot(x[i], y[i])", x @ S[0], x=x, y=S[0]),
    linalg("s[k] = dot(A[k,i], B[k,i])", (A * A[::-1]).sum(1), A=A, B=A[::-1].copy()),
    linalg("C[i,j] = matmul(A[i,k], B[k,j])", A @ B, A=A, B=B),
    linalg("C[b,i,j] = matmul(A[b,i,k], B[b,k,j])", T @ T[::-1], A=T, B=T[::-1].copy()),
    linalg("C[i,j] = outer(x[i], y[j])", np.outer(x, y), x=x, y=y),
    linalg("G[a,b] = gram(X[a,c])", X @ X.T, X=X),
    linalg("K[p,q] = kron(A[i,j], B[k,l])", np.kron(A, B), A=A, B=B),
    linalg("K[p,r] = khatri_rao(A[i,r], B[j,r])", sl.khatri_rao(X, Y), A=X, B=Y),
    linalg("t = trace(A[i,j])", np.trace(S), A=S),
    linalg("t[b] = trace(A[b,i,j])", np.trace(T, axis1=1, axis2=2), A=T),
    linalg("d[b,k] = diagonal(A[b,i,j])", np.diagonal(T, axis1=1, axis2=2), A=T),
    linalg("s[b,i] = norm(A[b,i,j])", np.linalg.norm(T, axis=-1), A=T),
    linalg("s = norm(x[i])", np.linalg.norm(x), x=x),
    linalg("s[i] = norm1(A[i,j])", np.abs(A).sum(1), A=A),
    linalg("s[i] = norm_max(A[i,j])", np.abs(A).max(1), A=A),
    linalg("s = frobenius(A[i,j])", np.linalg.norm(A), A=A),
    linalg("s[b] = frobenius(A[b,i,j])", np.linalg.norm(T, axis=(1, 2)), A=T),
    linalg("N[i,j] = normalize(A[i,j])", A / np.linalg.norm(A, axis=1, keepdims=True), A=A),
    linalg("N[i,j] = normalize(0 * A[i,j])", np.zeros((4, 5)), A=A),
    linalg("D[i,j] = squared_distances(X[i,c], Y[j,c])", cdist(X, Y, "sqeuclidean"), X=X, Y=Y),
    linalg("D[i,j] = squared_distances(X[i,c], X[j,c])", cdist(X, X, "sqeuclidean"), X=X),
    linalg("D[i,j] = squared_distances_by_product(X[i,c], Y[j,c])", cdist(X, Y, "sqeuclidean"), 10, X=X, Y=Y),
    linalg("D[i,j] = distances(X[i,c], Y[j,c])", cdist(X, Y), X=X, Y=Y),
    linalg("D[i,j] = manhattan_distances(X[i,c], Y[j,c])", cdist(X, Y, "cityblock"), X=X, Y=Y),
    linalg("D[i,j] = chebyshev_distances(X[i,c], Y[j,c])", cdist(X, Y, "chebyshev"), X=X, Y=Y),
    linalg("D[i,j] = cosine_similarities(X[i,c], Y[j,c])", 1 - cdist(X, Y, "cosine"), X=X, Y=Y),
    linalg("C[i,j] = matrix_power(A[i,j], 3)", S @ S @ S, 10, A=S),
    linalg("C[i,j] = matrix_power(1 * A[i,j], 0) + 0 * A[i,j]", np.eye(4), A=S),
    linalg("C[i,j] = matrix_squarings(A[i,j], 2)", np.linalg.matrix_power(S, 4), 10, A=S),
    linalg("x[i] = conjugate_gradient(A[i,j], b[i], 5)", np.linalg.solve(P, x), 100, A=P, b=x),
    linalg("x[i] = conjugate_gradient(A[i,j], b[i], 2)", np.zeros(4), A=P, b=0 * x),
    Call(
        "linalg",
        "power_iteration",
        "v[i], value = power_iteration(A[i,j], x[i], 30)",
        {"A": P, "x": x},
        {"v": leading, "value": values[-1]},
        looser=100,
    ),
    linalg("V[i,j] = newton_inverse(A[i,j], 12)", np.linalg.inv(P), 100, A=P),
    linalg("V[j,i] = newton_inverse(A[i,j], 20)", np.linalg.pinv(A[:3, :2]), 100, A=A[:3, :2].copy()),
    linalg("z[i] = solve_lower(L[i,j], b[i])", np.linalg.solve(L, x), 10, L=L, b=x),
    linalg("C[i,j] = cholesky(A[i,j])", L, 10, A=P),
]
