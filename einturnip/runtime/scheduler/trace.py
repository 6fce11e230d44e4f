"""What a run did, as it goes: when each op ran, and how long compute workers stood still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane
from einturnip.runtime.scheduler.lanes import lane_kind
from einturnip.runtime.scheduler.report import Timeline
from einturnip.runtime.scheduler.state_machine import SchedulerState


def _single(column: NDArray[Any]) -> memoryview[Any]:
    return column.data


class RunTrace:
    """When each op ran, in the order of ending, and how long compute workers stood still, by cause."""

    def __init__(self, n_ops: int) -> None:
        self.order: list[int] = []
        self.events: Sequence[int] = ()
        self.busy = {lane: 0.0 for lane in Lane}
        self.stalls = {"reads": 0.0, "writes": 0.0, "memory": 0.0}
        self.seconds = 0.0
        self.carried = 0.0  # that compute workers took for transfers
        self.timeline = Timeline(np.zeros(n_ops), np.zeros(n_ops), np.zeros(n_ops, np.uint8))
        # Single elements are written through these in a third of the time.
        columns = self.timeline.begin, self.timeline.end, self.timeline.thread
        self._begin, self._end, self._thread = (_single(column) for column in columns)

    def ended(self, op: int, lane: Lane, thread: int, begin: float, end: float) -> None:
        """Note that an op ran on a thread of a lane. Seconds since the run began."""
        self.order.append(op)
        self.busy[lane] += end - begin
        self._begin[op], self._end[op], self._thread[op] = begin, end, thread

    def numbered(self, lanes: NDArray[np.uint8]) -> None:
        """Number the threads of each lane from 0 without gaps. ``lanes``: of each op."""
        thread = self.timeline.thread
        for lane in np.flatnonzero(np.bincount(lanes)):  # NumPy's unique would load its masked arrays
            mine = lanes == lane
            used = np.bincount(thread[mine]) > 0
            thread[mine] = (np.cumsum(used) - 1)[thread[mine]]

    def stood(self, state: SchedulerState, compute_slots: int, seconds: float) -> None:
        """Note that the last ``seconds`` went by with the ops running that now do."""
        running = state.running
        idle = compute_slots - running[Lane.COMPUTE]
        if len(running) > len(Lane):  # several devices
            idle = sum(max(0, compute_slots - n) for lane, n in running.items() if lane_kind(lane) == Lane.COMPUTE)
        if idle <= 0 or state.left == 0:
            return
        if running[Lane.IN]:
            cause = "reads"
        elif running[Lane.OUT]:
            cause = "writes"
        else:
            cause = "memory"
        self.stalls[cause] += idle * seconds
