"""Loops over small operations, compared with NumPy: a filter, an LSTM, bodies, a stencil, PageRank.

    python docs/benchmarks/small.py [--before CHECKOUT] [--only WORD ...] [--rounds 5]

Each contender runs in a process of its own, alternately, ``--rounds`` times, with one cache of machine code per
checkout. A process makes three calls, then measures calls for about a second. ``call``: user CPU seconds of a call,
planning included; ``run``: wall-clock seconds of the plans' run alone, for NumPy of the call. Medians, in milliseconds.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SECONDS, MIN_CALLS, WARM_CALLS = 1.0, 3, 3

KALMAN = """
# Kalman filter of m trackers with s states and o = 2 observations each.
input z : f64[T, m, o]
input F : f64[s, s]
input H : f64[o, s]
input Q : f64[s, s]
input R : f64[o, o]
x[m, s] = 0.0
P[m, i: s, j: s] = where(i == j, 1.0, 0.0)
for t in 0 .. T {
  xp[m, a: s] = sum[b: s] F[a,b] * x[m,b]
  FP[m, a: s, c: s] = sum[b: s] F[a,b] * P[m,b,c]
  Pp[m, a: s, c: s] = (sum[b: s] FP[m,a,b] * F[c,b]) + Q[a,c]
  HP[m, u: o, c: s] = sum[b: s] H[u,b] * Pp[m,b,c]
  S[m, u: o, v: o] = (sum[b: s] HP[m,u,b] * H[v,b]) + R[u,v]
  det[m] = S[m,0,0] * S[m,1,1] - S[m,0,1] * S[m,1,0]
  Si[m, u: o, v: o] = where(u == v, S[m, 1-u, 1-v], -S[m,u,v]) / det[m]
  K[m, c: s, v: o] = sum[u: o] HP[m,u,c] * Si[m,u,v]
  e[m, u: o] = z[t,m,u] - sum[b: s] H[u,b] * xp[m,b]
  x[m, a: s] = xp[m,a] + sum[v: o] K[m,a,v] * e[m,v]
  P[m, a: s, c: s] = Pp[m,a,c] - sum[v: o] K[m,a,v] * HP[m,v,c]
}
output x, P
"""
HEAT = """
dim steps
input U : f64[z, y, x]
for step in 0 .. steps {
  U[z,y,x] = U[z,y,x] + 0.1 * (U[z-1 ? 0, y, x] + U[z+1 ? 0, y, x] + U[z, y-1 ? 0, x] + U[z, y+1 ? 0, x] +
    U[z, y, x-1 ? 0] + U[z, y, x+1 ? 0] - 6 * U[z,y,x])
}
output U
"""
PAGERANK = """
dim n, steps
input src : i32[m]
input dst : i32[m]
degree[src[e]: n] = sum[e] 1
x[i: n] = 1 / n
for t in 0 .. steps {
  flow[e] = x[src[e]] / degree[src[e]]
  got[dst[e]: n] = sum[e] flow[e]
  lost = sum[i] where(degree[i] == 0, x[i], 0)
  x[i] = 0.15 / n + 0.85 * (got[i] + lost / n)
}
output x
"""
POWER = """
dim steps
input A : f64[n, n]
input b : f64[n]
x[i: n] = 1.0
for t in 0 .. steps {
  y[i] = sum[j] A[i,j] * x[j]
  s = sum[i] y[i] * y[i]
  x[i] = y[i] / sqrt(s) + b[i]
}
output x
"""
Arrays = Mapping[str, Any]


class Loop(NamedTuple):
    """A program, its sizes, and the same in NumPy; both take the arrays of ``data``."""

    program: str | Path
    sizes: dict[str, int]
    data: Callable[[np.random.Generator], Arrays]
    numpy: Callable[..., Arrays]


def kalman(z: Any, F: Any, H: Any, Q: Any, R: Any) -> Arrays:
    """The filter in NumPy."""
    steps, m, o = z.shape
    s = len(F)
    x, P = np.zeros((m, s)), np.tile(np.eye(s), (m, 1, 1))
    for t in range(steps):
        xp, Pp = x @ F.T, F @ P @ F.T + Q
        HP = H @ Pp
        S = HP @ H.T + R
        det = S[:, 0, 0] * S[:, 1, 1] - S[:, 0, 1] * S[:, 1, 0]
        Si = np.empty_like(S)
        Si[:, 0, 0], Si[:, 1, 1] = S[:, 1, 1], S[:, 0, 0]
        Si[:, 0, 1], Si[:, 1, 0] = -S[:, 0, 1], -S[:, 1, 0]
        Si /= det[:, None, None]
        K, e = np.swapaxes(HP, 1, 2) @ Si, z[t] - xp @ H.T
        x, P = xp + (K @ e[..., None])[..., 0], Pp - K @ HP
    return {"x": x, "P": P}


def lstm(X: Any, W: Any, U: Any, bias: Any) -> Arrays:
    """The network in NumPy."""
    (b, steps, _), m = X.shape, U.shape[1]
    h, c, H = np.zeros((b, m), np.float32), np.zeros((b, m), np.float32), np.empty((b, steps, m), np.float32)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    for t in range(steps):
        Z = X[:, t] @ W.T + h @ U.T + bias
        G = [Z[:, k * m : (k + 1) * m] for k in range(4)]
        c = sigmoid(G[1]) * c + sigmoid(G[0]) * np.tanh(G[2])
        h = sigmoid(G[3]) * np.tanh(c)
        H[:, t] = h
    return {"H": H}


def bodies(x: Any, v: Any, m: Any, steps: int = 100, dt: float = 0.01, soft: float = 0.1) -> Arrays:
    """The bodies in NumPy."""

    def pull(x: Any) -> Any:
        d = x[None] - x[:, None]
        r2 = (d * d).sum(2) + soft**2
        return (m[None, :, None] * d / (r2 * np.sqrt(r2))[..., None]).sum(1)

    for _ in range(steps):
        v = v + 0.5 * dt * pull(x)
        x = x + dt * v
        v = v + 0.5 * dt * pull(x)
    return {"x": x, "v": v}


def heat(U: Any, steps: int = 40) -> Arrays:
    """The stencil in NumPy."""
    for _ in range(steps):
        new = -6 * U
        for axis in range(3):
            here, there = [slice(None)] * 3, [slice(None)] * 3
            here[axis], there[axis] = slice(1, None), slice(None, -1)
            new[tuple(here)] += U[tuple(there)]
            new[tuple(there)] += U[tuple(here)]
        new *= 0.1
        new += U
        U = new
    return {"U": U}


def pagerank(src: Any, dst: Any, n: int = 100_000, steps: int = 30) -> Arrays:
    """The ranks in NumPy."""
    degree = np.bincount(src, minlength=n)
    x = np.full(n, 1 / n)
    for _ in range(steps):
        got = np.bincount(dst, x[src] / degree[src], minlength=n)
        lost = x[degree == 0].sum()
        x = 0.15 / n + 0.85 * (got + lost / n)
    return {"x": x}


def power(A: Any, b: Any, steps: int = 20_000) -> Arrays:
    """The iteration in NumPy."""
    x = np.ones(len(b))
    for _ in range(steps):
        y = A @ x
        x = y / np.sqrt(y @ y) + b
    return {"x": x}


LOOPS = {
    "Kalman filter, 500 trackers, 200 steps": Loop(
        KALMAN,
        {},
        lambda rng: {
            "z": rng.random((200, 500, 2)),
            "F": np.eye(4) + np.eye(4, k=2) * 0.1,
            "H": np.eye(2, 4),
            "Q": np.eye(4) * 0.01,
            "R": np.eye(2) * 0.1,
        },
        kalman,
    ),
    "LSTM, 64 steps, batch 32, 128 wide": Loop(
        EXAMPLES / "machine_learning" / "lstm.ein",
        {},
        lambda rng: {
            "X": rng.standard_normal((32, 64, 64), np.float32),
            "W": rng.standard_normal((512, 64), np.float32) / 8,
            "U": rng.standard_normal((512, 128), np.float32) / 11,
            "bias": np.zeros(512, np.float32),
        },
        lstm,
    ),
    "n-body, 256 bodies, 100 steps": Loop(
        EXAMPLES / "physics" / "nbody.ein",
        {"steps": 100},
        lambda rng: {"x": rng.random((256, 3)), "v": np.zeros((256, 3)), "m": rng.random(256)},
        bodies,
    ),
    "heat, 48 x 64 x 64, 40 steps": Loop(HEAT, {"steps": 40}, lambda rng: {"U": rng.random((48, 64, 64))}, heat),
    "PageRank, 10^6 edges, 30 rounds": Loop(
        PAGERANK,
        {"n": 100_000, "steps": 30},
        lambda rng: {k: rng.integers(0, 100_000, 1_000_000).astype(np.int32) for k in ("src", "dst")},
        pagerank,
    ),
    "power iteration, 16 x 16, 20,000 steps": Loop(
        POWER, {"steps": 20_000}, lambda rng: {"A": rng.random((16, 16)), "b": np.ones(16)}, power
    ),
}


def measure(name: str, by_numpy: bool) -> dict[str, float]:
    """Seconds of a call, and of its run, in this process."""
    loop = LOOPS[name]
    data = loop.data(np.random.default_rng(0))
    expected = loop.numpy(**data)
    if by_numpy:

        def call() -> float:
            begin = time.perf_counter()
            loop.numpy(**data)
            return time.perf_counter() - begin
    else:
        import einturnip as et

        program = et.compile(loop.program)
        found = program(**data, dims=loop.sizes)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=1e-5)

        def call() -> float:
            return float(program(**data, dims=loop.sizes).report.wall_seconds)

    for _ in range(WARM_CALLS):
        call()
    calls, runs, end = [], [], time.perf_counter() + SECONDS
    while len(calls) < MIN_CALLS or time.perf_counter() < end:
        begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        runs.append(call())
        calls.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin)
    return {"call": statistics.median(calls), "run": statistics.median(runs)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--only", nargs="*", default=[""], help="words of names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker[0], options.worker[1] == "NumPy")))
        return
    here = Path(__file__).parents[2]
    checkouts = {"NumPy": here, **({"before": options.before.resolve()} if options.before else {}), "now": here}
    columns = [f"{contender}, {what}" for what in ("run", "call") for contender in checkouts]
    print("| loop | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    with tempfile.TemporaryDirectory() as folder:
        for name in LOOPS:
            if not any(word in name for word in options.only):
                continue
            found: dict[str, list[dict[str, float]]] = {contender: [] for contender in checkouts}
            for _ in range(options.rounds):
                for contender, checkout in checkouts.items():
                    cache = Path(folder) / contender
                    environment = os.environ | {"PYTHONPATH": os.fspath(checkout), "XDG_CACHE_HOME": os.fspath(cache)}
                    command = [sys.executable, __file__, "--worker", name, contender]
                    made = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                    found[contender].append(json.loads(made.stdout))
            cells = (statistics.median(f[what] for f in found[c]) for what in ("run", "call") for c in checkouts)
            print(f"| {name} | " + " | ".join(f"{1e3 * cell:.1f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
