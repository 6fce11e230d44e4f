"""Prints the IRs of a plan incrementally: as lines for people, as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, assert_never

from einturnip.eingraph.printer import show, to_json
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.memgraph.types import MemGraph
from einturnip.planner.planner import PlannedProgram
from einturnip.report.emit_ops import Files as Files
from einturnip.report.emit_ops import FileTier as FileTier
from einturnip.report.emit_ops import op_json, op_line, tiers_of
from einturnip.report.relations import relation_json, relation_lines
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.movement import moved, movement
from einturnip.tiling.types import Decomposition

IRLevel: TypeAlias = Literal["einsum", "decomposition", "relation", "taskgraph", "memgraph", "sites"]


def emit_json(planned: PlannedProgram, level: IRLevel, program: str, files: Files) -> Iterator[str]:
    """Yield one JSON object in pieces, since 10⁶ ops are 400 MB.

    ``files``: the tiers of the graph's inputs and outputs.
    """
    head: dict[str, Any] = {
        "schema": f"einturnip.{level}/1",
        "program": program,
        "budget": budget(planned),
        "predicted": planned.prediction.to_json(),
    }
    match level:
        case "einsum":
            lists = {"nodes": iter(to_json(planned.graph))}
        case "decomposition":
            head["parts"] = max(math.prod(cut.counts) for cut in planned.decomposition.partitionings)
            head["cost_bytes"] = _cost_nbytes(planned.decomposition)
            lists = {"nodes": decomposition_nodes(planned.decomposition)}
        case "relation":
            lists = {"nodes": relation_json(planned.taskgraph)}
        case "taskgraph":
            lists = {"tasks": task_items(planned.taskgraph)}
        case "memgraph":
            head["tiers"] = tiers_of(planned.memgraph, files)
            lists = {"ops": _ops(planned.memgraph, files)}
        case "sites":
            from einturnip.report.emit_sites import site_ops, site_tiers

            head["tiers"] = site_tiers(planned.memgraph, files)
            head["link"] = planned.machine.link and planned.machine.link._asdict()
            lists = {"ops": site_ops(planned.memgraph, files)}
        case _:
            assert_never(level)
    yield from pieces(head, lists)


def _cost_nbytes(decomposition: Decomposition) -> int:
    return moved(decomposition).total


def pieces(head: Mapping[str, Any], lists: Mapping[str, Iterator[dict[str, Any]]]) -> Iterator[str]:
    """Yield one JSON object in pieces: ``head``, then lists, one item a line."""
    yield json.dumps(head)[:-1]
    for name, items in lists.items():
        yield f', "{name}": ['
        for i, item in enumerate(items):
            yield (",\n" if i else "\n") + json.dumps(item)
        yield "]"
    yield "}"


def emit_text(planned: PlannedProgram, level: IRLevel, files: Files) -> Iterator[str]:
    """Yield an IR in lines."""
    match level:
        case "einsum":
            yield from show(planned.graph).splitlines()
        case "decomposition":
            yield from decomposition_lines(planned.decomposition)
        case "relation":
            yield from relation_lines(planned.taskgraph)
        case "taskgraph":
            yield from task_lines(planned.taskgraph)
        case "memgraph":
            yield from map(op_line, _ops(planned.memgraph, files))
        case "sites":
            from einturnip.report.emit_sites import site_lines

            if planned.machine.link is not None:
                yield f"link {planned.machine.link}"
            yield from site_lines(planned.memgraph, files)
        case _:
            assert_never(level)


def budget(planned: PlannedProgram) -> dict[str, int | None]:
    """The bytes that the plan may use of each kind of memory; ``compute`` is the arena."""
    given = planned.budget
    return {"memory": given.memory, "compute": given.arena, "host": None, "disk": None}


def decomposition_nodes(decomposition: Decomposition) -> Iterator[dict[str, Any]]:
    """Yield each node with its tile counts and bytes moved."""
    for node, cut in zip(to_json(decomposition.graph), decomposition.partitionings, strict=True):
        cost = movement(decomposition, node["id"])
        costs = {"join": cost.join, "aggregate": cost.aggregate, "repartition": cost.repartition}
        yield node | {"counts": list(cut.counts), "cost_bytes": costs}


def decomposition_lines(decomposition: Decomposition) -> Iterator[str]:
    """Yield two lines for each node: its definition, and its tiling."""
    graph: EinGraph = decomposition.graph
    for i, (text, cut) in enumerate(zip(show(graph).splitlines(), decomposition.partitionings, strict=True)):
        node = graph.nodes[i]
        axes = tuple(f"axis{a}" for a in range(len(node.shape)))
        labels = node.einsum.labels if isinstance(node, EinsumNode) else axes
        cuts = [
            f"{label}: {count} x {tile}"
            for label, count, tile in zip(labels, cut.counts, cut.tiles, strict=True)
            if count != 1
        ]
        yield f"{text}\n    cut into {', '.join(cuts)}" if cuts else f"{text}\n    whole"


def _makers(graph: TaskGraph) -> list[list[int]]:
    """The tasks that produce each value: one, or every accumulation into a state."""
    makers: list[list[int]] = [[] for _ in range(graph.n_values)]
    values = graph.value.tolist()
    for task, kind in enumerate(graph.kind.tolist()):
        if kind != TaskKind.STORE:
            makers[values[task]].append(task)
    return makers


def task_items(graph: TaskGraph) -> Iterator[dict[str, Any]]:
    """Yield each task; a move between devices has the one that it comes from."""
    makers = _makers(graph)
    outputs = [node for _, node in graph.decomposition.graph.outputs]
    several = graph.devices > 1
    for task in graph:
        stored = task.kind == TaskKind.STORE
        here = graph.device[task.reads[0] if stored else task.value] if several else 0
        item = {
            "id": task.id,
            "kind": task.kind.word,
            "node": outputs[task.node] if stored else task.node,
            "key": list(task.key),
            "device": f"cpu:{here}",
            "inputs": sorted({maker for value in task.reads for maker in makers[value]}),
            "nbytes": int(graph.value_nbytes[task.value]),
            "seconds": task.seconds,
        }
        if several and task.reads and (source := graph.device[task.reads[0]]) != here:
            item["from"] = f"cpu:{source}"
        yield item


def task_lines(graph: TaskGraph) -> Iterator[str]:
    """Yield a line for each task; on several devices it names the device."""
    for task in task_items(graph):
        where = f"{task['device']}: " if graph.devices > 1 else ""
        origin = f" from {task['from']}" if "from" in task else ""
        after = f" after {' '.join(map(str, task['inputs']))}" if task["inputs"] else ""
        tile = f"{task['kind']} node {task['node']} tile {task['key']}"
        yield f"{task['id']}: {where}{tile} {task['nbytes']} bytes{origin}{after}"


def _ops(graph: MemGraph, files: Files) -> Iterator[dict[str, Any]]:
    return (op_json(graph, files, op) for op in graph)
