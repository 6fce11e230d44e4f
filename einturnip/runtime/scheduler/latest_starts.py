"""Latest starts of ops on several devices, by list scheduling backward from the end of the run.

The longest path to the end does not see that the ops of a lane follow one another. In a sum whose output tiles all
take equally many kernels, it advances all of them at the same pace, so that all are complete at the end, and links and
disks carry every tile only then. Scheduled backward, the last stores follow one another on a disk, so that the kernels
before them have different latest starts: tiles are completed one by one, and their transfers overlap with kernels.

Source: Li, Willis, An Iterative Scheduling Technique for Resource-Constrained Project Scheduling (1992), one backward
and one forward pass; Valls, Ballestin, Quintanilla, Justification and RCPSP: A Technique that Pays (2005).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph, OpKind


def latest_starts(graph: MemGraph) -> array[float]:
    """Return the latest start of each op, in negative seconds before the end of the run.

    Each device has one lane for kernels, one for bytes in, one for bytes out and one for what it receives from other
    devices; a lane runs one op at a time. Two backward schedules are made, and the shorter is returned. Of the ops that
    may be the last of their lane, one takes that with the longest path from the begin of the run, which makes last what
    needs most; the other takes the last of the serial order, for which the arena was planned.
    """
    backward = _Backward(graph)
    return min(backward.schedule(backward.paths_from_begin()), backward.schedule([0.0] * len(graph)))[1]


class _Backward:
    """The columns of a graph that a backward schedule needs."""

    def __init__(self, graph: MemGraph) -> None:
        of = _lanes(graph)
        self.n_lanes = int(of.max(initial=-1)) + 1
        self.lane, self.seconds = array("i", of.tobytes()), array("d", graph.seconds.tobytes())
        self.ptr, self.after = array("q", graph.after_ptr.tobytes()), array("i", graph.after.tobytes())
        self.successors = np.bincount(graph.after, minlength=len(graph)).astype(np.int32)

    def paths_from_begin(self) -> array[float]:
        """Return the seconds of the longest path from the begin of the run to the end of each op."""
        path, after, ptr = array("d", self.seconds), self.after, self.ptr
        for op in range(len(path)):
            longest = 0.0
            for before in after[ptr[op] : ptr[op + 1]]:
                if path[before] > longest:
                    longest = path[before]
            path[op] += longest
        return path

    def schedule(self, priority: Sequence[float]) -> tuple[float, array[float]]:
        """Return the length of a backward schedule, and the starts; equal priorities: the later op first."""
        lane, seconds, ptr, after = self.lane, self.seconds, self.ptr, self.after
        waiting = array("i", self.successors.tobytes())
        ready: list[list[tuple[float, int]]] = [[] for _ in range(self.n_lanes)]  # heaps of (-priority, -op)
        idle = [True] * self.n_lanes
        running: list[tuple[float, int]] = []  # heap of (seconds from the op's start to the end of the run, op)
        starts = array("d", bytes(8 * len(seconds)))
        changed = set[int]()
        for op, count in enumerate(waiting):
            if not count:
                heappush(ready[lane[op]], (-priority[op], -op))
                changed.add(lane[op])
        clock = 0.0
        while True:
            for k in sorted(changed):
                if idle[k] and ready[k]:
                    op = -heappop(ready[k])[1]
                    idle[k] = False
                    heappush(running, (clock + seconds[op], op))
            changed.clear()
            if not running:
                return clock, starts
            clock, op = heappop(running)
            starts[op] = -clock
            idle[lane[op]] = True
            changed.add(lane[op])
            for before in after[ptr[op] : ptr[op + 1]]:
                waiting[before] -= 1
                if not waiting[before]:
                    heappush(ready[lane[before]], (-priority[before], -before))
                    changed.add(lane[before])


def _lanes(graph: MemGraph) -> NDArray[np.int32]:
    """Return the lane of each op."""
    lanes = np.where(graph.between_devices(), len(Lane), np.array([kind.lane for kind in OpKind])[graph.kind])
    numbered: NDArray[np.int32] = (lanes + (len(Lane) + 1) * graph.op_devices().astype(np.int64)).astype(np.int32)
    return numbered
