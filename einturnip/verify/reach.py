"""Which of the asked pairs of ops are ordered by the dependencies, and how many dependencies others imply.

Most pairs are dependencies themselves. For the others, and for dependencies that may be implied, each op's set of
ancestors is pushed along the dependencies as the bits of one integer. A bit stands for an op only while it is of
interest, then for another; and a set is dropped with its last use. Where even so the sets would take more than
``SETS_NBYTES``, ops get no bit and are left to another walk.
"""

from __future__ import annotations

import numpy as np

from einturnip.verify.types import Bools, Ints, JudgedPlan

SETS_NBYTES = 512 << 20
# Bits are cleared from the sets no sooner than this many of them are to be used again.
FEWEST_CLEARED = 64


class Questions:
    """Pairs (u, x), u before x in the walk: must u come before x in every order? Keeps those that are no dependency."""

    def __init__(self, plan: JudgedPlan) -> None:
        self.n = len(plan)
        self.ptr, self.after = plan.after_ptr, plan.after
        self._kept: list[Ints] = []

    def ask(self, x: Ints, u: Ints) -> None:
        """Ask pairs; the ``x`` of each call are larger than those of the last one."""
        if not len(x):
            return
        first, last = int(x[0]), int(x[-1]) + 1
        edges = slice(int(self.ptr[first]), int(self.ptr[last]))
        op = np.repeat(np.arange(first, last), np.diff(self.ptr[first : last + 1]))
        direct = op * self.n + self.after[edges]
        key = np.unique(x * self.n + u)
        self._kept.append(key[~_among(key, direct)])

    def pairs(self) -> tuple[Ints, Ints]:
        """The pairs that are left, by x."""
        key = np.concatenate(self._kept) if self._kept else np.empty(0, np.int64)
        n = max(1, self.n)
        return key // n, key % n


def _among(key: Ints, ordered: Ints) -> Bools:
    if not len(ordered):
        return np.zeros(len(key), bool)
    found: Bools = ordered[np.minimum(np.searchsorted(ordered, key), len(ordered) - 1)] == key
    return found


def answer(plan: JudgedPlan, x: Ints, u: Ints) -> tuple[Bools, int]:
    """For each pair whether u comes before x in every order; and the number of dependencies that others imply."""
    op = np.repeat(np.arange(len(plan)), np.diff(plan.after_ptr))
    doubtful = _doubtful(plan, op)
    # Dependencies that may be implied are asked like the pairs, only without themselves.
    asked = np.concatenate([op[doubtful], x])
    other = np.concatenate([plan.after[doubtful], u])
    order = np.argsort(asked, kind="stable")
    reached = np.zeros(len(asked), bool)
    left = order[other[order] < asked[order]]
    while len(left):
        left = _walk(plan, asked, other, left, reached)
    implied = int(reached[: int(doubtful.sum())].sum()) + plan.repeated
    return reached[int(doubtful.sum()) :], implied


def _doubtful(plan: JudgedPlan, op: Ints) -> Bools:
    """Dependencies that others may imply: those that no order met so far disproves.

    p before x is implied by a way p, s, ..., m, x. Then s stands before x and p before m in any order of the ops and in
    the order of their depths.
    """
    n = len(plan)
    if not len(plan.after):
        return np.zeros(0, bool)
    after = plan.after.astype(np.int64)
    depth = _depths(plan)
    doubtful = np.ones(len(after), bool)
    for rank in (np.arange(n), depth):
        earliest = np.full(n, n, np.int64)
        np.minimum.at(earliest, after, rank[op])
        latest = np.full(n, -1, np.int64)
        np.maximum.at(latest, op, rank[after])
        doubtful &= (earliest[after] < rank[op]) & (latest[op] > rank[after])
    return doubtful


def _depths(plan: JudgedPlan) -> Ints:
    """The length of the longest way to each op."""
    starts, after = plan.after_ptr.tolist(), plan.after.tolist()
    depth = [0] * len(plan)
    for x, (a, b) in enumerate(zip(starts, starts[1:], strict=False)):
        if b - a == 1:
            depth[x] = depth[after[a]] + 1
        elif b > a:
            depth[x] = max([depth[p] for p in after[a:b]]) + 1
    return np.array(depth, np.int64)


def _walk(plan: JudgedPlan, asked: Ints, other: Ints, left: Ints, reached: Bools) -> Ints:
    """Answer as many of the questions ``left`` (sorted by op) as the room for sets allows; returns the rest."""
    n = len(plan)
    until = np.full(n, -1, np.int64)
    np.maximum.at(until, other[left], asked[left])
    final = np.full(n, -1, np.int64)
    np.maximum.at(final, plan.after, np.repeat(np.arange(n), np.diff(plan.after_ptr)))
    sets = _Sets(until, final)
    first, last = int(other[left].min()), int(asked[left].max())
    ptr, after = plan.after_ptr[first : last + 2].tolist(), plan.after.tolist()
    questions = zip(asked[left].tolist(), other[left].tolist(), left.tolist(), strict=True)
    x, u, number = next(questions)
    rest = []
    for y in range(first, last + 1):
        before = after[ptr[y - first] : ptr[y - first + 1]]
        found = sets.beyond(before)
        while x == y:
            bit = sets.bit.get(u)
            if bit is None:
                rest.append(number)
            elif (found >> bit) & 1:
                reached[number] = True
            x, u, number = next(questions, (n, 0, 0))
        sets.step(y, before, found)
    return np.array(rest, np.int64)


class _Sets:
    """Sets of ancestors as bits. Op p is of interest until op ``until[p]``; its set is, until op ``final[p]``."""

    def __init__(self, until: Ints, final: Ints) -> None:
        self.until, self.final = until.tolist(), final.tolist()
        self.bit: dict[int, int] = {}
        self.reach: dict[int, int] = {}  # of ops that have any of interest before them
        self.expire = _by_number(until)
        self.drop: dict[int, list[int]] = {}
        self.free: list[int] = []
        self.cleared: list[int] = []
        self.used = 0
        self.nbytes = 0

    def beyond(self, before: list[int]) -> int:
        """What reaches any of some ops, these not counted."""
        found, reach = 0, self.reach
        for p in before:
            if p in reach:
                found |= reach[p]
        return found

    def step(self, x: int, before: list[int], found: int) -> None:
        """Go past op ``x``: ``found`` is what reaches those ``before`` it."""
        for p in before:
            if p in self.bit:
                found |= 1 << self.bit[p]
        for p in self.drop.pop(x, ()):
            self.nbytes -= self.reach.pop(p).bit_length() >> 3
        for p in self.expire.pop(x, ()):
            if p in self.bit:
                self.cleared.append(self.bit.pop(p))
        if self.until[x] > x and self.nbytes <= SETS_NBYTES:
            if not self.free and len(self.cleared) >= max(FEWEST_CLEARED, self.used // 2):
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
        """Take the bits of no interest out of all sets; returns what is left of any set."""
        mask = ~sum(1 << bit for bit in self.cleared)
        for p in self.reach:
            self.reach[p] &= mask
        self.nbytes = sum(found.bit_length() >> 3 for found in self.reach.values())
        self.free, self.cleared = self.cleared, []
        return mask


def _by_number(until: Ints) -> dict[int, list[int]]:
    """For each number the positions that have it."""
    wanted = np.flatnonzero(until >= 0)
    found: dict[int, list[int]] = {}
    for p, x in zip(wanted.tolist(), until[wanted].tolist(), strict=True):
        found.setdefault(x, []).append(p)
    return found
