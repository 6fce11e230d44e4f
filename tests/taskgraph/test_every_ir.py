"""Indices, keys and pieces mean the same in every IR, for any tiling of the nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.build import build as place
from einturnip.memgraph.check import check as check_memgraph
from einturnip.taskgraph.build import build
from einturnip.taskgraph.check import check
from einturnip.tiling.build import decompose
from einturnip.tiling.check import check as check_decomposition
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.types import Decomposition
from tests.memgraph.cases import MACHINE, decomposed
from tests.memgraph.test_build import drawn_order, least_capacity
from tests.reference.decomposition import evaluate as evaluate_decomposition
from tests.reference.memgraph import evaluate as evaluate_memgraph
from tests.reference.taskgraph import evaluate
from tests.taskgraph.graphs import arrays, graphs, reference


def assert_floors_agree(graph: EinGraph, decomposition: Decomposition, data: st.DataObject) -> None:
    inputs = arrays(graph)
    expected = reference(graph, inputs)
    check_decomposition(decomposition)
    assert_same(evaluate_decomposition(decomposition, inputs), expected)
    tasks = build(decomposition, MACHINE)
    check(tasks)
    assert_same(evaluate(tasks, inputs), expected)
    capacity = least_capacity(tasks) + data.draw(st.integers(0, 20)) * 64
    readable = frozenset(data.draw(st.sets(st.integers(0, len(graph.outputs) - 1))))
    placed = place(tasks, capacity, MACHINE, readable)
    check_memgraph(placed)
    assert_same(evaluate_memgraph(placed, inputs, drawn_order(placed, data)), expected)


def assert_same(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(actual) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


@given(graphs(), st.data())
def test_any_tiles(graph: EinGraph, data: st.DataObject) -> None:
    note(str(graph))
    tiles = [data.draw(st.lists(st.integers(1, 4), min_size=4, max_size=4)) for _ in graph.nodes]
    assert_floors_agree(graph, decomposed(graph, tiles, 2000), data)


@given(graphs(), st.integers(1, 5), st.data())
def test_tiles_by_class(graph: EinGraph, tile: int, data: st.DataObject) -> None:
    note(str(graph))
    classes = label_classes(graph)
    assert_floors_agree(graph, decompose(graph, classes, [min(tile, n) for n in classes.coarsest], 2000), data)
