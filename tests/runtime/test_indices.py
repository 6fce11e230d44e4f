"""Graphs with indices, keys and pieces run as planned; an index out of range stops the run and names its statement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from einturnip.compiler import Options, execute, make_plan
from einturnip.core.errors import CapacityError, OutOfRange
from einturnip.eingraph.types import EinGraph
from einturnip.ir.dtypes import F64, I64
from einturnip.ir.einsum import Key
from einturnip.ir.scalar import OperandRef
from einturnip.storage.arrays import ArraySink, array_source
from tests.drawn import examples
from tests.taskgraph.graphs import Arrays, Maker, arrays, graphs, reference


def run(graph: EinGraph, inputs: Arrays, arena: int) -> dict[str, np.ndarray[Any, Any]]:
    """The product's own row, over arrays."""
    sources = {name: array_source(array, name) for name, array in inputs.items()}
    nodes = [(name, graph.nodes[i]) for name, i in graph.outputs]
    results = {name: np.zeros(node.shape, node.dtype.numpy) for name, node in nodes}
    sinks = {name: ArraySink(name, results[name], node.dtype) for name, node in nodes}
    options = Options(arena=arena, workers=2)
    execute(make_plan(graph, sources, {name: name for name in sinks}, options), sources, sinks, options)
    return results


@settings(max_examples=examples(40))
@given(graphs(), st.booleans())
def test_a_run_gives_what_the_graph_means(graph: EinGraph, tight: bool) -> None:
    note(str(graph))
    inputs = arrays(graph)
    expected = reference(graph, inputs)
    try:
        result = run(graph, inputs, 1 if tight else 1 << 20)
    except CapacityError as error:
        result = run(graph, inputs, error.needed)
    for name in expected:
        np.testing.assert_array_equal(result[name], expected[name])


@pytest.mark.parametrize("arena", [4 << 10, 1 << 20])
def test_an_index_out_of_range_names_its_statement(arena: int) -> None:
    make = Maker()
    table, ids = make.input(50, 8), make.input(40, dtype=I64)
    key = (Key(2, OperandRef(1, I64)),)
    rows = make.einsum((40, 8, 50), 2, [(table, (2, 1)), (ids, (0,))], "pick", key, OperandRef(0, F64))
    graph = make.graph(rows)
    inputs = arrays(graph)
    inputs["in1"] = np.arange(40)
    np.testing.assert_array_equal(run(graph, inputs, arena)[f"out{rows}"], inputs["in0"][:40])
    inputs["in1"][17] = 50
    with pytest.raises(OutOfRange) as stopped:
        run(graph, inputs, arena)
    assert stopped.value.exit_code == 1
    assert str(stopped.value) == "line 3: statement 3: index 50 at a = 17, from in1[17], is outside 0 .. 49"
