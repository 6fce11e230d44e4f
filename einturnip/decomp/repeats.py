"""Where a graph repeats itself: layers of a model, steps of a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reads = Sequence[Sequence[int]]

# Nodes with more operands than this are taken to be alike to none.
MOST_OPERANDS = 8
# Periods that are tried, those first that most nodes speak for.
MOST_PERIODS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """``times`` segments of ``period`` nodes each, from node ``start`` on, which read themselves and one another alike.

    A node reads its own segment, the one before, or one of ``outer``, nodes before the run that all segments read.
    Of a segment only ``handed`` (places in it) are read by the next, and of the last by what comes after the run.
    """

    start: int
    period: int
    times: int
    outer: tuple[int, ...]
    handed: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The first node after the run."""
        return self.start + self.period * self.times


def runs(kinds: Sequence[int], reads: Reads) -> list[Run]:
    """Disjoint runs in order. ``kinds[v]`` is what node v is; ``reads[v]`` the nodes, all before v, that it reads."""
    found: list[Run] = []
    table = _table(reads)
    work = [(0, len(kinds))]
    while work:
        lo, hi = work.pop()
        best = None
        for period in _periods(kinds, lo, hi):
            run = _run(np.asarray(kinds), table, reads, lo, hi, period)
            if run is not None and (best is None or run.stop - run.start > best.stop - best.start):
                best = run
        if best is not None:
            found.append(best)
            work += [(lo, best.start), (best.stop, hi)]
    return sorted(found, key=lambda run: run.start)


def _table(reads: Reads) -> NDArray[np.int64]:
    """What each node reads, filled up with -1."""
    width = min(MOST_OPERANDS, max(map(len, reads), default=0))
    rows = [(*r, *[-1] * (width - len(r))) if len(r) <= width else (-2 - v,) * width for v, r in enumerate(reads)]
    return np.array(rows, np.int64).reshape(len(rows), width)


def _periods(kinds: Sequence[int], lo: int, hi: int) -> list[int]:
    """How far apart nodes of one kind stand."""
    last: dict[int, int] = {}
    votes: Counter[int] = Counter()
    for v in range(lo, hi):
        before = last.get(kinds[v])
        if before is not None:
            votes[v - before] += 1
        last[kinds[v]] = v
    return [period for period, _ in votes.most_common(MOST_PERIODS) if 3 * period <= hi - lo]


def _run(kinds: NDArray[np.int64], table: NDArray[np.int64], reads: Reads, lo: int, hi: int, period: int) -> Run | None:
    """The longest run of a period between two nodes."""
    now, before = table[lo + period : hi], table[lo : hi - period]
    alike = (kinds[lo + period : hi] == kinds[lo : hi - period]) & (
        (now == before) | ((now - period == before) & (before >= 0))
    ).all(1)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], alike.view(np.int8), [0]))))
    if not len(edges):
        return None
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    first, stop = lo + int(edges[2 * longest]), lo + period + int(edges[2 * longest + 1])
    if stop - first < 3 * period:
        return None
    crossing = _crossing(reads, first, period)
    start = first + crossing.index(min(crossing))
    times = (stop - start) // period
    return _checked(table, reads, start, period, times) if times >= 3 else None


def _crossing(reads: Reads, first: int, period: int) -> list[int]:
    """For each place where segments may begin, how many nodes of one the next reads."""
    last: dict[int, int] = {}
    for v in range(first, first + 3 * period):
        for u in reads[v]:
            last[u] = v
    count = [0] * (3 * period + 1)
    for u in range(first, first + 2 * period):
        for at in range(u + 1, min(last.get(u, u), u + period) + 1):
            count[at - first] += 1
    return count[period : 2 * period]


def _checked(table: NDArray[np.int64], reads: Reads, start: int, period: int, times: int) -> Run | None:
    """The run, if it is read as one may be."""
    stop = start + period * times
    rows = table[start + period : stop].reshape(times - 1, period, -1)
    fixed = (rows == rows[0]).all(0) & (rows[0] < start)
    step = np.arange(times - 1).reshape(-1, 1, 1) * period
    along = (rows - step == rows[0]).all(0) & (rows[0] >= start)
    if not (fixed | along).all():
        return None
    outer = sorted({int(u) for u in rows[0][fixed] if u >= 0})
    handed = {int(u) - start for u in rows[0][along] if u < start + period}
    for v in range(stop, len(reads)):
        for u in reads[v]:
            if start <= u < stop:
                if u < stop - period:
                    return None
                handed.add(u - (stop - period))
    return Run(start, period, times, tuple(outer), tuple(sorted(handed)))
