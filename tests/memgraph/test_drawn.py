"""Drawn programs under drawn schedules, and with one dependency taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from einturnip.core.errors import InternalError
from einturnip.memgraph.check import check
from einturnip.testing import DrawnCase, assert_agrees, evaluate, programs
from tests.memgraph.test_build import drawn_order
from tests.reference.memgraph import evaluate as run
from tests.test_irs import placed


@given(programs(), st.integers(1, 3), st.data())
def test_any_schedule_gives_the_answer(case: DrawnCase, tile: int, data: st.DataObject) -> None:
    note(case.text)
    graph = placed(case, tile)
    result = run(graph, case.inputs, drawn_order(graph, data))
    for name, answer in evaluate(case.program, case.inputs, case.dims).items():
        assert_agrees(result[name], answer)


@given(programs(), st.integers(1, 3), st.data())
def test_a_missing_dependency_is_found(case: DrawnCase, tile: int, data: st.DataObject) -> None:
    graph = placed(case, tile)
    assume(len(graph.after))
    edge = data.draw(st.integers(0, len(graph.after) - 1))
    op = int(np.searchsorted(graph.after_ptr, edge, side="right")) - 1
    ptr = graph.after_ptr.copy()
    ptr[op + 1 :] -= 1
    with pytest.raises(InternalError):
        check(replace(graph, after_ptr=ptr, after=np.delete(graph.after, edge)))
