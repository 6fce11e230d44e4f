"""Ops as growing columns, frozen into a MemGraph."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from einturnip.memgraph.reach import reduced
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.taskgraph.types import TaskGraph

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
        all_ptr, all_after = np.array(self.after_ptr, np.int64), np.array(self.after, np.int32)
        after_ptr, after = reduced(all_ptr, all_after)
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
            len(all_after) - len(after),
        )


def _frozen(a: Any) -> Any:
    a.flags.writeable = False
    return a
