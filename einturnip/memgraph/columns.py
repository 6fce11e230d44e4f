"""Ops as growing columns, frozen into a MemGraph."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.reach import reduced
from einturnip.memgraph.types import FILES, MemGraph, OpKind
from einturnip.taskgraph.types import TaskGraph

Ints = NDArray[np.int64]
Ops = NDArray[np.int32]
OPS_AT_ONCE = 1 << 14
EDGES_AT_ONCE = 1 << 17
PAIRS_AT_ONCE = 1 << 16  # of rows that are compared


class OpColumns:
    """Appends ops; their ids count from 0 and dependencies point to lower ids only."""

    def __init__(self) -> None:
        self.kind, self.task, self.unit, self.seconds = array("B"), array("i"), array("i"), array("d")
        self.read_ptr, self.read = array("q", [0]), array("q")
        self.write_ptr, self.write = array("q", [0]), array("q")
        self.after_ptr, self.after = array("q", [0]), array("i")
        self.doubtful_ptr, self.doubtful = array("q", [0]), array("i")
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
        doubtful: Iterable[int] = (),
    ) -> int:
        """Add one op; returns its id. ``reads`` and ``writes``: (tier, offset, nbytes, value), one after the other.

        ``after``: ops that share bytes with it and end before it starts; ``doubtful``: those that may share some.
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
        if doubtful:
            self.doubtful.extend({*doubtful} - certain)
        self.doubtful_ptr.append(len(self.doubtful))
        return len(self.kind) - 1

    def close(self, capacity: int, spill: int, peak: int, origin: Iterable[int]) -> None:
        """Say what the ops took: bytes of the arena, of the spill file, the most held; and states' later versions."""
        self.capacity, self.spill, self.peak, self.origin = capacity, spill, peak, origin

    def freeze(self, tasks: TaskGraph) -> MemGraph:
        """The graph, without the dependencies that other paths imply; the columns become its own."""
        found = len(self.after) + len(self.doubtful)
        after_ptr, after = reduced(*self._conflicting())
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
            found - len(after),
        )

    def _conflicting(self) -> tuple[Ints, Ops]:
        """The dependencies between ops that share bytes, one of them writing; those of an op in order.

        The arena's segments are coarser than what ops touch: padding, and the rest of a run that was merged.
        """
        reads, writes = _Touched(self.read_ptr, self.read), _Touched(self.write_ptr, self.write)
        n = len(self.kind)
        certain, doubtful = _Edges(self.after_ptr, self.after), _Edges(self.doubtful_ptr, self.doubtful)
        found = np.empty(len(self.after) + len(self.doubtful), np.int32)
        counts = np.zeros(n + 1, np.int64)
        total = 0
        for start in range(0, n, OPS_AT_ONCE):
            u, x = doubtful.of(start)
            kept = np.zeros(len(u), bool)
            for at in range(0, len(u), EDGES_AT_ONCE):
                part = slice(at, at + EDGES_AT_ONCE)
                w, y = u[part], x[part]
                kept[part] = writes.meet(w, writes, y) | writes.meet(w, reads, y) | reads.meet(w, writes, y)
            pairs = (np.concatenate([a, b]) for a, b in zip(certain.of(start), (u[kept], x[kept]), strict=True))
            after, ops = pairs
            after = after[np.lexsort((after, ops))]
            found[total : total + len(after)] = after
            total += len(after)
            counts[start + 1 : start + OPS_AT_ONCE + 1] = np.bincount(
                ops - start, minlength=min(OPS_AT_ONCE, n - start)
            )
        del self.after, self.doubtful
        return np.cumsum(counts), found[:total]


class _Edges:
    """Dependencies by op."""

    def __init__(self, ptr: array[int], after: array[int]) -> None:
        self.ptr = np.frombuffer(ptr, np.int64)
        self.after = np.frombuffer(after, np.int32)

    def of(self, start: int) -> tuple[Ops, Ops]:
        """Those of OPS_AT_ONCE ops from ``start`` on: what is waited for, and who waits."""
        ends = self.ptr[start : start + OPS_AT_ONCE + 1]
        ops = np.arange(start, start + len(ends) - 1, dtype=np.int32)
        return self.after[ends[0] : ends[-1]], np.repeat(ops, np.diff(ends))


class _Touched:
    """For each op the (tier, start, stop) that it reads, or writes; a stored box is a place of its own."""

    def __init__(self, ptr: array[int], rows: array[int]) -> None:
        self.rows = np.frombuffer(rows, np.int64).reshape(-1, 4)
        self.ptr = np.frombuffer(ptr, np.int64)

    def meet(self, u: Ops, other: _Touched, x: Ops) -> NDArray[np.bool_]:
        """For each pair of ops whether a row of ``u`` here shares bytes with a row of ``x`` in the other."""
        pairs = np.cumsum((self.ptr[u + 1] - self.ptr[u]) * (other.ptr[x + 1] - other.ptr[x]))
        found = np.empty(len(u), np.bool_)
        start = 0
        while start < len(u):  # an op that gathers from many tiles has many rows
            most = PAIRS_AT_ONCE + (pairs[start - 1] if start else 0)
            stop = max(start + 1, int(np.searchsorted(pairs, most, "right")))
            found[start:stop] = self._meet(u[start:stop], other, x[start:stop])
            start = stop
        return found

    def _meet(self, u: Ops, other: _Touched, x: Ops) -> NDArray[np.bool_]:
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
