"""The scheduler as a state machine: an op ended in, launches out. No clock, no thread, no I/O.

Any op whose dependencies have ended may start; a policy picks among those. Ops of one unit exclude one another: an op
is launched together with its unit's lock or not at all.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.scheduler.policies import Ranks


class ScheduledOps(Protocol):
    """What of a memory graph a schedule hangs on; see memgraph.types.MemGraph for the columns."""

    @property
    def kind(self) -> NDArray[np.uint8]:
        """The kind of each op."""

    @property
    def unit(self) -> NDArray[np.int32]:
        """The accumulator that each op touches; -1 for none."""

    @property
    def seconds(self) -> NDArray[np.float64]:
        """What each op takes, as planned."""

    @property
    def after_ptr(self) -> NDArray[np.int64]:
        """Where in ``after`` each op's part begins."""

    @property
    def after(self) -> NDArray[np.int32]:
        """The ops that each waits for."""

    def __len__(self) -> int: ...


class SchedulerState:
    """Which ops wait, are ready, run, have ended. ``slots`` is how many ops each lane runs at once.

    ``lanes``: of each op, where they are more than compute, in and out. ``in_order``: a lane starts its ops by rank,
    none before those of lower rank; the ranks must then be those of an order that the dependencies allow.
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
        self.lane: Sequence[int] = _lanes(graph) if lanes is None else lanes
        self.unit = array("i", graph.unit.tobytes())
        self.rank = array("d", ranks)
        self.free: dict[int, int] = {int(lane): n for lane, n in slots.items()}
        self.waiting = array("i", np.diff(graph.after_ptr).astype(np.int32).tobytes())
        self.successor_ptr, self.successor = successors(graph)
        self.ready: dict[int, list[tuple[float, int]]] = {lane: [] for lane in self.free}
        self.blocked: dict[int, list[tuple[float, int]]] = {}  # by unit, the ready ops that its lock keeps waiting
        self.locked: set[int] = set()
        self.running: dict[int, int] = dict.fromkeys(self.free, 0)
        self.left = n
        self.events = array("i")  # op for its launch, ~op for its end, as they came
        self.issued_ops: set[int] = set()  # issued, and not yet ended
        self.turn = self._turns() if in_order else None

    def start(self) -> list[int]:
        """The first launches."""
        for op, count in enumerate(self.waiting):
            if count == 0:
                self._make_ready(op)
        return self._launch()

    def issued(self, op: int) -> list[int]:
        """A device holds ``op`` and keeps others in order behind it: what may be given to the device now."""
        self.issued_ops.add(op)
        self._pass_on(op)
        return self._launch()

    def ended(self, op: int) -> list[int]:
        """``op`` has ended: what may start now, in the order to start it."""
        self.left -= 1
        self.events.append(~op)
        lane = self.lane[op]
        self.free[lane] += 1
        self.running[lane] -= 1
        if op in self.issued_ops:
            self.issued_ops.remove(op)
        else:
            self._pass_on(op)
        return self._launch()

    def _pass_on(self, op: int) -> None:
        """Make ready what waited for ``op`` alone, and open its unit's lock."""
        lane, unit = self.lane[op], self.unit[op]
        if unit >= 0:
            self.locked.discard(unit)
            if unit in self.blocked:  # only the first: it takes the lock, or who takes it before wakes the next
                waiters = self.blocked[unit]
                heappush(self.ready[lane], heappop(waiters))
                if not waiters:
                    del self.blocked[unit]
        waiting = self.waiting
        for s in self.successor[self.successor_ptr[op] : self.successor_ptr[op + 1]]:
            left = waiting[s] = waiting[s] - 1
            if not left:
                heappush(self.ready[self.lane[s]], (self.rank[s], s))

    @property
    def done(self) -> bool:
        """True when every op has ended."""
        return self.left == 0

    def _turns(self) -> dict[int, list[int]]:
        """The ops of each lane by rank, last first."""
        turns: dict[int, list[int]] = {lane: [] for lane in self.free}
        for op in sorted(range(self.left), key=self.rank.__getitem__, reverse=True):
            turns[self.lane[op]].append(op)
        return turns

    def _make_ready(self, op: int) -> None:
        heappush(self.ready[self.lane[op]], (self.rank[op], op))

    def _launch(self) -> list[int]:
        launches = []
        for lane, heap in self.ready.items():
            while heap and self.free[lane] > 0:
                if self.turn is not None and heap[0][1] != self.turn[lane][-1]:
                    break
                entry = heappop(heap)
                op = entry[1]
                unit = self.unit[op]
                if unit >= 0:
                    if unit in self.locked:
                        heappush(self.blocked.setdefault(unit, []), entry)
                        continue
                    self.locked.add(unit)
                if self.turn is not None:
                    self.turn[lane].pop()
                self.free[lane] -= 1
                self.running[lane] += 1
                launches.append(op)
        self.events.extend(launches)
        return launches


def _lanes(graph: ScheduledOps) -> bytes:
    return np.array([k.lane for k in OpKind], dtype=np.uint8)[graph.kind].tobytes()


def successors(graph: ScheduledOps) -> tuple[array[int], array[int]]:
    """For each op the ops that wait for it, as CSR."""
    n = len(graph)
    op_of_edge = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.after_ptr))
    order = np.argsort(graph.after, kind="stable")
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(graph.after, minlength=n), out=ptr[1:])
    return array("q", ptr.tobytes()), array("i", op_of_edge[order].tobytes())
