"""Calls of std.image."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.ndimage as nd
from scipy.signal import correlate2d

from tests.std.harness import Array, Call

rng = np.random.default_rng(16)
X = rng.normal(size=(2, 2, 6, 7))
W, W5 = rng.normal(size=(2, 2, 3, 3)), rng.normal(size=(2, 2, 5, 2))
T = rng.normal(size=(2, 3, 2, 2))
Z, w = X[0, 0], rng.normal(size=(3, 3))


def convolved(x: Array, kernels: Array, mode: str) -> Array:
    """[c, y, x] with [o, c, p, q]."""
    return np.stack([sum(correlate2d(a, b, mode) for a, b in zip(x, kernel, strict=True)) for kernel in kernels])


def image(equation: str, expected: Any, looser: float = 1, **inputs: Any) -> Call:
    function = equation.split("= ")[1].split("(")[0]
    return Call("image", function, equation, inputs, {equation.split("=")[0].split("[")[0].strip(): expected}, looser)


valid = np.stack([convolved(x, W, "valid") for x in X])
spread = np.zeros((2, 2, 5, 5))  # W with holes
spread[:, :, ::2, ::2] = W
padded = np.pad(X[0], ((0, 0), (2, 2), (0, 1)))

CALLS = [
    image("P[c,i,j] = pad2d(X[c,y,x], 2)", np.pad(X[0], ((0, 0), (2, 2), (2, 2))), X=X[0]),
    image("P[i,j] = pad2d(X[y,x], 1, value = 5)", np.pad(Z, 1, constant_values=5), X=Z),
    image("Y[n,o,i,j] = conv2d(X[n,c,y,x], W[o,c,p,q])", valid, X=X, W=W),
    image("Y[o,i,j] = conv2d(X[c,y,x], W[o,c,p,q])", valid[0], X=X[0], W=W),
    image("Y[n,o,i,j] = conv2d(X[n,c,y,x], W[o,c,p,q], stride = 2)", valid[:, :, ::2, ::2], X=X, W=W),
    image(
        "Y[o,i,j] = conv2d(X[c,y,x], W[o,c,p,q], dilation = 2)",
        convolved(X[0], spread, "valid"),
        X=X[0],
        W=W,
    ),
    image("Y[o,y,x] = conv2d_same(X[c,y,x], W[o,c,p,q])", convolved(X[0], W, "same"), X=X[0], W=W),
    image("Y[o,y,x] = conv2d_same(X[c,y,x], W[o,c,p,q])", convolved(padded, W5, "valid"), X=X[0], W=W5),
    image("Y[c,i,j] = filter2d(X[c,i,j], w[p,q])", [correlate2d(x, w, "same") for x in X[0]], X=X[0], w=w),
    image("Y[c,i,j] = max_pool2d(X[c,y,x])", X[0, :, :, :6].reshape(2, 3, 2, 3, 2).max((2, 4)), X=X[0]),
    image("Y[i,j] = max_pool2d(X[y,x], size = 3)", Z[:6, :6].reshape(2, 3, 2, 3).max((1, 3)), X=Z),
    image("Y[c,i,j] = mean_pool2d(X[c,y,x])", X[0, :, :, :6].reshape(2, 3, 2, 3, 2).mean((2, 4)), X=X[0]),
    image("Y[i,j] = upsample2d(X[y,x])", np.kron(Z, np.ones((2, 2))), X=Z),
    image("Y[c,i,j] = upsample2d(X[c,y,x], 3)", np.kron(X[0, :, :3], np.ones((1, 3, 3))), X=X[0, :, :3].copy()),
    image("Y[i,j] = blur(X[i,j], 1.5, 3)", nd.gaussian_filter(Z, 1.5, mode="constant", radius=3), X=Z),
    image("Y[i,j] = sobel(X[y,x])", np.hypot(nd.sobel(Z, 0), nd.sobel(Z, 1))[1:-1, 1:-1], X=Z),
    image("Y[n,y,x] = luma(X[n,c,y,x])", np.tensordot(T, [0.299, 0.587, 0.114], (1, 0)), X=T),
]
