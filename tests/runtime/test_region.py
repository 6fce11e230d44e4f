"""Graphs with regions through every IR: drawn tilings, the least arena, a run; and the work that a mask saves."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import einturnip
from einturnip.compiler import Options, execute
from einturnip.core.errors import CapacityError
from einturnip.cost.machine import Machine
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.ir.dtypes import BOOL, F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.ir.scalar import LabelValue, OperandRef, ScalarConst
from einturnip.memgraph import build as memgraph_build
from einturnip.memgraph import check as memgraph_check
from einturnip.planner import variants
from einturnip.planner.budget import PlanningMemory
from einturnip.planner.planner import PlannedProgram
from einturnip.planner.predict import predict
from einturnip.planner.request import GraphRequest, PlanRequest
from einturnip.planner.variants import plan
from einturnip.runtime.scheduler.policies import policy
from einturnip.storage.arrays import ArraySink, array_source
from einturnip.taskgraph import build as taskgraph_build
from einturnip.taskgraph import check as taskgraph_check
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.testing import DrawnCase, assert_agrees, evaluate, programs
from einturnip.tiling import build as decomp_build
from einturnip.tiling import check as decomp_check
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.types import Decomposition
from tests.drawn import examples
from tests.kernels.regions import CASES, Made, attention, call, einsum
from tests.reference import decomposition as decomp_values
from tests.reference import memgraph as memgraph_values
from tests.reference import taskgraph as taskgraph_values

Array = np.ndarray[Any, np.dtype[Any]]
MACHINE = Machine(workers=2)


def graph_of(made: Made) -> tuple[EinGraph, dict[str, Array]]:
    """The region over inputs, and a map of its result, so that it is both read and stored."""
    inputs = {f"in{n}": np.ascontiguousarray(x) for n, x in enumerate(made.operands)}
    region = made.region
    stored = zip(inputs.items(), region.dtypes, strict=True)
    nodes: list[Any] = [InputNode(name, x.shape, dtype, 1) for (name, x), dtype in stored]
    nodes.append(EinsumNode("R", region, tuple(range(len(inputs))), 2))
    labels, result = "abcdefg"[: region.n_out], OperandRef(0, region.dtype)
    twice = einsum(labels, region.n_out, region.shape, [labels], [region.dtype], call("add", result, result))
    nodes.append(EinsumNode("T", twice, (len(inputs),), 3))
    return EinGraph(tuple(nodes), (("R", len(inputs)), ("T", len(inputs) + 1)), "hand.ein"), inputs


def agrees(made: Made, found: dict[str, Array]) -> None:
    scale = 2e-5 if made.region.dtype == F32 else 1e-12
    np.testing.assert_allclose(found["R"], made.expected, rtol=scale, atol=scale)
    np.testing.assert_allclose(found["T"], 2 * made.expected, rtol=scale, atol=scale)


def cut(graph: EinGraph, data: st.DataObject) -> Decomposition:
    classes = label_classes(graph)
    tiles = [data.draw(st.integers(1, max(1, n))) for n in classes.bounds]
    decomposition = decomp_build.decompose(graph, classes, tiles, 1 << 16)
    decomp_check.check(decomposition)
    return decomposition


def tasks(decomposition: Decomposition) -> TaskGraph:
    graph = taskgraph_build.build(decomposition, MACHINE)
    taskgraph_check.check(graph)
    return graph


def run(graph: EinGraph, inputs: dict[str, Array], arena: int) -> tuple[dict[str, Array], PlannedProgram]:
    sources = {name: array_source(array, name) for name, array in inputs.items()}
    nodes = [(name, graph.nodes[i]) for name, i in graph.outputs]
    results = {name: np.zeros(node.shape, node.dtype.numpy) for name, node in nodes}
    sinks = {name: ArraySink(name, results[name], node.dtype) for name, node in nodes}
    options = Options(arena=arena, workers=2)
    lowered = plan(GraphRequest(graph, PlanningMemory(None, arena), MACHINE))
    memgraph_check.check(lowered.memgraph)
    prediction = predict(lowered.memgraph, MACHINE, policy(options.policy))
    targets = {name: name for name in sinks}
    planned = PlannedProgram(graph, lowered.memgraph, prediction, lowered.budget, MACHINE, sources, targets)
    execute(planned, sources, sinks, options)
    return results, planned


@settings(max_examples=examples(40))
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
            plan(GraphRequest(graph, PlanningMemory(None, 1), MACHINE))
        agrees(made, run(graph, inputs, small.value.needed)[0])
    else:
        agrees(made, run(graph, inputs, 16 << 20)[0])


def test_inner_labels_are_never_cut() -> None:
    """Those of a region stand alone, even where another node reads the same axis."""
    graph, _ = graph_of(attention(np.random.default_rng(0), 1, 2, 16, 16, 8, 4))
    classes = label_classes(graph)
    decomposition = decomp_build.decompose(graph, classes, [1] * len(classes.bounds), 1 << 16)
    region = graph.nodes[3].einsum
    assert isinstance(region, Region) and region.whole == {5}
    assert decomposition.partitionings[3].tiles == (1, 1, 1, 1, 1, 8)
    assert eindecomp(graph, 16).partitionings[3].tiles[5] == 8


def test_tiles_that_a_mask_empties_are_not_made() -> None:
    """Of a causal region half the tiles are left, and the diagonal."""
    made = attention(np.random.default_rng(0), 1, 1, 16, 16, 2, 2, "causal")
    graph, inputs = graph_of(made)
    classes = label_classes(graph)
    region = graph.nodes[3].einsum
    tiles = [4 if n == 16 else n for n in classes.bounds]
    lowered = tasks(decomp_build.decompose(graph, classes, tiles, 1 << 20))
    touched = lowered.node[lowered.kind == TaskKind.ACCUMULATE] == 3
    assert isinstance(region, Region) and touched.sum() == 4 * 5 // 2
    agrees(made, taskgraph_values.evaluate(lowered, inputs))


def test_an_einsum_under_a_mask() -> None:
    """y[i] = sum[j] where(j < i - 4, x[i, j], 0): tiles above the diagonal are not made, one in each row is."""
    below = call("lt", LabelValue(1), call("sub", LabelValue(0), ScalarConst(4, LabelValue(0).dtype)), dtype=BOOL)
    join = call("where", below, OperandRef(0, F32), ScalarConst(0.0, F32))
    node = EinsumNode("Y", einsum("ij", 1, (16, 16), ["ij"], [F32], join, "sum"), (0,), 2)
    graph = EinGraph((InputNode("X", (16, 16), F32, 1), node), (("Y", 1),), "hand.ein")
    assert isinstance(node.einsum, Einsum)
    lowered = tasks(decomp_build.decompose(graph, label_classes(graph), [4, 4], 1 << 20))
    assert (lowered.kind == TaskKind.ACCUMULATE).sum() == 1 + 1 + 2 + 3
    assert (lowered.kind == TaskKind.LOAD).sum() == 7
    x = np.random.default_rng(0).integers(-4, 4, (16, 16)).astype(np.float32)
    expected = np.where(np.arange(16) < np.arange(16)[:, None] - 4, x, 0).sum(1)
    np.testing.assert_array_equal(taskgraph_values.evaluate(lowered, {"X": x})["Y"], expected)
    results, _ = run(graph, {"X": x}, 4096)
    np.testing.assert_array_equal(results["Y"], expected)


# --- programs, fused wherever a law allows it -------------------------------------------------------------------------


def fuse_all(graph: EinGraph, forms: EinsumInterner, memory: int | None, rows: bool) -> EinGraph:
    return fuse(graph, forms, memory, 0, rows)


def fused_only(request: PlanRequest, made: variants.Variants, *_: Any) -> variants.PlannedVariant:
    return variants.plan_variant(request, request.of_graph(made.fused), made.limit)


@pytest.mark.parametrize("arena", [None, 1])
@given(case=programs())
def test_drawn_programs_fused(arena: int | None, case: DrawnCase) -> None:
    note(case.text)
    expected = evaluate(case.program, case.inputs, case.dims)
    everywhere = mock.patch("einturnip.eingraph.fusion.fuse.fuse", fuse_all)
    with everywhere, mock.patch.object(variants, "_fused_or_not", fused_only):
        program = einturnip.compile(case.text, dims=case.dims)
        try:
            plan = program.plan(arena=arena, workers=2, data=case.inputs)
        except CapacityError as error:
            plan = program.plan(arena=error.needed, workers=2, data=case.inputs)
        result = plan.run()
    for name, answer in expected.items():
        assert_agrees(result[name], answer)


PROGRAMS = {
    "attention": "M[s, t] = where(t <= s, sum[d] A[s, d] * B[t, d], -inf)\nm[s] = max[t] M[s, t]\n"
    "P[s, t] = exp(M[s, t] - m[s])\nZ[s] = sum[t] P[s, t]\nO[s, d] = (sum[t] P[s, t] * B[t, d]) / Z[s]",
    "variance": "m[s] = mean[d] A[s, d]\nO[s] = mean[d] (A[s, d] - m[s])^2",
    "logsumexp of distances": "O[s] = logsumexp[t] -sum[d] (A[s, d] - B[t, d])^2",
    "nearest": "D[s, t] = sum[d] (A[s, d] - B[t, d])^2\nO[s] = argmin[t] D[s, t]",
    "softmax": "m[s] = max[d] A[s, d]\nZ[s] = sum[d] exp(A[s, d] - m[s])\nO[s] = log(Z[s]) + m[s]",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("arena", ["64KiB", "8MiB"])
def test_programs_fused(name: str, arena: str) -> None:
    text = f"input A : f64[s, d]\ninput B : f64[t, d]\n{PROGRAMS[name]}\noutput O\n"
    rng = np.random.default_rng(0)
    inputs = {"A": rng.integers(-3, 4, (150, 16)) / 4, "B": rng.integers(-3, 4, (150, 16)) / 4}
    program = einturnip.compile(text)
    with mock.patch.object(variants, "_fused_or_not", fused_only):
        plan = program.plan(arena=arena, workers=2, data=inputs)
    fused = any(isinstance(getattr(n, "einsum", None), Region) for n in plan._job.planned.graph.nodes)
    with mock.patch("einturnip.eingraph.fusion.fuse.fuse", lambda graph, *_, **__: graph):
        expected = program.plan(arena="8MiB", workers=2, data=inputs).run()["O"]
    np.testing.assert_allclose(plan.run()["O"], expected, rtol=1e-10)
    assert fused or name in ("variance", "softmax")
