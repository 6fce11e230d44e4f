"""Overhead of a session's step: the digits' classifier, and a state of 100 MB.

    python docs/benchmarks/steps.py [--steps 300]

Medians over the steps after the first tenth, with NumPy's time for the same step. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import einturnip as et

DIGITS = Path(__file__).parents[1] / "examples/training/digits.ein"
LARGE = "state W : f32[n]\ninput g : f32[n]\ninput lr : f32\nW[i] <- W[i] - lr * g[i]\n"


def median(step: Callable[[], object], steps: int) -> float:
    """Milliseconds per step."""
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[steps // 10 :]) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    rng = np.random.default_rng(0)
    X, y = rng.random((128, 64), np.float32), rng.integers(0, 10, 128)
    first = {"W1": rng.standard_normal((64, 96), np.float32) / 8, "W2": rng.standard_normal((96, 10), np.float32) / 8}
    print("| step | ms |\n|---|---|")
    for mode in (False, True):
        with et.compile(DIGITS).session(**first, memory="256MiB", reproducible=mode) as session:
            told = ", reproducible" if mode else ""
            print(f"| digits.ein, a batch of 128{told} | {median(lambda: session.step(X=X, y=y), steps):.2f} |")
            told = "progress shown, by threads" + told
            by_threads = lambda: session.step(X=X, y=y, progress=lambda _: None)  # noqa: E731
            print(f"| the same, {told} | {median(by_threads, steps // 3):.2f} |")
    W, g = np.zeros(25_000_000, np.float32), rng.standard_normal(25_000_000, np.float32)
    with et.compile(LARGE).session(W=W, lr=0.1, memory="1GiB") as session:
        print(f"| W <- W - lr g, 100 MB each | {median(lambda: session.step(g=g), max(10, steps // 10)):.1f} |")
    scaled = np.empty_like(g)

    def by_numpy() -> None:
        np.multiply(g, np.float32(0.1), out=scaled)
        np.subtract(W, scaled, out=W)

    print(f"| the same in NumPy, one thread | {median(by_numpy, max(10, steps // 10)):.1f} |")


if __name__ == "__main__":
    main()
