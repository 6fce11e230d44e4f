"""An op that has failed counts as not done: no schedule learns that it has ended."""

from __future__ import annotations

import pytest

from einturnip.core.errors import RunError
from einturnip.memgraph.types import Lane
from einturnip.runtime.host.event_loop import OpEnded, drive
from einturnip.runtime.scheduler.policies import POLICIES
from einturnip.runtime.scheduler.state_machine import SchedulerState
from tests.memgraph.cases import PROGRAMS
from tests.memgraph.test_build import tight


class _Failing:
    """An engine whose ops end in order, of which one fails."""

    def __init__(self, fails_at: int) -> None:
        self.ended, self.under_way, self.fails_at = list[int](), list[int](), fails_at

    def start(self, op: int) -> None:
        self.under_way.append(op)

    def wait(self, timeout: float) -> OpEnded:
        op = self.under_way.pop(0)
        error = ValueError("the cause") if len(self.ended) == self.fails_at else None
        self.ended.append(op)
        return OpEnded(op, 0, 0.0, 0.0, error)

    def now(self) -> float:
        return 0.0

    def close(self) -> None:
        assert not self.under_way


@pytest.mark.parametrize("fails_at", [0, 3])
@pytest.mark.parametrize("name", sorted(PROGRAMS)[:4])
def test_the_end_of_a_failed_op_and_later_ones_stay_unknown(name: str, fails_at: int) -> None:
    graph, engine = tight(name), _Failing(fails_at)
    state = SchedulerState(graph, POLICIES["random"](graph), {Lane.COMPUTE: 3, Lane.IN: 2, Lane.OUT: 1})
    with pytest.raises(RunError, match="the cause"):
        drive(state, engine, str, 3)
    assert [~event for event in state.events if event < 0] == engine.ended[:fails_at]
