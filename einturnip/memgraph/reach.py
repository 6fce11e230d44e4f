"""Reachability queries on the dependencies: which op precedes which in every order.

For each op, an integer holds as bits the set of ops that reach it and that a later query asks for. The bit of an op is
reused after its last query, once it has been cleared from all sets. So the length of a set depends on the number of
open queries, not on the size of the graph. A set is dropped after the last op that could pass it on to a query.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from einturnip.core.program_limits import checkpoint
from einturnip.tuning.memory import (
    MAX_EXACTLY_REDUCED,
    MAX_IMPLIED_DISTANCE,
    MIN_CLEARED,
    REDUCED_EDGES_AT_ONCE,
    ROWS_AT_ONCE,
)

Ints = NDArray[np.int64]
Ops = NDArray[np.int32]


def ancestry(ptr: Ints, after: Ops, last_query: Ops, reduce: bool) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Walk the ops in order and yield the set of ops that reach each of them.

    Dependencies have lower ids, in order. Op ``u`` is queried until op ``last_query[u]``. Yields for each op: its id,
    the set of the ops that reach it, its dependencies, latest first (with ``reduce`` without those known to be
    implied), and for every op its own bit (0 if it has none).
    """
    n = len(ptr) - 1
    last = array("i", last_query.tobytes())
    expiring = _by_last(last_query)
    final = _final(ptr, after, last_query)
    dropped = _by_last(final)
    passed_on = array("i", final.tobytes())
    reach: dict[int, int] = {}  # for ops with a successor still to come
    get = reach.get
    own_bit = [0] * n
    free: list[int] = []
    cleared: list[int] = []
    used = 0
    expires, drops = next(expiring, (n, 0)), next(dropped, (n, 0))
    for x, needed in _dependencies(ptr, after):
        found = 0
        if reduce and len(needed) > 1:
            edges_here, needed = needed, []
            for p in edges_here:
                # Latest first, so that the sets that imply an edge have been merged before it is tested.
                if not found & own_bit[p]:
                    needed.append(p)
                    found |= get(p, 0)
        else:
            for p in needed:
                found |= get(p, 0)
        yield x, found, needed, own_bit
        while drops[0] == x:
            reach.pop(drops[1], None)
            drops = next(dropped, (n, 0))
        while expires[0] == x:
            cleared.append(own_bit[expires[1]])
            own_bit[expires[1]] = 0
            expires = next(expiring, (n, 0))
        if last[x] > x:
            if not free and len(cleared) >= max(MIN_CLEARED, used // 8):
                mask = ~sum(cleared)
                for op in reach:
                    reach[op] &= mask
                found &= mask
                free, cleared = cleared, []
            if free:
                own_bit[x] = free.pop()
            else:
                own_bit[x] = 1 << used
                used += 1
            found |= own_bit[x]
        if found and passed_on[x] > x:
            reach[x] = found


def _dependencies(ptr: Ints, after: Ops) -> Iterator[tuple[int, list[int]]]:
    """Yield each op with its dependencies, latest first."""
    for start, stop in _parts(ptr):
        ends = ptr[start : stop + 1]
        edges = after[ends[0] : ends[-1]][::-1].tolist()
        places = (ends[-1] - ends).tolist()
        for k in range(len(places) - 1):
            yield start + k, edges[places[k + 1] : places[k]]


def _by_last(last: Ops) -> Iterator[tuple[int, int]]:
    """Yield pairs (last[op], op) for the ops with last[op] > op, sorted by last[op]."""
    counting = np.flatnonzero(last > np.arange(len(last), dtype=np.int32)).astype(np.int32)
    order = counting[np.argsort(last[counting], kind="stable")]
    for start in range(0, len(order), ROWS_AT_ONCE):
        part = order[start : start + ROWS_AT_ONCE]
        yield from zip(last[part].tolist(), part.tolist(), strict=True)


def _final(ptr: Ints, after: Ops, last_query: Ops) -> Ops:
    """Return for each op the last op that waits for it within the longest distance of a query."""
    n = len(ptr) - 1
    span = int((last_query - np.arange(n, dtype=np.int32)).max(initial=0))
    final = np.full(n, -1, np.int32)
    for ops, edges in dependency_pairs(ptr, after):
        near = ops - edges <= span
        np.maximum.at(final, edges[near], ops[near])
    return final


def reduced(ptr: Ints, after: Ops) -> tuple[Ints, Ops]:
    """Return the dependencies without those that longer paths imply.

    In a large graph within MAX_IMPLIED_DISTANCE ops. The dependencies of an op are sorted, in the argument and in the
    result.

    Raises:
        NeedsMore: the limit of planning is near.
    """
    last = _last_implied(ptr, after)
    kept, ends = array("i"), array("q", [0])
    for _, _, needed, _ in ancestry(ptr, after, last, True):
        checkpoint()
        needed.reverse()
        kept.extend(needed)
        ends.append(len(kept))
    return np.frombuffer(ends, np.int64), np.array(kept, np.int32)


def _last_implied(ptr: Ints, after: Ops) -> Ops:
    """Return for each op the last op whose dependency on it may be implied by others; -1 if none.

    On an implying path p, s, ..., m, x both s and m are between p and x.
    """
    n = len(ptr) - 1
    earliest = np.full(n, n, np.int32)
    for ops, edges in dependency_pairs(ptr, after):
        np.minimum.at(earliest, edges, ops)
    last = np.full(n, -1, np.int32)
    farthest = n if n <= MAX_EXACTLY_REDUCED else MAX_IMPLIED_DISTANCE
    for ops, edges in dependency_pairs(ptr, after):
        latest = after[ptr[ops + 1] - 1]
        maybe_implied = (earliest[edges] < ops) & (latest > edges) & (ops - edges <= farthest)
        np.maximum.at(last, edges[maybe_implied], ops[maybe_implied])
    return last


def dependency_pairs(ptr: Ints, after: Ops) -> Iterator[tuple[Ops, Ops]]:
    """Yield all dependencies in parts, as arrays of the waiting ops and of the ops they wait for."""
    for start, stop in _parts(ptr):
        ends = ptr[start : stop + 1]
        yield np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(ends)), after[ends[0] : ends[-1]]


def _parts(*ptrs: Ints) -> Iterator[tuple[int, int]]:
    """Yield ranges of ops that cover all ops; each has a bounded number of edges."""
    n, start = len(ptrs[0]) - 1, 0
    while start < n:
        fit = min(int(np.searchsorted(ptr, ptr[start] + REDUCED_EDGES_AT_ONCE, "right")) - 1 for ptr in ptrs)
        stop = min(max(start + 1, fit), start + ROWS_AT_ONCE, n)
        yield start, stop
        start = stop


def first_unordered(ptr: Ints, after: Ops, required_ptr: Ints, required: Ops) -> tuple[int, int] | None:
    """Return the first pair (x, u) such that a query requires that u reach x and it does not; else None.

    ``required[required_ptr[x]:required_ptr[x + 1]]`` are the ops that must reach x.
    """
    n = len(ptr) - 1
    after = after.copy()
    open_ops, open_required = array("i"), array("i")
    for start, stop in _parts(ptr, required_ptr):
        edges = _pairs(ptr, after, start, stop)
        edges.sort()
        after[ptr[start] : ptr[stop]] = edges % n
        pairs = _pairs(required_ptr, required, start, stop)
        if len(edges):  # a query that is itself an edge needs no walk
            pairs = pairs[edges[np.minimum(np.searchsorted(edges, pairs), len(edges) - 1)] != pairs]
        open_ops.extend((pairs // n).tolist())
        open_required.extend((pairs % n).tolist())
    if not open_required:
        return None
    last = np.full(n, -1, np.int32)
    np.maximum.at(last, np.frombuffer(open_required, np.int32), np.frombuffer(open_ops, np.int32))
    at, most = 0, len(open_required)
    for x, found, _, own_bit in ancestry(ptr, after, last, False):
        while at < most and open_ops[at] == x:
            if not found & own_bit[open_required[at]]:
                return x, open_required[at]
            at += 1
    return None


def _pairs(ptr: Ints, of: Ops, start: int, stop: int) -> Ints:
    """Return the edges of ops ``start`` to ``stop`` in ``of``, each as one number."""
    n = len(ptr) - 1
    return np.repeat(np.arange(start, stop), np.diff(ptr[start : stop + 1])) * n + of[ptr[start] : ptr[stop]]
