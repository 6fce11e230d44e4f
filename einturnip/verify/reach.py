"""Decides which pairs of ops are ordered by the dependencies, and counts the implied dependencies.

Most pairs are dependencies themselves. For the others, and for dependencies that may be implied, each op's set of
ancestors is propagated along the dependencies as the bits of one integer. A bit represents an op only while a query
needs it, and is then reused; a set is dropped after its last use. If the sets would exceed ``SETS_NBYTES``, some ops
get no bit and are left to another pass.
"""

from __future__ import annotations

import numpy as np

from einturnip.verify.types import Bools, Ints, JudgedPlan

SETS_NBYTES = 512 << 20
# Minimum number of unneeded bits before they are cleared from the sets and reused.
MIN_CLEARED = 64


class OrderQueries:
    """Pairs (u, x), u before x in the sweep: must u come before x in every order?

    Pairs that are dependencies themselves are dropped.
    """

    def __init__(self, plan: JudgedPlan) -> None:
        self.n = len(plan)
        self.ptr, self.after = plan.after_ptr, plan.after
        self._pending: list[Ints] = []

    def add(self, x: Ints, u: Ints) -> None:
        """Add pairs; the ``x`` of each call must be larger than those of the previous call."""
        if not len(x):
            return
        first, last = int(x[0]), int(x[-1]) + 1
        edges = slice(int(self.ptr[first]), int(self.ptr[last]))
        op = np.repeat(np.arange(first, last), np.diff(self.ptr[first : last + 1]))
        direct = op * self.n + self.after[edges]
        key = np.unique(x * self.n + u)
        self._pending.append(key[~_among(key, direct)])

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the remaining pairs, sorted by x."""
        key = np.concatenate(self._pending) if self._pending else np.empty(0, np.int64)
        n = max(1, self.n)
        return key // n, key % n


def _among(key: Ints, ordered: Ints) -> Bools:
    if not len(ordered):
        return np.zeros(len(key), bool)
    found: Bools = ordered[np.minimum(np.searchsorted(ordered, key), len(ordered) - 1)] == key
    return found


def answer_queries(plan: JudgedPlan, x: Ints, u: Ints) -> tuple[Bools, int]:
    """Return for each pair whether u comes before x in every order.

    Also return the number of dependencies that others imply.
    """
    op = np.repeat(np.arange(len(plan)), np.diff(plan.after_ptr))
    candidates = _maybe_implied(plan, op)
    # Dependencies that may be implied are queries too, answered without the dependency itself.
    later = np.concatenate([op[candidates], x])
    earlier = np.concatenate([plan.after[candidates], u])
    order = np.argsort(later, kind="stable")
    reached = np.zeros(len(later), bool)
    open_queries = order[earlier[order] < later[order]]
    while len(open_queries):
        open_queries = _walk(plan, later, earlier, open_queries, reached)
    implied = int(reached[: int(candidates.sum())].sum()) + plan.repeated
    return reached[int(candidates.sum()) :], implied


def _maybe_implied(plan: JudgedPlan, op: Ints) -> Bools:
    """Return the dependencies that others may imply: those that no known order disproves.

    p before x is implied by a path p, s, ..., m, x. Then s precedes x and p precedes m in any order of the ops and in
    the order of their depths.
    """
    n = len(plan)
    if not len(plan.after):
        return np.zeros(0, bool)
    after = plan.after.astype(np.int64)
    depth = _depths(plan)
    candidates = np.ones(len(after), bool)
    for rank in (np.arange(n), depth):
        earliest = np.full(n, n, np.int64)
        np.minimum.at(earliest, after, rank[op])
        latest = np.full(n, -1, np.int64)
        np.maximum.at(latest, op, rank[after])
        candidates &= (earliest[after] < rank[op]) & (latest[op] > rank[after])
    return candidates


def _depths(plan: JudgedPlan) -> Ints:
    """Return the length of the longest path to each op."""
    starts, after = plan.after_ptr.tolist(), plan.after.tolist()
    depth = [0] * len(plan)
    for x, (a, b) in enumerate(zip(starts, starts[1:], strict=False)):
        if b - a == 1:
            depth[x] = depth[after[a]] + 1
        elif b > a:
            depth[x] = max([depth[p] for p in after[a:b]]) + 1
    return np.array(depth, np.int64)


def _walk(plan: JudgedPlan, later: Ints, earlier: Ints, open_queries: Ints, reached: Bools) -> Ints:
    """Answer as many of ``open_queries`` (sorted by op) as the memory for sets allows; return the rest."""
    n = len(plan)
    until = np.full(n, -1, np.int64)
    np.maximum.at(until, earlier[open_queries], later[open_queries])
    final = np.full(n, -1, np.int64)
    np.maximum.at(final, plan.after, np.repeat(np.arange(n), np.diff(plan.after_ptr)))
    sets = _AncestorSets(until, final)
    first, last = int(earlier[open_queries].min()), int(later[open_queries].max())
    ptr, after = plan.after_ptr[first : last + 2].tolist(), plan.after.tolist()
    queries = zip(later[open_queries].tolist(), earlier[open_queries].tolist(), open_queries.tolist(), strict=True)
    x, u, number = next(queries)
    remaining = []
    for y in range(first, last + 1):
        before = after[ptr[y - first] : ptr[y - first + 1]]
        found = sets.ancestors_of(before)
        while x == y:
            bit = sets.bit.get(u)
            if bit is None:
                remaining.append(number)
            elif (found >> bit) & 1:
                reached[number] = True
            x, u, number = next(queries, (n, 0, 0))
        sets.step(y, before, found)
    return np.array(remaining, np.int64)


class _AncestorSets:
    """Sets of ancestors as bits.

    The bit of op p is needed until op ``until[p]``, its set until op ``final[p]``.
    """

    def __init__(self, until: Ints, final: Ints) -> None:
        self.until, self.final = until.tolist(), final.tolist()
        self.bit: dict[int, int] = {}
        self.reach: dict[int, int] = {}  # of ops with at least one needed ancestor
        self.expire = _by_number(until)
        self.drop: dict[int, list[int]] = {}
        self.free: list[int] = []
        self.cleared: list[int] = []
        self.used = 0
        self.nbytes = 0

    def ancestors_of(self, before: list[int]) -> int:
        """Return the union of the ancestors of some ops, without the ops themselves."""
        found, reach = 0, self.reach
        for p in before:
            if p in reach:
                found |= reach[p]
        return found

    def step(self, x: int, before: list[int], found: int) -> None:
        """Advance past op ``x``: ``found`` are the ancestors of the ops ``before`` it."""
        for p in before:
            if p in self.bit:
                found |= 1 << self.bit[p]
        for p in self.drop.pop(x, ()):
            self.nbytes -= self.reach.pop(p).bit_length() >> 3
        for p in self.expire.pop(x, ()):
            if p in self.bit:
                self.cleared.append(self.bit.pop(p))
        if self.until[x] > x and self.nbytes <= SETS_NBYTES:
            if not self.free and len(self.cleared) >= max(MIN_CLEARED, self.used // 2):
                found &= self._clear()
            if self.free:
                self.bit[x] = self.free.pop()
            else:
                self.bit[x] = self.used
                self.used += 1
        if found and self.final[x] > x:
            self.reach[x] = found
            self.nbytes += found.bit_length() >> 3
            self.drop.setdefault(self.final[x], []).append(x)

    def _clear(self) -> int:
        """Remove unneeded bits from all sets; return the mask of the remaining bits."""
        mask = ~sum(1 << bit for bit in self.cleared)
        for p in self.reach:
            self.reach[p] &= mask
        self.nbytes = sum(found.bit_length() >> 3 for found in self.reach.values())
        self.free, self.cleared = self.cleared, []
        return mask


def _by_number(until: Ints) -> dict[int, list[int]]:
    """Return the positions of each number."""
    of_interest = np.flatnonzero(until >= 0)
    found: dict[int, list[int]] = {}
    for p, x in zip(of_interest.tolist(), until[of_interest].tolist(), strict=True):
        found.setdefault(x, []).append(p)
    return found
