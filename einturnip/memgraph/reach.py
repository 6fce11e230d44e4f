"""Which op comes before which, in every order that the dependencies allow.

For each op the set of ops that reach it and that are asked for later, as the bits of one integer. A bit is used again
when its op is asked for no more, once it has been cleared from all sets, so a set is as long as questions are open, not
as the graph. A set is dropped with the last op that could pass it on to a question.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ops = NDArray[np.int32]
# Bits are cleared from the sets no sooner than this many of them are to be used again.
FEWEST_CLEARED = 64
# A dependency on an op further back than this is kept though others may imply it: sets have no more bits than this.
FARTHEST = 16384
OPS_AT_ONCE = 4096


def ancestry(ptr: Ints, after: Ops, last_asked: Ops, reduce: bool) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Walk the ops in order; dependencies have lower numbers, in order. Op ``u`` is asked for until ``last_asked[u]``.

    Yields, for each op: its id, the set of what reaches it, its dependencies, latest first (``reduce``: those that
    others are not known to imply), and for every op the set that holds it alone (0 where it has no bit).
    """
    n = len(ptr) - 1
    last = array("i", last_asked.tobytes())
    expiring = _by_last(last_asked)
    final = _final(ptr, after, last_asked)
    dropped = _by_last(final)
    passed_on = array("i", final.tobytes())
    reach: dict[int, int] = {}  # of ops that a successor will merge
    alone = [0] * n
    free: list[int] = []
    cleared: list[int] = []
    used = 0
    expires, drops = next(expiring, (n, 0)), next(dropped, (n, 0))
    for x, needed in _dependencies(ptr, after):
        found = 0
        if reduce and len(needed) > 1:
            edges_here, needed = needed, []
            for p in edges_here:
                # Latest first: whatever another dependency implies has been merged by the time it is met.
                if not found & alone[p]:
                    needed.append(p)
                    if p in reach:
                        found |= reach[p]
        else:
            for p in needed:
                if p in reach:
                    found |= reach[p]
        yield x, found, needed, alone
        while drops[0] == x:
            reach.pop(drops[1], None)
            drops = next(dropped, (n, 0))
        while expires[0] == x:
            cleared.append(alone[expires[1]])
            alone[expires[1]] = 0
            expires = next(expiring, (n, 0))
        if last[x] > x:
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
            found |= alone[x]
        if found and passed_on[x] > x:
            reach[x] = found


def _dependencies(ptr: Ints, after: Ops) -> Iterator[tuple[int, list[int]]]:
    """Each op with its dependencies, latest first."""
    n = len(ptr) - 1
    for start in range(0, n, OPS_AT_ONCE):
        ends = ptr[start : start + OPS_AT_ONCE + 1]
        edges = after[ends[0] : ends[-1]][::-1].tolist()
        places = (ends[-1] - ends).tolist()
        for k in range(len(places) - 1):
            yield start + k, edges[places[k + 1] : places[k]]


def _by_last(last: Ops) -> Iterator[tuple[int, int]]:
    """Each op with the one where it counts for the last time, in the order of those."""
    counting = np.flatnonzero(last > np.arange(len(last), dtype=np.int32)).astype(np.int32)
    order = counting[np.argsort(last[counting], kind="stable")]
    for start in range(0, len(order), OPS_AT_ONCE):
        part = order[start : start + OPS_AT_ONCE]
        yield from zip(last[part].tolist(), part.tolist(), strict=True)


def _final(ptr: Ints, after: Ops, last_asked: Ops) -> Ops:
    """For each op the last that waits for it and is no further than any question reaches."""
    n = len(ptr) - 1
    numbers = np.arange(n, dtype=np.int32)
    span = int((last_asked - numbers).max(initial=0))
    final = np.full(n, -1, np.int32)
    ops = np.repeat(numbers, np.diff(ptr))
    near = ops - after <= span
    np.maximum.at(final, after[near], ops[near])
    return final


def reduced(ptr: Ints, after: Ops) -> tuple[Ints, Ops]:
    """The same order without dependencies, of those at most FARTHEST ops back, that a longer path implies."""
    n = len(ptr) - 1
    ops = np.repeat(np.arange(n, dtype=np.int32), np.diff(ptr))
    after = after[np.lexsort((after, ops))]
    asked = np.flatnonzero((ops - after <= FARTHEST) & _doubtful(after, ops, n))
    last = np.full(n, -1, np.int32)
    np.maximum.at(last, after[asked], ops[asked])
    del ops, asked
    kept, ends = array("i"), array("q", [0])
    for _, _, needed, _ in ancestry(ptr, after, last, True):
        needed.reverse()
        kept.extend(needed)
        ends.append(len(kept))
    return np.array(ends, np.int64), np.array(kept, np.int32)


def _doubtful(after: Ops, ops: Ops, n: int) -> NDArray[np.bool_]:
    """Dependencies that others may imply: on a way p, s, ..., m, x both s and m stand between p and x."""
    earliest = np.full(n, n, np.int32)
    np.minimum.at(earliest, after, ops)
    latest = np.full(n, -1, np.int32)
    np.maximum.at(latest, ops, after)
    doubtful: NDArray[np.bool_] = (earliest[after] < ops) & (latest[ops] > after)
    return doubtful


def unordered(ptr: Ints, after: Ops, asked_ptr: Ints, asked: Ops) -> tuple[int, int] | None:
    """The first op x, with the first op u that ``asked[asked_ptr[x]:]`` says must reach it and does not; else None."""
    n = len(ptr) - 1
    ops = np.arange(n)
    edges = np.repeat(ops, np.diff(ptr)) * n + after
    edges.sort()
    after = (edges % max(1, n)).astype(np.int32)
    askers = np.repeat(ops, np.diff(asked_ptr))
    pairs = askers * n + asked
    at = np.minimum(np.searchsorted(edges, pairs), len(edges) - 1)
    open_ = edges[at] != pairs if len(edges) else np.ones(len(pairs), bool)  # an edge answers at once
    del edges, pairs, at
    askers, asked = askers[open_], asked[open_]
    last = np.full(n, -1, np.int32)
    np.maximum.at(last, asked, askers.astype(np.int32))
    if not len(asked):
        return None
    starts, asked_of = np.searchsorted(askers, np.arange(n + 1)).tolist(), asked.tolist()
    for x, found, _, alone in ancestry(ptr, after, last, False):
        for u in asked_of[starts[x] : starts[x + 1]]:
            if not found & alone[u]:
                return x, u
    return None
