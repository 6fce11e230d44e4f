"""Forty programs of another kind than those of suite_programs.py: loops, gathers and scatters, stencils, networks.

No price was fitted to them. ``suite.py --suite loops`` runs them.
"""

from __future__ import annotations

from suite_programs import Case

FILES: dict[str, tuple[str, tuple[int, ...], int]] = {
    "l-seq": ("f4", (32, 1000, 64), 0),
    "l-w": ("f4", (512, 64), 0),
    "l-u": ("f4", (512, 128), 0),
    "l-bias": ("f4", (512,), 0),
    "l-x3": ("f8", (1024, 3), 0),
    "l-m": ("f8", (1024,), 0),
    "l-cube": ("f8", (96, 160, 160), 0),
    "l-square": ("f4", (2048, 2048), 0),
    "l-small": ("f8", (16, 16), 0),
    "l-tiny": ("f8", (16,), 0),
    "l-mid": ("f4", (512, 512), 0),
    "l-rows": ("f4", (1 << 18, 64), 0),
    "l-label": ("f4", (1 << 18,), 0),
    "l-line": ("f8", (1 << 21,), 0),
    "l-wide": ("f8", (3072, 3072), 0),
    "l-right": ("f8", (3072,), 0),
    "l-centres": ("f4", (32, 64), 0),
    "l-from": ("i4", (4_000_000,), 400_000),
    "l-to": ("i4", (4_000_000,), 400_000),
    "l-value": ("f8", (4_000_000,), 0),
    "l-table": ("f8", (400_000,), 0),
    "l-features": ("f4", (400_000, 32), 0),
    "l-few": ("i4", (4_000_000,), 64),
    "l-pair": ("i4", (4_000_000,), 2048),
    "l-picture": ("f4", (8192, 8192), 0),
    "l-volume": ("f4", (256, 512, 512), 0),
    "l-signal": ("f4", (1 << 25,), 0),
    "l-taps": ("f4", (9,), 0),
    "l-batch": ("f4", (16384, 1024), 0),
    "l-layer": ("f4", (1024, 1024), 0),
    "l-gain": ("f4", (1024,), 0),
    "l-images": ("f4", (64, 32, 64, 64), 0),
    "l-filters": ("f4", (64, 32, 3, 3), 0),
    "l-heads": ("f4", (16, 2048, 64), 0),
    "l-core": ("f4", (64, 64, 64), 0),
    "l-factor": ("f4", (512, 64), 0),
    "l-ring": ("f4", (48, 256, 48), 0),
}


def _loop(inputs: str, before: str, body: str, outputs: str) -> str:
    """A program with a loop of ``steps`` iterations."""
    return f"dim steps\n{inputs}{before}for t in 0 .. steps {{\n{body}}}\noutput {outputs}\n"


_U = "U[z,y,x]"
_HEAT3 = (
    f"  {_U} = {_U} + 0.1 * (U[z-1 ? 0, y, x] + U[z+1 ? 0, y, x] + U[z, y-1 ? 0, x] + U[z, y+1 ? 0, x]"
    f" + U[z, y, x-1 ? 0] + U[z, y, x+1 ? 0] - 6 * {_U})\n"
)
_LSTM = """  Z[b,k] = (sum[d] X[b,t,d] * W[k,d]) + (sum[m] h[b,m] * V[k,m]) + bias[k]
  G[gate,b,m] = Z[b, (gate m)]
  c[b,m] = sigmoid(G[1, b, m]) * c[b,m] + sigmoid(G[0, b, m]) * tanh(G[2, b, m])
  h[b,m] = sigmoid(G[3, b, m]) * tanh(c[b,m])
"""
_PULL = """  r[i,j] = (sum[d] (x[i,d] - x[j,d])^2) + 0.01
  v[i,d] = v[i,d] + 0.01 * sum[j] m[j] * (x[j,d] - x[i,d]) / (r[i,j] * sqrt(r[i,j]))
  x[i,d] = x[i,d] + 0.01 * v[i,d]
"""
_CG = """  q[i] = sum[j] A[i,j] * p[j]
  alpha = rr / (1e-9 + sum[i] p[i] * q[i])
  x[i] = x[i] + alpha * p[i]
  r[i] = r[i] - alpha * q[i]
  rest = sum[i] r[i]^2
  p[i] = r[i] + rest / (rr + 1e-9) * p[i]
  rr = rest
"""
_KMEANS = """  near[i] = argmin[k] sum[d] (X[i,d] - C[k,d])^2
  total[near[i]: n_c, d] = sum[i] X[i,d]
  count[near[i]: n_c] = sum[i] 1.0
  C[k,d] = total[k,d] / max(count[k], 1.0)
"""
_EDGES = "dim n, steps\ninput src : i32[e]\ninput dst : i32[e]\n"
_RANK = (
    _EDGES + "degree[src[e]: n] = sum[e] 1\nx[i: n] = 1 / n\nfor t in 0 .. steps {\n"
    "  got[dst[e]: n] = sum[e] x[src[e]] / degree[src[e]]\n  x[i] = 0.15 / n + 0.85 * got[i]\n}\noutput x\n"
)
_LABELS = (
    _EDGES + "c[i: n] = 1.0 * i\nfor t in 0 .. steps {\n  b[dst[e]: n] = min[e] c[src[e]]\n"
    "  c[i] = min(c[i], b[i])\n}\noutput c\n"
)
_PIXELS = "input A : f32[y,x]\n"
_VOLUME = "input A : f32[z,y,x]\n"
_GROUPED = "dim n\ninput k : i32[e]\ninput v : f64[e]\n"
_EDGE = {"src": "l-from", "dst": "l-to"}
_LAYERS = "import std.nn\ninput X : f32[n,m]\ninput W : f32[m,m]\ninput g : f32[m]\n"
_DENSE = {"X": "l-batch", "W": "l-layer", "g": "l-gain"}

_LOGISTIC = _loop(
    "input X : f32[n,d]\ninput y : f32[n]\n",
    "w[d: d] = 0.0\n",
    "  e[n] = sigmoid(sum[d] X[n,d] * w[d]) - y[n]\n  w[d] = w[d] - 0.1 * mean[n] X[n,d] * e[n]\n",
    "w",
)
_POWERS = _loop(
    "input A : f64[n,n]\ninput b : f64[n]\n",
    "x[i: n] = 1.0\n",
    "  y[i] = sum[j] A[i,j] * x[j]\n  x[i] = y[i] / sqrt(sum[i] y[i]^2) + b[i]\n",
    "x",
)
_PRODUCTS = _loop(
    "input A : f32[n,n]\n",
    "B[i,j] = A[i,j]\n",
    "  C[i,j] = 0.04 * sum[k] A[i,k] * B[k,j]\n  B[i,j] = C[i,j]\n",
    "B",
)
_PATHS = _loop("input A : f32[n,n]\n", "D[i,j] = abs(A[i,j])\n", "  D[i,j] = min(D[i,j], D[i,t] + D[t,j])\n", "D")
_WAVES = _loop(
    "input u : f64[n]\n",
    "v[i] = u[i]\n",
    "  w[i] = 2 * u[i] - v[i] + 0.2 * (u[i-1 ? 0] + u[i+1 ? 0] - 2 * u[i])\n  v[i] = u[i]\n  u[i] = w[i]\n",
    "u",
)
_DIFFERENCES = "input T : f64[n]\ninput src : i32[e]\ninput dst : i32[e]\ny[e] = (T[src[e]] - T[dst[e]])^2\noutput y\n"
_NEIGHBOURS = (
    "dim n\ninput F : f32[m,d]\ninput src : i32[e]\ninput dst : i32[e]\n"
    "S[dst[e]: n, d] = sum[e] F[src[e], d]\noutput S\n"
)
_PAIRS = "dim n\ninput k : i32[e]\ninput v : i32[e]\nc[k[e]: n, v[e]: n] = sum[e] 1\noutput c\n"
_FIVE = _PIXELS + "B[y,x] = 4 * A[y,x] - A[y-1 ? 0, x] - A[y+1 ? 0, x] - A[y, x-1 ? 0] - A[y, x+1 ? 0]\noutput B\n"
_SEVEN = (
    _VOLUME + "B[z,y,x] = 6 * A[z,y,x] - A[z-1 ? 0,y,x] - A[z+1 ? 0,y,x] - A[z,y-1 ? 0,x] - A[z,y+1 ? 0,x]"
    " - A[z,y,x-1 ? 0] - A[z,y,x+1 ? 0]\noutput B\n"
)
_MLP = (
    _LAYERS + "A[n,o] = relu(sum[m] X[n,m] * W[m,o])\nB[n,o] = relu(sum[m] A[n,m] * W[m,o])\n"
    "Y[n,o] = (sum[m] B[n,m] * W[m,o]) + g[o]\noutput Y\n"
)
_CONVOLUTION = (
    "input X : f32[b,c,h,w]\ninput K : f32[o,c,3,3]\n"
    "Y[b,o,i: h,j: w] = sum[c,p,q] X[b, c, i + p - 1 ? 0, j + q - 1 ? 0] * K[o,c,p,q]\noutput Y\n"
)
_HEADS = "import std.nn\ninput Q : f32[h,s,d]\nO[h,s,d] = attention(Q[h,s,d], Q[h,s,d], Q[h,s,d])\noutput O\n"
_TUCKER = "input G : f32[a,b,c]\ninput A : f32[i,a]\nX[i,j,k: i] = G[a,b,c] * A[i,a] * A[j,b] * A[k,c]\noutput X\n"
_RING = (
    "input A : f32[a,i,b]\ninput B : f32[b,i,c]\ninput C : f32[c,i,a]\n"
    "s = sum[a,b,c,i] A[a,i,b] * B[b,i,c] * C[c,i,a]\noutput s\n"
)
_FEATURES = "input T : f32[n,d]\ninput k : i32[e]\ny[e] = sum[d] T[k[e], d]^2\noutput y\n"
_TAPS = "input a : f32[n]\ninput w : f32[q]\nb[i: n] = sum[k] w[k] * a[i + k - 4 ? 0]\noutput b\n"
_POOL = "dim h, w\ninput A : f32[p,q]\nB[y: h, x: w] = max[i: 2, j: 2] A[2*y + i, 2*x + j]\noutput B\n"

LOOPS: tuple[Case, ...] = (
    Case(
        "lstm",
        "input X : f32[b,T,d]\ninput W : f32[4*m,d]\ninput V : f32[4*m,m]\ninput bias : f32[4*m]\n"
        f"h[b,m] = 0.0\nc[b,m] = 0.0\nfor t in 0 .. T {{\n{_LSTM}}}\noutput h\n",
        {"X": "l-seq", "W": "l-w", "V": "l-u", "bias": "l-bias"},
        256,
        False,
    ),
    Case(
        "bodies",
        _loop("input x : f64[n,d]\ninput v : f64[n,d]\ninput m : f64[n]\n", "", _PULL, "x, v"),
        {"x": "l-x3", "v": "l-x3", "m": "l-m"},
        256,
        False,
        {"steps": 400},
    ),
    Case(
        "heat in three dimensions",
        _loop("input U : f64[z,y,x]\n", "", _HEAT3, "U"),
        {"U": "l-cube"},
        512,
        False,
        {"steps": 60},
    ),
    Case(
        "heat in three dimensions, out of core",
        _loop("input U : f64[z,y,x]\n", "", _HEAT3, "U"),
        {"U": "l-cube"},
        16,
        True,
        {"steps": 40},
    ),
    Case(
        "conjugate gradients",
        _loop(
            "input A : f64[n,n]\ninput b : f64[n]\n",
            "x[i: n] = 0.0\nr[i] = b[i]\np[i] = b[i]\nrr = sum[i] b[i]^2\n",
            _CG,
            "x",
        ),
        {"A": "l-wide", "b": "l-right"},
        256,
        False,
        {"steps": 350},
    ),
    Case("power iteration of a small matrix", _POWERS, {"A": "l-small", "b": "l-tiny"}, 64, False, {"steps": 400_000}),
    Case("powers of a matrix", _PRODUCTS, {"A": "l-mid"}, 64, False, {"steps": 400}),
    Case("shortest paths", _PATHS, {"A": "l-mid"}, 64, False, {"steps": 512}),
    Case("logistic regression", _LOGISTIC, {"X": "l-rows", "y": "l-label"}, 512, False, {"steps": 60}),
    Case("logistic regression, out of core", _LOGISTIC, {"X": "l-rows", "y": "l-label"}, 24, True, {"steps": 40}),
    Case("waves on a line", _WAVES, {"u": "l-line"}, 256, False, {"steps": 100}),
    Case(
        "k-means",
        f"dim steps, n_c\ninput X : f32[n,d]\ninput C : f32[n_c,d]\nfor t in 0 .. steps {{\n{_KMEANS}}}\noutput C\n",
        {"X": "l-rows", "C": "l-centres"},
        512,
        False,
        {"steps": 12},
    ),
    Case(
        "life",
        _loop(
            "input A : f32[y,x]\n",
            "C[y,x] = where(A[y,x] > 0, 1.0, 0.0)\n",
            "  N[y,x] = sum[i: 3, j: 3] C[y + i - 1 ? 0, x + j - 1 ? 0]\n"
            "  C[y,x] = where(N[y,x] == 3, 1.0, where(N[y,x] == 4, C[y,x], 0.0))\n",
            "C",
        ),
        {"A": "l-square"},
        256,
        False,
        {"steps": 30},
    ),
    Case("ranks of pages", _RANK, _EDGE, 512, False, {"n": 400_000, "steps": 10}),
    Case("ranks of pages, out of core", _RANK, _EDGE, 24, True, {"n": 400_000, "steps": 6}),
    Case("components of a graph", _LABELS, _EDGE, 512, False, {"n": 400_000, "steps": 8}),
    Case(
        "gather of numbers",
        "input T : f64[n]\ninput k : i32[e]\ny[e] = T[k[e]] * 2\noutput y\n",
        {"T": "l-table", "k": "l-from"},
        512,
        False,
    ),
    Case("differences along edges", _DIFFERENCES, {"T": "l-table", **_EDGE}, 512, False),
    Case("gather of features", _FEATURES, {"T": "l-features", "k": "l-from"}, 512, False),
    Case("gather of features, out of core", _FEATURES, {"T": "l-features", "k": "l-from"}, 48, True),
    Case("sums over neighbours", _NEIGHBOURS, {"F": "l-features", **_EDGE}, 1024, False, {"n": 400_000}),
    Case(
        "sums by few keys",
        _GROUPED + "s[k[e]: n] = sum[e] v[e]\noutput s\n",
        {"k": "l-few", "v": "l-value"},
        512,
        False,
        {"n": 64},
    ),
    Case(
        "means by few keys",
        _GROUPED + "s[k[e]: n] = mean[e] v[e]\noutput s\n",
        {"k": "l-few", "v": "l-value"},
        512,
        False,
        {"n": 64},
    ),
    Case(
        "maxima by many keys",
        _GROUPED + "s[k[e]: n] = max[e] v[e]\noutput s\n",
        {"k": "l-from", "v": "l-value"},
        512,
        False,
        {"n": 400_000},
    ),
    Case("counts of pairs", _PAIRS, {"k": "l-pair", "v": "l-pair"}, 512, False, {"n": 2048}),
    Case("five points", _FIVE, {"A": "l-picture"}, 1024, False),
    Case("five points, out of core", _FIVE, {"A": "l-picture"}, 24, True),
    Case(
        "blur of nine points",
        _PIXELS + "B[y,x] = (sum[i: 3, j: 3] A[y + i - 1 ? 0, x + j - 1 ? 0]) / 9\noutput B\n",
        {"A": "l-picture"},
        1024,
        False,
    ),
    Case("seven points of a volume", _SEVEN, {"A": "l-volume"}, 1024, False),
    Case("seven points of a volume, out of core", _SEVEN, {"A": "l-volume"}, 32, True),
    Case("filter of nine taps", _TAPS, {"a": "l-signal", "w": "l-taps"}, 1024, False),
    Case("pooling", _POOL, {"A": "l-picture"}, 1024, False, {"h": 4096, "w": 4096}),
    Case("a dense layer", _LAYERS + "Y[n,o] = relu((sum[m] X[n,m] * W[m,o]) + g[o])\noutput Y\n", _DENSE, 512, False),
    Case("three dense layers", _MLP, _DENSE, 512, False),
    Case("three dense layers, out of core", _MLP, _DENSE, 32, True),
    Case(
        "normalized layer",
        _LAYERS + "Y[n,o] = sum[m] layernorm(X[n,m], g[m], g[m]) * W[m,o]\noutput Y\n",
        _DENSE,
        512,
        False,
    ),
    Case("convolution", _CONVOLUTION, {"X": "l-images", "K": "l-filters"}, 512, False),
    Case("attention of heads", _HEADS, {"Q": "l-heads"}, 256, False),
    Case("tucker", _TUCKER, {"G": "l-core", "A": "l-factor"}, 1024, False),
    Case("ring of tensors", _RING, {"A": "l-ring", "B": "l-ring", "C": "l-ring"}, 256, False),
)
