"""Rows of a task graph as Python numbers, for the builder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import NamedTuple

from einturnip.taskgraph.types import TaskGraph
from einturnip.tuning.memory import ROWS_AT_ONCE


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
    for start in range(0, len(tasks), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        ends = tasks.read_ptr[start : start + ROWS_AT_ONCE + 1]
        read, places = tasks.read[ends[0] : ends[-1]].tolist(), (ends - ends[0]).tolist()
        columns = (tasks.kind, tasks.node, tasks.value, tasks.workspace, tasks.seconds)
        reads = (read[a:b] for a, b in pairwise(places))
        yield from map(TaskRow, count(start), *(c[part].tolist() for c in columns), reads)
