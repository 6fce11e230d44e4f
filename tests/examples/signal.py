"""References of docs/examples/signal."""

from __future__ import annotations

import numpy as np
import scipy.ndimage
import scipy.signal

from tests.examples.harness import Example


def fourier(rng: np.random.Generator) -> Example:
    t = np.arange(12)
    x = np.sin(2 * np.pi * 5 * t / 12) + 0.3 * rng.normal(size=12)
    F = np.fft.fft(x)
    power = np.abs(F) ** 2
    return Example({"x": x}, {"F": F, "power": power, "strongest": 1 + power[1:7].argmax()}, {"a": 3, "b": 4})


def filter(rng: np.random.Generator) -> Example:
    x = rng.normal(size=40).astype(np.float32)
    g = scipy.signal.firwin(9, 0.25)
    y = np.convolve(x, g, "valid").astype(np.float32)
    return Example({"x": x}, {"y": y, "half": y[::2]}, {"taps": 9})


def edges(rng: np.random.Generator) -> Example:
    X = np.zeros((9, 8), np.float32)
    X[3:7, 2:6] = 1
    X += 0.01 * rng.normal(size=X.shape).astype(np.float32)
    B = scipy.ndimage.gaussian_filter(X.astype(np.float64), 1.0, mode="constant", radius=3)
    G = np.hypot(scipy.ndimage.sobel(B, 0), scipy.ndimage.sobel(B, 1))[1:-1, 1:-1]
    P = np.pad(G, 1)
    across = np.maximum(P[:-2, 1:-1], P[2:, 1:-1]) <= G
    along = np.maximum(P[1:-1, :-2], P[1:-1, 2:]) <= G
    E = (G > 0.5) & (across | along)
    return Example({"X": X}, {"G": G.astype(np.float32), "E": E, "count": E.sum()})


def haar(rng: np.random.Generator) -> Example:
    x = np.cumsum(rng.normal(size=16)) / 4
    H = np.eye(16)
    n = 16
    for _ in range(3):  # the transform's matrix
        step = np.eye(16)
        i = np.arange(n // 2)
        step[:n, :n] = 0
        step[i, 2 * i] = step[i, 2 * i + 1] = step[n // 2 + i, 2 * i] = np.sqrt(0.5)
        step[n // 2 + i, 2 * i + 1] = -np.sqrt(0.5)
        H, n = step @ H, n // 2
    W = H @ x
    kept = np.where((np.abs(W) < 0.1) & (np.arange(16) >= 2), 0, W)
    return Example({"x": x}, {"W": W, "y": H.T @ kept})


def autocorrelation(rng: np.random.Generator) -> Example:
    x = np.sin(2 * np.pi * np.arange(30) / 7) + 0.2 * rng.normal(size=30)
    z = x - x.mean()
    r = np.correlate(z, z[:18], "valid")[:12]
    a = r / r[0]
    dip = int((a < 0).argmax())
    return Example({"x": x}, {"a": a, "period": np.asarray(dip + 1 + a[dip + 1 :].argmax())}, {"lags": 12})


def optical_flow(rng: np.random.Generator) -> Example:
    smooth = scipy.ndimage.gaussian_filter(rng.normal(size=(14, 15)), 2)
    smooth = smooth / smooth.std()
    A, B = smooth[2:11, 2:12].astype(np.float32), smooth[2:11, 1:11].astype(np.float32)
    Dy, Dx = (d[1:-1, 1:-1].astype(np.float64) for d in np.gradient(A))
    Dt = (B - A)[1:-1, 1:-1].astype(np.float64)
    U, V = np.zeros((3, 4)), np.zeros((3, 4))
    for i, j in np.ndindex(3, 4):
        dx, dy, dt = (D[i : i + 5, j : j + 5].ravel() for D in (Dx, Dy, Dt))
        M = np.array([[dx @ dx, dx @ dy], [dx @ dy, dy @ dy]])
        det = np.linalg.det(M) + 1e-6
        U[i, j], V[i, j] = -np.linalg.inv(M) @ [dx @ dt, dy @ dt] * np.linalg.det(M) / det
    return Example({"A": A, "B": B}, {"U": U.astype(np.float32), "V": V.astype(np.float32)}, looser=100)
