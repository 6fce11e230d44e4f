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
EDGES_AT_ONCE = 1 << 17


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

    def close(self, capacity: int, spill: int, peak: int, origin: list[int]) -> None:
        """Say what the ops took: bytes of the arena, of the spill file, the most held; and states' later versions."""
        self.capacity, self.spill, self.peak, self.origin = capacity, spill, peak, origin

    def freeze(self, tasks: TaskGraph) -> MemGraph:
        """The graph, without the dependencies that other paths imply."""
        after_ptr, after = reduced(*self._conflicting())
        return MemGraph(
            tasks,
            self.capacity,
            self.spill,
            self.peak,
            _frozen(np.array(self.kind, np.uint8)),
            _frozen(np.array(self.task, np.int32)),
            _frozen(np.array(self.unit, np.int32)),
            _frozen(np.array(self.seconds, np.float64)),
            _frozen(np.array(self.read_ptr, np.int64)),
            _frozen(np.array(self.read, np.int64).reshape(-1, 4)),
            _frozen(np.array(self.write_ptr, np.int64)),
            _frozen(np.array(self.write, np.int64).reshape(-1, 4)),
            _frozen(after_ptr),
            _frozen(after),
            _frozen(np.array(self.origin, np.int32)),
            len(self.after) + len(self.doubtful) - len(after),
        )

    def _conflicting(self) -> tuple[Ints, NDArray[np.int32]]:
        """The dependencies between ops that share bytes, one of them writing.

        The arena's segments are coarser than what ops touch: padding, and the rest of a run that was merged.
        """
        reads, writes = _Touched(self.read_ptr, self.read), _Touched(self.write_ptr, self.write)
        n = len(self.kind)
        numbers = np.arange(n, dtype=np.int32)
        after = np.array(self.doubtful, np.int32)
        ops = np.repeat(numbers, np.diff(np.asarray(self.doubtful_ptr)))
        kept = np.zeros(len(after), bool)
        for start in range(0, len(after), EDGES_AT_ONCE):
            part = slice(start, start + EDGES_AT_ONCE)
            u, x = after[part], ops[part]
            kept[part] = writes.meet(u, writes, x) | writes.meet(u, reads, x) | reads.meet(u, writes, x)
        after = np.concatenate([after[kept], np.array(self.after, np.int32)])
        ops = np.concatenate([ops[kept], np.repeat(numbers, np.diff(np.asarray(self.after_ptr)))])
        order = np.lexsort((after, ops))
        return np.concatenate([[0], np.cumsum(np.bincount(ops, minlength=n))]), after[order]


class _Touched:
    """For each op the (tier, start, stop) that it reads, or writes; a stored box is a place of its own."""

    def __init__(self, ptr: array[int], rows: array[int]) -> None:
        table = np.array(rows, np.int64).reshape(-1, 4)
        stored = table[:, 0] >= FILES
        self.tier = table[:, 0]
        self.start = np.where(stored, table[:, 3], table[:, 1])
        self.stop = np.where(stored, self.start + 1, self.start + table[:, 2])
        self.first = np.array(ptr, np.int64)
        self.count = np.diff(self.first)

    def meet(self, u: NDArray[np.int32], other: _Touched, x: NDArray[np.int32]) -> NDArray[np.bool_]:
        """For each pair of ops whether a row of ``u`` here shares bytes with a row of ``x`` in the other."""
        pairs = self.count[u] * other.count[x]
        pair = np.repeat(np.arange(len(u)), pairs)
        at = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        a = self.first[u][pair] + at // np.maximum(1, other.count[x])[pair]
        b = other.first[x][pair] + at % np.maximum(1, other.count[x])[pair]
        shared = (self.tier[a] == other.tier[b]) & (self.start[a] < other.stop[b]) & (other.start[b] < self.stop[a])
        return np.bincount(pair[shared], minlength=len(u)) > 0


def _frozen(a: Any) -> Any:
    a.flags.writeable = False
    return a
