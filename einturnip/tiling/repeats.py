"""Finds repeated segments of a graph, such as layers of a model or steps of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from einturnip.tuning.search import LONG_SEGMENT, MAX_PERIODS, MAX_REPEATED_OPERANDS

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RepeatedRun:
    """``times`` segments of ``period`` nodes from node ``start`` on, all with the same reads.

    A node reads its own segment, the one before, or one of ``outer``, nodes before the run that all segments read. Only
    the nodes ``passed_on`` (positions in a segment) are read by the next segment and, in the last segment, by nodes
    after the run.
    """

    start: int
    period: int
    times: int
    outer: tuple[int, ...]
    passed_on: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The first node after the run."""
        return self.start + self.period * self.times


@dataclass(frozen=True, slots=True)
class ReadEdges:
    """Reads as rows: the node that is read, its reader (ascending), and the operand slot.

    Negative numbers in ``made`` are tensors that are not nodes; equal numbers are equivalent tensors.
    """

    made: Ints
    reader: Ints
    slot: Ints

    @staticmethod
    def of(reads: Sequence[Sequence[int]]) -> ReadEdges:
        """Build the edges from the operands of each node."""
        sizes = np.fromiter(map(len, reads), np.int64, len(reads))
        made = np.fromiter(chain.from_iterable(reads), np.int64, int(sizes.sum()))
        slot = np.arange(len(made)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return ReadEdges(made, np.repeat(np.arange(len(sizes)), sizes), slot)

    def where(self, some: NDArray[np.bool_] | Ints) -> ReadEdges:
        """Select some edges, or all in another order."""
        return ReadEdges(self.made[some], self.reader[some], self.slot[some])


def runs(kinds: Sequence[int], edges: ReadEdges) -> list[RepeatedRun]:
    """Return disjoint runs in order. ``kinds[v]`` is the kind of node v; it reads nodes before it."""
    found: list[RepeatedRun] = []
    numbers = np.array(kinds, np.int64)
    few = edges.where(edges.slot < MAX_REPEATED_OPERANDS)
    table = np.full((int(few.slot.max(initial=-1)) + 1, len(kinds)), -1, np.int64)
    table[few.slot, few.reader] = few.made
    many = np.unique(edges.reader[edges.slot >= MAX_REPEATED_OPERANDS])
    numbers[many] = -1 - many
    made = edges.where(edges.made >= 0)
    work = [(0, len(kinds))]
    while work:
        lo, hi = work.pop()
        best = None
        for period in _periods(numbers[lo:hi]):
            run = _run(numbers, table, made, lo, hi, period)
            if run is not None and (best is None or run.stop - run.start > best.stop - best.start):
                best = run
            if best is not None and 2 * (best.stop - best.start) > hi - lo:
                break
        if best is not None:
            found.append(best)
            work += [(lo, best.start), (best.stop, hi)]
    return sorted(found, key=lambda run: run.start)


def _periods(kinds: Ints) -> list[int]:
    """Return the distances between nodes of one kind."""
    order = np.argsort(kinds, kind="stable")
    equal = kinds[order][1:] == kinds[order][:-1]
    votes = np.bincount((order[1:] - order[:-1])[equal])
    most = np.argsort(-votes, kind="stable")[:MAX_PERIODS]
    return [period for period in most[votes[most] > 0].tolist() if _min_segments(period) * period <= len(kinds)]


def _min_segments(period: int) -> int:
    """Return the minimum number of segments of a useful run."""
    return 2 if period >= LONG_SEGMENT else 3


def _run(kinds: Ints, table: Ints, edges: ReadEdges, lo: int, hi: int, period: int) -> RepeatedRun | None:
    """Return the longest run of a period between two nodes."""
    now, before = table[:, lo + period : hi], table[:, lo : hi - period]
    equal = (kinds[lo + period : hi] == kinds[lo : hi - period]) & (
        (now == before) | ((now - period == before) & (before >= 0))
    ).all(0)
    ends = np.flatnonzero(np.diff(np.concatenate(([0], equal.view(np.int8), [0]))))
    if not len(ends):
        return None
    longest = int(np.argmax(ends[1::2] - ends[::2]))
    first, stop = lo + int(ends[2 * longest]), lo + period + int(ends[2 * longest + 1])
    min_segments = _min_segments(period)
    spare = stop - first - min_segments * period
    if spare < 0:
        return None
    crossing = _crossing(edges, first, period)[: spare + 1]
    start = first + crossing.index(min(crossing))
    return _checked(table, edges, start, period, (stop - start) // period)


def _crossing(edges: ReadEdges, first: int, period: int) -> list[int]:
    """Return for each possible start of segments the number of nodes that the next segment reads."""
    near = slice(*np.searchsorted(edges.reader, (first, first + 3 * period)).tolist())
    last = dict(zip(edges.made[near].tolist(), edges.reader[near].tolist(), strict=True))
    step = [0] * (3 * period + 2)
    for u in range(first, first + 2 * period):
        step[u + 1 - first] += 1
        step[max(u, min(last.get(u, u), u + period)) + 1 - first] -= 1
    return list(accumulate(step))[period : 2 * period]


def _checked(table: Ints, edges: ReadEdges, start: int, period: int, times: int) -> RepeatedRun | None:
    """Return the run if its reads repeat."""
    stop = start + period * times
    rows = table[:, start + period : stop].T.reshape(times - 1, period, -1)
    fixed = (rows == rows[0]).all(0) & (rows[0] < start)
    step = np.arange(times - 1).reshape(-1, 1, 1) * period
    along = (rows - step == rows[0]).all(0) & (rows[0] >= start)
    if not (fixed | along).all():
        return None
    outer = sorted({int(u) for u in rows[0][fixed] if u >= 0})
    passed_on = {int(u) - start for u in rows[0][along] if u < start + period}
    after = edges.made[np.searchsorted(edges.reader, stop) :]
    after = after[(after >= start) & (after < stop)]
    if (after < stop - period).any():
        return None
    return RepeatedRun(
        start, period, times, tuple(outer), tuple(sorted(passed_on | set((after - (stop - period)).tolist())))
    )
