"""Calls of std.nn."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sp

from tests.std.harness import Array, Call

rng = np.random.default_rng(11)
X, Y, Z = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4)), 5 * rng.normal(size=(3, 4))
g, b = rng.normal(size=4), rng.normal(size=4)
W, V = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
x = np.linspace(-4, 4, 17)
Q, K, U = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 2))


def mixed(q: Array, k: Array, v: Array, allowed: Any = True) -> Array:
    scores = np.where(allowed, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    return np.asarray(sp.softmax(scores, -1) @ v)


def rotated(x: Array, base: float = 10000.0, start: int = 0) -> Array:
    half = x.shape[-1] // 2
    angle = (start + np.arange(x.shape[-2]))[:, None] * base ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


def nn(equation: str, expected: Any, looser: float = 1, **inputs: Any) -> Call:
    function = equation.split("= ")[1].split("(")[0]
    return Call("nn", function, equation, inputs, {equation.split("[")[0]: expected}, looser)


def normal(x: Array, eps: float = 1e-5) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def square(x: Array, eps: float = 1e-5) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def tanh_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


early, late = np.arange(4)[:, None], np.arange(5)
mask = rng.random((4, 5)) < 0.5
mask[:, 2] = True
H, KV, VV = rng.normal(size=(1, 4, 3, 4)), rng.normal(size=(1, 2, 3, 4)), rng.normal(size=(1, 2, 3, 2))
ids, E, y = rng.integers(9, size=(3, 4)), rng.normal(size=(9, 5)), rng.integers(4, size=3)
target = (rng.random(17) < 0.5).astype(np.float64)

CALLS = [
    nn("Y[i] = gelu_tanh(X[i])", tanh_gelu(x), X=x),
    nn("Y[i] = gelu_quick(X[i])", x * sp.expit(1.702 * x), X=x),
    nn("Y[i] = leaky_relu(X[i])", np.maximum(x, 0.01 * x), X=x),
    nn("Y[i] = leaky_relu(X[i], slope = 0.2)", np.maximum(x, 0.2 * x), X=x),
    nn("Y[i] = elu(X[i])", np.where(x > 0, x, np.exp(x) - 1), X=x),
    nn("Y[i] = elu(X[i], 0.5)", np.where(x > 0, x, (np.exp(x) - 1) / 2), X=x),
    nn("Y[i] = mish(X[i])", x * np.tanh(np.log1p(np.exp(x))), X=x),
    nn("Y[i] = softcap(X[i], 3)", 3 * np.tanh(x / 3), X=x),
    nn("Y[a,b,c] = softmax(X[a,b,c])", sp.softmax(X, -1), X=X),
    nn("Y[a,b] = softmax(X[a,b])", sp.softmax(Z, -1), X=Z),
    nn("Y[i] = softmax(100 * X[i])", sp.softmax(100 * x), X=x, looser=10),
    nn("Y[b,a] = softmax(X[a,b])", sp.softmax(Z, -1).T, X=Z),
    nn("Y[a,b,c] = logsoftmax(X[a,b,c])", sp.log_softmax(X, -1), X=X),
    nn("Y[i] = logsoftmax(100 * X[i])", sp.log_softmax(100 * x), X=x),
    nn("Y[a,b,c] = layernorm(X[a,b,c], g[c], b[c])", normal(X) * g + b, X=X, g=g, b=b),
    nn("Y[c] = layernorm(g[c], g[c], b[c], 0.5)", normal(g, 0.5) * g + b, g=g, b=b),
    nn("Y[s,d] = layernorm(X[s,d] + Z[s,d], g[d], b[d])", normal(X[0] + Z) * g + b, X=X[0], Z=Z, g=g, b=b),
    nn("Y[a,b,c] = rmsnorm(X[a,b,c], g[c])", square(X) * g, X=X, g=g),
    nn("Y[a,b] = rmsnorm(X[a,b], g[b], eps = 0.1)", square(Z, 0.1) * g, X=Z, g=g),
    nn("Y[n,t,e] = linear(X[n,t,d], W[d,e], b[e])", X @ W + b[:3], X=X, W=W, b=b[:3]),
    nn("Y[n,e] = linear(X[n,d], W[d,e], b[e])", Z @ W + b[:3], X=Z, W=W, b=b[:3]),
    nn("Y[n,t,f] = swiglu(X[n,t,d], W[d,f], V[d,f])", X @ W * sp.expit(X @ W) * (X @ V), X=X, W=W, V=V),
    nn("Y[t,f] = geglu(X[t,d], W[d,f], V[d,f])", Z @ W * sp.ndtr(Z @ W) * (Z @ V), X=Z, W=W, V=V),
    nn("Y[b,s,d] = embedding(ids[b,s], E[v,d])", E[ids], ids=ids, E=E),
    nn("Y[s,d] = embedding(ids[s], E[v,d])", E[ids[0]], ids=ids[0], E=E),
    nn("O[h,s,e] = attention(Q[h,s,d], K[h,t,d], V[h,t,e])", mixed(Q, K, U), Q=Q, K=K, V=U),
    nn("O[s,e] = attention(Q[s,d], K[t,d], V[t,e])", mixed(Q[0], K[0], U[0]), Q=Q[0], K=K[0], V=U[0]),
    nn("Y[s,d] = attention(X[s,d], X[s,d], X[s,d])", mixed(X[0], X[0], X[0]), X=X[0]),
    nn(
        "O[h,s,e] = causal_attention(Q[h,s,d], K[h,t,d], V[h,t,e])",
        mixed(Q, K, U, late <= early),
        Q=Q,
        K=K,
        V=U,
    ),
    nn("Y[s,d] = causal_attention(X[s,d], X[s,d], X[s,d])", mixed(X[0], X[0], X[0], np.tri(3) > 0), X=X[0]),
    nn(
        "O[h,s,e] = window_attention(Q[h,s,d], K[h,t,d], V[h,t,e], 2)",
        mixed(Q, K, U, (late <= early) & (late > early - 2)),
        Q=Q,
        K=K,
        V=U,
    ),
    nn(
        "O[h,s,e] = masked_attention(Q[h,s,d], K[h,t,d], V[h,t,e], M[s,t])",
        mixed(Q, K, U, mask),
        Q=Q,
        K=K,
        V=U,
        M=mask,
    ),
    nn(
        "O[b,h,s,e] = grouped_attention(Q[b,h,s,d], K[b,g,t,d], V[b,g,t,e])",
        mixed(H, np.repeat(KV, 2, 1), np.repeat(VV, 2, 1), np.tri(3) > 0),
        Q=H,
        K=KV,
        V=VV,
    ),
    nn("Y[b,h,s,d] = rope(X[b,h,s,d])", rotated(H), X=H),
    nn("Y[s,d] = rope(X[s,d], base = 100, start = 3)", rotated(H[0, 0], 100.0, 3), X=H[0, 0]),
    nn(
        "Y[n] = cross_entropy(Z[n,c], y[n])",
        -np.log(np.take_along_axis(sp.softmax(Z, -1), y[:, None], 1)[:, 0]),
        Z=Z,
        y=y,
    ),
    nn(
        "Y[i] = binary_cross_entropy(X[i], t[i])",
        -(target * np.log(sp.expit(x)) + (1 - target) * np.log(sp.expit(-x))),
        X=x,
        t=target,
    ),
    nn("Y[i] = huber(X[i])", sp.huber(1, x), X=x),
    nn("Y[i] = huber(X[i], 2)", sp.huber(2, x), X=x),
    nn(
        "Y[a,b] = cosine_similarity(X[a,b,d], Y_[a,b,d])",
        (X * Y).sum(-1) / (np.linalg.norm(X, axis=-1) * np.linalg.norm(Y, axis=-1)),
        X=X,
        Y_=Y,
    ),
]
