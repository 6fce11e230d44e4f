"""``plan --parts``: decompositions for P devices and what they move, printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from einturnip.report.emit import decomposition_lines, decomposition_nodes, pieces
from einturnip.taskgraph.multi_device_tasks import DeviceTask
from einturnip.tiling.baselines import HandTiling
from einturnip.tiling.device_assignment import DeviceAssignment
from einturnip.tiling.movement import Movement, moved, movement
from einturnip.tiling.types import Decomposition

# Notes that are printed; the rest are counted.
MOST_NOTES = 5


def head(decomposition: Decomposition, kind: str, parts: int, program: str) -> dict[str, Any]:
    """What every plan into parts says first, in the form of a plan's."""
    none: dict[str, Any] = {"peak_bytes": {}, "link_bytes": {}, "link_bytes_lower_bound": {}}
    return {
        "schema": f"einturnip.{kind}/1",
        "program": program,
        "budget": dict.fromkeys(("memory", "compute", "host", "disk")),
        "predicted": {"seconds": None, "flops": None, **none},
        "parts": parts,
        "cost_bytes": moved(decomposition).total,
        "notes": list(decomposition.notes),
    }


def parts_json(decomposition: Decomposition, beside: Sequence[HandTiling], parts: int, program: str) -> Iterator[str]:
    """A decomposition into ``parts`` that regards no memory, and baselines to compare it with."""
    first = head(decomposition, "decomposition", parts, program)
    first["baselines"] = [
        {
            "name": b.name,
            "labels": list(b.labels),
            "kernel_calls": b.decomposition.kernel_calls,
            "cost_bytes": _costs(moved(b.decomposition)),
        }
        for b in beside
    ]
    yield from pieces(first, {"nodes": decomposition_nodes(decomposition)})


def _costs(m: Movement) -> dict[str, int]:
    return {"join": m.join, "aggregate": m.aggregate, "repartition": m.repartition}


def parts_text(decomposition: Decomposition, beside: Sequence[HandTiling]) -> Iterator[str]:
    """The same in lines, with what each node moves, and a table."""
    lines = "\n".join(decomposition_lines(decomposition)).split("\n") if decomposition.graph.nodes else []
    for i, line in enumerate(lines):
        cost = movement(decomposition, i // 2)
        words = f"; join {cost.join}, aggregate {cost.aggregate}, repartition {cost.repartition} bytes"
        yield line + words if i % 2 and cost.total else line
    yield f"in all {moved(decomposition).total} bytes"
    yield ""
    yield from table(decomposition, beside)
    yield from notes(decomposition)


def table(decomposition: Decomposition, beside: Sequence[HandTiling]) -> Iterator[str]:
    """A line a decomposition: its bytes by kind and in all, and its kernel calls."""
    rows: list[tuple[str, ...]] = [("bytes", "join", "aggregate", "repartition", "in all", "kernel calls")]
    found = [("EinDecomp", decomposition)]
    found += [(f"{b.name} ({', '.join(b.labels)})", b.decomposition) for b in beside]
    for name, d in found:
        m = moved(d)
        rows.append((name, *map(str, (m.join, m.aggregate, m.repartition, m.total, d.kernel_calls))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        yield "  ".join([name.ljust(widths[0]), *(f.rjust(w) for f, w in zip(figures, widths[1:], strict=True))])


def notes(decomposition: Decomposition) -> Iterator[str]:
    """What was asked for and could not be had."""
    yield from decomposition.notes[:MOST_NOTES]
    if len(decomposition.notes) > MOST_NOTES:
        yield f"and {len(decomposition.notes) - MOST_NOTES} more such steps"


def placed_json(placement: DeviceAssignment, tasks: Sequence[DeviceTask], parts: int, program: str) -> Iterator[str]:
    """The tasks of P devices, what each device computes and moves, and the bytes over each link."""
    first = head(placement.spread.decomposition, "taskgraph", parts, program)
    links = link_nbytes(tasks)
    first["predicted"] |= {
        "flops": sum(placement.flops),
        "link_bytes": {f"cpu:{a}->cpu:{b}": n for (a, b), n in sorted(links.items())},
    }
    first["moved_bytes"] = placement.moved_nbytes
    first["devices"] = [
        {"id": f"cpu:{k}", "flops": flops, "bytes_in": came, "bytes_out": went}
        for k, flops, came, went in _devices(placement, links)
    ]
    yield from pieces(first, {"tasks": map(_task, tasks)})


def placed_text(placement: DeviceAssignment, tasks: Sequence[DeviceTask]) -> Iterator[str]:
    """The same in lines."""
    for task in map(_task, tasks):
        origin = f" from {task['from']}" if "from" in task else ""
        after = f" after {' '.join(map(str, task['inputs']))}" if task["inputs"] else ""
        where = f"{task['device']}: {task['kind']} node {task['node']} tile {task['key']}"
        yield f"{task['id']}: {where} {task['nbytes']} bytes{origin}{after}"
    for k, flops, came, went in _devices(placement, link_nbytes(tasks)):
        yield f"cpu:{k}: {flops:.0f} operations, {came} bytes in, {went} bytes out"
    yield f"in all {placement.moved_nbytes} bytes moved"
    yield from notes(placement.spread.decomposition)


def link_nbytes(tasks: Sequence[DeviceTask]) -> dict[tuple[int, int], int]:
    """Bytes moved, by device from and to."""
    found: Counter[tuple[int, int]] = Counter()
    for task in tasks:
        if task.kind == "move":
            found[task.source, task.device] += task.nbytes
    return dict(found)


def _devices(placement: DeviceAssignment, links: dict[tuple[int, int], int]) -> Iterator[tuple[int, float, int, int]]:
    for k, flops in enumerate(placement.flops):
        came = sum(n for (_, b), n in links.items() if b == k)
        yield k, flops, came, sum(n for (a, _), n in links.items() if a == k)


def _task(task: DeviceTask) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": task.id,
        "kind": task.kind,
        "node": task.node,
        "key": list(task.key),
        "device": f"cpu:{task.device}",
        "inputs": list(task.inputs),
        "nbytes": task.nbytes,
        "seconds": task.seconds,
    }
    return found | {"from": f"cpu:{task.source}"} if task.kind == "move" else found
