"""References of docs/examples/sequences."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from tests.examples.harness import Example


def edit_distance(rng: np.random.Generator) -> Example:
    a, b = ([ord(letter) for letter in word] for word in ("intention", "execution"))

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        change = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, change)

    inputs = {"a": np.array(a, np.int32), "b": np.array(b, np.int32)}
    return Example(inputs, {"distance": np.asarray(distance(len(a), len(b)))})


def smith_waterman(rng: np.random.Generator) -> Example:
    a, b = rng.integers(4, size=6), rng.integers(4, size=5)
    S = np.where(np.eye(4), 3, -1).astype(np.float32)
    H = np.zeros((7, 6), np.float32)
    for i in range(1, 7):
        for j in range(1, 6):
            H[i, j] = max(0, H[i - 1, j - 1] + S[a[i - 1], b[j - 1]], H[i - 1, j] - 2, H[i, j - 1] - 2)
    row, column = np.unravel_index(H.argmax(), H.shape)
    return Example({"a": a, "b": b, "S": S}, {"H": H, "score": H.max(), "row": row, "column": column})


def viterbi(rng: np.random.Generator) -> Example:
    s, symbols, t = 3, 4, 5
    initial, transition, emission = (rng.dirichlet(np.ones(n), m) for n, m in ((s, None), (s, s), (symbols, s)))
    seen = rng.integers(symbols, size=t)
    chances = {}  # of every path
    for path in product(range(s), repeat=t):
        p = initial[path[0]] * emission[path[0], seen[0]]
        for k in range(1, t):
            p *= transition[path[k - 1], path[k]] * emission[path[k], seen[k]]
        chances[path] = p
    best = max(chances, key=lambda path: chances[path])
    expected = {"path": np.array(best), "best": np.log(chances[best]), "likelihood": np.log(sum(chances.values()))}
    return Example({"initial": initial, "transition": transition, "emission": emission, "seen": seen}, expected)


def knapsack(rng: np.random.Generator) -> Example:
    weight, value = rng.integers(1, 8, 7), rng.integers(1, 20, 7)
    best = np.zeros(16, np.int64)
    for taken in product((0, 1), repeat=7):
        w, v = weight @ taken, value @ taken
        best[w:] = np.maximum(best[w:], v)
    return Example({"weight": weight, "value": value}, {"best": best, "most": best[-1]}, {"limit": 15})


def kmers(rng: np.random.Generator) -> Example:
    genome = rng.integers(4, size=25).astype(np.uint8)
    count = np.zeros((4, 4, 4), np.int64)
    for word in np.lib.stride_tricks.sliding_window_view(genome, 3):
        count[tuple(word)] += 1
    p = np.bincount(genome, minlength=4) / 25
    expected = 23 * np.einsum("a,b,c->abc", p, p, p)
    ratio = np.log(np.maximum(count, 1) / expected) * (count > 0)
    return Example({"genome": genome}, {"count": count.ravel(), "ratio": ratio})


def motif(rng: np.random.Generator) -> Example:
    sequences, odds = rng.integers(4, size=(3, 11)), rng.normal(size=(4, 4)).astype(np.float32)
    score = np.array([[sum(odds[k, row[i + k]] for k in range(4)) for i in range(8)] for row in sequences])
    expected = {"score": score, "place": score.argmax(1), "best": score.max(1)}
    return Example({"sequences": sequences, "odds": odds}, expected)
