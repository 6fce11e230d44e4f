"""Pairs of ops that use the same bytes, one of them writing."""

from __future__ import annotations

import numpy as np

from einturnip.verify.types import DROP, AccessRows, Bools, Ints, JudgedPlan, TierRange
from einturnip.verify.words import extent, op_name, value

PAIRS_AT_ONCE = 1 << 16


def conflicting(plan: JudgedPlan, a: Ints, b: Ints) -> Bools:
    """Which of the pairs of ops conflict."""
    found = np.zeros(len(a), bool)
    if not len(a):
        return found
    read, write = (plan.read, plan.stop(plan.read)), (plan.write, plan.stop(plan.write))
    drops = plan.kind == DROP
    for first in range(0, len(a), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        x, y = a[part], b[part]
        found[part] = _meet(write, x, write, y) | _meet(write, x, read, y) | _meet(read, x, write, y)
        # A drop ends what it reads, like a write.
        found[part] |= (drops[x] | drops[y]) & _meet(read, x, read, y)
    return found


def _meet(its: tuple[AccessRows, Ints], x: Ints, others: tuple[AccessRows, Ints], y: Ints) -> Bools:
    """For each pair of ops whether a row of the one shares bytes with a row of the other. Rows come with their ends."""
    (one, one_stop), (two, two_stop) = its, others
    counts = np.diff(one.ptr)[x], np.diff(two.ptr)[y]
    pairs = counts[0] * counts[1]
    pair = np.repeat(np.arange(len(x)), pairs)
    at = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    i = one.ptr[x][pair] + at // np.maximum(1, counts[1])[pair]
    j = two.ptr[y][pair] + at % np.maximum(1, counts[1])[pair]
    shared = (one.tier[i] == two.tier[j]) & (one.start[i] < two_stop[j]) & (two.start[j] < one_stop[i])
    found: Bools = np.bincount(pair[shared], minlength=len(x)) > 0
    return found


def story(plan: JudgedPlan, a: int, b: int) -> tuple[TierRange, str]:
    """The longest run of bytes that two ops share, and what each does with it."""
    found: list[tuple[TierRange, str, str]] = []
    for verb, rows, row in _accesses(plan, a):
        for other_verb, other_rows, other in _accesses(plan, b):
            start = max(int(rows.start[row]), int(other_rows.start[other]))
            stop = min(plan.stop_of(rows, row), plan.stop_of(other_rows, other))
            apart = rows.tier[row] != other_rows.tier[other] or start >= stop
            if not apart and not verb == other_verb == "reads":
                place = TierRange(plan.tiers[rows.tier[row]].name, start, stop)
                does = [
                    f"{v} {value(plan, int(r.value[k]))} at {extent(plan, r, k)}"
                    for v, r, k in ((verb, rows, row), (other_verb, other_rows, other))
                ]
                found.append((place, does[0], does[1]))
    place, one, two = max(found, key=lambda f: f[0].stop - f[0].start)
    text = f"{op_name(plan, a)} {one} and {op_name(plan, b)} {two}: both use {place}, and neither waits for the other"
    return place, text


def _accesses(plan: JudgedPlan, x: int) -> list[tuple[str, AccessRows, int]]:
    """Reads and writes of an op."""
    verb = "gives up" if plan.kind[x] == DROP else "reads"
    sides = ((verb, plan.read), ("writes", plan.write))
    return [(v, rows, row) for v, rows in sides for row in range(*rows.ptr[x : x + 2].tolist())]
