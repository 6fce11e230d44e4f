"""Slices, concatenation and reshaping: programs with what they must give, written by hand or in NumPy."""

import numpy as np

from tests.language.harness import Sentence

X = np.array([[1, 2, 3], [4, 5, 6]], np.float64)
Y = np.array([[1, 0], [2, -2], [3, 7]], np.float64)
XY = {"X": X, "Y": Y}
HEAD = "input X : f64[n, m]\ninput Y : f64[m, k]\n"

JOINING = [
    Sentence(
        "a transposed input may be a part",
        f"{HEAD}Z[i | j, c] = X[i,c] | Y[c,j]\noutput Z\n",
        {"Z": np.concatenate([X, Y.T])},
        XY,
    ),
    Sentence(
        "the parts may be joined along any axis, and one may be a number",
        f"{HEAD}dim e = 2\nZ[c, i | j | e] = X[i,c] | Y[c,j] | 0\noutput Z\n",
        {"Z": np.concatenate([X.T, Y, np.zeros((3, 2))], 1)},
        XY,
    ),
    Sentence(
        "a column may replace a row",
        f"{HEAD}Y[0, :] = X[:, 0]\noutput Y\n",
        {"Y": np.array([[1, 4], [2, -2], [3, 7]], np.float64)},
        XY,
    ),
]
