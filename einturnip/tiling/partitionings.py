"""Enumerates the tilings of labels with a given total number of tiles, as extents along each label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from einturnip.tuning.search import MAX_PARTITIONINGS, MAX_TILED_LABELS

Ints = NDArray[np.int64]


@lru_cache(maxsize=4096)
def candidates(bounds: tuple[int, ...], parts: int, fixed: tuple[tuple[int, int], ...] = ()) -> Ints:
    """Return tile extents, one row per candidate, with ``parts`` tiles in total, or fewer if impossible.

    ``fixed`` are (label, tile extent) pairs; if they alone give more than ``parts``, no other label is tiled.
    """
    own = dict(fixed)
    forced = math.prod(-(-max(1, bounds[p]) // extent) for p, extent in fixed)
    longest = sorted((p for p in range(len(bounds)) if p not in own), key=lambda p: -bounds[p])[:MAX_TILED_LABELS]
    while True:
        free_bounds = [bounds[p] if p in longest else 1 for p in range(len(bounds))]
        rows: list[tuple[int, ...]] = []
        share = min(max(1, parts // forced), math.prod(max(1, n) for n in free_bounds)) + 1
        while not rows:  # one tile is always possible
            share -= 1
            rows = list(islice(_factorisations(free_bounds, share), MAX_PARTITIONINGS + 1))
        if len(rows) <= MAX_PARTITIONINGS:
            break
        longest.pop()
    tiles = np.array([[-(-b // d) for b, d in zip(bounds, row, strict=True)] for row in rows], np.int64)
    tiles = np.maximum(1, tiles.reshape(len(rows), len(bounds)))
    for p, extent in fixed:
        tiles[:, p] = extent
    return tiles


def one_at_a_time(bounds: tuple[int, ...], parts: int, labels: Iterable[int]) -> Ints:
    """Like ``candidates``, but tile one of ``labels`` alone; candidates with fewer tiles are dropped."""
    found = {
        p: next(d for d in range(min(parts, max(1, bounds[p])), 0, -1) if _divides_equally(bounds[p], d))
        for p in labels
    }
    most = max(found.values(), default=1)
    rows: list[Sequence[int]] = []
    for p, d in sorted(found.items()):
        if d == most > 1:
            rows.append([-(-b // d) if q == p else b for q, b in enumerate(bounds)])
    return np.maximum(1, np.array(rows or [bounds], np.int64).reshape(max(1, len(rows)), len(bounds)))


def _divides_equally(bound: int, count: int) -> bool:
    """Return whether a label can have ``count`` tiles of one extent, the last of which may be smaller."""
    bound = max(1, bound)
    return -(-bound // -(-bound // count)) == count


def _factorisations(bounds: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Return counts with product ``total`` that equal tiles can give."""
    if not bounds:
        if total == 1:
            yield ()
        return
    bound = max(1, bounds[0])
    for d in _divisors(total):
        if d <= bound and _divides_equally(bound, d):
            for rest in _factorisations(bounds[1:], total // d):
                yield (d, *rest)


@lru_cache(maxsize=4096)
def _divisors(n: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))
