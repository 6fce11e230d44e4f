"""Prints the IRs of a plan incrementally: as lines for people, as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

from einturnip.eingraph.printer import show, to_json
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.memgraph.types import COMPUTE, DISK, FILES, HOST, MemGraph, Op, TierExtent
from einturnip.planner.planner import PlannedProgram
from einturnip.report.relations import relation_json, relation_lines
from einturnip.storage.types import Extent, Region
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.movement import moved, movement
from einturnip.tiling.types import Decomposition

IRLevel: TypeAlias = Literal["einsum", "decomposition", "relation", "taskgraph", "memgraph", "sites"]

Files: TypeAlias = Mapping[int, "FileTier"]


@dataclass(frozen=True, slots=True)
class FileTier:
    """A file, or a caller's array, that a plan reads or writes; ``extent`` locates a region in it."""

    name: str
    kind: Literal["input", "output"]
    extent: Callable[[Region], Extent]


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
            head["tiers"] = _tiers(planned.memgraph, files)
            lists = {"ops": _ops(planned.memgraph, files)}
        case "sites":
            head["tiers"] = _site_tiers(planned.memgraph, files)
            head["link"] = planned.machine.link and planned.machine.link._asdict()
            lists = {"ops": _site_ops(planned.memgraph, files)}
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
            yield from map(_op_line, _ops(planned.memgraph, files))
        case "sites":
            if planned.machine.link is not None:
                yield f"link {planned.machine.link}"
            yield from map(_op_line, _site_ops(planned.memgraph, files))
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


def _tiers(graph: MemGraph, files: Files) -> list[dict[str, Any]]:
    tiers: list[dict[str, Any]] = [
        {"id": f"cpu:{k}", "kind": "compute", "capacity": size} for k, size in enumerate(graph.arenas_nbytes)
    ]
    tiers.append({"id": "disk", "kind": "store", "capacity": None})
    if graph.host_nbytes:
        tiers.append({"id": "host", "kind": "host", "capacity": graph.host_nbytes})
    seen = {tier["id"] for tier in tiers}
    for tier in files.values():
        if tier.name not in seen:
            seen.add(tier.name)
            tiers.append({"id": tier.name, "kind": tier.kind, "capacity": None})
    return tiers


def _ops(graph: MemGraph, files: Files) -> Iterator[dict[str, Any]]:
    return (_op(graph, files, op) for op in graph)


def _op(graph: MemGraph, files: Files, op: Op) -> dict[str, Any]:
    return {
        "id": op.id,
        "kind": op.kind.name.lower(),
        "lane": op.kind.lane.name.lower(),
        "task": op.task,
        "reads": [_place(graph, files, op.id, a) for a in (*op.reads, *_accumulated(op)) if a.nbytes],
        "writes": [_place(graph, files, op.id, a) for a in op.writes if a.nbytes],
        "after": list(op.after),
        "unit": op.unit if op.unit >= 0 else None,
        "seconds": op.seconds,
    }


def _site_tiers(graph: MemGraph, files: Files) -> list[dict[str, Any]]:
    """The tiers of all sites: each has a memory, a spill file and a part of host memory of its own."""
    tiers: list[dict[str, Any]] = []
    for tier in _tiers(graph, files):
        if tier["kind"] == "compute":
            tiers.append(tier | {"site": int(tier["id"].removeprefix("cpu:"))})
        elif tier["kind"] in ("store", "host"):
            tiers += [tier | {"id": f"{tier['id']}:{k}", "site": k} for k in range(graph.devices)]
        else:
            tiers.append(tier)
    return tiers


def _site_ops(graph: MemGraph, files: Files) -> Iterator[dict[str, Any]]:
    """Yield the ops of one site after the other; ids are consecutive."""
    from einturnip.sites.split import split
    from einturnip.sites.types import Role

    first, carried = 0, {Role.SEND: "reads", Role.RECEIVE: "writes"}
    for plan in split(graph):
        for i, (role, at, peer) in enumerate(
            zip(plan.role.tolist(), plan.op.tolist(), plan.peer.tolist(), strict=True)
        ):
            op = _op(graph, files, graph[at])
            after = plan.after[plan.after_ptr[i] : plan.after_ptr[i + 1]]
            op |= {"id": first + i, "site": plan.site, "after": (after + first).tolist()}
            for side in ("reads", "writes"):
                own = [[f"{t}:{plan.site}" if t in ("disk", "host") else t, *row] for t, *row in op[side]]
                op[side] = own if role == Role.LOCAL or side == carried.get(role) else []
            if role != Role.LOCAL:
                op |= {"kind": Role(role).name.lower(), "lane": "net", "unit": None, "transfer": at, "peer": peer}
            yield op
        first += len(plan)


def _accumulated(op: Op) -> Iterator[TierExtent]:
    """Yield the state to which an op of a unit adds: written, and read before."""
    return (a for a in op.writes if op.unit >= 0 and a.value >= 0)


def _place(graph: MemGraph, files: Files, op: int, access: TierExtent) -> list[Any]:
    """[tier, offset, nbytes, value], and the repeats of the runs for a region of a file."""
    if access.tier == COMPUTE:
        device, offset = divmod(access.offset, graph.device_nbytes) if graph.devices > 1 else (0, access.offset)
        # Workspace: a value of its own without readers.
        value = access.value if access.value >= 0 else graph.taskgraph.n_values + len(graph.origin) + op
        return [f"cpu:{device}", offset, access.nbytes, value]
    if access.tier < FILES:
        return [{HOST: "host", DISK: "disk"}[access.tier], access.offset, access.nbytes, access.value]
    file = files[access.tier]
    offset, nbytes, repeats = file.extent(graph.taskgraph.get_value(graph.unversioned(access.value)).box)
    place = [file.name, offset, nbytes, access.value]
    return [*place, [list(r) for r in repeats]] if repeats else place


def _op_line(op: Mapping[str, Any]) -> str:
    after = f" after {' '.join(map(str, op['after']))}" if op["after"] else ""
    unit = f" unit {op['unit']}" if op["unit"] is not None else ""
    return f"{op['id']}: {op['kind']} {_places(op['reads'])} -> {_places(op['writes'])}{unit}{after}"


def _places(places: Sequence[Sequence[Any]]) -> str:
    """``cpu:0[0:2560]``, and for repeated runs ``x.npy[128:256 x 20]``."""
    parts = []
    for tier, offset, nbytes, _, *repeats in places:
        times = "".join(f" x {count}" for count, _ in repeats[0]) if repeats else ""
        parts.append(f"{tier}[{offset}:{offset + nbytes}{times}]")
    return " ".join(parts) or "nothing"
