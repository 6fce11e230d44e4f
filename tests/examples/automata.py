"""References of docs/examples/automata."""

from __future__ import annotations

import re
from itertools import permutations, product

import numpy as np

from tests.examples.harness import Example


def machine(rng: np.random.Generator) -> Example:
    following = np.array([[1, 0], [1, 2], [1, 0]], np.int32)  # words over a, b that end in 'ab'
    words = rng.integers(2, size=(12, 5)).astype(np.int32)
    texts = ["".join("ab"[letter] for letter in word) for word in words]
    at = np.array([2 if text.endswith("ab") else int(text.endswith("a")) for text in texts], np.int32)
    accepted = np.array([re.fullmatch("[ab]*ab", text) is not None for text in texts])
    inputs = {"next": following, "accepting": np.array([False, False, True]), "words": words}
    return Example(inputs, {"at": at, "accepted": accepted, "visits": np.bincount(at, minlength=3)})


def nondeterministic(rng: np.random.Generator) -> Example:
    step, word = rng.random((2, 4, 4)) < 0.5, rng.integers(2, size=5)
    ways = np.zeros(4, np.int64)
    for path in product(range(4), repeat=5):
        whole = (0, *path)
        ways[path[-1]] += all(step[word[k], whole[k], whole[k + 1]] for k in range(5))
    return Example({"step": step, "word": word}, {"may": ways > 0, "ways": ways})


def widest_path(rng: np.random.Generator) -> Example:
    n = 5
    width = np.where(rng.random((n, n)) < 0.6, rng.integers(1, 10, (n, n)), 0).astype(np.float64)
    chance = np.where(width > 0, rng.uniform(size=(n, n)), 0)
    B, R = np.diag(np.full(n, np.inf)), np.eye(n)
    for i, j in product(range(n), repeat=2):
        others = [k for k in range(n) if k not in (i, j)]
        for length in range(n - 1 if i != j else 0):
            for between in permutations(others, length):
                path = [i, *between, j]
                hops = list(zip(path, path[1:], strict=False))
                B[i, j] = max(B[i, j], min(width[hop] for hop in hops))
                R[i, j] = max(R[i, j], np.prod([chance[hop] for hop in hops]))
    return Example({"width": width, "chance": chance}, {"B": B, "R": R}, {"squarings": 3})


def tropical_scheduling(rng: np.random.Generator) -> Example:
    n, steps = 4, 5
    A = np.where(rng.random((n, n)) < 0.7, rng.integers(1, 9, (n, n)), -np.inf).astype(np.float64)
    A[np.arange(n), np.arange(n) - 1] = 5  # a ring: every state depends on every other
    X = [np.zeros(n)]
    for _ in range(steps):
        X.append((A + X[-1]).max(1))
    means = []  # of every cycle
    for length in range(1, n + 1):
        for cycle in permutations(range(n), length):
            means.append(sum(A[cycle[k], cycle[k - 1]] for k in range(length)) / length)
    return Example({"A": A}, {"X": np.stack(X), "cycle": max(means)}, {"steps": steps})


def rule110(rng: np.random.Generator) -> Example:
    first = rng.integers(2, size=12).astype(np.uint8)
    rows = [list(first)]
    table = dict(zip(product((1, 0), repeat=3), (0, 1, 1, 0, 1, 1, 1, 0), strict=True))
    for _ in range(5):
        around = [0, *rows[-1], 0]
        rows.append([table[tuple(int(cell) for cell in around[i : i + 3])] for i in range(12)])
    return Example({"first": first}, {"P": np.array(rows, np.uint8)}, {"generations": 6})
