"""Relations: their SQL computes the program, and their counts are those of the task graph."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

import einturnip as et
from einturnip.cli.plan import command as plan_command
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import Box
from einturnip.report.dot import emit_dot
from einturnip.report.relations import relation_json
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.testing import DrawnCase, assert_agrees, evaluate, programs
from einturnip.testing.strategies import FEATURES
from tests.drawn import examples
from tests.examples.harness import Example, assert_close
from tests.examples.test_examples import PROGRAMS
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES
from tests.reference.relation import Database


def small_plan(program: et.Program, inputs: Any, **options: Any) -> et.Plan:
    """The plan in the least arena, which has the most tiles."""
    try:
        return program.plan(arena=1, workers=1, data=inputs, **options)
    except et.CapacityError as error:
        return program.plan(arena=error.needed, workers=1, data=inputs, **options)


def count(tasks: TaskGraph) -> list[dict[str, Any]]:
    """Count the tiles, rows and bytes of each node, task by task."""
    graph, original = tasks.decomposition.graph, tasks.original.tolist() or list(range(tasks.n_values))
    found: list[dict[str, Any]] = [
        {"tiles": {}, "rows": set(), "calls": 0, "states": {}, "loads": [], "stores": [], "boxes": {}, "moved": []}
        for _ in graph.nodes
    ]
    for task in tasks:
        value = tasks.get_value(task.value)
        node = graph.outputs[task.node][1] if task.kind == TaskKind.STORE else task.node
        own = found[node]
        match task.kind:
            case TaskKind.LOAD:
                own["tiles"][value.box] = value.nbytes
                own["loads"].append(value.nbytes)
            case TaskKind.STORE:
                own["stores"].append(tile_nbytes(graph, node, value.box))
            case TaskKind.MOVE:
                if original[task.value] != task.value:
                    own["moved"].append(value.nbytes)
                else:
                    own["boxes"][value.box] = value.nbytes
            case TaskKind.KERNEL | TaskKind.ACCUMULATE:
                own["tiles"][value.box] = tile_nbytes(graph, node, value.box)
                own["rows"].add(task.key)
                own["calls"] += 1
                if task.kind == TaskKind.ACCUMULATE:
                    own["states"][task.value] = value.nbytes
    return found


def tile_nbytes(graph: EinGraph, node: int, box: Box) -> int:
    return graph.nodes[node].dtype.itemsize * math.prod(hi - lo for lo, hi in box)


def check_counts(tasks: TaskGraph) -> None:
    for shown, counted in zip(relation_json(tasks), count(tasks), strict=True):
        for name, key in (("tiles", "tiles"), ("boxes", "repartition")):
            assert shown[key] == {"count": len(counted[name]), "nbytes": sum(counted[name].values())}, key
        for name, key in (("loads", "loads"), ("stores", "stores"), ("moved", "exchange")):
            assert shown[key] == {"count": len(counted[name]), "nbytes": sum(counted[name])}, name
        if shown["kind"] == "join":
            assert shown["join"]["rows"] == len(counted["rows"]) and shown["join"]["calls"] == counted["calls"]
            aggregation = shown["aggregation"]
            states = aggregation["states"] if aggregation else {"count": 0, "nbytes": 0}
            assert states == {"count": len(counted["states"]), "nbytes": sum(counted["states"].values())}


def check_rows(tasks: TaskGraph, database: Database) -> None:
    """The tables hold the tiles of the plan; also those that no output needs, which a plan does not make."""
    graph = tasks.decomposition.graph
    for i, shown in enumerate(relation_json(tasks)):
        node = graph.nodes[i]
        if isinstance(node, EinsumNode):
            rows = database.rows(i)
            assert shown["tiles"]["count"] <= len(rows)
            if shown["tiles"]["count"] == len(rows):
                assert shown["tiles"]["nbytes"] == sum(tile.nbytes for tile in rows.values())
        if isinstance(node, InputNode) and shown["tiles"]["count"] == len(database.rows(i)):
            assert shown["tiles"]["nbytes"] <= sum(tile.nbytes for tile in database.rows(i).values())
        if isinstance(node, ConcatNode):
            assert shown["kind"] == "union"


def check(plan: et.Plan, agrees: Callable[[str, Any], None]) -> None:
    tasks = plan._job.planned.taskgraph
    check_counts(tasks)
    database = Database(tasks.decomposition, _arrays(plan))
    check_rows(tasks, database)
    for name, i in tasks.decomposition.graph.outputs:
        agrees(name, database.tensor(i))
    database.close()


def _arrays(plan: et.Plan) -> dict[str, Any]:
    sources = plan._job.sources
    found = {}
    for node in plan._job.planned.graph.nodes:
        if isinstance(node, InputNode):
            out = np.empty(node.shape, node.dtype.numpy)
            sources[node.name].read(tuple((0, n) for n in node.shape), out)
            found[node.name] = out
    return found


PORTION = 20  # the gate runs one sentence and one example out of each 20
DEVICES = ("cpu", "sim:0,1", "sim:0,1,2")


def check_sentence(sentence: Sentence, device: str) -> None:
    program = et.compile(sentence.text, dims=sentence.dims)
    plan = small_plan(program, sentence.inputs, device=device)
    check(plan, lambda name, found: assert_agrees(found, np.asarray(sentence.expected[name]), False))
    plan.close()


def check_example(path: Path, device: str) -> None:
    reference: Callable[[np.random.Generator], Example]
    reference = getattr(import_module(f"tests.examples.{path.parent.name}"), path.stem)
    example = reference(np.random.default_rng(7))
    plan = small_plan(et.compile(path, dims=example.dims), example.inputs, device=device)
    check(plan, lambda name, found: assert_close(found, example.expected[name], example.looser))
    plan.close()


@pytest.mark.parametrize("sentence", SENTENCES[::PORTION], ids=str)
def test_a_sentence(sentence: Sentence) -> None:
    check_sentence(sentence, "cpu")


@pytest.mark.parametrize("path", PROGRAMS[::PORTION], ids=lambda path: path.stem)
def test_an_example(path: Path) -> None:
    check_example(path, "sim:0,1")


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_every_sentence(sentence: Sentence, device: str) -> None:
    check_sentence(sentence, device)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example(path: Path, device: str) -> None:
    check_example(path, device)


@settings(max_examples=examples(10), suppress_health_check=[*HealthCheck], deadline=None)
@given(programs(features=FEATURES))
def test_any_program(case: DrawnCase) -> None:
    expected = evaluate(case.program, case.inputs, case.dims)
    plan = small_plan(et.compile(case.text, dims=case.dims), case.inputs)
    check(plan, lambda name, found: assert_agrees(found, expected[name]))
    plan.close()


PRODUCT = "input A : f32[n, m]\ninput B : f32[m, p]\nC[i,k] = A[i,j] * B[j,k]\noutput C\n"


def test_python_and_the_command_show_the_same(tmp_path: Path) -> None:
    plan = et.compile(PRODUCT).plan(dims={"n": 96, "m": 64, "p": 32}, arena="16KiB")
    (tmp_path / "product.ein").write_text(PRODUCT)
    sizes = ("--dim", "n=96", "--dim", "m=64", "--dim", "p=32", "--arena", "16KiB", "--emit", "relation")
    arguments = [str(tmp_path / "product.ein"), *sizes]
    shown = json.loads(CliRunner().invoke(plan_command, [*arguments, "--format", "json"]).output)
    assert shown["schema"] == "einturnip.relation/1" and shown["nodes"] == plan.relations()
    out = CliRunner().invoke(plan_command, arguments).output
    assert plan.relations()[2]["sql"][0]["text"].splitlines()[0] in out


def test_a_masked_row_is_filtered_and_a_shift_is_a_repartition() -> None:
    text = "input X : f32[n, n]\nS[i] = sum[j] where(j <= i, X[i,j], 0)\nD[i: n-3] = S[i+3] - S[i]\noutput D\n"
    plan = et.compile(text).plan(dims={"n": 64}, arena="2KiB")
    check_counts(plan._job.planned.taskgraph)
    total, shifted = (node for node in plan.relations() if node["name"] in ("S", "D"))
    assert total["join"]["filter"] == "j <= i"
    assert total["join"]["filtered"] + total["join"]["rows"] == np.prod(list(total["join"]["labels"].values()))
    assert total["join"]["filtered"] > 0
    assert len(shifted["sql"]) == 3 and total["repartition"]["count"] > 0
    plan.close()


def test_a_drawing_has_an_operator_for_each_step() -> None:
    plan = et.compile(PRODUCT).plan(dims={"n": 96, "m": 64, "p": 32}, arena="16KiB")
    lines = list(emit_dot(plan._job.planned, "relation"))
    words = [re.search(r'label="(\w+)', line)[1] for line in lines if "fillcolor" in line and "label" in line]
    assert words == ["scan", "scan", "join", "aggregation", "store"]
    assert [line.strip() for line in lines if "->" in line] == ["n0 -> n2;", "n1 -> n2;", "n2 -> n3;", "n3 -> n4;"]
