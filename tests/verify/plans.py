"""Plans as JSON says them: real ones of small programs, and small ones by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from einturnip.eingraph.types import InputNode
from einturnip.memgraph.build import build
from einturnip.memgraph.types import FILES, MemGraph
from einturnip.report.emit import FileTier, emit_json
from einturnip.storage.layout import c_layout
from einturnip.taskgraph.build import build as build_tasks
from einturnip.verify.check import check
from einturnip.verify.read import read
from einturnip.verify.types import Rule, Verdict
from tests.memgraph.cases import MACHINE, decomposed, graph_of
from tests.memgraph.test_build import least_capacity

Json = dict[str, Any]


def files_of(graph: MemGraph) -> dict[int, FileTier]:
    """A file for each input and output of a memory graph."""
    eingraph = graph.taskgraph.decomposition.graph
    files = {}
    for i, node in enumerate(eingraph.nodes):
        if isinstance(node, InputNode):
            files[FILES + i] = FileTier(node.name, "input", c_layout(node.shape, node.dtype.itemsize, 0).extent)
    for number, (name, i) in enumerate(eingraph.outputs):
        node = eingraph.nodes[i]
        tier = FileTier(f"{name}.npy", "output", c_layout(node.shape, node.dtype.itemsize, 128).extent)
        files[FILES + len(eingraph.nodes) + number] = tier
    return files


def text_of(graph: MemGraph) -> str:
    """What ``einturnip plan --emit memgraph --format json`` prints of a memory graph."""
    budget, prediction = SimpleNamespace(memory=None, arena=graph.capacity), SimpleNamespace(to_json=dict)
    planned: Any = SimpleNamespace(memgraph=graph, budget=budget, prediction=prediction)
    return "".join(emit_json(planned, "memgraph", "case.ein", files_of(graph)))


@lru_cache
def real(name: str, tile: int, spare: int = 128) -> str:
    """A plan of one of the programs of ``tests.memgraph.cases``, in little more memory than the least."""
    tasks = build_tasks(decomposed(graph_of(name), [[tile + 1, tile, tile]] * 12, 1500), MACHINE)
    return text_of(build(tasks, least_capacity(tasks) + spare, MACHINE, frozenset((0, 1))))


def verdict_of(plan: Json | str | bytes, expected: Mapping[str, int] | None = None, limit: int = 20) -> Verdict:
    """The verdict on a plan."""
    text = plan if isinstance(plan, (str, bytes)) else json.dumps(plan)
    return check(read(io.BytesIO(text.encode() if isinstance(text, str) else text), "plan.json"), expected, limit)


def rules(plan: Json | str, expected: Mapping[str, int] | None = None) -> set[Rule]:
    """The rules that a plan breaks."""
    return set(verdict_of(plan, expected).counts)


def plan_of(ops: Sequence[Json], tiers: Sequence[Json] | None = None, **more: Any) -> Json:
    """A plan of the ops given, in 64 bytes of memory."""
    named = tiers or [
        {"id": "cpu:0", "kind": "compute", "capacity": 64},
        {"id": "disk", "kind": "store", "capacity": None},
        {"id": "X", "kind": "input", "capacity": None},
        {"id": "Y", "kind": "output", "capacity": None},
    ]
    head = {"schema": "einturnip.memgraph/1", "program": "hand.ein", "budget": {}, "predicted": {}}
    return {**head, "tiers": list(named), **more, "ops": list(ops)}


def op(
    id: int,
    kind: str,
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
    after: Sequence[int] = (),
    unit: Any = None,
) -> Json:
    """One op."""
    lane = {"load": "in", "reload": "in", "store": "out", "offload": "out"}.get(kind, "compute")
    return {
        "id": id,
        "kind": kind,
        "lane": lane,
        "task": id,
        "reads": [list(r) for r in reads],
        "writes": [list(w) for w in writes],
        "after": list(after),
        "unit": unit,
        "seconds": 0.5,
    }
