"""References of docs/examples/linear_algebra."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from tests.examples.harness import Array, Example


def conjugate_gradient(rng: np.random.Generator) -> Example:
    M = rng.normal(size=(8, 8))
    A = M @ M.T + 8 * np.eye(8)
    b = rng.normal(size=8)
    x, residual = np.zeros(8), b.copy()
    basis = [b]
    for _ in range(4):
        basis.append(A @ basis[-1])
    K = np.stack(basis, 1)  # the fifth iterate is the best in A's norm out of this Krylov space
    x = K @ np.linalg.solve(K.T @ A @ K, K.T @ b)
    residual = np.asarray(np.linalg.norm(b - A @ x))
    return Example({"A": A, "b": b}, {"x": x, "residual": residual}, {"steps": 5}, looser=1e3)


def dominant_eigenvector(rng: np.random.Generator) -> Example:
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    A = (basis * [3.0, 1, 0.5, -0.5, -1, 0]) @ basis.T
    begin = rng.normal(size=6)
    v = basis[:, 0] * np.sign(basis[:, 0] @ begin)
    return Example({"A": A, "begin": begin}, {"value": np.asarray(3.0), "v": v}, looser=10)


def randomized_range(rng: np.random.Generator) -> Example:
    A = rng.normal(size=(7, 3)) @ rng.normal(size=(3, 5)) + 0.01 * rng.normal(size=(7, 5))
    Omega = rng.normal(size=(5, 3))
    Q, R = np.linalg.qr(A @ (A.T @ (A @ Omega)))
    Q = Q * np.sign(np.diag(R))
    B = Q.T @ A
    error = np.linalg.norm(A - Q @ B) / np.linalg.norm(A)
    return Example({"A": A, "Omega": Omega}, {"Q": Q, "B": B, "error": np.asarray(error)}, looser=1e5)


def cp_als(rng: np.random.Generator) -> Example:
    T = rng.normal(size=(3, 4, 3))
    A, B, C = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    inputs = {"T": T, "A": A, "B": B, "C": C}

    def factor(unfolded: Array, first: Array, second: Array) -> Array:
        return np.linalg.lstsq(scipy.linalg.khatri_rao(first, second), unfolded.T, rcond=None)[0].T

    A = factor(T.reshape(3, 12), B, C)
    B = factor(T.transpose(1, 0, 2).reshape(4, 9), A, C)
    C = factor(T.transpose(2, 0, 1).reshape(3, 12), A, B)
    missed = np.linalg.norm(T - np.einsum("ir,jr,kr->ijk", A, B, C))
    return Example(inputs, {"A": A, "B": B, "C": C, "missed": np.asarray(missed)}, looser=1e3)


def tucker(rng: np.random.Generator) -> Example:
    T = rng.normal(size=(4, 3, 3, 2)).astype(np.float32)
    bases = [np.linalg.qr(rng.normal(size=(n, 2)))[0].astype(np.float32) for n in T.shape]
    G = R = T.astype(np.float64)
    for axis, basis in enumerate(bases):
        G = np.moveaxis(np.tensordot(G, basis.astype(np.float64), (axis, 0)), -1, axis)
    R = G
    for axis, basis in enumerate(bases):
        R = np.moveaxis(np.tensordot(R, basis.astype(np.float64), (axis, 1)), -1, axis)
    kept = np.float32((G**2).sum() / (T.astype(np.float64) ** 2).sum())
    expected = {"G": G.astype(np.float32), "R": R.astype(np.float32), "kept": kept}
    return Example({"T": T, **dict(zip("UVWX", bases, strict=True))}, expected)


def kronecker_solve(rng: np.random.Generator) -> Example:
    A, B, C = rng.normal(size=(4, 4)), rng.normal(size=(3, 3)), rng.normal(size=(4, 3))
    X = scipy.linalg.solve_sylvester(A, B, C)
    return Example({"A": A, "B": B, "X": X}, {"C": C, "D": C, "agree": np.True_}, looser=100)
