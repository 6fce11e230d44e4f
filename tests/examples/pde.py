"""References of docs/examples/pde."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.ndimage

from tests.examples.harness import Example

CROSS = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0.0]])


def heat(rng: np.random.Generator) -> Example:
    begin = rng.uniform(size=(7, 6))
    U = begin
    for _ in range(5):
        U = U + 0.2 * scipy.ndimage.correlate(U, CROSS, mode="constant")
    return Example({"U": begin}, {"U": U, "total": np.asarray(U.sum())}, {"steps": 5})


def wave(rng: np.random.Generator) -> Example:
    shape = np.sin(np.linspace(0, np.pi, 12))
    shape[[0, -1]] = 0
    rows = [shape, shape]
    for _ in range(5):
        now = 2 * rows[-1] - rows[-2]
        now[1:-1] += 0.25 * np.diff(rows[-1], 2)
        now[[0, -1]] = 0
        rows.append(now)
    return Example({"shape": shape}, {"U": np.stack(rows)}, {"steps": 5})


def life(rng: np.random.Generator) -> Example:
    begin = rng.random((5, 6)) < 0.4
    B, alive = begin, [begin.sum()]
    for _ in range(3):
        around = scipy.ndimage.convolve(B.astype(int), np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]]), mode="wrap")
        B = (around == 3) | (B & (around == 2))
        alive.append(B.sum())
    return Example({"B": begin}, {"B": B, "alive": np.array(alive)}, {"generations": 3})


def poisson(rng: np.random.Generator) -> Example:
    f = rng.normal(size=(6, 6))
    U = np.zeros((6, 6))
    for _ in range(6):
        U = U + (scipy.ndimage.correlate(U, CROSS, mode="constant") + f) / 4
    left = np.abs(scipy.ndimage.correlate(U, CROSS, mode="constant") + f).max()
    return Example({"f": f}, {"U": U, "left": np.asarray(left)}, {"steps": 6})


def burgers(rng: np.random.Generator) -> Example:
    begin = np.sin(2 * np.pi * np.arange(16) / 16) + 0.5
    u = begin
    for _ in range(6):
        right, left = np.roll(u, -1), np.roll(u, 1)
        u = (right + left) / 2 - 0.1 * (right**2 - left**2)
    return Example({"u": begin}, {"u": u, "mass": np.asarray(8.0)}, {"steps": 6})


def schrodinger(rng: np.random.Generator) -> Example:
    n, dt = 10, 0.05
    V = 0.1 * (np.arange(n) - 4.5) ** 2
    psi = np.exp(-0.5 * (np.arange(n) - 3.0) ** 2 + 0.5j * np.arange(n))
    begin = psi = psi / np.linalg.norm(psi)
    H = np.diag(V + 1) - 0.5 * (np.eye(n, k=1) + np.eye(n, k=-1))
    forward, backward = np.eye(n) - 0.5j * dt * H, np.eye(n) + 0.5j * dt * H
    for _ in range(3):
        psi = scipy.linalg.solve(backward, forward @ psi)
    return Example({"psi": begin, "V": V}, {"psi": psi, "norm": np.asarray(1.0)}, {"steps": 3}, looser=1e3)
