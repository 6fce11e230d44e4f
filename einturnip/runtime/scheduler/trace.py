"""RunTrace: records, during a run, when each op ran and how long compute workers were idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane
from einturnip.runtime.scheduler.report import Timeline
from einturnip.runtime.scheduler.state_machine import Schedule, lane_kind


def _single(column: NDArray[Any]) -> memoryview[Any]:
    return column.data


class RunTrace:
    """When each op ran, in the order in which ops ended, and the idle seconds of compute workers by cause."""

    def __init__(self, n_ops: int) -> None:
        self.order: list[int] = []
        self.events: Sequence[int] = ()
        self.busy = {lane: 0.0 for lane in Lane}
        self.stalls = {"reads": 0.0, "writes": 0.0, "memory": 0.0}
        self.seconds = 0.0
        self.carried = 0.0  # seconds that compute workers spent on transfers
        self.timeline = Timeline(np.zeros(n_ops), np.zeros(n_ops), np.zeros(n_ops, np.uint8))
        # Writing single elements through memoryviews takes a third of the time of NumPy's indexing.
        columns = self.timeline.begin, self.timeline.end, self.timeline.thread
        self._begin, self._end, self._thread = (_single(column) for column in columns)

    def ended(self, op: int, lane: Lane, thread: int, begin: float, end: float) -> None:
        """Record that an op ran on a thread of a lane. ``begin``, ``end``: seconds since the run began."""
        self.order.append(op)
        self.busy[lane] += end - begin
        self._begin[op], self._end[op], self._thread[op] = begin, end, thread

    def renumber_threads(self, lanes: NDArray[np.uint8]) -> None:
        """Number the threads of each lane from 0 without gaps. ``lanes``: the lane of each op."""
        thread = self.timeline.thread
        for lane in np.flatnonzero(np.bincount(lanes)):  # NumPy's unique would load its masked arrays
            mine = lanes == lane
            used = np.bincount(thread[mine]) > 0
            thread[mine] = (np.cumsum(used) - 1)[thread[mine]]

    def record_idle(self, state: Schedule, compute_slots: int, seconds: float) -> None:
        """Attribute the idle compute slots of the last ``seconds`` to a cause.

        The ops that ran during that time are those that ``state`` still counts as running.
        """
        running = state.running
        idle = compute_slots - running[Lane.COMPUTE]
        if len(running) > len(Lane):  # several devices
            idle = sum(max(0, compute_slots - n) for lane, n in running.items() if lane_kind(lane) == Lane.COMPUTE)
        if idle <= 0 or state.remaining == 0:
            return
        if running[Lane.IN]:
            cause = "reads"
        elif running[Lane.OUT]:
            cause = "writes"
        else:
            cause = "memory"
        self.stalls[cause] += idle * seconds
