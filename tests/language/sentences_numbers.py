"""Dtypes, functions and aggregations: programs with what they must give, written by hand or in NumPy."""

import numpy as np

from einturnip.ir.functions import ELEMENTWISE
from einturnip.testing.promotion import numpy_dtype
from tests.language.harness import Sentence

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
Y = np.array([[1, 0, -1], [2, -2, 1]], np.float32)
V = np.array([1, -2, 3], np.float32)
I8 = np.array([100, -100, 3], np.int8)
I4 = np.array([1, -2, 3], np.int32)
H = np.array([1, 2, 3], np.float16)
B = np.array([True, False, True])
Z8 = np.array([1 + 2j, -3j, 2], np.complex64)
bf16 = numpy_dtype("bf16")
f4, f8, i8 = np.float32, np.float64, np.int64


def of(
    x: np.ndarray, body: str, expected: object, says: str | None = None, exact: bool = True, size: int = 3
) -> Sentence:
    """``Z[i] = body`` where x is an input with one axis."""
    dtype = "bf16" if x.dtype == bf16 else "bool" if x.dtype == bool else f"{x.dtype.kind}{x.dtype.itemsize * 8}"
    text = f"dim n = {size}\ninput x : {dtype}[n]\nZ[i: n] = {body}\noutput Z\n"
    return Sentence(f"{says or body} ({dtype})", text, {"Z": expected}, {"x": x}, exact=exact)


DTYPES = [
    of(I4, "x[i] * 2", I4 * 2, "i32 * 2 is i32"),
    of(I4, "x[i] * 0.5", I4 * 0.5, "i32 * 0.5 is f64"),
    of(I8, "x[i] + x[i]", I8 + I8, "i8 wraps"),
    of(I8, "x[i] * 2", I8 * np.int8(2), "i8 * 2 wraps"),
    of(I8, "x[i] / 2", I8 / 2, "division of integers is f64"),
    of(I4, "x[i] + i", I4 + np.arange(3), "a label as a number is i64"),
    of(I8, "i", np.arange(3), "a label alone is i64"),
    of(V, "x[i] * i", V * np.arange(3, dtype=f4), "a label never widens a float"),
    of(H, "x[i] * i", H * np.arange(3, dtype=np.float16), "a label never widens a float"),
    of(V, "x[i] * n", V * f4(3), "a size never widens a float"),
    of(V, "x[i] * where(i < 1, 0, -inf)", np.array([0, np.inf, -np.inf], f4), "where of literals never widens a float"),
    of(V, "where(x[i] > 0, x[i], 0)", np.maximum(V, 0), "a literal in where takes the other's dtype"),
    of(V, "where(x[i] > 0, 0, -inf)", np.array([0, -np.inf, 0]), "where of literals alone is f64"),
    of(
        V,
        "x[i] * (1 / (i + 1))",
        V * (1 / np.arange(1, 4)).astype(f4),
        "what comes from labels alone never widens",
        False,
    ),
    of(V, "x[i] * f64(2)", V * f8(2), "a cast is strong"),
    of(H, "x[i] * f32(2)", H * f4(2), "a cast is strong"),
    of(H, "x[i] + x[i] * 0.5", H + H * np.float16(0.5)),
    of(V, "x[i] * 2j", V * np.complex64(2j), "f32 * 2j is c64"),
    of(Z8, "x[i] * 2.0", Z8 * f4(2), "c64 * 2.0 is c64"),
    of(B, "x[i] * 2", B * 2, "bool * 2 is i64"),
    of(B, "where(x[i], 0, -inf)", np.array([0, -np.inf, 0])),
    of(V.astype(bf16), "x[i] * x[i]", (V * V).astype(bf16), "bf16 stays"),
    of(V.astype(bf16), "x[i] * 0.5", (V * f4(0.5)).astype(bf16), "bf16 stays"),
    of(V.astype(bf16), "x[i] * f16(2)", V * 2, "bf16 and f16 meet in f32"),
    of(V, "f16(x[i])", V.astype(np.float16)),
    of(V * f4(1.5), "i32(x[i])", np.array([1, -3, 4], np.int32), "a cast to an integer cuts towards zero"),
    of(V, "bool(x[i] - 1)", np.array([False, True, True])),
    of(I4, "i8(x[i] * 100)", (I4 * 100).astype(np.int8), "a cast to a narrower integer wraps"),
    of(I4, "c64(x[i])", I4.astype(np.complex64)),
    of(V, "x[i] == i + 1", np.array([True, False, True])),
    Sentence(
        "whole literals among themselves are exact",
        "a = 2 ^ 63 - 1\nb = 2.0 ^ 0 * 2 ^ 70\nc = u64(2 ^ 63)\nd = -7 // 2 + -7 % 3\noutput a, b, c, d\n",
        {"a": i8(2**63 - 1), "b": f8(2.0**70), "c": np.uint64(2**63), "d": i8(-2)},
    ),
    Sentence(
        "f32 * scale is f32",
        "dim d = 4\ninput x : f32[n]\nscale = 1 / sqrt(d)\nZ[i] = x[i] * scale\noutput Z, scale\n",
        {"Z": V / 2, "scale": f8(0.5)},
        {"x": V},
    ),
    Sentence(
        "a tensor from literals alone never widens a float",
        "input x : f32[n]\nM[i: 3] = where(i < 2, 1, 0.5)\nZ[i] = x[i] * M[i]\noutput Z, M\n",
        {"Z": np.array([1, -2, 1.5], f4), "M": np.array([1, 1, 0.5])},
        {"x": V},
    ),
    Sentence(
        "an f64 input widens",
        "input x : f32[n]\ninput a : f64\nZ[i] = x[i] * a\noutput Z\n",
        {"Z": V.astype(f8) * 2},
        {"x": V, "a": f8(2)},
    ),
    Sentence(
        "strong dtypes promote as NumPy's: i16 and f16 meet in f32",
        "input x : i16[n]\ninput y : f16[n]\nZ[i] = x[i] + y[i]\noutput Z\n",
        {"Z": V + H.astype(f4)},
        {"x": V.astype(np.int16), "y": H},
    ),
    Sentence(
        "strong dtypes promote as NumPy's: u64 and i64 meet in f64",
        "input x : u64[n]\ninput y : i64[n]\nZ[i] = x[i] + y[i]\noutput Z\n",
        {"Z": V.astype(f8) + np.array([1, 2, 3])},
        {"x": np.array([1, 2, 3], np.uint64), "y": V.astype(i8)},
    ),
]

FUNCTIONS = [
    of(V, "-x[i]", -V),
    of(V, "abs(x[i])", np.abs(V)),
    of(V, "sign(x[i])", np.sign(V)),
    of(V / 2, "floor(x[i])", np.floor(V / 2)),
    of(V / 2, "ceil(x[i])", np.ceil(V / 2)),
    of(V / 2, "round(x[i])", np.round(V / 2), "round goes to even"),
    of(V, "relu(x[i])", np.maximum(V, 0)),
    of(I8, "abs(x[i])", np.abs(I8)),
    of(V, "x[i] ^ 2", V**2),
    of(np.abs(V), "x[i] ^ 0.5", np.sqrt(np.abs(V)), exact=False),
    of(I8, "x[i] ^ 2", I8**2),
    of(V, "x[i] // 2", V // 2),
    of(V, "x[i] % 2", V % 2),
    of(I8, "x[i] // 0", np.zeros(3, np.int8), "an integer // 0 is 0, as NumPy's"),
    of(V, "x[i] / 0", np.array([np.inf, -np.inf, np.inf], f4), "a float / 0 is infinite"),
    of(V, "min(x[i], 1)", np.minimum(V, 1)),
    of(V, "max(x[i], i)", np.array([1, 1, 3], f4)),
    of(Z8, "conj(x[i])", np.conj(Z8)),
    of(Z8, "real(x[i])", np.real(Z8)),
    of(Z8, "imag(x[i])", np.imag(Z8)),
    of(np.array([3 + 4j, 5, 12j], np.complex64), "abs(x[i])", np.array([5, 5, 12], f4)),
    of(V, "0 <= i < n", np.ones(3, bool)),
    of(V, "0 <= x[i] < 3 and not x[i] == 2", np.array([True, False, False])),
    of(I8, "exp(x[i] * 0)", np.ones(3, np.float16), "exp of i8 is f16, as NumPy's", exact=False),
    of(I4, "exp(x[i])", np.exp(I4), "exp of i32 is f64", exact=False),
] + [
    of(np.array([0.5, 2, 3], dtype), f"{name}(x[i])", function(np.array([0.5, 2, 3], dtype)), exact=False)
    for dtype in (np.float16, np.float32, np.float64)
    for name, function in {
        **{
            name: np.errstate(invalid="ignore")(row.numpy)
            for name, row in ELEMENTWISE.items()
            if row.definition or row.ufunc
        },
        "exp": np.exp,
        "log": np.log,
        "log1p": np.log1p,
        "expm1": np.expm1,
        "sqrt": np.sqrt,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "softplus": lambda x: np.log1p(np.exp(x)),
        "erf": lambda x: np.array([0.5204998778130465, 0.9953222650189527, 0.9999779095030014], x.dtype),
        "gelu": lambda x: x * np.array([0.6914624612740131, 0.9772498680518208, 0.9986501019683699], x.dtype),
    }.items()
]


def agg(says: str, body: str, expected: object, x: np.ndarray = X, left: str = "Z[i]", exact: bool = True) -> Sentence:
    """``left = body`` where X is an input with two axes."""
    dtype = "bool" if x.dtype == bool else f"{x.dtype.kind}{x.dtype.itemsize * 8}"
    text = f"input X : {dtype}[n, m]\n{left} = {body}\noutput {left.split('[')[0]}\n"
    return Sentence(f"{says}: {body}", text, {left.split("[")[0]: expected}, {"X": x}, exact=exact)


E = np.exp(Y.astype(f8))
AGGREGATIONS = [
    agg("sum", "sum[j] X[i,j]", X.sum(1)),
    agg("prod", "prod[j] X[i,j]", X.prod(1)),
    agg("max", "max[j] X[i,j]", X.max(1)),
    agg("min", "min[j] X[i,j]", X.min(1)),
    agg("any", "any[j] X[i,j]", np.array([True, False]), np.array([[1, 0, 1], [0, 0, 0]], bool)),
    agg("all", "all[j] X[i,j]", np.array([False, True]), np.array([[1, 0, 1], [1, 1, 1]], bool)),
    agg("mean", "mean[j] X[i,j]", X.mean(1), exact=False),
    agg("logsumexp", "logsumexp[j] X[i,j]", np.log(E.sum(1)).astype(f4), Y, exact=False),
    agg(
        "logsumexp does not overflow",
        "logsumexp[j] (X[i,j] + 1000)",
        np.full(1, 1000 + np.log(3), f4),
        0 * X[:1],
        exact=False,
    ),
    agg("argmax", "argmax[j] X[i,j]", Y.argmax(1), Y),
    agg("argmin", "argmin[j] X[i,j]", Y.argmin(1), Y),
    agg("argmax gives the first such index", "argmax[j] X[i,j] * 0", np.zeros(2, i8)),
    agg("over several labels the flat one", "argmax[i,j] X[i,j]", i8(3), Y, "s"),
    agg("the flat index counts the labels as bound", "argmax[j,i] X[i,j]", i8(1), Y, "s"),
    agg("several labels", "sum[i,j] X[i,j]", f4(21), left="s"),
    agg("the whole following product is taken", "sum[j] X[i,j] * X[i,j]", (X * X).sum(1)),
    agg("a leading - is taken", "sum[j] -X[i,j]", -X.sum(1)),
    agg("a division is taken", "sum[j] X[i,j] / (j + 1)", (X / np.arange(1, 4)).sum(1).astype(f4), exact=False),
    agg("// and % are taken", "sum[j] X[i,j] // 2 % 2", (X // 2 % 2).sum(1)),
    agg("^ is taken", "sum[j] X[i,j] ^ 2", (X**2).sum(1)),
    agg("a following + is not taken", "sum[j] X[i,j] + 1", X.sum(1) + 1),
    agg("a following - is not taken", "sum[j] X[i,j] - 1", X.sum(1) - 1),
    agg("a following comparison is not taken", "sum[j] X[i,j] > 7", X.sum(1) > 7),
    agg("parentheses make it take a sum", "sum[j] (X[i,j] + 1)", (X + 1).sum(1)),
    agg("it stands after -", "1 - sum[j] X[i,j]", 1 - X.sum(1)),
    agg("it stands as a last factor and takes what follows", "2 * sum[j] X[i,j] * X[i,j]", 2 * (X * X).sum(1)),
    agg("negated", "-sum[j] X[i,j]", -X.sum(1)),
    agg("aggregations nest", "max[j] sum[k: 2] X[i,j] * k", X.max(1)),
    agg("inside functions", "abs(min[j] X[i,j]) + max(1, max[j] X[i,j])", np.abs(X.min(1)) + X.max(1)),
    agg(
        "own labels: A[i,j] / sum[j] A[i,j] normalises rows",
        "X[i,j] / sum[j] X[i,j]",
        X / X.sum(1, keepdims=True),
        left="Z[i,j]",
        exact=False,
    ),
    agg("own labels inside an aggregation", "sum[j] X[i,j] * max[j] X[i,j]", X.sum(1) * X.max(1)),
    agg(
        "sum[j] P V / sum[j] P divides each term",
        "sum[j] X[i,j] * X[i,j] / sum[j] X[i,j]",
        (X * X).sum(1) / X.sum(1),
        exact=False,
    ),
    agg("np.sum of i8 is i64", "sum[j] X[i,j]", X.astype(np.int8).sum(1), X.astype(np.int8)),
    agg("np.sum of u8 is u64", "sum[j] X[i,j]", X.astype(np.uint8).sum(1), X.astype(np.uint8)),
    agg("np.sum of bool counts in i64", "sum[j] X[i,j]", np.array([2, 1]), np.array([[1, 0, 1], [0, 1, 0]], bool)),
    agg("np.prod of i8 is i64", "prod[j] X[i,j]", X.astype(np.int8).prod(1), X.astype(np.int8)),
    agg("np.mean of integers is f64", "mean[j] X[i,j]", np.array([2.0, 5.0]), X.astype(np.int32), exact=False),
    agg("max keeps i8", "max[j] X[i,j]", X.astype(np.int8).max(1), X.astype(np.int8)),
    agg(
        "f16 sums accumulate in f32",
        "sum[j] X[i,j]",
        np.array([2050], np.float16),
        np.array([[2048, 1, 1]], np.float16),
    ),
    agg(
        "f16 means accumulate in f32",
        "mean[j] X[i,j]",
        np.array([60000], np.float16),
        np.full((1, 8), 60000, np.float16),
        exact=False,
    ),
    agg(
        "sum[j : f64] sets accumulator and result",
        "sum[j : f64] X[i,j]",
        np.array([2.0**24 + 2]),
        np.array([[2**24, 1, 1]], f4),
    ),
    agg("sum[j : f64] widens after the product", "sum[j : f64] X[i,j]", X.sum(1).astype(f8)),
    agg("sum[j : f32] of i8", "sum[j : f32] X[i,j]", X.sum(1), X.astype(np.int8)),
    agg("max of NaN is NaN", "max[j] X[i,j]", np.array([np.nan], f4), np.array([[1, np.nan, 2]], f4)),
    agg("empty sum", "sum[j] X[i,j]", np.zeros(2, f4), X[:, :0]),
    agg("empty prod", "prod[j] X[i,j]", np.ones(2, f4), X[:, :0]),
    agg("empty max", "max[j] X[i,j]", np.full(2, -np.inf, f4), X[:, :0]),
    agg("empty max of i8 is its least", "max[j] X[i,j]", np.full(2, -128, np.int8), X[:, :0].astype(np.int8)),
    agg("empty min of u8 is its greatest", "min[j] X[i,j]", np.full(2, 255, np.uint8), X[:, :0].astype(np.uint8)),
    agg("empty min", "min[j] X[i,j]", np.full(2, np.inf, f4), X[:, :0]),
    agg("empty any", "any[j] X[i,j]", np.zeros(2, bool), X[:, :0] > 0),
    agg("empty all", "all[j] X[i,j]", np.ones(2, bool), X[:, :0] > 0),
    agg("empty mean", "mean[j] X[i,j]", np.full(2, np.nan, f4), X[:, :0]),
    agg("empty logsumexp", "logsumexp[j] X[i,j]", np.full(2, -np.inf, f4), X[:, :0]),
    agg("empty argmax", "argmax[j] X[i,j]", np.full(2, -1), X[:, :0]),
    agg("empty argmin", "argmin[j] X[i,j]", np.full(2, -1), X[:, :0]),
    agg("an empty sum times an infinity stays 0", "sum[j] X[i,j] * inf", np.zeros(2, f4), X[:, :0]),
]
