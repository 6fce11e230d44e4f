"""Gradients through the whole row: planned, cut and spilled as any program."""

from __future__ import annotations

import numpy as np
import pytest

import einturnip as et

LAYERS = """
input X : f32[n, d]
input W : f32[l, d, d]
H[n,e] = X[n,e]
for k in 0 .. 3 {
  H[n,e] = relu(sum[d: 96] H[n,d] * W[k,d,e])
}
loss = sum[n,e] H[n,e]
gW[l,d,e] = grad(loss, W[l,d,e])
gX[n,d] = grad(loss, X[n,d])
output loss, gW, gX
"""


def _by_hand(X: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept, H = [], X
    for w in W:
        kept.append(H)
        H = np.maximum(H @ w, 0)
    back, gW = np.ones_like(H), np.zeros_like(W)
    for k in reversed(range(len(W))):
        back = back * (kept[k] @ W[k] > 0)
        gW[k] = kept[k].T @ back
        back = back @ W[k].T
    return gW, back


@pytest.mark.parametrize("arena", ["64MiB", "256KiB"])
def test_layers_at_full_and_at_little_memory(arena: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 2, (80, 96)).astype(np.float32)
    W = (rng.integers(-1, 2, (3, 96, 96)) * (rng.random((3, 96, 96)) < 0.05)).astype(np.float32)
    result = et.compile(LAYERS)(X=X, W=W, arena=arena)
    gW, gX = _by_hand(X, W)
    assert (result["gW"] == gW).all() and (result["gX"] == gX).all()
    if arena == "256KiB":
        assert result.report.ops.get("offload", 0) > 0
