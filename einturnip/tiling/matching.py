"""Assigns rows to distinct columns at minimal cost: the assignment problem.

Shortest augmenting paths are searched from all free rows at once, and all columns at the same distance are visited
together. The costs of kernel calls on sites have few distinct values, so a round reaches many free columns at once and
a few rounds are enough.

Sources: Kuhn, The Hungarian method (1955); Jonker and Volgenant, A shortest augmenting path algorithm for dense and
sparse linear assignment problems (1987); Hopcroft and Karp, An n^5/2 algorithm for maximum matchings in bipartite
graphs (1973), for many paths in one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def matching(costs: Sequence[Sequence[float]] | Floats) -> Ints:
    """Return a distinct column for each row with minimal sum.

    Rows first take free columns of their lowest cost, so that ties need no path.

    Shapes:
        costs: (rows, columns), no more rows than columns. result: (rows,).
    """
    a = np.asarray(costs, np.float64)
    n, m = a.shape
    # The reduced cost of an edge, a[i, j] - u[i] - v[j], is never negative, and 0 for matched edges.
    u, v = a.min(1, initial=np.inf), np.zeros(m)
    column_of, row_of = np.full(n, -1), np.full(m, -1)
    for i in range(n):
        lowest = np.flatnonzero((a[i] == u[i]) & (row_of < 0))
        if len(lowest):
            column_of[i], row_of[lowest[0]] = lowest[0], i
    while len(free := np.flatnonzero(column_of < 0)):
        _augment(a, u, v, column_of, row_of, free)
    return column_of


def _augment(a: Floats, u: Floats, v: Floats, column_of: Ints, row_of: Ints, free: Ints) -> None:
    """Match at least one of the ``free`` rows along shortest alternating paths, in place."""
    n, m = a.shape
    distance, via = np.full(m, np.inf), np.full(m, -1)  # of each column, and the row before it on its path
    row_distance, visited = np.full(n, np.inf), np.zeros(m, bool)
    rows, nearest = free, 0.0
    while True:
        row_distance[rows] = nearest
        reduced = a[rows] - v
        reduced -= (u[rows] - nearest)[:, None]
        found = reduced.min(0)
        closer = np.flatnonzero(~visited & (found < distance))
        # Of rows at the same distance, columns try first one row each, so that many paths have no row in common.
        turned = (np.arange(len(rows))[:, None] + closer * len(rows) // m) % len(rows)
        first = np.take_along_axis(reduced[:, closer] == found[closer], turned, 0).argmax(0)
        distance[closer], via[closer] = found[closer], rows[turned[first, np.arange(len(closer))]]
        left = np.where(visited, np.inf, distance)
        nearest = float(left.min())
        reached = np.flatnonzero(left <= nearest)
        visited[reached] = True
        ends = reached[row_of[reached] < 0]
        if len(ends):
            break
        rows = row_of[reached]
    inner = row_distance < np.inf
    u[inner] += nearest - row_distance[inner]
    v[visited] -= nearest - distance[visited]
    paths: dict[int, list[tuple[int, int]]] = {}  # by its first row; paths with different ones have nothing in common
    for end in ends.tolist():
        path = [(int(via[end]), end)]
        while (column := int(column_of[path[-1][0]])) >= 0:
            path.append((int(via[column]), column))
        paths.setdefault(path[-1][0], path)
    for i, j in chain.from_iterable(paths.values()):
        column_of[i], row_of[j] = j, i
