"""References of docs/examples/graphs."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from scipy.sparse import csgraph

from tests.examples.harness import Array, Example


def edges(rng: np.random.Generator, n: int, share: float) -> Array:
    """A random undirected graph of 0 and 1."""
    A = np.triu(rng.random((n, n)) < share, 1).astype(np.float64)
    return A + A.T


def pagerank(rng: np.random.Generator) -> Example:
    pages = 7
    source, target = rng.integers(pages - 1, size=12), rng.integers(pages, size=12)  # the last page has no links
    P = np.zeros((pages, pages))
    for s, t in zip(source, target, strict=True):
        P[s, t] += 1 / (source == s).sum()
    P[P.sum(1) == 0] = 1 / pages
    G = 0.85 * P + 0.15 / pages
    r = np.full(pages, 1 / pages) @ np.linalg.matrix_power(G, 6)
    inputs = {"source": source, "target": target}
    return Example(inputs, {"r": r, "best": r.argmax()}, {"pages": pages, "steps": 6})


def shortest_paths(rng: np.random.Generator) -> Example:
    n = 8
    W = np.where(rng.random((n, n)) < 0.5, rng.integers(1, 10, (n, n)), np.inf)
    D = csgraph.floyd_warshall(np.where(np.isinf(W), 0, W))
    far = D.max(1)
    expected = {"D": D, "far": far, "diameter": far.max(), "centre": far.argmin()}
    return Example({"W": W}, expected, {"squarings": 3})


def triangles(rng: np.random.Generator) -> Example:
    A = edges(rng, 9, 0.5)
    near = [set(np.flatnonzero(row)) for row in A]
    through = [sum(b in near[c] for b in near[v] for c in near[v]) / 2 for v in range(9)]
    clustering = [t / (len(s) * (len(s) - 1) / 2) if len(s) > 1 else 0 for t, s in zip(through, near, strict=True)]
    jaccard = [[len(a & b) / len(a | b) if a | b else 0 for b in near] for a in near]
    expected = {"through": through, "clustering": clustering, "jaccard": jaccard}
    return Example({"A": A.astype(np.float32)}, {k: np.asarray(v, np.float32) for k, v in expected.items()})


def components(rng: np.random.Generator) -> Example:
    v = 8
    a, b = rng.integers(v, size=(2, 5))
    graph = scipy.sparse.coo_array((np.ones(5), (a, b)), (v, v))
    count, label = csgraph.connected_components(graph, directed=False)
    least = np.array([np.flatnonzero(label == k).min() for k in label])
    expected = {"c": least, "sizes": np.bincount(least, minlength=v), "count": np.asarray(count)}
    return Example({"a": a, "b": b}, expected, {"v": v})


def spectral(rng: np.random.Generator) -> Example:
    A = np.zeros((6, 6))
    A[:3, :3] = A[3:, 3:] = 1
    A[2, 3] = A[3, 2] = 1
    np.fill_diagonal(A, 0)
    begin = rng.normal(size=6)
    fiedler = np.linalg.eigh(csgraph.laplacian(A))[1][:, 1]
    side = fiedler * np.sign(fiedler @ begin) > 0
    return Example({"A": A, "begin": begin}, {"side": side, "crossing": np.asarray(1.0)}, {"steps": 20})
