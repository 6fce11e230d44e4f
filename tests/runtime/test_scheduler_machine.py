"""The scheduler under drawn orders: ops end in any order, and exactly the ops that may start are started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.scheduler.state_machine import SchedulerState

MOST = 24
SLOTS = st.lists(st.integers(1, 3), min_size=3, max_size=3)


@dataclass
class Drawn:
    """The part of a memory graph that the scheduler reads."""

    kind: np.ndarray[Any, np.dtype[np.uint8]]
    unit: np.ndarray[Any, np.dtype[np.int32]]
    after_ptr: np.ndarray[Any, np.dtype[np.int64]]
    after: np.ndarray[Any, np.dtype[np.int32]]

    def __len__(self) -> int:
        return len(self.kind)


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """A few ops, each after some before it; kernels may share units."""
    n = draw(st.integers(1, MOST))
    kinds = draw(st.lists(st.sampled_from([OpKind.LOAD, OpKind.KERNEL, OpKind.OFFLOAD]), min_size=n, max_size=n))
    units = [draw(st.integers(-1, 3)) if kind == OpKind.KERNEL else -1 for kind in kinds]
    after = [sorted(draw(st.sets(st.integers(0, x - 1), max_size=3))) if x else [] for x in range(n)]
    return Drawn(
        np.array(kinds, np.uint8),
        np.array(units, np.int32),
        np.cumsum([0, *map(len, after)]),
        np.array([a for row in after for a in row], np.int32),
    )


class Scheduler(RuleBasedStateMachine):
    """Its own books of what has ended and what runs, held against the scheduler's."""

    @initialize(graph=graphs(), slots=SLOTS, data=st.data())
    def begin(self, graph: Drawn, slots: list[int], data: st.DataObject) -> None:
        n = len(graph)
        self.in_order = data.draw(st.booleans())
        self.ranks = list(range(n)) if self.in_order else data.draw(st.permutations(range(n)))
        self.graph, self.slots = graph, dict(zip(Lane, slots, strict=True))
        self.after = [{*graph.after[a:b].tolist()} for a, b in zip(graph.after_ptr, graph.after_ptr[1:], strict=False)]
        self.lanes = [OpKind(kind).lane for kind in graph.kind]
        self.state = SchedulerState(graph, self.ranks, self.slots, None, self.in_order)  # type: ignore[arg-type]
        self.begun: list[int] = []
        self.ended: set[int] = set()
        self.launched(self.state.start())

    def launched(self, ops: list[int]) -> None:
        for op in ops:
            assert op not in self.begun and self.after[op] <= self.ended
            self.begun.append(op)

    def running(self) -> list[int]:
        return [op for op in self.begun if op not in self.ended]

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        op = data.draw(st.sampled_from(self.running()))
        self.ended.add(op)
        self.launched(self.state.ended(op))

    @precondition(lambda self: self.state.done)
    @rule(graph=graphs(), slots=SLOTS, data=st.data())
    def another_begins(self, graph: Drawn, slots: list[int], data: st.DataObject) -> None:
        self.begin(graph, slots, data)

    @invariant()
    def who_may_run_does(self) -> None:
        if not hasattr(self, "state"):
            return
        running = self.running()
        units = [u for op in running if (u := self.graph.unit[op]) >= 0]
        assert len(units) == len({*units})
        for lane in Lane:
            mine = [op for op in range(len(self.graph)) if self.lanes[op] == lane]
            here = [op for op in running if self.lanes[op] == lane]
            assert len(here) <= self.slots[lane]
            waiting = [op for op in mine if op not in self.begun]
            free = [op for op in waiting if self.after[op] <= self.ended and self.graph.unit[op] not in units]
            if self.in_order:
                assert [op for op in self.begun if self.lanes[op] == lane] == mine[: len(mine) - len(waiting)]
                free = free if free and free[0] == waiting[0] else []
            assert not free or len(here) == self.slots[lane]
        assert self.state.done == (len(self.ended) == len(self.graph))

    def teardown(self) -> None:
        """Whatever was left to run ends, and nothing stays behind."""
        if hasattr(self, "state"):
            while running := self.running():
                self.ended.add(running[0])
                self.launched(self.state.ended(running[0]))
            assert self.state.done and len(self.ended) == len(self.graph)


TestScheduler = Scheduler.TestCase
