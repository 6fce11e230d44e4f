"""Rows of a task graph as Python numbers, and ops as growing columns that are frozen into a MemGraph."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.core.distinct import sorted_distinct
from einturnip.core.errors import TooLarge
from einturnip.core.program_limits import checkpoint
from einturnip.memgraph.reach import reduced
from einturnip.memgraph.types import FILES, Lane, MemGraph, OpKind
from einturnip.taskgraph.types import TaskGraph
from einturnip.tuning.memory import (
    EDGES_AT_ONCE,
    MAX_EDGES_PER_OP,
    MIN_EDGES_TO_REDUCE,
    PAIRS_AT_ONCE,
    TASKS_BUILT_AT_ONCE,
)

Ints = NDArray[np.int64]
Ops = NDArray[np.int32]


MOVES = np.array([kind.lane != Lane.COMPUTE for kind in OpKind])


class PlanLimits(NamedTuple):
    """Largest useful plan: number of ops, and bytes over all links. None: unlimited."""

    ops: int | None = None
    nbytes: int | None = None


UNLIMITED = PlanLimits()


class OpColumns:
    """Appends ops; their ids count from 0 and dependencies point to lower ids only.

    Raises:
        TooLarge: the ops clearly exceed the limits.
    """

    def __init__(self, limits: PlanLimits = UNLIMITED) -> None:
        self.limits, self.moved = limits, 0
        self.kind, self.task, self.unit, self.seconds = array("B"), array("i"), array("i"), array("d")
        self.read_ptr, self.read = array("q", [0]), array("q")
        self.write_ptr, self.write = array("q", [0]), array("q")
        # Dependencies of the last ops as stated by the builder; those of earlier ops as checked.
        self.after_ptr, self.after = array("q", [0]), array("i")
        self.possible_ptr, self.possible = array("q", [0]), array("i")
        self.checked_ptr, self.checked = array("q", [0]), array("i")
        self.n_reduced = 0
        self.close(0, 0, 0, [])

    def append(
        self,
        kind: OpKind,
        task: int,
        unit: int,
        seconds: float,
        reads: Sequence[int],
        writes: Sequence[int],
        after: Iterable[int],
        possible: Iterable[int] = (),
    ) -> int:
        """Add one op and return its id. ``reads``, ``writes``: flat rows of (tier, offset, nbytes, value).

        ``after``: ops that share bytes with it and end before it starts. ``possible``: ops that may share bytes with
        it.
        """
        self.kind.append(kind)
        self.task.append(task)
        self.unit.append(unit)
        self.seconds.append(seconds)
        self.read.extend(reads)
        self.read_ptr.append(len(self.read) // 4)
        self.write.extend(writes)
        self.write_ptr.append(len(self.write) // 4)
        certain = {*after}
        self.after.extend(certain)
        self.after_ptr.append(len(self.after))
        if possible:
            self.possible.extend({*possible} - certain)
        self.possible_ptr.append(len(self.possible))
        if len(self.after) + len(self.possible) >= EDGES_AT_ONCE:
            self._settle()
        return len(self.kind) - 1

    def close(self, capacity: int, spill: int, peak: int, origin: Iterable[int], arenas: tuple[int, ...] = ()) -> None:
        """Record the sizes of arenas and spill file, the peak, and the later versions of states."""
        self.capacity, self.spill, self.peak, self.origin = capacity, spill, peak, origin
        self.arenas = arenas

    def freeze(self, tasks: TaskGraph) -> MemGraph:
        """Return the graph without implied dependencies. The graph takes over the columns."""
        self._settle()
        after_ptr, after = self._reduced()
        del self.checked_ptr, self.checked
        return MemGraph(
            tasks,
            self.capacity,
            self.spill,
            self.peak,
            _column(self.kind, np.uint8),
            _column(self.task, np.int32),
            _column(self.unit, np.int32),
            _column(self.seconds, np.float64),
            _column(self.read_ptr, np.int64),
            _column(self.read, np.int64).reshape(-1, 4),
            _column(self.write_ptr, np.int64),
            _column(self.write, np.int64).reshape(-1, 4),
            after_ptr,
            after,
            _column(array("i", self.origin), np.int32),
            arenas=self.arenas,
        )

    def _settle(self) -> None:
        """Check the possible dependencies of the last ops.

        Keep those that share bytes that one of both writes. They are only possible because a segment is coarser than
        the bytes that ops use: it has padding, or was merged.
        """
        done, n = len(self.checked_ptr) - 1, len(self.kind)
        if self.limits.ops is not None and n > self.limits.ops:
            done = 1 + max(self.task)
            raise TooLarge(f"a plan of more than {self.limits.ops} ops takes more memory than there is", n, done)
        self.moved += self._moved_since(done)
        if self.limits.nbytes is not None and self.moved > self.limits.nbytes:
            raise TooLarge(f"a plan that moves more than {self.limits.nbytes} bytes is of no use")
        after, ops = _edges(self.after_ptr, self.after, done)
        u, x = _edges(self.possible_ptr, self.possible, done)
        reads, writes = _Touched(self.read_ptr, self.read), _Touched(self.write_ptr, self.write)
        kept = writes.overlaps(u, writes, x) | writes.overlaps(u, reads, x) | reads.overlaps(u, writes, x)
        after, ops = np.concatenate([after, u[kept]]), np.concatenate([ops, x[kept]])
        order = np.lexsort((after, ops))
        ends = len(self.checked) + np.cumsum(np.bincount(ops - done, minlength=n - done))
        self.checked.frombytes(after[order].astype(np.int32).tobytes())
        self.checked_ptr.frombytes(ends.astype(np.int64).tobytes())
        self.after_ptr, self.after = array("q", [0]), array("i")
        self.possible_ptr, self.possible = array("q", [0]), array("i")
        if len(self.checked) > max(2 * self.n_reduced, MIN_EDGES_TO_REDUCE, MAX_EDGES_PER_OP * n):
            ptr, edges = self._reduced()
            self.n_reduced = len(edges)
            self.checked_ptr, self.checked = array("q", ptr.tobytes()), array("i", edges.tobytes())

    def _moved_since(self, first: int) -> int:
        """Return the bytes that transfers move from op ``first`` on."""
        kinds, begins = np.frombuffer(self.kind, np.uint8)[first:], np.frombuffer(self.read_ptr, np.int64)[first:-1]
        return int(np.frombuffer(self.read, np.int64)[4 * begins[MOVES[kinds]] + 2].sum())

    def _reduced(self) -> tuple[Ints, Ops]:
        """Return the checked dependencies without those that others imply."""
        return reduced(np.frombuffer(self.checked_ptr, np.int64), _column(self.checked, np.int32))


def after_columns(ops: NDArray[Any], after: NDArray[Any], n: int) -> tuple[Ints, Ops]:
    """Return the dependencies of ``n`` ops as (``after_ptr``, ``after``), each once.

    ``ops``, ``after``: pairs of an op and an op that must precede it, in any order.
    """
    pairs = ops.astype(np.int64) * max(1, n) + after.astype(np.int64)  # empty lists become columns of floats
    waiting, preceding = np.divmod(sorted_distinct(pairs), max(1, n))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(waiting, minlength=n))]).astype(np.int64)
    return ptr, preceding.astype(np.int32)


def with_dependencies(graph: MemGraph, added: Sequence[tuple[int, int]]) -> MemGraph:
    """Return the graph with more dependencies: pairs (op, op that must precede it)."""
    ops = np.concatenate([np.repeat(np.arange(len(graph)), np.diff(graph.after_ptr)), [op for op, _ in added]])
    after_ptr, after = after_columns(ops, np.concatenate([graph.after, [before for _, before in added]]), len(graph))
    return replace(graph, after_ptr=after_ptr, after=after)


def _edges(ptr: array[int], after: array[int], first: int) -> tuple[Ops, Ops]:
    """Return the dependencies of ops from ``first`` on, and for each the op that waits."""
    counts: Ints = np.diff(_column(ptr, np.int64))
    waiting = np.arange(first, first + len(counts), dtype=np.int32)
    return _column(after, np.int32), np.repeat(waiting, counts)


class _Touched:
    """The (tier, start, stop) rows that each op reads, or writes. Each stored box is a separate place."""

    def __init__(self, ptr: array[int], rows: array[int]) -> None:
        self.rows = np.frombuffer(rows, np.int64).reshape(-1, 4)
        self.ptr = np.frombuffer(ptr, np.int64)

    def overlaps(self, u: Ops, other: _Touched, x: Ops) -> NDArray[np.bool_]:
        """Return for each pair of ops whether a row of ``u`` shares bytes with a row of ``x`` in ``other``."""
        pairs = np.cumsum((self.ptr[u + 1] - self.ptr[u]) * (other.ptr[x + 1] - other.ptr[x]))
        checked = np.empty(len(u), np.bool_)
        start = 0
        while start < len(u):
            most = PAIRS_AT_ONCE + (pairs[start - 1] if start else 0)
            stop = int(np.searchsorted(pairs, most, "right"))
            if stop > start:
                checked[start:stop] = self._overlaps(u[start:stop], other, x[start:stop])
            else:
                stop = start + 1
                checked[start] = self._overlaps_many(u[start], other, x[start])
            start = stop
        return checked

    def _overlaps_many(self, u: np.int32, other: _Touched, x: np.int32) -> bool:
        """Return ``overlaps`` of two ops with many rows, such as one that gathers from many tiles."""
        tier2, start2, stop2 = other._places(np.arange(other.ptr[x], other.ptr[x + 1]))
        at_once = max(1, PAIRS_AT_ONCE // len(tier2))
        for first in range(int(self.ptr[u]), int(self.ptr[u + 1]), at_once):
            rows = np.arange(first, min(first + at_once, int(self.ptr[u + 1])))
            tier, start, stop = (column[:, None] for column in self._places(rows))
            if ((tier == tier2) & (start < stop2) & (start2 < stop)).any():
                return True
        return False

    def _overlaps(self, u: Ops, other: _Touched, x: Ops) -> NDArray[np.bool_]:
        count = other.ptr[x + 1] - other.ptr[x]
        pairs = (self.ptr[u + 1] - self.ptr[u]) * count
        pair = np.repeat(np.arange(len(u)), pairs)
        at = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        tier, start, stop = self._places(self.ptr[u][pair] + at // np.maximum(1, count)[pair])
        tier2, start2, stop2 = other._places(other.ptr[x][pair] + at % np.maximum(1, count)[pair])
        shared = (tier == tier2) & (start < stop2) & (start2 < stop)
        return np.bincount(pair[shared], minlength=len(u)) > 0

    def _places(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        tier, offset, nbytes, value = self.rows[rows].T
        start = np.where(tier >= FILES, value, offset)
        return tier, start, start + np.where(tier >= FILES, 1, nbytes)


def _column(a: array[int] | array[float], dtype: type) -> Any:
    out: Any = np.frombuffer(a, dtype) if len(a) else np.empty(0, dtype)
    out.flags.writeable = False
    return out


class TaskRow(NamedTuple):
    """A row of the task graph."""

    id: int
    kind: int
    node: int
    value: int
    workspace: int
    seconds: float
    reads: list[int]


def rows(tasks: TaskGraph) -> Iterator[TaskRow]:
    """Yield the rows in order, converted in parts.

    All of them at once would take more memory than the graph.
    """
    for start in range(0, len(tasks), TASKS_BUILT_AT_ONCE):
        checkpoint()
        part = slice(start, start + TASKS_BUILT_AT_ONCE)
        ends = tasks.read_ptr[start : start + TASKS_BUILT_AT_ONCE + 1]
        read, places = tasks.read[ends[0] : ends[-1]].tolist(), (ends - ends[0]).tolist()
        columns = (tasks.kind, tasks.node, tasks.value, tasks.workspace, tasks.seconds)
        reads = (read[a:b] for a, b in pairwise(places))
        yield from map(TaskRow, count(start), *(c[part].tolist() for c in columns), reads)
