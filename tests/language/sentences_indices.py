"""Index arithmetic, gathers and scatters: programs with what they must give, in NumPy or plain loops."""

import numpy as np

from einturnip.testing.promotion import numpy_dtype
from tests.language.harness import Sentence

V = np.array([3, 1, -2, 5, 4], np.float32)
X = np.arange(12, dtype=np.float64).reshape(3, 4)
IMAGE = np.arange(30, dtype=np.float64).reshape(5, 6) % 7
KERNEL = np.array([[1, -1, 2], [0, 3, 1]], np.float64)
IDS = np.array([2, 0, 2, 1], np.int32)
WORDS = np.arange(15, dtype=np.float32).reshape(5, 3)
i8 = np.int64


def on_v(says: str, body: str, expected: object, left: str = "i", more: str = "") -> Sentence:
    """``Z[left] = body`` where V has one axis of n."""
    return Sentence(says, f"input V : f32[n]\n{more}Z[{left}] = {body}\noutput Z\n", {"Z": expected}, {"V": V})


def convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Y[i,j] = sum over p and q of image[i+p, j+q] kernel[p, q], by loops."""
    h, w = kernel.shape
    out = np.zeros((image.shape[0] - h + 1, image.shape[1] - w + 1))
    for i, j in np.ndindex(*out.shape):
        out[i, j] = sum(image[i + p, j + q] * kernel[p, q] for p in range(h) for q in range(w))
    return out


SHIFTED = np.array([0, 3, 1, -2, 5], np.float32)

INDICES = [
    Sentence(
        "Y[i,j] = sum[p,q] X[i+p, j+q] * W[p,q]",
        "input X : f64[h, w]\ninput W : f64[a, b]\nY[i,j] = sum[p,q] X[i+p, j+q] * W[p,q]\noutput Y\n",
        {"Y": convolved(IMAGE, KERNEL)},
        {"X": IMAGE, "W": KERNEL},
    ),
    Sentence(
        "and by the convention",
        "input X : f64[h, w]\ninput W : f64[a, b]\nY[i,j] = X[i+p, j+q] * W[p,q]\noutput Y\n",
        {"Y": convolved(IMAGE, KERNEL)},
        {"X": IMAGE, "W": KERNEL},
    ),
    Sentence(
        "the kernel may come first",
        "input X : f64[h, w]\ninput W : f64[a, b]\nY[i,j] = sum[p,q] W[p,q] * X[p+i, q+j]\noutput Y\n",
        {"Y": convolved(IMAGE, KERNEL)},
        {"X": IMAGE, "W": KERNEL},
    ),
    on_v("X[2*i]: the largest range for which every access is in bounds", "V[2*i]", V[::2]),
    on_v("X[2*i + 1]", "V[2*i + 1]", V[1::2]),
    on_v("X[n-1-i] reverses", "V[n-1-i]", V[::-1]),
    on_v("X[i + n - 2] counts from a size", "V[i + n - 2]", V[3:]),
    on_v("a number is allowed on either side", "V[1 + i]", V[1:]),
    on_v("offsets may be subtracted", "V[i + 3 - 1]", V[2:]),
    on_v("a label may be negated", "V[-i + 4]", V[::-1]),
    on_v("parentheses in an index", "V[2*(i + 1)]", V[2::2]),
    on_v("the smallest of the largest ranges counts", "V[i+1] + V[i+3]", V[1:3] + V[3:]),
    on_v("an axis where it stands alone counts before", "V[i] * W[2*i]", V * V, more="W[j: 2*n] = V[j // 2]\n"),
    on_v("a size written counts before all", "V[i+1] - V[i]", V[1:] - V[:-1], left="i: n-1"),
    on_v("and may be shorter than what would fit", "V[i+1]", V[1:3], left="i: 2"),
    on_v("and than the axis on which the label stands alone", "V[i]", V[:2], left="i: 2"),
    on_v("its dim's counts as written", "V[m + 1]", V[1:4], left="m", more="dim m = 3\n"),
    on_v("a label in two indices", "V[i] * V[n-1-i]", V * V[::-1]),
    on_v("a constant index reads a point", "V[0] * V[i]", V[0] * V),
    on_v("a size as a constant", "V[n-1] + V[i]", V[-1] + V),
    on_v("in an aggregation", "max[p: 3] V[i + p]", np.array([V[i : i + 3].max() for i in range(3)])),
    on_v("a range may be empty", "V[i + 1]", V[:0], left="i: 0"),
    Sentence("X[0, j]", "input X : f64[n, m]\nZ[j] = X[0, j]\noutput Z\n", {"Z": X[0]}, {"X": X}),
    Sentence(
        "X[i, i+1] takes a diagonal",
        "input X : f64[n, m]\nZ[i] = X[i, i+1]\noutput Z\n",
        {"Z": np.diagonal(X, 1)},
        {"X": X},
    ),
    Sentence(
        "several labels share an axis: X[2*i + j]",
        "input V : f32[n]\nZ[i: 2, j: 2] = V[2*i + j]\noutput Z\n",
        {"Z": V[:4].reshape(2, 2)},
        {"V": V},
    ),
    Sentence(
        "a Toeplitz matrix: X[i - j + n - 1]",
        "dim n = 3\ninput V : f32[2*n - 1]\nT[i: n, j: n] = V[i - j + n - 1]\noutput T\n",
        {"T": np.array([[V[i - j + 2] for j in range(3)] for i in range(3)])},
        {"V": V},
    ),
    on_v("X[i-1 ? 0] reads out of bounds as 0", "V[i-1 ? 0]", SHIFTED, left="i: n"),
    on_v("and sizes no label", "V[i] + V[i+2 ? 0]", V + np.array([-2, 5, 4, 0, 0], np.float32)),
    on_v("the value may be any", "V[i+1 ? -inf]", np.array([1, -2, 5, 4, -np.inf], np.float32), left="i: n"),
    on_v("and may depend on the label", "V[i+3 ? i * 10]", np.array([5, 4, 20, 30], np.float32), left="i: 4"),
    on_v("a guard before and behind", "V[i-2 ? 7]", np.array([7, 7, *V, 7], np.float32), left="i: n+3"),
    on_v(
        "three points of a stencil",
        "V[i-1 ? 0] - 2 * V[i] + V[i+1 ? 0]",
        np.array([0, *V, 0], np.float32)[:-2] - 2 * V + np.array([0, *V, 0], np.float32)[2:],
    ),
    Sentence(
        "a guard of each axis: padding",
        "input X : f64[n, m]\nZ[i: n+2, j: m+2] = X[i-1 ? 0, j-1 ? 0]\noutput Z\n",
        {"Z": np.pad(X, 1)},
        {"X": X},
    ),
    Sentence(
        "an integer tensor read as 0.5 out of bounds is f64",
        "input K : i32[n]\nZ[i: 5] = K[i ? 0.5]\noutput Z\n",
        {"Z": np.array([2, 0, 2, 1, 0.5])},
        {"K": IDS},
    ),
    Sentence(
        "a bool tensor read as true out of bounds",
        "input K : bool[n]\nZ[i: 4] = K[i ? true]\noutput Z\n",
        {"Z": np.array([False, True, True, True])},
        {"K": np.array([False, True])},
    ),
]

GATHERS = [
    Sentence(
        "H[s,d] = E[ids[s], d]",
        "input E : f32[v, d]\ninput ids : i32[s]\nH[s,d] = E[ids[s], d]\noutput H\n",
        {"H": WORDS[IDS]},
        {"E": WORDS, "ids": IDS},
    ),
    on_v("X[i // 2]", "V[i // 2]", V.repeat(2), left="i: 2*n"),
    on_v("X[i % 3] repeats", "V[i % 3]", np.array([3, 1, -2, 3, 1, -2, 3], np.float32), left="i: 7"),
    on_v("X[(i + n - 1) % n] rolls", "V[(i + n - 1) % n]", np.roll(V, 1), left="i: n"),
    Sentence(
        "the index may be computed",
        "input V : f32[n]\ninput ids : i32[s]\nZ[s] = V[ids[s] * 2 % 5]\noutput Z\n",
        {"Z": V[IDS * 2 % 5]},
        {"V": V, "ids": IDS},
    ),
    Sentence(
        "two axes by data",
        "input X : f64[n, m]\ninput ids : i32[s]\nZ[s] = X[ids[s], ids[s] + 1]\noutput Z\n",
        {"Z": X[IDS, IDS + 1]},
        {"X": X, "ids": IDS},
    ),
    Sentence(
        "an index of an index",
        "input V : f32[n]\ninput ids : i32[s]\nZ[s] = V[ids[ids[s]]]\noutput Z\n",
        {"Z": V[IDS[IDS]]},
        {"V": V, "ids": IDS},
    ),
    Sentence(
        "an index of several labels",
        "input V : f32[n]\ninput K : i64[a, b]\nZ[b, a] = V[K[a, b]]\noutput Z\n",
        {"Z": V[np.array([[0, 4], [2, 2], [1, 3]])].T},
        {"V": V, "K": np.array([[0, 4], [2, 2], [1, 3]])},
    ),
    Sentence(
        "an unsigned and a narrow index",
        "input V : f32[n]\ninput K : u8[s]\nZ[s] = V[K[s]]\noutput Z\n",
        {"Z": V[[4, 0]]},
        {"V": V, "K": np.array([4, 0], np.uint8)},
    ),
    Sentence(
        "an aggregation as an index",
        "input X : f64[n, m]\nZ[i] = X[i, argmax[j] -X[i,j]]\noutput Z\n",
        {"Z": X.min(1)},
        {"X": X},
    ),
    Sentence(
        "a bare name is an integer scalar where it is one",
        "input X : f64[n, m]\nk = 2\ninput l : i64\nZ[j] = X[k, j] + X[l, j]\noutput Z\n",
        {"Z": X[2] + X[1]},
        {"X": X, "l": np.array(1)},
    ),
    Sentence(
        "but a label where it is bound",
        "input X : f64[n, m]\nk = 2\nZ[k] = X[k, 0] + k\noutput Z\n",
        {"Z": X[:, 0] + np.arange(3)},
        {"X": X},
    ),
    Sentence(
        "gathered and contracted",
        "input E : f32[v, d]\ninput ids : i32[s]\nG[s,t] = sum[d] E[ids[s], d] * E[t, d]\noutput G\n",
        {"G": WORDS[IDS] @ WORDS.T},
        {"E": WORDS, "ids": IDS},
    ),
    Sentence(
        "a guarded gather reads the fill value out of range",
        "input V : f32[n]\ninput K : i64[s]\nZ[s] = V[K[s] ? -1]\noutput Z\n",
        {"Z": np.array([-1, 4, -1, 3], np.float32)},
        {"V": V, "K": np.array([-1, 4, 5, 0])},
    ),
    Sentence(
        "no index is read where nothing is wanted",
        "input V : f32[n]\ninput K : i64[s]\nZ[s] = V[K[s]]\noutput Z\n",
        {"Z": V[:0]},
        {"V": V, "K": np.zeros(0, i8)},
    ),
]


def keyed(agg: str, expected: object, dtype: str = "f64", exact: bool = True) -> Sentence:
    """``Y[K[i]: 4] = agg[i] x[i]`` with keys 2 0 2 1 2 0."""
    values = (VALUES > 1) if dtype == "bool" else VALUES.astype(numpy_dtype(dtype))
    text = f"input x : {dtype}[n]\ninput K : i32[n]\nY[K[i]: 4] = {agg}[i] x[i]\noutput Y\n"
    return Sentence(f"{agg} by key, of {dtype}", text, {"Y": expected}, {"x": values, "K": KEYS}, exact=exact)


KEYS = np.array([2, 0, 2, 1, 2, 0], np.int32)
VALUES = np.array([1, 5, 3, -2, 3, 4], np.float64)
ROWS = np.arange(18, dtype=np.float32).reshape(6, 3)
EDGES = np.array([[0, 1], [0, 2], [2, 1], [1, 1]])
GROUPED = np.stack([ROWS[np.equal(KEYS, g)].sum(0) for g in range(4)])

SCATTERS = [
    Sentence(
        "Y[k[i]: g, d] = sum[i] X[i, d]",
        "dim g = 4\ninput X : f32[n, d]\ninput k : i32[n]\nY[k[i]: g, d] = sum[i] X[i, d]\noutput Y\n",
        {"Y": GROUPED},
        {"X": ROWS, "k": KEYS},
    ),
    Sentence(
        "the key may stand behind other labels",
        "input X : f32[n, d]\ninput k : i32[n]\nY[d, k[i]: 4] = sum[i] X[i, d]\noutput Y\n",
        {"Y": GROUPED.T},
        {"X": ROWS, "k": KEYS},
    ),
    Sentence(
        "sum[i] 1 counts",
        "input k : i32[n]\nY[k[i]: 4] = sum[i] 1\noutput Y\n",
        {"Y": np.bincount(KEYS, minlength=4)},
        {"k": KEYS},
    ),
    keyed("sum", np.array([9, -2, 7, 0.0])),
    keyed("prod", np.array([20, -2, 9, 1.0])),
    keyed("max", np.array([5, -2, 3, -np.inf])),
    keyed("min", np.array([4, -2, 1, np.inf])),
    keyed("mean", np.array([4.5, -2, 7 / 3, np.nan]), exact=False),
    keyed("logsumexp", np.logaddexp.reduceat([5, 4, -2, 1, 3, 3], [0, 2, 3]).tolist() + [-np.inf], exact=False),
    keyed("argmax", np.array([1, 3, 2, -1])),
    keyed("argmin", np.array([5, 3, 0, -1])),
    keyed("any", np.array([True, False, True, False]), "bool"),
    keyed("all", np.array([True, False, False, True]), "bool"),
    keyed("sum", np.array([9, -2, 7, 0]), "i8"),
    keyed("max", np.array([5, -2, 3, -128], np.int8), "i8"),
    Sentence(
        "a key's label may be named like a size: the aggregation binds it",
        "dim n = 5\nY[n % 2: 2] = sum[n] n\noutput Y\n",
        {"Y": np.array([6, 4])},
        {},
    ),
    Sentence(
        "a key may carry the axes that '...' stands for where the right side does not",
        "input K : i64[n, m]\nfn f(A[..., i]) {\n  Z[..., A[..., j] % 2: 2] = sum[j] 1\n"
        "  return sum[o] Z[..., o] * A[..., i]\n}\nY[a, b] = f(K[a, b])\noutput Y\n",
        {"Y": 3 * np.arange(6).reshape(2, 3)},
        {"K": np.arange(6).reshape(2, 3)},
    ),
    Sentence(
        "any integer expression is a key",
        "input x : f64[n]\nY[i // 2 % 2: 2] = sum[i] x[i]\noutput Y\n",
        {"Y": np.array([6 + 7, 1.0])},
        {"x": VALUES},
    ),
    Sentence(
        "several labels are bound by the aggregation",
        "input X : f32[n, m]\ninput k : i32[n]\nY[k[i]: 4] = sum[i, j] X[i, j]\noutput Y\n",
        {"Y": GROUPED.sum(1)},
        {"X": ROWS, "k": KEYS},
    ),
    Sentence(
        "a key of a label on the left",
        "input X : f32[n, m]\ninput k : i64[n, m]\nY[i, k[i,j]: 2] = sum[j] X[i, j]\noutput Y\n",
        {"Y": np.stack([ROWS[:2, ::2].sum(1), ROWS[:2, 1]], axis=1)},
        {"X": ROWS[:2], "k": np.array([[0, 1, 0], [0, 1, 0]])},
    ),
    Sentence(
        "two keys",
        "input E : i64[e, 2]\nA[E[e,0]: 3, E[e,1]: 3] = sum[e] 1\noutput A\n",
        {"A": np.array([[0, 1, 1], [0, 1, 0], [0, 1, 0]])},
        {"E": EDGES},
    ),
    Sentence(
        "a term may read what the key reads, and more",
        "input x : f64[n]\ninput w : f64[g]\ninput K : i32[n]\nY[K[i]: g] = sum[i] x[i] * w[K[i]]\noutput Y\n",
        {"Y": np.array([9, -4, 21, 0.0])},
        {"x": VALUES, "w": np.array([1, 2, 3, 4.0]), "K": KEYS},
    ),
    Sentence(
        "a dtype asked for",
        "input x : f32[n]\ninput K : i32[n]\nY[K[i]: 4] = sum[i : f64] x[i]\noutput Y\n",
        {"Y": np.array([9, -2, 7, 0.0])},
        {"x": VALUES.astype(np.float32), "K": KEYS},
    ),
    Sentence(
        "nothing to group",
        "input x : f64[n]\ninput K : i32[n]\nY[K[i]: 2] = sum[i] x[i]\noutput Y\n",
        {"Y": np.zeros(2)},
        {"x": np.zeros(0), "K": np.zeros(0, np.int32)},
    ),
]
