"""The smallest arena in which a task graph can be placed."""

from __future__ import annotations

import numpy as np

from einturnip.core.units import LINE_NBYTES
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import READS_AT_ONCE, ROWS_AT_ONCE


def min_capacity(tasks: TaskGraph) -> int:
    """Return the largest working set of a task: operands, result and workspace, each in whole cache lines."""
    lines = np.maximum(1, -(-tasks.value_nbytes // LINE_NBYTES))
    scratch = -(-tasks.workspace // LINE_NBYTES)
    made = (tasks.kind != TaskKind.STORE) & (tasks.kind != TaskKind.LOAD)
    most, start, n = 0, 0, len(tasks)
    while start < n:
        fit = int(np.searchsorted(tasks.read_ptr, tasks.read_ptr[start] + READS_AT_ONCE, "right")) - 1
        stop = min(max(start + 1, fit), start + ROWS_AT_ONCE, n)
        ends = tasks.read_ptr[start : stop + 1]
        who = np.concatenate([np.repeat(np.arange(stop - start), np.diff(ends)), np.flatnonzero(made[start:stop])])
        what = np.concatenate([tasks.read[ends[0] : ends[-1]], tasks.value[start:stop][made[start:stop]]])
        pairs = np.unique(who * np.int64(tasks.n_values) + what)  # what a task reads twice is held once
        held = np.bincount(pairs // tasks.n_values, lines[pairs % tasks.n_values], stop - start)
        most = max(most, int((held + scratch[start:stop]).max(initial=0)))
        start = stop
    return most * LINE_NBYTES
