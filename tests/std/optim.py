"""Calls of std.optim."""

from __future__ import annotations

import math

import numpy as np

from tests.std.harness import Call

rng = np.random.default_rng(16)
W, G, M = rng.normal(size=(3, 4, 5))
V = rng.random((4, 5))
WG, WGM = {"W": W, "G": G}, {"W": W, "G": G, "M": M}
k = np.array(3.0)
m1, v1 = 0.9 * M + 0.1 * G, 0.999 * V + 0.001 * G * G
stepped = W * (1 - 0.02 * 0.01) - 0.02 * (m1 / (1 - 0.9**4)) / (np.sqrt(v1 / (1 - 0.999**4)) + 1e-8)
turned = 0.9 * M + (G + 0.1 * W)
ADAMW = "R[i,j], m[i,j], v[i,j] = adamw(W[i,j], G[i,j], M[i,j], V[i,j], k, 0.02)"


def schedule(function: str, arguments: str, expected: float) -> Call:
    return Call(
        "optim",
        function,
        f"r = {function}({arguments}) + 0 * z",
        {"k": k, "z": np.array(0.0)},
        {"r": np.array(expected)},
    )


CALLS = [
    Call("optim", "sgd", "R[i,j] = sgd(W[i,j], G[i,j], 0.1, decay = 0.2)", WG, {"R": W - 0.1 * (G + 0.2 * W)}),
    Call(
        "optim",
        "momentum",
        "R[i,j], m[i,j] = momentum(W[i,j], G[i,j], M[i,j], 0.3, decay = 0.1)",
        WGM,
        {"R": W - 0.3 * turned, "m": turned},
    ),
    Call(
        "optim",
        "nesterov",
        "R[i,j], m[i,j] = nesterov(W[i,j], G[i,j], M[i,j], 0.3, decay = 0.1)",
        WGM,
        {"R": W - 0.3 * (G + 0.1 * W + 0.9 * turned), "m": turned},
    ),
    Call("optim", "adamw", ADAMW, {**WGM, "V": V, "k": k}, {"R": stepped, "m": m1, "v": v1}, looser=100),
    schedule("warmup", "k, 0.3, 8", 0.15),
    schedule("cosine", "k, 0.3, 8, 0.1", 0.1 + 0.1 * (1 + math.cos(math.pi * 3 / 8))),
    schedule("warmup_cosine", "k, 0.3, 2, 8, 0.1", 0.1 + 0.1 * (1 + math.cos(math.pi / 6))),
    schedule("linear", "k, 0.3, 8, 0.1", 0.225),
    schedule("step_decay", "k, 0.3, 2", 0.03),
    Call(
        "optim",
        "clip_norm",
        "r = clip_norm(sum[i,j] G[i,j]^2, 2.0)",
        {"G": G},
        {"r": np.array(min(1, 2 / (np.linalg.norm(G) + 1e-6)))},
    ),
]
