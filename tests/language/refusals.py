"""Programs that the language page refuses, with the place and the text of each error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

X = np.arange(6, dtype=np.float64).reshape(2, 3)
V = np.array([3, 1, 2], np.float64)
IDS = np.array([1, 3, 0])


@dataclass(frozen=True)
class Refusal:
    """A sentence, a program that breaks it, the line that is wrong, and words that the message must have."""

    says: str
    text: str
    line: int
    words: tuple[str, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.says


def of_x(says: str, lines: str, line: int, *words: str) -> Refusal:
    """Lines after the declarations of X and V, and the number of the wrong one among them."""
    return Refusal(says, f"input X : f64[n, m]\ninput V : f64[m]\n{lines}\n", line + 2, words, {"X": X, "V": V})


NAMES = [
    of_x("keywords are reserved", "for = 1\noutput for", 1, "for"),
    of_x("dtypes are reserved", "f32 = 1\noutput f32", 1, "f32"),
    of_x("built-in names are reserved", "exp = 1\noutput exp", 1, "exp"),
    of_x("a name is used after it is defined", "a = b\nb = 1\noutput a, b", 1, "b"),
    of_x("unknown names come with did-you-mean", "weight = 1\na = wieght\noutput a", 2, "weight"),
    of_x("a tensor is written with all its axes", "a = X\noutput a", 1, "X"),
    of_x("with as many labels", "a[i] = X[i]\noutput a", 1, "X", "2"),
    of_x("a scalar with none", "s = 1\na[i: 2] = s[i]\noutput a", 2, "s"),
    of_x("a label twice on the left", "a[i,i] = X[i,i]\noutput a", 1, "i"),
    of_x("an output that is not defined", "output Z", 1, "Z"),
]

SIZES = [
    Refusal("/ must be exact", "dim d = 7 / 2\ns = d\noutput s\n", 1, ("7", "2")),
    Refusal("two sources that disagree are named", "dim n = 4\ninput V : f64[n]\noutput V\n", 2, ("4", "3"), {"V": V}),
    Refusal(
        "two inputs that disagree are named",
        "input X : f64[n, m]\ninput V : f64[n]\nZ[i] = V[i]\noutput Z\n",
        2,
        ("X", "V", "2", "3"),
        {"X": X, "V": V},
    ),
    Refusal("f32[2*n, 3] is checked", "input V : f64[2*n]\noutput V\n", 1, ("2",), {"V": V}, {"n": 2}),
    Refusal("a size without a value", "dim n\ns = n\noutput s\n", 2, ("'n'", "--dim n=")),
    of_x("all axes of a label have one size", "a[i] = sum[j] X[i,j] * X[j,i]\noutput a", 1, "2", "3"),
    of_x("a label named as a dim must have its size", "a[n, m] = X[m, n]\noutput a", 1, "n", "2", "3"),
    of_x("a label neither on the left nor bound", "a[i] = exp(X[i,j])\noutput a", 1, "sum[j]"),
    of_x("a label without a size", "a[i] = i\noutput a", 1, "i"),
]

INDICES = [
    of_x("nothing counts from the end", "a = V[-1]\noutput a", 1, "V", "-1"),
    of_x("a constant past the end", "a = V[3]\noutput a", 1, "V", "3"),
    of_x("an access that leaves its axis", "a[i: m] = V[i+1]\noutput a", 1, "V", "3"),
    of_x("one before its axis", "a[i: m] = V[i-1]\noutput a", 1, "V", "-1"),
    of_x("where does not guard", "a[i: m] = where(i > 0, V[i-1], 0)\noutput a", 1, "V", "-1"),
    of_x("an unknown size in an index", "a[i: 1] = V[i + q]\noutput a", 1, "q"),
    of_x("a float as an index", "a[i] = V[V[i]]\noutput a", 1, "V"),
    of_x("a key that is no integer", "a[V[i]: 3] = sum[i] V[i]\noutput a", 1, "V"),
    of_x("a key whose label nobody binds", "a[i // 2: 3] = sum[j] V[j]\noutput a", 1, "i"),
    of_x("a scatter that is no aggregation", "a[i // 2: 3] = V[i]\noutput a", 1, "aggregation"),
    of_x("slices that differ in length", "a[:] = V[0:2] + V[0:3]\noutput a", 1, "2", "3"),
    of_x("a slice past the end", "a[:] = V[1:4]\noutput a", 1, "V", "3"),
    of_x("a slice without its colon", "a = V[1:2]\noutput a", 1, ":"),
    of_x("a slice of what is not there", "a[0, j] = V[j]\noutput a", 1, "a"),
    of_x("parts of different sizes", "a[i | j, k] = X[i,k] | X[k,j]\noutput a", 1, "2", "3"),
    of_x("an axis that does not split", "a[h: 2, e] = V[(h e)]\noutput a", 1, "3", "2"),
    of_x("two unknown sizes of a split axis", "a[h, e] = V[(h e)]\noutput a", 1, "h"),
]

FUNCTIONS = [
    of_x("recursion is an error", "fn f(x) = f(x)\na = f(1)\noutput a", 1, "f"),
    of_x("a function sees only its parameters", "s = 1\nfn f(x) = x + s\na = f(1)\noutput a", 2, "s"),
    of_x("and earlier functions", "fn f(x) = g(x)\nfn g(x) = x\na = f(1)\noutput a", 1, "g"),
    of_x("an argument is missing", "fn f(x, y) = x + y\na = f(1)\noutput a", 2, "y"),
    of_x("one too many", "fn f(x) = x\na = f(1, 2)\noutput a", 2, "f"),
    of_x("an unknown argument", "fn f(x, eps = 1) = x\na = f(1, epz = 2)\noutput a", 2, "epz", "eps"),
    of_x("several tensors need several names", "fn f(x) {\n  return x, x\n}\na = f(1)\noutput a", 4, "2"),
    of_x("too few axes for a parameter", "fn f(A[i, j]) = A[i, j]\na[i] = f(V[i])\noutput a", 2, "A"),
    of_x(
        "a parameter's label is one label",
        "fn f(A[i], B[i]) = A[i] + B[i]\na[j,k] = f(V[j], V[k])\noutput a",
        2,
        "i",
        "j",
        "k",
    ),
    of_x("return implies no sum", "fn f(A[i, j]) {\n  return A[i, j]\n}\na[i] = f(X[i,j])\noutput a", 4, "j"),
]

LOOPS = [
    of_x("a loop variable is a new name", "t = 1\nfor t in 0 .. 2 {\n  V[i] = V[i]\n}\noutput V", 2, "t"),
    of_x("and no label in its loop", "for t in 0 .. 2 {\n  V[t] = sum[t] V[t]\n}\noutput V", 2, "t"),
    of_x(
        "a loop keeps a dtype", "input K : i32[m]\nfor t in 0 .. 2 {\n  K[i] = K[i] * 0.5\n}\noutput K", 3, "i32", "f64"
    ),
    of_x("and a shape", "for t in 0 .. 2 {\n  V[i: 2] = V[i]\n}\noutput V", 2, "3", "2"),
    of_x("what it defines ends with it", "for t in 0 .. 2 {\n  u = t\n}\ns = u\noutput s", 4, "u"),
    of_x("and so does its variable", "for t in 0 .. 2 {\n  V[i] = V[i] + t\n}\ns = t\noutput s", 4, "t"),
]

DTYPES = [
    of_x("conditions are bool", "a[i] = where(V[i], 1, 0)\noutput a", 1, "bool"),
    of_x("any of numbers", "a = any[i] V[i]\noutput a", 1, "bool"),
    of_x("a literal that does not fit", "a[i] = i8(V[i]) + 300\noutput a", 1, "300", "i8"),
    of_x("a hint names a label", "@tile(q = 2)\na[i] = V[i]\noutput a", 1, "q"),
    of_x("only <- changes a state", "state s : f64 = 0\ns = 1\noutput s", 2, "state"),
]

AT_RUN_TIME = [
    of_x(
        "an index error names value and place", "input K : i64[k]\na[s] = V[K[s]]\noutput a", 2, "3", "0 .. 2", "s = 1"
    ),
    of_x("a negative index is one", "input K : i64[k]\na[s] = V[K[s] - 1]\noutput a", 2, "-1", "0 .. 2", "s = 2"),
    of_x("where does not guard data either", "input K : i64[k]\na[s] = where(K[s] < 3, V[K[s]], 0)\noutput a", 2, "3"),
    of_x("a key error too", "input K : i64[k]\na[K[s]: 2] = sum[s] 1\noutput a", 2, "3", "0 .. 1"),
    of_x(
        "in a function, at the call", "input K : i64[k]\nfn f(A[i], k) = A[k]\na[s] = f(V[i], K[s])\noutput a", 3, "3"
    ),
]
