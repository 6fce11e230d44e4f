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
# Graphs of at most so many ops are reduced exactly. Of larger ones a dependency on an op further back than FARTHEST is
# kept though others may imply it: sets have no more bits than that, and what is implied from afar is little.
EXACT, FARTHEST = 8192, 1024
OPS_AT_ONCE, EDGES_AT_ONCE = 4096, 1 << 15


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
    get = reach.get
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
                    found |= get(p, 0)
        else:
            for p in needed:
                found |= get(p, 0)
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
    for start, stop in _parts(ptr):
        ends = ptr[start : stop + 1]
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
    span = int((last_asked - np.arange(n, dtype=np.int32)).max(initial=0))
    final = np.full(n, -1, np.int32)
    for ops, edges in dependency_pairs(ptr, after):
        near = ops - edges <= span
        np.maximum.at(final, edges[near], ops[near])
    return final


def reduced(ptr: Ints, after: Ops) -> tuple[Ints, Ops]:
    """The same order without dependencies that longer paths imply; of a large graph, of those at most FARTHEST ops.

    An op's dependencies are in order, here and there.
    """
    last = _last_doubtful(ptr, after)
    kept, ends = array("i"), array("q", [0])
    for _, _, needed, _ in ancestry(ptr, after, last, True):
        needed.reverse()
        kept.extend(needed)
        ends.append(len(kept))
    return np.frombuffer(ends, np.int64), np.array(kept, np.int32)


def _last_doubtful(ptr: Ints, after: Ops) -> Ops:
    """For each op the last that waits for it and may not need to: others may say it, and it is near; -1 for none.

    On a way p, s, ..., m, x both s and m stand between p and x.
    """
    n = len(ptr) - 1
    earliest = np.full(n, n, np.int32)
    for ops, edges in dependency_pairs(ptr, after):
        np.minimum.at(earliest, edges, ops)
    last = np.full(n, -1, np.int32)
    farthest = n if n <= EXACT else FARTHEST
    for ops, edges in dependency_pairs(ptr, after):
        latest = after[ptr[ops + 1] - 1]
        doubtful = (earliest[edges] < ops) & (latest > edges) & (ops - edges <= farthest)
        np.maximum.at(last, edges[doubtful], ops[doubtful])
    return last


def dependency_pairs(ptr: Ints, after: Ops) -> Iterator[tuple[Ops, Ops]]:
    """Each dependency, as who waits and what for, some at a time."""
    for start, stop in _parts(ptr):
        ends = ptr[start : stop + 1]
        yield np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(ends)), after[ends[0] : ends[-1]]


def _parts(*ptrs: Ints) -> Iterator[tuple[int, int]]:
    """Ops from one to another, all of them in turn: no more edges of each kind at once than memory is for."""
    n, start = len(ptrs[0]) - 1, 0
    while start < n:
        fit = min(int(np.searchsorted(ptr, ptr[start] + EDGES_AT_ONCE, "right")) - 1 for ptr in ptrs)
        stop = min(max(start + 1, fit), start + OPS_AT_ONCE, n)
        yield start, stop
        start = stop


def first_unordered(ptr: Ints, after: Ops, asked_ptr: Ints, asked: Ops) -> tuple[int, int] | None:
    """The first op x, with the first op u that ``asked[asked_ptr[x]:]`` says must reach it and does not; else None."""
    n = len(ptr) - 1
    after = after.copy()
    askers_open, asked_open = array("i"), array("i")
    for start, stop in _parts(ptr, asked_ptr):
        edges = _pairs(ptr, after, start, stop)
        edges.sort()
        after[ptr[start] : ptr[stop]] = edges % n
        pairs = _pairs(asked_ptr, asked, start, stop)
        if len(edges):  # an edge answers at once
            pairs = pairs[edges[np.minimum(np.searchsorted(edges, pairs), len(edges) - 1)] != pairs]
        askers_open.extend((pairs // n).tolist())
        asked_open.extend((pairs % n).tolist())
    if not asked_open:
        return None
    last = np.full(n, -1, np.int32)
    np.maximum.at(last, np.frombuffer(asked_open, np.int32), np.frombuffer(askers_open, np.int32))
    at, most = 0, len(asked_open)
    for x, found, _, alone in ancestry(ptr, after, last, False):
        while at < most and askers_open[at] == x:
            if not found & alone[asked_open[at]]:
                return x, asked_open[at]
            at += 1
    return None


def _pairs(ptr: Ints, of: Ops, start: int, stop: int) -> Ints:
    """What ``of`` says of ops ``start`` to ``stop``, one number for each pair."""
    n = len(ptr) - 1
    return np.repeat(np.arange(start, stop), np.diff(ptr[start : stop + 1])) * n + of[ptr[start] : ptr[stop]]
