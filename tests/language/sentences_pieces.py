"""Slices, slices replaced, concatenation, axes merged and split: programs with what NumPy gives."""

import numpy as np

from tests.language.harness import Sentence

X = np.arange(12, dtype=np.float64).reshape(3, 4)
Y = -np.arange(8, dtype=np.float64).reshape(2, 4)
V = np.array([3, 1, -2, 5], np.float64)
T = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def on_x(says: str, line: str, expected: object, **more: object) -> Sentence:
    """One line that makes Z of X, and of V or what else is given."""
    inputs = {"X": X, "V": V} | more
    declared = "".join(
        f"input {k} : {'f32' if np.asarray(v).dtype == np.float32 else 'f64'}[{', '.join(map(str, np.shape(v)))}]\n"
        for k, v in inputs.items()
    )
    return Sentence(says, f"{declared}{line}\noutput Z\n", {"Z": expected}, inputs)


SLICES = [
    on_x("Y[:, j] = X[a:b, j]", "Z[:, j] = X[1:3, j]", X[1:3]),
    on_x("a slice goes to the end", "Z[:, j] = X[1:, j]", X[1:]),
    on_x("or from the start", "Z[:, j] = X[:2, j]", X[:2]),
    on_x("or is the whole axis", "Z[:, j] = X[:, j]", X),
    on_x("the colon may stand elsewhere", "Z[j, :] = X[1:3, j]", X[1:3].T),
    on_x("the first slice goes with the first colon, and so on", "Z[:, :] = X[0:2, 1:3]", X[:2, 1:3]),
    on_x("of each access", "Z[:, j] = X[0:2, j] * X[1:3, j]", X[:2] * X[1:]),
    on_x("slices of different tensors", "Z[:, i] = V[0:3] + X[i, 1:4]", V[:3, None] + X[:, 1:].T),
    on_x("a slice that is missing broadcasts", "Z[:, j] = X[0:2, j] * V[j]", X[:2] * V),
    on_x("a slice may be empty", "Z[:, j] = X[1:1, j]", X[1:1]),
    on_x("in an aggregation", "Z[:] = sum[j] X[1:3, j]", X[1:3].sum(1)),
    on_x("sizes may bound a slice", "dim n = 2\nZ[:, j] = X[n-1:n+1, j]", X[1:3]),
]

REPLACED = [
    on_x("a number on the left replaces that slice", "Z[i,j] = X[i,j]\nZ[1, j] = V[j]", np.stack([X[0], V, X[2]])),
    on_x("of any axis", "Z[i,j] = X[i,j]\nZ[i, 2] = -1", np.array([*X.T[:2], [-1] * 3, X.T[3]]).T),
    on_x("several numbers replace less", "Z[i,j] = X[i,j]\nZ[1, 3] = 100", np.where(X == 7, 100, X)),
    on_x("with a colon for the rest", "Z[i,j] = X[i,j]\nZ[0, :] = V[0:4]", np.stack([V, X[1], X[2]])),
    on_x("a size may say where", "dim n = 2\nZ[i,j] = X[i,j]\nZ[n-1, j] = 0", np.stack([X[0], 0 * V, X[2]])),
    on_x("an input may be replaced in part", "X[0, j] = V[j]\nZ[i,j] = X[i,j]", np.stack([V, X[1], X[2]])),
    on_x(
        "the right side reads what was there",
        "Z[i,j] = X[i,j]\nZ[2, j] = Z[2, j] + Z[0, j]",
        np.stack([X[0], X[1], X[2] + X[0]]),
    ),
    on_x(
        "a column may replace a row",
        "X[0, :] = V[0:4]\nU[0, :] = X[:, 0]\nZ[i,j] = U[i,j]",
        np.array([[3, 4, 8], [0, 0, 0.0]]),
        U=np.zeros((2, 3)),
    ),
    on_x(
        "missing labels are summed there too",
        "Z[i,j] = X[i,j]\nZ[1, j] = X[i, j] * V[j]",
        np.stack([X[0], X.sum(0) * V, X[2]]),
    ),
    Sentence(
        "H[u, d] = where(u == t, h[d], H[u, d]): dtypes meet",
        "input K : i32[n]\nK[1] = 0.5\noutput K\n",
        {"K": np.array([7, 0.5, 9])},
        {"K": np.array([7, 8, 9], np.int32)},
    ),
    Sentence(
        "H[u, d] = where(u == t, h[d], H[u, d]): a literal leaves the dtype",
        "input K : i8[n]\nK[1] = 2\noutput K\n",
        {"K": np.array([7, 2, 9], np.int8)},
        {"K": np.array([7, 8, 9], np.int8)},
    ),
]

JOINED = [
    on_x(
        "a label's size in one part holds in the parts after it",
        "Z[j, i: 2 | k: 1] = V[2 * j] | V[0]",
        np.array([[3, 3, 3], [-2, -2, 3.0]]),
    ),
    on_x(
        "a label that a part aggregates is its own",
        "Z[i, j: 1 | k] = (sum[i] V[i]) | X[i, k]",
        np.concatenate([np.full((3, 1), 7.0), X], axis=1),
    ),
    on_x("Z[i | j, d] = X[i,d] | Y[j,d]", "Z[i | j, d] = X[i,d] | Y[j,d]", np.concatenate([X, Y]), Y=Y),
    on_x("along a later axis", "Z[d, i | j] = X[i,d] | Y[j,d]", np.concatenate([X, Y]).T, Y=Y),
    on_x("three parts", "Z[i | j | k] = V[i] | V[j] | V[k]", np.concatenate([V, V, V])),
    on_x("parts are any expressions", "Z[i | j] = V[i] * 2 | sum[k] X[j, k]", np.concatenate([V * 2, X.sum(1)])),
    on_x("a label with its dim's size", "dim k = 2\nZ[k | i] = 0 | V[i]", np.concatenate([[0, 0], V])),
    on_x("indices in a part", "Z[i | j] = V[3 - i] | V[j + 2]", np.concatenate([V[::-1], V[2:]])),
    on_x("a label with its size written", "Z[i | e: 2] = V[i] | 0", np.concatenate([V, [0, 0]])),
    on_x("a sized label first", "Z[e: 2 | i] = e | V[i]", np.concatenate([[0, 1], V])),
    on_x("one amid", "Z[i | e: 2 | k] = V[i] | e + 1 | V[k]", np.concatenate([V, [1, 2], V])),
    on_x("an empty part", "dim k = 0\nZ[k | i] = 0 | V[i]", V),
    Sentence(
        "numbers first, beside integers",
        "input W : i8[i]\nZ[e: 2 | i] = 1 | W[i]\noutput Z\n",
        {"Z": np.array([1, 1, 3])},
        {"W": np.array([3], np.int8)},
    ),
    Sentence(
        "numbers last, beside integers",
        "input W : i8[i]\nZ[i | e: 2] = W[i] | 1\noutput Z\n",
        {"Z": np.array([3, 1, 1])},
        {"W": np.array([3], np.int8)},
    ),
    on_x("dtypes meet", "Z[i | j] = F[i] | V[j]", np.concatenate([[1.0, 2.0], V]), F=np.array([1, 2], np.float32)),
    on_x("a transposed input may be a part", "Z[i | j, c] = X[i,c] | U[c,j]", np.concatenate([X, Y]), U=Y.T.copy()),
    on_x(
        "along any axis, one part a number",
        "dim e = 2\nZ[c, i | j | e] = X[i,c] | Y[j,c] | 0",
        np.concatenate([X.T, Y.T, np.zeros((4, 2))], 1),
        Y=Y,
    ),
    on_x("each joined label may carry its size", "Z[a: 2 | i | b: 3] = 0 | V[i] | 1", np.array([0, 0, *V, 1, 1, 1])),
]

RESHAPED = [
    on_x("Z[(h e), s] = X[s, h, e] merges, e fastest", "Z[(h e), s] = T[s, h, e]", T.reshape(2, 12).T, T=T),
    on_x("in another order of the axes", "Z[(e h), s] = T[s, h, e]", T.transpose(2, 1, 0).reshape(12, 2), T=T),
    on_x("three labels", "Z[(a b c)] = T[a, b, c]", T.ravel(), T=T),
    on_x(
        "twice on a left side",
        "Z[(a b), (c d)] = T[a, b, c] * V[d]",
        np.einsum("abc,d->abcd", T, V).reshape(6, 16),
        T=T,
    ),
    on_x("Z[h, e, s] = X[s, (h e)] splits", "Z[h: 2, e, s] = X[s, (h e)]", X.reshape(3, 2, 2).transpose(1, 2, 0)),
    on_x(
        "one unknown size is inferred, whichever", "Z[h, e: 2, s] = X[s, (h e)]", X.reshape(3, 2, 2).transpose(1, 2, 0)
    ),
    on_x(
        "merged and split again",
        "Y[s, (e h)] = T[s, h, e]\nZ[s, h: 3, e] = Y[s, (e h)]",
        T,
        T=T,
    ),
    on_x(
        "heads of attention",
        "dim h = 2\nQ[s, h, e] = X[s, (h e)]\nZ[s, h] = sum[e] Q[s,h,e]",
        X.reshape(3, 2, 2).sum(2),
    ),
]
