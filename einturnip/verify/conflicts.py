"""Pairs of ops that use the same bytes, at least one of them writing."""

from __future__ import annotations

import numpy as np

from einturnip.verify.types import DROP, AccessRows, Bools, Ints, JudgedPlan, TierRange
from einturnip.verify.words import extent, op_name, value_name

PAIRS_AT_ONCE = 1 << 16


def conflicting(plan: JudgedPlan, a: Ints, b: Ints) -> Bools:
    """Return which of the pairs of ops conflict."""
    found = np.zeros(len(a), bool)
    if not len(a):
        return found
    read, write = (plan.read, plan.stop(plan.read)), (plan.write, plan.stop(plan.write))
    drops = plan.kind == DROP
    for first in range(0, len(a), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        x, y = a[part], b[part]
        found[part] = (
            _share_bytes(write, x, write, y) | _share_bytes(write, x, read, y) | _share_bytes(read, x, write, y)
        )
        # A drop ends the value that it reads, like a write.
        found[part] |= (drops[x] | drops[y]) & _share_bytes(read, x, read, y)
    return found


def _share_bytes(first_rows: tuple[AccessRows, Ints], x: Ints, second_rows: tuple[AccessRows, Ints], y: Ints) -> Bools:
    """Return for each pair of ops whether any of their rows share bytes.

    Rows are given with the ends of their ranges.
    """
    (one, one_stop), (two, two_stop) = first_rows, second_rows
    counts = np.diff(one.ptr)[x], np.diff(two.ptr)[y]
    pairs = counts[0] * counts[1]
    pair = np.repeat(np.arange(len(x)), pairs)
    at = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    i = one.ptr[x][pair] + at // np.maximum(1, counts[1])[pair]
    j = two.ptr[y][pair] + at % np.maximum(1, counts[1])[pair]
    shared = (one.tier[i] == two.tier[j]) & (one.start[i] < two_stop[j]) & (two.start[j] < one_stop[i])
    found: Bools = np.bincount(pair[shared], minlength=len(x)) > 0
    return found


def describe_conflict(plan: JudgedPlan, a: int, b: int) -> tuple[TierRange, str]:
    """Return the longest range of bytes that two ops share, and a sentence on how each uses it."""
    found: list[tuple[TierRange, str, str]] = []
    for verb, rows, row in _accesses(plan, a):
        for other_verb, other_rows, other in _accesses(plan, b):
            start = max(int(rows.start[row]), int(other_rows.start[other]))
            stop = min(plan.stop_of(rows, row), plan.stop_of(other_rows, other))
            disjoint = rows.tier[row] != other_rows.tier[other] or start >= stop
            if not disjoint and not verb == other_verb == "reads":
                place = TierRange(plan.tiers[rows.tier[row]].name, start, stop)
                uses = [
                    f"{v} {value_name(plan, int(r.value[k]))} at {extent(plan, r, k)}"
                    for v, r, k in ((verb, rows, row), (other_verb, other_rows, other))
                ]
                found.append((place, uses[0], uses[1]))
    place, one, two = max(found, key=lambda f: f[0].stop - f[0].start)
    text = f"{op_name(plan, a)} {one} and {op_name(plan, b)} {two}: both use {place}, and neither waits for the other"
    return place, text


def _accesses(plan: JudgedPlan, x: int) -> list[tuple[str, AccessRows, int]]:
    """Return the reads and writes of an op."""
    verb = "frees" if plan.kind[x] == DROP else "reads"
    sides = ((verb, plan.read), ("writes", plan.write))
    return [(v, rows, row) for v, rows in sides for row in range(*rows.ptr[x : x + 2].tolist())]
