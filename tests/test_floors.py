"""Every floor can be evaluated, and all floors agree with the oracle: the main test.

A floor is one function from a drawn case to its outputs. Add one line to FLOORS for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from einturnip.eingraph.build import build
from einturnip.eingraph.check import check
from einturnip.eingraph.evaluate import evaluate as graph_values
from einturnip.eingraph.rewrite import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.lang import compile_text
from einturnip.testing import Case, assert_agrees, evaluate, programs

Outputs = dict[str, np.ndarray[Any, np.dtype[Any]]]


def graph_of(case: Case) -> EinGraph:
    """The case's program with its sizes bound."""
    shapes = {name: array.shape for name, array in case.inputs.items()}
    return build(compile_text(case.text, "drawn.ein"), shapes, case.dims, {name: f"{name}.npy" for name in shapes})


def evaluate_graph(graph: EinGraph, case: Case) -> Outputs:
    """A graph's outputs, after its check."""
    check(graph)
    return graph_values(graph, case.inputs)


def rewritten(case: Case) -> EinGraph:
    """The graph after every rewrite."""
    return rewrite(graph_of(case), None)


FLOORS: dict[str, Callable[[Case], Outputs]] = {
    "eingraph": lambda case: evaluate_graph(graph_of(case), case),
    "eingraph, rewritten": lambda case: evaluate_graph(rewritten(case), case),
    "eingraph, rewritten for little memory": lambda case: evaluate_graph(rewrite(graph_of(case), 256), case),
}


@pytest.mark.parametrize("floor", FLOORS)
@given(case=programs())
def test_floor_agrees_with_the_oracle(floor: str, case: Case) -> None:
    expected = evaluate(case.program, case.inputs, case.dims)
    result = FLOORS[floor](case)
    assert set(result) == set(expected)
    for name, answer in expected.items():
        assert_agrees(result[name], answer)
