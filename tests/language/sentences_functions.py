"""Functions, the standard library, loops and hints: programs with what they must give."""

import math

import numpy as np

from einturnip.testing.promotion import name_of
from tests.language.harness import Sentence

X = np.array([[1, 2, 4], [0, -1, 3]], np.float64)
W = np.array([[1, 0], [2, 1], [-1, 3]], np.float64)
B = np.array([10, 20], np.float64)
V = np.array([3, 1, 2], np.float64)
T = np.arange(24, dtype=np.float64).reshape(2, 3, 4) % 5
Q = np.arange(6, dtype=np.float64).reshape(3, 2) % 4
i8 = np.int64


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def fn(says: str, functions: str, lines: str, expected: object, exact: bool = True, **more: object) -> Sentence:
    """Functions, then lines that make Z of X, W, B, V or what else is given."""
    inputs = {"X": X, "W": W, "B": B, "V": V} | more
    declared = "".join(
        f"input {k} : {name_of(np.asarray(v).dtype)}[{', '.join(map(str, np.shape(v)))}]\n"
        for k, v in inputs.items()
        if np.ndim(v)
    )
    return Sentence(says, f"{declared}{functions}\n{lines}\noutput Z\n", {"Z": expected}, inputs, exact=exact)


SOFTMAX = "fn softmax(X[..., j]) = exp(X[..., j] - max[j] X[..., j]) / sum[j] exp(X[..., j] - max[j] X[..., j])"
LAYER = """fn layer(X[s, d], W[d, e], b[e]) {
  H[s, e] = sum[d] X[s, d] * W[d, e] + b[e]
  return gelu(H[s, e])
}"""
ATTENTION = """fn attention(Q[..., s, d], K[..., t, d], V[..., t, e]) {
  S[..., s, t] = sum[d] Q[..., s, d] * K[..., t, d]
  P[..., s, t] = exp(S[..., s, t])
  return sum[t] P[..., s, t] * V[..., t, e] / sum[t] P[..., s, t]
}"""
COV = """fn cov(X[n, d]) {
  m[d] = mean[n] X[n, d]
  C[d, e] = mean[n] (X[n, d] - m[d]) * (X[n, e] - m[e])
  return C[d, e]
}"""
ROWS = "fn rows(A[i, j]) = sum[j] A[i, j]"
BOTH = """fn both(A[i, j]) {
  return A[i, j] * 2, sum[j] A[i, j]
}"""
SWISH = "fn swish(x) = x * sigmoid(x)"
DOUBLE = "fn double(A[...]) = 2 * A[...]"
PLAIN = np.exp(X @ X.T)

FUNCTIONS = [
    fn("the last axis is j, the rest is '...'", SOFTMAX, "Z[b,h,s] = softmax(T[b,h,s])", softmax(T), False, T=T),
    fn("'...' may be nothing", SOFTMAX, "Z[s] = softmax(V[s])", softmax(V), False),
    fn("and the caller writes any labels", SOFTMAX, "Z[j,i] = softmax(X[i,j])", softmax(X).T, False),
    fn("a block of statements", LAYER, "Z[s,e] = layer(X[s,d], W[d,e], B[e])", gelu(X @ W + B), False),
    fn("under other labels", LAYER, "Z[b,a] = layer(X[a,i], W[i,b], B[b])", gelu(X @ W + B).T, False),
    fn("an argument may be any expression", SOFTMAX, "Z[i,j] = softmax(2 * X[i,j] - V[j])", softmax(2 * X - V), False),
    fn(
        "its labels count in the order its accesses show them",
        SOFTMAX,
        "Z[s,t] = softmax(where(t <= s, Q[s,t], -inf))",
        softmax(np.where(np.arange(2) <= np.arange(3)[:, None], Q, -np.inf)),
        False,
        Q=Q,
    ),
    fn(
        "a label the function consumes is bound by it",
        ROWS,
        "Z[i,j] = X[i,j] - rows(X[i,j])",
        X - X.sum(1, keepdims=True),
    ),
    fn(
        "a call stands anywhere in an expression",
        ROWS,
        "Z = max[i] rows(X[i,j]) * rows(X[i,k])",
        np.float64((X.sum(1) ** 2).max()),
    ),
    fn("calls nest", ROWS + "\n" + DOUBLE, "Z[i] = rows(double(X[i,j]))", 2 * X.sum(1)),
    fn(
        "attention(X[s,d], X[s,d], X[s,d]) takes no diagonal",
        ATTENTION,
        "Z[s,d] = attention(X[s,d], X[s,d], X[s,d])",
        PLAIN @ X / PLAIN.sum(1, keepdims=True),
        False,
    ),
    fn(
        "a label it makes takes the next on the left: C[d,e] = cov(X[n,d])",
        COV,
        "Z[d,e] = cov(X[n,d])",
        np.cov(X.T, bias=True),
        False,
    ),
    fn("whatever its name", COV, "Z[p,q] = cov(X[n,p])", np.cov(X.T, bias=True), False),
    fn(
        "its parameters' labels are its dims",
        "fn scaled(A[i, j]) {\n  size = sqrt(j * j)\n  return A[i, j] / size\n}",
        "Z[i,j] = scaled(X[i,j])",
        X / 3,
    ),
    fn(
        "and sizes of what it defines",
        "fn pad(A[i]) {\n  Y[j: i + 1] = A[j ? 0]\n  return Y[j]\n}",
        "Z[k] = pad(V[i])",
        np.array([3, 1, 2, 0.0]),
    ),
    fn(
        "a dim outside with that name is none of its",
        "dim d = 3\nfn second(A[d]) = d + 0 * A[0]",
        "Z = second(B[i])",
        np.float64(2),
    ),
    fn("a scalar parameter takes labels point by point", SWISH, "Z[i] = swish(V[i])", V / (1 + np.exp(-V)), False),
    fn("of any expression", SWISH, "Z[i,j] = swish(X[i,j] * V[j])", X * V / (1 + np.exp(-X * V)), False),
    fn("scalars may have defaults", "fn f(x, eps = 0.5) = x + eps", "Z[i] = f(V[i])", V + 0.5),
    fn("and be passed by name", "fn f(x, a = 1, b = 2) = a * x + b", "Z[i] = f(V[i], b = 10)", V + 10),
    fn("or by place", "fn f(x, a = 1, b = 2) = a * x + b", "Z[i] = f(V[i], 3)", 3 * V + 2),
    fn("every argument may be named", "fn f(x, a) = a * x", "Z[i] = f(a = 3, x = V[i])", 3 * V),
    fn("a default may be a size's arithmetic", "fn f(x, a = 1 / 4) = a * x", "Z[i] = f(V[i])", V / 4),
    fn("a label ranges over an argument that is never read", "fn one(x) = 1", "Z[i] = one(V[i])", np.ones(3, i8)),
    fn("a scalar varies along with a tensor", "fn f(A[j], a) = a * A[j]", "Z[i,j] = f(V[j], B[i])", np.outer(B, V)),
    fn(
        "given a literal, a scalar is a size",
        "fn first(A[i], k) {\n  Y[j: k] = A[j]\n  return Y[j]\n}",
        "Z[a] = first(V[i], 2)",
        V[:2],
    ),
    fn("given a size, a scalar is a size", "dim n = 2\nfn at(A[i], k) = A[k]", "Z = at(V[i], n)", np.float64(2)),
    fn(
        "literals in a scalar keep dtypes weak",
        "fn f(x, a) = a * x",
        "Z[i] = f(K[i], 2)",
        np.array([2, 4], np.float32),
        K=np.array([1, 2], np.float32),
    ),
    fn(
        "several tensors are returned",
        BOTH,
        "A[i,j], b[i] = both(X[i,j])\nZ[i,j] = A[i,j] + b[i]",
        2 * X + X.sum(1, keepdims=True),
    ),
    fn(
        "each under its own labels",
        BOTH,
        "A[j,i], b[i] = both(X[i,j])\nZ[j,i] = A[j,i] + b[i]",
        (2 * X + X.sum(1, keepdims=True)).T,
    ),
    fn(
        "all targets read what was there before",
        BOTH,
        "X[i,j], V[i] = both(X[i,j])\nZ[i] = X[i,0] + V[i]",
        2 * X[:, 0] + X.sum(1),
    ),
    fn(
        "a function's names are its own",
        "fn f(A[i]) {\n  V[i] = A[i] + 1\n  return V[i]\n}",
        "Z[i] = f(V[i]) + V[i]",
        2 * V + 1,
    ),
    fn("and so are its labels", "fn f(A[i]) = A[i] * sum[j] A[j]", "Z[i,j] = f(V[j]) + B[i]", V * V.sum() + B[:, None]),
    fn(
        "a function calls earlier functions",
        ROWS + "\nfn mean2(A[i, j]) = rows(A[i, j]) / j",
        "Z[i] = mean2(X[i,j])",
        X.sum(1) / 3,
        False,
    ),
    fn(
        "loops in functions",
        "fn power(A[i], k) {\n  P[i] = A[i]\n  for t in 1 .. k {\n    P[i] = P[i] * A[i]\n  }\n  return P[i]\n}",
        "Z[i] = power(V[i], 4)",
        V**4,
    ),
    fn("return implies no sum", "fn total(A[i]) {\n  return sum[i] A[i]\n}", "Z = total(V[i])", np.float64(6)),
    fn(
        "indices in a function",
        "fn diff(A[i]) {\n  D[j: i-1] = A[j+1] - A[j]\n  return D[j]\n}",
        "Z[k] = diff(V[i])",
        np.diff(V),
    ),
    fn(
        "dtypes follow the arguments",
        "fn half(A[i]) = A[i] / 2",
        "Z[i] = half(K[i])",
        np.array([0.5, 1]),
        K=np.array([1, 2]),
    ),
]


def std(says: str, line: str, expected: object, **inputs: object) -> Sentence:
    """A line that uses std.nn."""
    declared = "".join(f"input {k} : f64[{', '.join(map(str, np.shape(v)))}]\n" for k, v in inputs.items())
    return Sentence(says, f"import std.nn\n{declared}{line}\noutput Z\n", {"Z": expected}, inputs, exact=False)


def normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


QKV = {"Q": T, "K": T * 0.5, "V": T - 1}

STANDARD = [
    std("softmax(X[..., j])", "Z[a,b,c] = softmax(T[a,b,c])", softmax(T), T=T),
    std(
        "rmsnorm(X[..., d], g[d], eps = 1e-5)",
        "Z[s,d] = rmsnorm(X[s,d], V[d])",
        X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-5) * V,
        X=X,
        V=V,
    ),
    std(
        "with another eps",
        "Z[s,d] = rmsnorm(X[s,d], V[d], eps = 1)",
        X / np.sqrt((X**2).mean(1, keepdims=True) + 1) * V,
        X=X,
        V=V,
    ),
    std(
        "layernorm(X[..., d], g[d], b[d], eps = 1e-5)",
        "Z[s,d] = layernorm(X[s,d], V[d], V[d])",
        normalised(X) * V + V,
        X=X,
        V=V,
    ),
    std(
        "attention(Q[..., s, d], K[..., t, d], V[..., t, e])",
        "Z[h,s,e] = attention(Q[h,s,d], K[h,t,d], V[h,t,e])",
        attention(**{k.lower(): v for k, v in QKV.items()}),
        **QKV,
    ),
    std(
        "causal_attention (t <= s) likewise",
        "Z[h,s,e] = causal_attention(Q[h,s,d], K[h,t,d], V[h,t,e])",
        attention(T, T * 0.5, T - 1, True),
        **QKV,
    ),
]


def loop(says: str, lines: str, expected: object, **dims: int) -> Sentence:
    """Lines that make Z of X and V."""
    text = f"input X : f64[2, 3]\ninput V : f64[3]\n{lines}\noutput Z\n"
    return Sentence(says, text, {"Z": expected}, {"X": X, "V": V}, dims)


STEPPED = np.zeros((4, 3))
for _t in range(4):
    STEPPED[_t] = V * (_t + 1)

LOOPS = [
    loop("rebinding makes a new version", "for l in 0 .. 3 {\n  V[i] = V[i] * 2\n}\nZ[i] = V[i]", V * 8),
    loop("0 .. L is half-open", "dim L = 2\nZ = 0\nfor l in 0 .. L {\n  Z = Z + 1\n}", i8(2)),
    loop("from another start", "Z = 0\nfor l in 2 .. 5 {\n  Z = Z * 10 + l\n}", i8(234)),
    loop("none at all", "Z = 7\nfor l in 2 .. 2 {\n  Z = 0\n}", i8(7)),
    loop("bounds are sizes", "dim n\nZ = 0\nfor l in n - 1 .. 2 * n {\n  Z = Z + l\n}", i8(2 + 3 + 4 + 5), n=3),
    loop("l is a number", "for l in 1 .. 3 {\n  V[i] = V[i] * l + l\n}\nZ[i] = V[i]", (V + 1) * 2 + 2),
    loop("l is an index", "Z[j] = V[j]\nfor l in 0 .. 2 {\n  Z[j] = Z[j] + X[l, j]\n}", V + X.sum(0)),
    loop("l in index arithmetic", "Z[j: 2] = 0.0\nfor l in 0 .. 2 {\n  Z[j] = Z[j] + V[j + l]\n}", np.array([4, 3.0])),
    loop(
        "l is a size",
        "Z = 0.0\nfor l in 0 .. 4 {\n  Z = Z * 10 + sum[i: l] V[i]\n}",
        np.float64(((0 * 10 + 3) * 10 + 4) * 10 + 6),
    ),
    loop(
        "H[t, d] = h[d]",
        "H[t: 4, d: 3] = 0.0\nfor t in 0 .. 4 {\n  h[d] = V[d] * (t + 1)\n  H[t, d] = h[d]\n}\nZ[t, d] = H[t, d]",
        STEPPED,
    ),
    loop(
        "a slice may read the slice before",
        "H[t: 4, d: 3] = 0.0\nH[0, d] = V[d]\nfor t in 1 .. 4 {\n  H[t, d] = H[t - 1, d] * 2\n}\nZ[t, d] = H[t, d]",
        np.stack([V * 2**t for t in range(4)]),
    ),
    loop("loops nest", "Z = 0\nfor a in 0 .. 3 {\n  for b in 0 .. a {\n    Z = Z + a * b\n  }\n}", i8(2 * 1)),
    loop(
        "what a loop defines is its own",
        "t[i] = V[i]\nfor l in 0 .. 2 {\n  u[i] = t[i] + l\n  t[i] = u[i]\n}\nZ[i] = t[i]",
        V + 1,
    ),
    loop(
        "several names are carried", "a = 1\nb = 1\nfor l in 0 .. 5 {\n  c = a + b\n  a = b\n  b = c\n}\nZ = b", i8(13)
    ),
    loop("a dtype from literals alone may give way", "Z = 0\nfor l in 0 .. 3 {\n  Z = Z + V[l]\n}", np.float64(6)),
    loop("of a tensor too", "Z[j: 3] = 0\nfor l in 0 .. 2 {\n  Z[j] = Z[j] + X[l, j]\n}", X.sum(0)),
    loop("even where nothing is done", "Z = 1\nfor l in 0 .. 0 {\n  Z = Z + V[0]\n}", np.float64(1)),
    loop(
        "functions in loops",
        "fn step(A[i], k) = A[i] * k\nfor l in 1 .. 4 {\n  V[i] = step(V[i], l)\n}\nZ[i] = V[i]",
        V * 6,
    ),
    loop("a block in a line", "for l in 0 .. 2 { V[i] = V[i] + 1 }\nZ[i] = V[i]", V + 2),
    Sentence(
        "a loop keeps i8",
        "input K : i8[n]\nfor l in 0 .. 9 {\n  K[i] = K[i] * 3\n}\noutput K\n",
        {"K": np.array([3**9 % 256 - 256 * (3**9 % 256 > 127)], np.int8)},
        {"K": np.array([1], np.int8)},
    ),
]

HINTED = "input X : f64[2, 3]\n{}\nZ[i,j] = X[i,j] * 2\noutput Z\n"
HINTS = [
    Sentence(f"hints never change results: {hint}", HINTED.format(hint), {"Z": 2 * X}, {"X": X})
    for hint in (
        "@tile(i = 1)",
        "@tile(i = 1, j = 2 parts)",
        "@tile(j = 3 parts)",
        "@keep",
        "@recompute",
        "@keep\n@tile(i = 2)",
    )
] + [
    Sentence(
        "a hint before a statement in its line",
        HINTED.replace("\nZ", " Z").format("@tile(i = 1)"),
        {"Z": 2 * X},
        {"X": X},
    )
]
