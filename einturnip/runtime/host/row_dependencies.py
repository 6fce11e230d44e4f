"""Dependencies of a prepared run, which omits transfers without a copy and runs some ops together.

Ops are numbered by their position among those that are not omitted. A row is one op, or ops that run as one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from einturnip.core.distinct import sorted_distinct
from einturnip.core.units import whole_lines
from einturnip.memgraph.types import COMPUTE, MemGraph
from einturnip.tuning.memory import SEPARATE_NBYTES


@dataclass(frozen=True)
class RowSchedule:
    """The columns of ScheduledOps for rows."""

    kind: NDArray[np.uint8]
    unit: NDArray[np.int32]
    seconds: NDArray[np.float64]
    after_ptr: NDArray[np.int64]
    after: NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kind)


def row_schedule(
    graph: MemGraph, rows: Sequence[Sequence[int]], seconds: Sequence[float], waits: Sequence[Sequence[int]]
) -> RowSchedule:
    """Return the columns for rows of a graph's ops.

    ``seconds``, ``waits``: the duration and the dependencies of each row.
    """
    first = np.array([ops[0] for ops in rows], np.int64)
    ptr = np.cumsum([0, *map(len, waits)], dtype=np.int64)
    after = np.fromiter(chain.from_iterable(waits), np.int32)
    return RowSchedule(graph.kind[first], graph.unit[first], np.array(seconds, np.float64), ptr, after)


def dependencies(graph: MemGraph, ops: Sequence[int], is_external: Callable[[int], bool]) -> list[list[int]]:
    """Return the earlier ops that each of ``ops`` waits for.

    Dependencies that others imply are left out. An op waits for another if one of them writes bytes that the other
    uses. Ops of one unit do not: the unit's lock separates them, in any order. ``is_external``: tells whether a value
    is outside the arena in this run.
    """

    def bytes_of(offset: int, nbytes: int, value: int) -> tuple[int, int]:
        # An external value has an interval of its own below 0, which overlaps only with itself.
        return (-1 - value, -value) if is_external(value) else (offset, offset + nbytes)

    rows = [
        (k, *bytes_of(offset, nbytes, value), writes)
        for k, i in enumerate(ops)
        for writes, ptr, side in ((False, graph.read_ptr, graph.read), (True, graph.write_ptr, graph.write))
        for tier, offset, nbytes, value in side[ptr[i] : ptr[i + 1]].tolist()
        if tier == COMPUTE and nbytes
    ]
    touched = np.array(rows, np.int64).reshape(-1, 4)
    begins = np.searchsorted(touched[:, 0], np.arange(len(ops) + 1))
    unit = graph.unit[np.array(ops, np.int64)]
    waits = list[list[int]]()
    before: list[int] = []  # for each op, a bit mask of the ops that have ended when it starts
    for k in range(len(ops)):
        op, begin, end, writes = touched[: begins[k]].T
        overlaps = np.zeros(len(op), np.bool_)
        for _, low, high, write in touched[begins[k] : begins[k + 1]].tolist():
            overlaps |= (begin < high) & (low < end) & ((writes != 0) | bool(write))
        found = sorted_distinct(op[overlaps])
        direct, ended = list[int](), 0
        for p in found[(unit[found] < 0) | (unit[found] != unit[k])][::-1].tolist():
            if not ended >> p & 1:
                direct.insert(0, p)
                ended |= before[p] | 1 << p
        waits.append(direct)
        before.append(ended)
    return waits


def merged(
    waits: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]
) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """Merge each group of ops with equal dependencies; return each row's ops and dependencies."""
    by_first = {group[0]: tuple(group) for group in groups}
    others = {k for group in groups for k in group[1:]}
    rows = [by_first.get(k, (k,)) for k in range(len(waits)) if k not in others]
    place = {k: row for row, members in enumerate(rows) for k in members}
    return rows, [list(dict.fromkeys(place[p] for p in waits[members[0]])) for members in rows]


def is_sequential(waits: Sequence[Sequence[int]], parallel: Container[int]) -> bool:
    """Return whether no two rows can run at the same time.

    Rows in ``parallel`` are exempt: they use all workers.
    """
    ended = list[int]()  # for each row, a bit mask of the rows that have ended when it starts
    single = 0  # bit mask of the rows that one worker runs
    for k, direct in enumerate(waits):
        before = 0
        for p in direct:
            before |= ended[p] | 1 << p
        ended.append(before)
        if k not in parallel:
            if single & ~before:
                return False
            single |= 1 << k
    return True


def separate_values(graph: MemGraph, is_external: Callable[[int], bool]) -> MemGraph:
    """Return the graph with separate bytes for every value and workspace, if their total is small.

    Reused bytes make ops wait for each other that could run at the same time. When most values are outside the arena,
    no reuse is needed.
    """
    place, total = dict[int, int](), 0
    columns = graph.read.copy(), graph.write.copy()
    for column in columns:
        for row in np.flatnonzero(column[:, 0] == COMPUTE).tolist():
            _, _, nbytes, value = column[row].tolist()
            if value >= 0 and is_external(value):
                column[row, 1] = 0
                continue
            if value < 0 or value not in place:
                place[value], total = total, total + whole_lines(nbytes)
            column[row, 1] = place[value]
    if total > SEPARATE_NBYTES:
        return graph
    return replace(graph, read=columns[0], write=columns[1])
