"""Declarations, labels, joins and precedence: programs with what they must give, written by hand or in NumPy."""

import numpy as np

from tests.language.harness import Sentence

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
Y = np.array([[1, 0, -1], [2, -2, 1]], np.float32)
V = np.array([1, -2, 3], np.float32)
W = np.array([10, 20], np.float32)
S = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float64)
I8 = np.array([100, -100, 3], np.int8)
f4, i8 = np.float32, np.int64

DECLARATIONS = [
    Sentence("a statement ends at the end of its line", "s = 1\nt = 2\noutput s, t\n", {"s": i8(1), "t": i8(2)}),
    Sentence("the last line needs no end", "s = 1\noutput s", {"s": i8(1)}),
    Sentence("inside parentheses it goes on", "s = (1\n + 2)\noutput s\n", {"s": i8(3)}),
    Sentence("inside brackets it goes on", "Z[\n i: 2\n] = 1\noutput Z\n", {"Z": np.ones(2, i8)}),
    Sentence("after an operator it goes on", "s = 1 +\n  2\noutput s\n", {"s": i8(3)}),
    Sentence("after = it goes on", "s =\n  3\noutput s\n", {"s": i8(3)}),
    Sentence("after a comma it goes on", "s = 1\nt = 2\noutput s,\n  t\n", {"s": i8(1), "t": i8(2)}),
    Sentence("# starts a comment", "# first\ns = 1 # one\n# s = 2\noutput s\n", {"s": i8(1)}),
    Sentence("blank lines mean nothing", "\n\ns = 1\n\n\noutput s\n\n", {"s": i8(1)}),
    Sentence("names may be Unicode", "α[β: 2] = β\noutput α\n", {"α": np.arange(2)}),
    Sentence(
        "a name means its latest version",
        "s = 1\ns = s + 1\nt = s * 10\ns = 5\noutput s, t\n",
        {"s": i8(5), "t": i8(20)},
    ),
    Sentence(
        "an input may be defined anew, with another shape",
        "input X : f32[n, m]\nX[i] = sum[j] X[i,j]\noutput X\n",
        {"X": X.sum(1)},
        {"X": X},
    ),
    Sentence("dim n = 4096", "dim n = 4\nE[i: n] = i\noutput E\n", {"E": np.arange(4)}),
    Sentence("several dims on a line", "dim h = 2\ndim d = h * 64, e = d / h\ns = d + e\noutput s\n", {"s": i8(192)}),
    Sentence(
        "a size is bound by an input's shape", "dim n\ninput X : f32[n, 3]\ns = n\noutput s\n", {"s": i8(2)}, {"X": X}
    ),
    Sentence("a size is bound by --dim", "dim n\ns = n * n\noutput s\n", {"s": i8(49)}, {}, {"n": 7}),
    Sentence(
        "a name in an input's shape is a dim too", "input X : f32[n, m]\ns = n * m\noutput s\n", {"s": i8(6)}, {"X": X}
    ),
    Sentence(
        "f32[2*n, 3] is checked",
        "input X : f32[n, m]\ninput Z : f32[2*n, 3]\nT[j] = sum[i] Z[i,j]\noutput T\n",
        {"T": np.full(3, 4, f4)},
        {"X": X, "Z": np.ones((4, 3), f4)},
    ),
    Sentence(
        "input a : f64 is a scalar",
        "input a : f64\nb = a + 1\noutput b\n",
        {"b": np.float64(3.5)},
        {"a": np.float64(2.5)},
    ),
    Sentence("a number may be the default", "input a : f64 = 2.5\nb = a + 1\noutput b\n", {"b": np.float64(3.5)}),
    Sentence(
        "a given number goes before the default",
        "input a : f64 = 2.5\nb = a\noutput b\n",
        {"b": np.float64(4)},
        {"a": np.float64(4)},
    ),
    Sentence("an input can be the output", "input X : f32[n, m]\noutput X\n", {"X": X}, {"X": X}),
    Sentence("output Y, on lines of their own", "s = 1\nt = s + 1\noutput s\noutput t\n", {"s": i8(1), "t": i8(2)}),
    Sentence(
        "sizes are usable as numbers",
        "input X : f32[n, m]\ns = 1 / sqrt(m + 1)\noutput s\n",
        {"s": np.float64(0.5)},
        {"X": X},
    ),
]

LABELS = [
    Sentence(
        "a label ranges over the axis it indexes",
        "input X : f32[n, m]\nZ[i,j] = X[i,j] + X[i,j]\noutput Z\n",
        {"Z": X + X},
        {"X": X},
    ),
    Sentence("the left side orders the axes", "input X : f32[n, m]\nZ[j,i] = X[i,j]\noutput Z\n", {"Z": X.T}, {"X": X}),
    Sentence(
        "labels are local to the statement",
        "input X : f32[n, m]\nZ[a] = sum[b] X[a,b]\nT[b] = sum[a] X[a,b]\noutput Z, T\n",
        {"Z": X.sum(1), "T": X.sum(0)},
        {"X": X},
    ),
    Sentence(
        "a label may carry the name of a dim",
        "input X : f32[n, m]\nZ[m] = sum[n] X[n,m]\noutput Z\n",
        {"Z": X.sum(0)},
        {"X": X},
    ),
    Sentence(
        "a bound label hides a size",
        "input X : f32[n, m]\nZ[n] = sum[m] X[n,m] * m\noutput Z\n",
        {"Z": X @ np.arange(3, dtype=f4)},
        {"X": X},
    ),
    Sentence(
        "sum[d] X[s,d] / sqrt(d) divides by the index d",
        "input X : f32[s, d]\nZ[s] = sum[d] X[s,d] / (d + 1)\noutput Z\n",
        {"Z": np.array([3, 8.5], f4)},
        {"X": X},
        exact=False,
    ),
    Sentence("a bound label hides a scalar", "i = 7\nZ[i: 3] = i\noutput Z\n", {"Z": np.arange(3)}),
    Sentence(
        "a label used as a number is its index, from 0",
        "input X : f32[n, m]\nZ[i,j] = where(j <= i, X[i,j], 0)\noutput Z\n",
        {"Z": np.tril(X)},
        {"X": X},
    ),
    Sentence(
        "repeated labels take diagonals",
        "input S : f64[n, n]\nD[i] = S[i,i]\noutput D\n",
        {"D": np.diagonal(S)},
        {"S": S},
    ),
    Sentence("t = sum[i] A[i,i]", "input S : f64[n, n]\nt = sum[i] S[i,i]\noutput t\n", {"t": np.trace(S)}, {"S": S}),
    Sentence(
        "missing labels broadcast",
        "input X : f32[n, m]\ninput b : f32[m]\nZ[i,j] = X[i,j] + b[j]\noutput Z\n",
        {"Z": X + V},
        {"X": X, "b": V},
    ),
    Sentence(
        "missing labels broadcast, whichever",
        "input a : f32[n]\ninput b : f32[m]\nZ[i,j] = a[i] - b[j]\noutput Z\n",
        {"Z": W[:, None] - V},
        {"a": W, "b": V},
    ),
    Sentence(
        "a label no access sizes carries its size: E[i: n, j: n]",
        "dim n = 3\nE[i: n, j: n] = where(i == j, 1, 0)\noutput E\n",
        {"E": np.eye(3, dtype=i8)},
    ),
    Sentence(
        "sum[i: n] 1 / (i + 1)",
        "dim n = 4\ns = sum[i: n] 1 / (i + 1)\noutput s\n",
        {"s": np.float64(25 / 12)},
        exact=False,
    ),
    Sentence(
        "a label named like a dim has that size already",
        "dim n = 3\ns = sum[n] n\nZ[n] = 2\noutput s, Z\n",
        {"s": i8(3), "Z": np.full(3, 2)},
    ),
    Sentence("a written size may be an expression", "dim n = 3\nZ[i: 2 * n - 1] = i\noutput Z\n", {"Z": np.arange(5)}),
    Sentence(
        "a written size may be shorter than the axis",
        "input v : f32[n]\nZ[i: n - 1] = v[i]\noutput Z\n",
        {"Z": V[:-1]},
        {"v": V},
    ),
    Sentence(
        "a size of 0 is a size",
        "dim n = 0\nZ[i: n] = i\ns = sum[i: n] 1\noutput Z, s\n",
        {"Z": np.zeros(0, i8), "s": i8(0)},
    ),
    Sentence(
        "an empty axis of an output, summed over another",
        "input X : f32[n, m]\nZ[j] = sum[i] X[i,j]\noutput Z\n",
        {"Z": np.zeros(3, f4)},
        {"X": X[:0]},
    ),
]

EINSTEIN = [
    Sentence(
        "labels missing on the left are summed",
        "input A : f32[n, m]\ninput B : f32[k, m]\nC[i,k] = A[i,j] * B[k,j]\noutput C\n",
        {"C": X @ Y.T},
        {"A": X, "B": Y},
    ),
    Sentence(
        "of one access too",
        "input X : f32[n, m]\nZ[i] = X[i,j]\ns = X[i,j]\noutput Z, s\n",
        {"Z": X.sum(1), "s": f4(21)},
        {"X": X},
    ),
    Sentence(
        "and the trace of a diagonal", "input S : f64[n, n]\nt = S[i,i]\noutput t\n", {"t": np.trace(S)}, {"S": S}
    ),
    Sentence(
        "it may contain label-free factors",
        "input X : f32[n, m]\ninput a : f32\nZ[i] = 2 * X[i,j] * a\noutput Z\n",
        {"Z": 6 * X.sum(1)},
        {"X": X, "a": f4(3)},
    ),
    Sentence(
        "label-free factors may divide",
        "input X : f32[n, m]\nZ[i] = X[i,j] / m\noutput Z\n",
        {"Z": X.mean(1)},
        {"X": X},
        exact=False,
    ),
    Sentence(
        "three factors",
        "input v : f32[n]\ninput S : f64[n, n]\ns = v[i] * S[i,j] * v[j]\noutput s\n",
        {"s": V @ S @ V},
        {"v": V, "S": S},
    ),
    Sentence(
        "a sum of i8 by the convention is i64",
        "input a : i8[n]\ns = a[i] * a[i]\noutput s\n",
        {"s": (I8 * I8).sum()},
        {"a": I8},
    ),
    Sentence(
        "no label missing, no sum: the dtype stays",
        "input a : i8[n]\nZ[i] = a[i] * a[i]\noutput Z\n",
        {"Z": I8 * I8},
        {"a": I8},
    ),
]

PRECEDENCE = [
    Sentence(f"precedence: {text}", f"s = {text}\noutput s\n", {"s": np.asarray(value)[()]})
    for text, value in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 * 3 ^ 2", 18),
        ("2 ^ 3 ^ 2", 512),
        ("-2 ^ 2", -4),
        ("(-2) ^ 2", 4),
        ("2.0 ^ -1", 0.5),
        ("7 // 2 * 2", 6),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7 % -3", -2),
        ("7 / 2", 3.5),
        ("8 - 3 - 2", 3),
        ("16 / 4 / 2", 2.0),
        ("2 - -1", 3),
        ("2 * -3", -6),
        ("not 1 < 2", False),
        ("not true and false", False),
        ("not (true and false)", True),
        ("true or false and false", True),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("3 > 2 >= 2 != 1", True),
        ("1 + 1 == 2", True),
        ("1 == 1 and 2 == 2 or false", True),
        ("min(1, 2) + max(1, 2.5)", 3.5),
        ("where(1 < 2, 3, 4)", 3),
        ("2j * 2j", -4 + 0j),
        ("1e3", 1000.0),
        ("1.5e-1", 0.15),
        ("-inf", -np.inf),
        ("nan", np.nan),
        ("pi", np.pi),
        ("true", True),
    ]
]
