"""Graphs with regions, through every floor: cut at random, in the least arena, and run; and what a mask saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.dtypes import BOOL, F32
from einturnip.core.einsum import Einsum
from einturnip.core.errors import CapacityError
from einturnip.core.machine import Machine
from einturnip.core.region import Region
from einturnip.core.scalar import Const, Label, Operand
from einturnip.decomp import build as decomp_build
from einturnip.decomp import check as decomp_check
from einturnip.decomp import evaluate as decomp_values
from einturnip.decomp.eindecomp import eindecomp
from einturnip.decomp.types import Decomposition
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.memgraph import build as memgraph_build
from einturnip.memgraph import check as memgraph_check
from einturnip.memgraph import evaluate as memgraph_values
from einturnip.pipeline import Options, Planned, execute
from einturnip.planner.plan import plan
from einturnip.planner.price import predict
from einturnip.runtime.policies import policy
from einturnip.stores.arrays import ArraySink, array_source
from einturnip.taskgraph import build as taskgraph_build
from einturnip.taskgraph import check as taskgraph_check
from einturnip.taskgraph import evaluate as taskgraph_values
from einturnip.taskgraph.types import TaskGraph, TaskKind
from tests.codegen.regions import CASES, Made, attention, call, einsum

Array = np.ndarray[Any, np.dtype[Any]]
MACHINE = Machine(workers=2)


def graph_of(made: Made) -> tuple[EinGraph, dict[str, Array]]:
    """The region over inputs, and a map of its result, so that it is both read and stored."""
    inputs = {f"in{n}": np.ascontiguousarray(x) for n, x in enumerate(made.operands)}
    region = made.region
    stored = zip(inputs.items(), region.dtypes, strict=True)
    nodes: list[Any] = [InputNode(name, x.shape, dtype, 1) for (name, x), dtype in stored]
    nodes.append(EinsumNode("R", region, tuple(range(len(inputs))), 2))
    labels, result = "abcdefg"[: region.n_out], Operand(0, region.dtype)
    twice = einsum(labels, region.n_out, region.shape, [labels], [region.dtype], call("add", result, result))
    nodes.append(EinsumNode("T", twice, (len(inputs),), 3))
    return EinGraph(tuple(nodes), (("R", len(inputs)), ("T", len(inputs) + 1)), "hand.ein"), inputs


def agrees(made: Made, found: dict[str, Array]) -> None:
    scale = 2e-5 if made.region.dtype == F32 else 1e-12
    np.testing.assert_allclose(found["R"], made.expected, rtol=scale, atol=scale)
    np.testing.assert_allclose(found["T"], 2 * made.expected, rtol=scale, atol=scale)


def cut(graph: EinGraph, data: st.DataObject) -> Decomposition:
    classes = decomp_build.label_classes(graph)
    tiles = [data.draw(st.integers(1, max(1, n))) for n in classes.bounds]
    decomposition = decomp_build.decompose(graph, classes, tiles, 1 << 16)
    decomp_check.check(decomposition)
    return decomposition


def tasks(decomposition: Decomposition) -> TaskGraph:
    graph = taskgraph_build.build(decomposition, MACHINE)
    taskgraph_check.check(graph)
    return graph


def run(graph: EinGraph, inputs: dict[str, Array], arena: int) -> tuple[dict[str, Array], Planned]:
    sources = {name: array_source(array, name) for name, array in inputs.items()}
    nodes = [(name, graph.nodes[i]) for name, i in graph.outputs]
    results = {name: np.zeros(node.shape, node.dtype.numpy) for name, node in nodes}
    sinks = {name: ArraySink(name, results[name], node.dtype) for name, node in nodes}
    options = Options(arena=arena, workers=2)
    lowered = plan(graph, None, arena, MACHINE, {})
    memgraph_check.check(lowered.memgraph)
    prediction = predict(lowered.memgraph, MACHINE, policy(options.policy))
    targets = {name: name for name in sinks}
    planned = Planned(graph, lowered.memgraph, prediction, lowered.budget, MACHINE, sources, targets)
    execute(planned, sources, sinks, options)
    return results, planned


@settings(max_examples=40)
@given(data=st.data())
def test_every_floor(data: st.DataObject) -> None:
    made = data.draw(st.sampled_from(CASES))(np.random.default_rng(0))
    graph, inputs = graph_of(made)
    decomposition = cut(graph, data)
    agrees(made, decomp_values.evaluate(decomposition, inputs))
    lowered = tasks(decomposition)
    agrees(made, taskgraph_values.evaluate(lowered, inputs))
    capacity = 1
    while True:
        try:
            placed = memgraph_build.build(lowered, capacity, MACHINE)
            break
        except CapacityError as error:
            capacity = error.needed + 16 * memgraph_build.granule(error.needed)
    memgraph_check.check(placed)
    agrees(made, memgraph_values.evaluate(placed, inputs))


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("tight", [False, True])
def test_runs(case: int, tight: bool) -> None:
    made = CASES[case](np.random.default_rng(case))
    graph, inputs = graph_of(made)
    if tight:
        with pytest.raises(CapacityError) as small:
            plan(graph, None, 1, MACHINE, {})
        agrees(made, run(graph, inputs, small.value.needed)[0])
    else:
        agrees(made, run(graph, inputs, 16 << 20)[0])


def test_inner_labels_are_never_cut() -> None:
    """Those of a region stand alone, even where another node reads the same axis."""
    graph, _ = graph_of(attention(np.random.default_rng(0), 1, 2, 16, 16, 8, 4))
    classes = decomp_build.label_classes(graph)
    decomposition = decomp_build.decompose(graph, classes, [1] * len(classes.bounds), 1 << 16)
    region = graph.nodes[3].einsum
    assert isinstance(region, Region) and region.whole == {5}
    assert decomposition.partitionings[3].tiles == (1, 1, 1, 1, 1, 8)
    assert eindecomp(graph, 16).partitionings[3].tiles[5] == 8


def test_tiles_that_a_mask_empties_are_not_made() -> None:
    """Of a causal region half the tiles are left, and the diagonal."""
    made = attention(np.random.default_rng(0), 1, 1, 16, 16, 2, 2, "causal")
    graph, inputs = graph_of(made)
    classes = decomp_build.label_classes(graph)
    region = graph.nodes[3].einsum
    tiles = [4 if n == 16 else n for n in classes.bounds]
    lowered = tasks(decomp_build.decompose(graph, classes, tiles, 1 << 20))
    touched = lowered.node[lowered.kind == TaskKind.TOUCH] == 3
    assert isinstance(region, Region) and touched.sum() == 4 * 5 // 2
    agrees(made, taskgraph_values.evaluate(lowered, inputs))


def test_an_einsum_under_a_mask() -> None:
    """y[i] = sum[j] where(j < i - 4, x[i, j], 0): tiles above the diagonal are not made, one in each row is."""
    below = call("lt", Label(1), call("sub", Label(0), Const(4, Label(0).dtype)), dtype=BOOL)
    join = call("where", below, Operand(0, F32), Const(0.0, F32))
    node = EinsumNode("Y", einsum("ij", 1, (16, 16), ["ij"], [F32], join, "sum"), (0,), 2)
    graph = EinGraph((InputNode("X", (16, 16), F32, 1), node), (("Y", 1),), "hand.ein")
    assert isinstance(node.einsum, Einsum)
    lowered = tasks(decomp_build.decompose(graph, decomp_build.label_classes(graph), [4, 4], 1 << 20))
    assert (lowered.kind == TaskKind.TOUCH).sum() == 1 + 1 + 2 + 3
    assert (lowered.kind == TaskKind.LOAD).sum() == 7
    x = np.random.default_rng(0).integers(-4, 4, (16, 16)).astype(np.float32)
    expected = np.where(np.arange(16) < np.arange(16)[:, None] - 4, x, 0).sum(1)
    np.testing.assert_array_equal(taskgraph_values.evaluate(lowered, {"X": x})["Y"], expected)
    results, _ = run(graph, {"X": x}, 4096)
    np.testing.assert_array_equal(results["Y"], expected)
