"""The scheduler as a state machine: takes the op that ended, returns the ops to launch.

An op is ready once its dependencies have ended; a policy's ranks choose among ready ops. Ops of one unit accumulate
into the same bytes and exclude each other: an op is launched only together with the lock of its unit.

A lane is a class of ops that share a resource: kernels, bytes in, bytes out. With several devices, each device has its
own lane for kernels; the lanes for bytes in and out are shared.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph, OpKind
from einturnip.runtime.scheduler.policies import Ranks


def lanes(graph: MemGraph, slots: Mapping[Lane, int]) -> tuple[Sequence[int] | None, Mapping[int, int]]:
    """Return the lane of each op, and the slots of each lane.

    On one device the lanes are None, since an op's kind determines its lane.

    A lane's slots are the number of ops that it runs at once. ``slots``: of the kernels of one device, and of the
    transfers of all devices. A move between devices belongs to the compute lane of its destination.
    """
    if graph.devices == 1:
        return None, {int(lane): n for lane, n in slots.items()}
    of = lanes_of_kinds(graph.kind).astype(np.int32)
    computing = of == Lane.COMPUTE
    device = graph.op_devices()[computing].astype(np.int32)
    of[computing] = np.where(device == 0, int(Lane.COMPUTE), device + len(Lane) - 1)
    found = {int(lane): n for lane, n in slots.items()}
    found |= {len(Lane) - 1 + k: slots[Lane.COMPUTE] for k in range(1, graph.devices)}
    return array("i", of.tobytes()), found


def lanes_of_kinds(kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the lanes of ops of these kinds, without regard to devices."""
    return np.array([kind.lane for kind in OpKind], np.uint8)[kinds]


def lane_kind(lane: int) -> Lane:
    """Return the kind of a lane: COMPUTE, IN or OUT. Lanes above these are the kernels of further devices."""
    return Lane(lane) if lane < len(Lane) else Lane.COMPUTE


class ScheduledOps(Protocol):
    """The columns of a memory graph that determine a schedule; ``memgraph.types.MemGraph`` describes them."""

    @property
    def kind(self) -> NDArray[np.uint8]:
        """The kind of each op."""

    @property
    def unit(self) -> NDArray[np.int32]:
        """The unit of each op: the accumulator that it updates; -1 for none."""

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The planned duration of each op in seconds."""

    @property
    def after_ptr(self) -> NDArray[np.int64]:
        """Row pointers into ``after`` (CSR): op ``i`` depends on ``after[after_ptr[i] : after_ptr[i + 1]]``."""

    @property
    def after(self) -> NDArray[np.int32]:
        """The dependencies of all ops, concatenated."""

    def __len__(self) -> int:
        """Return the number of ops."""


class Schedule(Protocol):
    """Decides which ops run next, given those that were issued and those that have ended."""

    @property
    def lane(self) -> Sequence[int]:
        """The lane of each op."""

    @property
    def running(self) -> Mapping[int, int]:
        """The number of running ops by lane."""

    @property
    def remaining(self) -> int:
        """The number of ops that have not ended."""

    @property
    def events(self) -> Sequence[int]:
        """``op`` for a launch, ``~op`` for an end, in order."""

    @property
    def done(self) -> bool:
        """True when every op has ended."""

    def start(self) -> list[int]:
        """Return the ops to launch first."""

    def issued(self, op: int) -> list[int]:
        """Record that a device has queued ``op`` and keeps later ops in order; return the ops to issue now."""

    def ended(self, op: int) -> list[int]:
        """Record that ``op`` has ended; return the ops to launch now, in order."""


class SchedulerState:
    """Tracks which ops wait, are ready, run, or have ended.

    ``slots``: number of ops that each lane runs at once. ``lanes``: the lane of each op, if there are more lanes than
    compute, in and out. ``in_order``: each lane starts its ops strictly by rank and waits for an op that is not ready;
    the ranks must then be a topological order of the graph.
    """

    def __init__(
        self,
        graph: ScheduledOps,
        ranks: Ranks,
        slots: Mapping[Lane, int] | Mapping[int, int],
        lanes: Sequence[int] | None = None,
        in_order: bool = False,
    ) -> None:
        n = len(graph)
        self.lane: Sequence[int] = lanes_of_kinds(graph.kind).tobytes() if lanes is None else lanes
        self.unit = array("i", graph.unit.tobytes())
        self.rank = array("d", ranks)
        self.free: dict[int, int] = {int(lane): n for lane, n in slots.items()}
        self.waiting = array("i", np.diff(graph.after_ptr).astype(np.int32).tobytes())
        self.successor_ptr, self.successor = successors(graph)
        self.ready: dict[int, list[tuple[float, int]]] = {lane: [] for lane in self.free}
        self.blocked: dict[int, list[tuple[float, int]]] = {}  # by unit: ready ops that wait for its lock
        self.locked: set[int] = set()
        self._changed = set(self.free)  # lanes with a slot or a ready op that they did not have at the last launch
        self.running: dict[int, int] = dict.fromkeys(self.free, 0)
        self.remaining = n
        self.events = array("i")  # op for a launch, ~op for an end, in order
        self.issued_ops: set[int] = set()  # issued to a device and not yet ended
        self.by_rank = self._ops_by_rank() if in_order else None

    def start(self) -> list[int]:
        """Return the ops to launch first."""
        for op, count in enumerate(self.waiting):
            if count == 0:
                heappush(self.ready[self.lane[op]], (self.rank[op], op))
        return self._launch()

    def issued(self, op: int) -> list[int]:
        """Record that a device has queued ``op`` and keeps later ops in order; return the ops to issue now."""
        self.issued_ops.add(op)
        self._release_successors(op)
        return self._launch()

    def ended(self, op: int) -> list[int]:
        """Record that ``op`` has ended; return the ops to launch now, in order."""
        self.remaining -= 1
        self.events.append(~op)
        lane = self.lane[op]
        self.free[lane] += 1
        self.running[lane] -= 1
        self._changed.add(lane)
        if op in self.issued_ops:
            self.issued_ops.remove(op)
        else:
            self._release_successors(op)
        return self._launch()

    def _release_successors(self, op: int) -> None:
        """Release the lock of the op's unit, and make ready the successors that have no other dependency left."""
        lane, unit = self.lane[op], self.unit[op]
        if unit >= 0:
            self.locked.discard(unit)
            if unit in self.blocked:  # one op suffices: whichever op takes the lock releases the next blocked one
                waiters = self.blocked[unit]
                heappush(self.ready[lane], heappop(waiters))
                self._changed.add(lane)
                if not waiters:
                    del self.blocked[unit]
        waiting = self.waiting
        for s in self.successor[self.successor_ptr[op] : self.successor_ptr[op + 1]]:
            unmet = waiting[s] = waiting[s] - 1
            if not unmet:
                lane = self.lane[s]
                heappush(self.ready[lane], (self.rank[s], s))
                self._changed.add(lane)

    @property
    def done(self) -> bool:
        """True when every op has ended."""
        return self.remaining == 0

    def _ops_by_rank(self) -> dict[int, list[int]]:
        """Return the ops of each lane by descending rank, so that the next one is popped from the end."""
        queues: dict[int, list[int]] = {lane: [] for lane in self.free}
        for op in sorted(range(self.remaining), key=self.rank.__getitem__, reverse=True):
            queues[self.lane[op]].append(op)
        return queues

    def _launch(self) -> list[int]:
        launches = []
        # Several devices have many lanes, and an op changes few of them.
        changed = self._changed
        for lane in sorted(changed) if len(changed) > 1 else changed:
            heap = self.ready[lane]
            while heap and self.free[lane] > 0:
                if self.by_rank is not None and heap[0][1] != self.by_rank[lane][-1]:
                    break
                entry = heappop(heap)
                op = entry[1]
                unit = self.unit[op]
                if unit >= 0:
                    if unit in self.locked:
                        heappush(self.blocked.setdefault(unit, []), entry)
                        continue
                    self.locked.add(unit)
                if self.by_rank is not None:
                    self.by_rank[lane].pop()
                self.free[lane] -= 1
                self.running[lane] += 1
                launches.append(op)
        changed.clear()
        self.events.extend(launches)
        return launches


def successors(graph: ScheduledOps) -> tuple[array[int], array[int]]:
    """Return the ops that depend on each op, as CSR (row pointers, ops)."""
    n = len(graph)
    op_of_edge = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.after_ptr))
    order = np.argsort(graph.after, kind="stable")
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(graph.after, minlength=n), out=ptr[1:])
    return array("q", ptr.tobytes()), array("i", op_of_edge[order].tobytes())
