"""Ops as growing columns, frozen into a MemGraph."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.reach import reduced
from einturnip.memgraph.types import FILES, MemGraph, OpKind
from einturnip.taskgraph.types import TaskGraph

Ints = NDArray[np.int64]
Row = tuple[int, int, int, int]


class OpColumns:
    """Appends ops; their ids count from 0 and dependencies point to lower ids only."""

    def __init__(self) -> None:
        self.kind, self.task, self.unit, self.seconds = array("B"), array("i"), array("i"), array("d")
        self.read_ptr, self.read = array("q", [0]), array("q")
        self.write_ptr, self.write = array("q", [0]), array("q")
        self.after_ptr, self.after = array("q", [0]), array("i")

    def append(
        self,
        kind: OpKind,
        task: int,
        unit: int,
        seconds: float,
        reads: Iterable[Row],
        writes: Iterable[Row],
        after: Iterable[int],
    ) -> int:
        """Add one op; returns its id."""
        self.kind.append(kind)
        self.task.append(task)
        self.unit.append(unit)
        self.seconds.append(seconds)
        for row in reads:
            self.read.extend(row)
        self.read_ptr.append(len(self.read) // 4)
        for row in writes:
            self.write.extend(row)
        self.write_ptr.append(len(self.write) // 4)
        self.after.extend(sorted(set(after)))
        self.after_ptr.append(len(self.after))
        return len(self.kind) - 1

    def freeze(self, tasks: TaskGraph, capacity: int, spill: int, peak: int, origin: list[int]) -> MemGraph:
        """The graph, without the dependencies that other paths imply."""
        after_ptr, after = reduced(*self._conflicting())
        return MemGraph(
            tasks,
            capacity,
            spill,
            peak,
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
            _frozen(np.array(origin, np.int32)),
            len(self.after) - len(after),
        )

    def _conflicting(self) -> tuple[Ints, NDArray[np.int32]]:
        """The dependencies between ops that share bytes, one of them writing.

        The arena's segments are coarser than what ops touch: padding, and the rest of a run that was merged.
        """
        reads, writes = self._touched(self.read_ptr, self.read), self._touched(self.write_ptr, self.write)
        kept, ends = array("i"), array("q", [0])
        for x in range(len(self.kind)):
            for u in self.after[self.after_ptr[x] : self.after_ptr[x + 1]]:
                if _meet(writes[u], writes[x]) or _meet(writes[u], reads[x]) or _meet(reads[u], writes[x]):
                    kept.append(u)
            ends.append(len(kept))
        return np.array(ends, np.int64), np.array(kept, np.int32)

    def _touched(self, ptr: array[int], rows: array[int]) -> list[list[tuple[int, int, int]]]:
        """For each op the (tier, start, stop) that it touches; a stored tile is a place of its own."""
        table = np.array(rows, np.int64).reshape(-1, 4)
        start = np.where(table[:, 0] >= FILES, table[:, 3], table[:, 1])
        stop = np.where(table[:, 0] >= FILES, start + 1, start + table[:, 2])
        flat = list(zip(table[:, 0].tolist(), start.tolist(), stop.tolist(), strict=True))
        return [flat[ptr[x] : ptr[x + 1]] for x in range(len(self.kind))]


def _meet(a: list[tuple[int, int, int]], b: list[tuple[int, int, int]]) -> bool:
    return any(t == s and lo < high and low < hi for t, lo, hi in a for s, low, high in b)


def _frozen(a: Any) -> Any:
    a.flags.writeable = False
    return a
