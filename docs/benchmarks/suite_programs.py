"""Forty programs to compare predicted with measured times.

They were listed before any model was fitted to them; some were enlarged later, to take at least half a second. Each is
a program, the files of its inputs and an arena. At least twenty run out of core: their data exceed the arena. Inputs
come from a pool of files that are created once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# File: element type and shape. Integer files contain indices; the number after the shape is the size of their axis.
POOL: dict[str, tuple[str, tuple[int, ...], int]] = {
    "a6k": ("f4", (6144, 6144), 0),
    "b6k": ("f4", (6144, 6144), 0),
    "a10k": ("f4", (10240, 10240), 0),
    "a17k": ("f4", (16896, 16896), 0),
    "a20k": ("f4", (20480, 20480), 0),
    "b20k": ("f4", (20480, 20480), 0),
    "d4k": ("f8", (4096, 4096), 0),
    "e4k": ("f8", (4096, 4096), 0),
    "c3k": ("c8", (3072, 3072), 0),
    "f3k": ("c8", (3072, 3072), 0),
    "z2k": ("c16", (2048, 2048), 0),
    "h4k": ("f2", (4096, 4096), 0),
    "g4k": ("f2", (4096, 4096), 0),
    "tall": ("f4", (1 << 22, 64), 0),
    "four": ("f4", (80, 80, 80, 80), 0),
    "five": ("f4", (80, 80, 80, 80), 0),
    "cube720": ("f4", (720, 720, 720), 0),
    "r720": ("f4", (720, 96), 0),
    "image": ("f4", (176, 16, 192, 192), 0),
    "kernels": ("f4", (32, 16, 3, 3), 0),
    "table": ("f4", (200_000, 256), 0),
    "ids": ("i4", (400_000,), 200_000),
    "keys": ("i4", (1 << 22,), 5000),
    "queries": ("f4", (10, 8192, 64), 0),
    "keyed": ("f4", (10, 8192, 64), 0),
    "values": ("f4", (10, 8192, 64), 0),
    "points": ("f4", (200_000, 64), 0),
    "centres": ("f4", (8000, 64), 0),
    "graph": ("f4", (3072, 3072), 0),
    "long": ("f8", (5 << 24,), 0),
    "edges_from": ("i4", (8_000_000,), 100_000),
    "edges_to": ("i4", (8_000_000,), 100_000),
    "gain": ("f4", (20480,), 0),
    "start": ("f4", (10240,), 0),
}


@dataclass(frozen=True)
class Case:
    """A program; ``files`` by input; ``arena`` in MiB; ``spills``: its data are larger than that."""

    name: str
    text: str
    files: dict[str, str]
    arena: int
    spills: bool
    dims: dict[str, int] = field(default_factory=dict)


def _both(name: str, text: str, files: dict[str, str], large: int, small: int, **dims: int) -> list[Case]:
    """The program in core and out of core."""
    within = Case(name, text, files, large, False, dims)
    return [within, Case(f"{name}, out of core", text, files, small, True, dims)]


def _mul(dtype: str) -> str:
    return f"input A : {dtype}[m,k]\ninput B : {dtype}[k,n]\nC[i,j] = sum[p] A[i,p] * B[p,j]\noutput C\n"


_MAP2 = "input A : f32[m,n]\ninput B : f32[m,n]\nC[i,j] = {}\noutput C\n"
_SOFTMAX = "import std.nn\ninput X : f32[n,m]\ninput B : f32[n,m]\nP[i,j] = softmax(X[i,j] + B[i,j])\noutput P\n"
_NORM = (
    "import std.nn\ninput X : f32[n,m]\ninput R : f32[n,m]\ninput g : f32[m]\n"
    "Y[i,j] = layernorm(X[i,j] + R[i,j], g[j], g[j])\noutput Y\n"
)
_ATTENTION = "import std.nn\n" + "".join(f"input {x} : f32[h,s,d]\n" for x in "QKV")
_FULL = _ATTENTION + "O[h,s,d] = attention(Q[h,s,d], K[h,s,d], V[h,s,d])\noutput O\n"
_CAUSAL = _ATTENTION + "O[h,s,d] = causal_attention(Q[h,s,d], K[h,s,d], V[h,s,d])\noutput O\n"
_HEAT = """dim steps
input U : f64[y, x]
for step in 0 .. steps {
  U[y,x] = U[y,x] + 0.2 * (U[y-1 ? 0, x] + U[y+1 ? 0, x] + U[y, x-1 ? 0] + U[y, x+1 ? 0] - 4 * U[y,x])
}
output U
"""
_POWER = """dim steps
input A : f32[n, n]
input x : f32[n]
for step in 0 .. steps {
  y[i] = sum[j] A[i,j] * x[j]
  x[i] = y[i] / sqrt(sum[i] y[i]^2)
}
output x
"""
_CHAIN = "input A : f64[n,n]\ninput B : f64[n,n]\nC[i,j] = A[i,k] * B[k,j]\nD[i,j] = tanh(C[i,j]) * A[j,i]\noutput D\n"
_NEAREST = "input X : f32[n,d]\ninput Y : f32[m,d]\nnear[i] = argmin[j] sum[d] (X[i,d] - Y[j,d])^2\noutput near\n"
_CONVOLVE = """input X : f32[b,c,h,w]
input W : f32[o,c,3,3]
Y[b,o,i: h,j: w] = sum[c,p,q] X[b, c, i + p - 1 ? 0, j + q - 1 ? 0] * W[o,c,p,q]
output Y
"""
_EMBED = "input T : f32[v,d]\ninput ids : i32[n]\nY[n,d] = T[ids[n], d] * 0.5\noutput Y\n"
_GROUP = """dim groups
input X : f32[n,d]
input k : i32[n]
S[k[n]: groups, d] = sum[n] X[n,d]
Q[k[n]: groups, d] = sum[n] X[n,d]^2
M[k[n]: groups, d] = max[n] X[n,d]
output S, Q, M
"""
_COVARIANCE = "import std.stats\ninput X : f32[n,d]\nC[a,b] = covariance(X[n,a])\noutput C\n"
_FOUR = "input A : f32[a,b,c,d]\ninput B : f32[d,c,e,f]\nC[a,b,e,f] = A[a,b,c,d] * B[d,c,e,f]\noutput C\n"
_MTTKRP = """input X : f32[i,j,k]
input B : f32[j,r]
input C : f32[k,r]
M[i,r] = X[i,j,k] * B[j,r] * C[k,r]
output M
"""
_PAGERANK = """dim n, steps
input src : i32[m]
input dst : i32[m]
degree[src[e]: n] = sum[e] 1
x[i: n] = 1 / n
for t in 0 .. steps {
  flow[e] = x[src[e]] / degree[src[e]]
  got[dst[e]: n] = sum[e] flow[e]
  x[i] = 0.15 / n + 0.85 * got[i]
}
output x
"""
SUITE: tuple[Case, ...] = (
    *_both("matmul f32", _mul("f32"), {"A": "a6k", "B": "b6k"}, 1024, 64),
    *_both("matmul f64", _mul("f64"), {"A": "d4k", "B": "e4k"}, 1024, 48),
    *_both("matmul c64", _mul("c64"), {"A": "c3k", "B": "f3k"}, 1024, 40),
    Case("matmul c128", _mul("c128"), {"A": "z2k", "B": "z2k"}, 512, False),
    Case("matmul f16", _mul("f16"), {"A": "h4k", "B": "g4k"}, 512, False),
    Case("matmul f32 at 1/27", _mul("f32"), {"A": "a6k", "B": "b6k"}, 16, True),
    Case(
        "transposed product, out of core",
        "input A : f32[k,m]\ninput B : f32[k,n]\nC[i,j] = A[p,i] * B[p,j]\noutput C\n",
        {"A": "a6k", "B": "b6k"},
        48,
        True,
    ),
    *_both("four-index contraction", _FOUR, {"A": "four", "B": "five"}, 1024, 64),
    *_both("mttkrp", _MTTKRP, {"X": "cube720", "B": "r720", "C": "r720"}, 2048, 32),
    Case("product, then a map", _CHAIN, {"A": "d4k", "B": "e4k"}, 64, True),
    *_both("a b + 1", _MAP2.format("A[i,j] * B[i,j] + 1"), {"A": "a20k", "B": "b20k"}, 5120, 32),
    *_both("geglu", _MAP2.format("gelu(A[i,j]) * B[i,j]"), {"A": "a20k", "B": "b20k"}, 5120, 32),
    Case(
        "sin, exp, sqrt in f64",
        "input x : f64[n]\ny[i] = sin(x[i]) * exp(-x[i]^2) + sqrt(abs(x[i]))\noutput y\n",
        {"x": "long"},
        1536,
        False,
    ),
    *_both("softmax of a sum", _SOFTMAX, {"X": "a20k", "B": "b20k"}, 5120, 24),
    *_both("layernorm of a sum", _NORM, {"X": "a20k", "R": "b20k", "g": "gain"}, 5120, 48),
    *_both("transpose", "input A : f32[m,n]\nT[j,i] = A[i,j]\noutput T\n", {"A": "a17k"}, 2560, 64),
    Case(
        "column means of two, out of core",
        "input A : f32[m,n]\ninput B : f32[m,n]\n"
        "M[j] = mean[i] A[i,j]\nN[j] = mean[i] B[i,j]\n"
        "V[j] = mean[i] (A[i,j] - M[j])^2\nW[j] = mean[i] (B[i,j] - N[j])^2\noutput M, N, V, W\n",
        {"A": "a20k", "B": "b20k"},
        32,
        True,
    ),
    *_both("heat", _HEAT, {"U": "d4k"}, 1024, 48, steps=4),
    Case("convolution, out of core", _CONVOLVE, {"X": "image", "W": "kernels"}, 24, True),
    Case("gather of rows, out of core", _EMBED, {"T": "table", "ids": "ids"}, 96, True),
    *_both("sums, squares and maxima by key", _GROUP, {"X": "tall", "k": "keys"}, 1280, 32, groups=5000),
    Case("covariance, out of core", _COVARIANCE, {"X": "tall"}, 24, True),
    Case("nearest of 8,000", _NEAREST, {"X": "points", "Y": "centres"}, 256, False),
    Case("attention, out of core", _FULL, {"Q": "queries", "K": "keyed", "V": "values"}, 12, True),
    Case("causal attention", _CAUSAL, {"Q": "queries", "K": "keyed", "V": "values"}, 256, False),
    Case(
        "min-plus square",
        "input D : f32[n,n]\nE[i,j] = min[k] (D[i,k] + D[k,j])\noutput E\n",
        {"D": "graph"},
        64,
        False,
    ),
    Case("power iteration, out of core", _POWER, {"A": "a10k", "x": "start"}, 64, True, {"steps": 8}),
    Case("pagerank", _PAGERANK, {"src": "edges_from", "dst": "edges_to"}, 512, False, {"n": 100_000, "steps": 8}),
)
