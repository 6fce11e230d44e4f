"""Which op comes before which, in every order that the dependencies allow.

For each op that is still of interest the set of such ops that reach it, as the bits of one integer: of interest are ops
that wait to be merged into a successor, or that will be asked for. A bit is used again when its op is of no interest
any more, once it has been cleared from all sets, so a set is as long as the frontier is wide, not as the graph.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# Bits are cleared from the sets no sooner than this many of them are to be used again.
FEWEST_CLEARED = 64


def ancestry(
    ptr: Ints, after: NDArray[np.int32], last_asked: Ints, reduce: bool
) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Walk the ops in order; dependencies have lower numbers. Op ``u`` is asked for until op ``last_asked[u]``.

    Yields, for each op: its id, the set of what reaches it, its dependencies, latest first (``reduce``: those that no
    other implies), and for every op the set that holds it alone (0 where it has no bit).
    """
    starts, edges = ptr.tolist(), array("i", after.astype(np.int32).tobytes())
    n = len(starts) - 1
    last = np.asarray(last_asked, np.int64).copy()
    np.maximum.at(last, after, np.repeat(np.arange(n), np.diff(ptr)))
    expiring = _by_last(last)
    merged = np.zeros(n, bool)
    merged[after] = True
    has_successor = merged.tolist()
    reach: dict[int, int] = {}  # of ops that a successor will merge
    alone = [0] * n
    free: list[int] = []
    cleared: list[int] = []
    used = 0
    last_of = last.tolist()
    for x in range(n):
        found = 0
        needed = sorted(edges[starts[x] : starts[x + 1]], reverse=True)
        if reduce and len(needed) > 1:
            edges_here, needed = needed, []
            for p in edges_here:
                # Latest first: whatever another dependency implies has been merged by the time it is met.
                if not found & alone[p]:
                    needed.append(p)
                    found |= reach[p]
        else:
            for p in needed:
                found |= reach[p]
        yield x, found, needed, alone
        for p in expiring.get(x, ()):
            cleared.append(alone[p])
            alone[p] = 0
            reach.pop(p, 0)
        if last_of[x] > x:
            if not free and len(cleared) >= max(FEWEST_CLEARED, used // 8):
                mask = ~sum(cleared)
                for op in reach:
                    reach[op] &= mask
                found &= mask
                free, cleared = cleared, []
            if free:
                alone[x] = free.pop()
            else:
                alone[x] = 1 << used
                used += 1
            if has_successor[x]:
                reach[x] = found | alone[x]


def _by_last(last: Ints) -> dict[int, list[int]]:
    """For each op those that are asked for there for the last time."""
    order = np.argsort(last, kind="stable")
    found: dict[int, list[int]] = {}
    for op, x in zip(order.tolist(), last[order].tolist(), strict=True):
        if x > op:
            found.setdefault(x, []).append(op)
    return found


def reduced(ptr: Ints, after: NDArray[np.int32]) -> tuple[Ints, NDArray[np.int32]]:
    """The transitive reduction: the same order with no dependency that a longer path implies."""
    kept: list[int] = []
    ends = [0]
    for _, _, needed, _ in ancestry(ptr, after, np.full(len(ptr) - 1, -1, np.int64), True):
        kept.extend(reversed(needed))
        ends.append(len(kept))
    return np.array(ends, np.int64), np.array(kept, np.int32)


def unordered(ptr: Ints, after: NDArray[np.int32], asked_ptr: Ints, asked: Ints) -> tuple[int, int] | None:
    """The first op x, with the first op u that ``asked[asked_ptr[x]:]`` says must reach it and does not; else None."""
    n = len(ptr) - 1
    ops = np.arange(n)
    edges = np.sort(np.repeat(ops, np.diff(ptr)) * n + after)
    askers = np.repeat(ops, np.diff(asked_ptr))
    pairs = askers * n + asked
    at = np.minimum(np.searchsorted(edges, pairs), len(edges) - 1)
    open_ = edges[at] != pairs if len(edges) else np.ones(len(pairs), bool)  # an edge answers at once
    last = np.full(n, -1, np.int64)
    np.maximum.at(last, asked[open_], askers[open_])
    starts = np.searchsorted(askers[open_], np.arange(n + 1)).tolist()
    asked_of = asked[open_].tolist()
    for x, found, _, alone in ancestry(ptr, after, last, False):
        for u in asked_of[starts[x] : starts[x + 1]]:
            if not found & alone[u]:
                return x, u
    return None
