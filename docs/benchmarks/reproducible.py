"""The cost of --reproducible: programs in the ordinary and in the reproducible mode, alternating.

    python docs/benchmarks/reproducible.py [--rounds 5] [--memory 512MiB]

Plans and kernels are prepared first; seconds of the run alone. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import einturnip as et

PROGRAMS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "matrix product": (
        "input A : f32[i, k]\ninput B : f32[k, j]\nC[i,j] = sum[k] A[i,k] * B[k,j]\noutput C",
        {"A": (2048, 2048), "B": (2048, 2048)},
    ),
    "attention": (
        "import std.nn\ninput Q : f32[h, s, d]\ninput K : f32[h, t, d]\ninput V : f32[h, t, e]\n"
        "O[h,s,e] = causal_attention(Q[h,s,d], K[h,t,d], V[h,t,e])\noutput O",
        {"Q": (8, 2048, 64), "K": (8, 2048, 64), "V": (8, 2048, 64)},
    ),
    "softmax": (
        "input X : f32[i, j]\nP[i,j] = exp(X[i,j] - max[j] X[i,j])\nY[i,j] = P[i,j] / sum[j] P[i,j]\noutput Y",
        {"X": (6000, 4000)},
    ),
    "moments": (
        "input X : f64[i, j]\nm[j] = mean[i] X[i,j]\nv[j] = mean[i] (X[i,j] - m[j])^2\ns = sum[i,j] tanh(X[i,j])\n"
        "output m, v, s",
        {"X": (5000, 3000)},
    ),
    "training step": (
        "import std.nn\ninput X : f32[n, d]\ninput Y : f32[n, c]\ninput W : f32[d, h]\ninput U : f32[h, c]\n"
        "H[n,h] = gelu(sum[d] X[n,d] * W[d,h])\nloss = mean[n, c] (sum[h] H[n,h] * U[h,c] - Y[n,c])^2\n"
        "A[d,h] = W[d,h] - 0.1 * grad(loss, W[d,h])\nB[h,c] = U[h,c] - 0.1 * grad(loss, U[h,c])\noutput loss, A, B",
        {"X": (2000, 1000), "Y": (2000, 100), "W": (1000, 1500), "U": (1500, 100)},
    ),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="512MiB")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| program | ordinary, ms | reproducible, ms | ratio |\n|---|---|---|---|")
    for name, (text, shapes) in PROGRAMS.items():
        dtype = np.float64 if "f64" in text else np.float32
        arrays: dict[str, Any] = {n: rng.standard_normal(shape).astype(dtype) / 8 for n, shape in shapes.items()}
        program = et.compile(text)
        modes = [program.plan(memory=given.memory, reproducible=mode, **arrays) for mode in (False, True)]
        seconds: list[list[float]] = [[], []]
        for turn in range(2 + given.rounds):  # the first two compile the kernels
            for mode, plan in enumerate(modes):
                begin = time.perf_counter()
                plan.run()
                seconds[mode] += [time.perf_counter() - begin] if turn >= 2 else []
        plain, same = (statistics.median(found) * 1e3 for found in seconds)
        print(f"| {name} | {plain:.1f} | {same:.1f} | {same / plain:.2f} |", flush=True)


if __name__ == "__main__":
    main()
