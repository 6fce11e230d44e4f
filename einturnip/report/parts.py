"""Prints ``plan --parts``: decompositions for P devices, and the bytes that they move."""

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

# Maximum number of printed notes; the others are counted.
MAX_NOTES = 5


def head(decomposition: Decomposition, kind: str, parts: int, program: str) -> dict[str, Any]:
    """The common head of all plans into parts, in the format of a plan."""
    empty: dict[str, Any] = {"peak_bytes": {}, "link_bytes": {}, "link_bytes_lower_bound": {}}
    return {
        "schema": f"einturnip.{kind}/1",
        "program": program,
        "budget": dict.fromkeys(("memory", "compute", "host", "disk")),
        "predicted": {"seconds": None, "flops": None, **empty},
        "parts": parts,
        "cost_bytes": moved(decomposition).total,
        "notes": list(decomposition.notes),
    }


def parts_json(
    decomposition: Decomposition, baselines: Sequence[HandTiling], parts: int, program: str
) -> Iterator[str]:
    """A decomposition into ``parts`` without memory limits, and baselines for comparison."""
    first = head(decomposition, "decomposition", parts, program)
    first["baselines"] = [
        {
            "name": b.name,
            "labels": list(b.labels),
            "kernel_calls": b.decomposition.kernel_calls,
            "cost_bytes": _costs(moved(b.decomposition)),
        }
        for b in baselines
    ]
    yield from pieces(first, {"nodes": decomposition_nodes(decomposition)})


def _costs(m: Movement) -> dict[str, int]:
    return {"join": m.join, "aggregate": m.aggregate, "repartition": m.repartition}


def parts_text(decomposition: Decomposition, baselines: Sequence[HandTiling]) -> Iterator[str]:
    """The same in lines, with the bytes of each node, and a table."""
    lines = "\n".join(decomposition_lines(decomposition)).split("\n") if decomposition.graph.nodes else []
    for i, line in enumerate(lines):
        cost = movement(decomposition, i // 2)
        words = f"; join {cost.join}, aggregate {cost.aggregate}, repartition {cost.repartition} bytes"
        yield line + words if i % 2 and cost.total else line
    yield f"in all {moved(decomposition).total} bytes"
    yield ""
    yield from table(decomposition, baselines)
    yield from notes(decomposition)


def table(decomposition: Decomposition, baselines: Sequence[HandTiling]) -> Iterator[str]:
    """One line for each decomposition: its bytes by kind and in total, and its kernel calls."""
    rows: list[tuple[str, ...]] = [("bytes", "join", "aggregate", "repartition", "in all", "kernel calls")]
    record = [("EinDecomp", decomposition)]
    record += [(f"{b.name} ({', '.join(b.labels)})", b.decomposition) for b in baselines]
    for name, d in record:
        m = moved(d)
        rows.append((name, *map(str, (m.join, m.aggregate, m.repartition, m.total, d.kernel_calls))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        yield "  ".join([name.ljust(widths[0]), *(f.rjust(w) for f, w in zip(figures, widths[1:], strict=True))])


def notes(decomposition: Decomposition) -> Iterator[str]:
    """Yield requests that could not be met."""
    yield from decomposition.notes[:MAX_NOTES]
    if len(decomposition.notes) > MAX_NOTES:
        yield f"and {len(decomposition.notes) - MAX_NOTES} more such steps"


def placed_json(placement: DeviceAssignment, tasks: Sequence[DeviceTask], parts: int, program: str) -> Iterator[str]:
    """The tasks of P devices, the work and traffic of each device, and the bytes over each link."""
    first = head(placement.flow.decomposition, "taskgraph", parts, program)
    links = link_nbytes(tasks)
    first["predicted"] |= {
        "flops": sum(placement.flops),
        "link_bytes": {f"cpu:{a}->cpu:{b}": n for (a, b), n in sorted(links.items())},
    }
    first["moved_bytes"] = placement.moved_nbytes
    first["devices"] = [
        {"id": f"cpu:{k}", "flops": flops, "bytes_in": bytes_in, "bytes_out": bytes_out}
        for k, flops, bytes_in, bytes_out in _devices(placement, links)
    ]
    yield from pieces(first, {"tasks": map(_task, tasks)})


def placed_text(placement: DeviceAssignment, tasks: Sequence[DeviceTask]) -> Iterator[str]:
    """The same in lines."""
    for task in map(_task, tasks):
        origin = f" from {task['from']}" if "from" in task else ""
        after = f" after {' '.join(map(str, task['inputs']))}" if task["inputs"] else ""
        where = f"{task['device']}: {task['kind']} node {task['node']} tile {task['key']}"
        yield f"{task['id']}: {where} {task['nbytes']} bytes{origin}{after}"
    for k, flops, bytes_in, bytes_out in _devices(placement, link_nbytes(tasks)):
        yield f"cpu:{k}: {flops:.0f} operations, {bytes_in} bytes in, {bytes_out} bytes out"
    yield f"in all {placement.moved_nbytes} bytes moved"
    yield from notes(placement.flow.decomposition)


def link_nbytes(tasks: Sequence[DeviceTask]) -> dict[tuple[int, int], int]:
    """Bytes moved, by source and destination device."""
    record: Counter[tuple[int, int]] = Counter()
    for task in tasks:
        if task.kind == "move":
            record[task.source, task.device] += task.nbytes
    return dict(record)


def _devices(placement: DeviceAssignment, links: dict[tuple[int, int], int]) -> Iterator[tuple[int, float, int, int]]:
    for k, flops in enumerate(placement.flops):
        bytes_in = sum(n for (_, b), n in links.items() if b == k)
        yield k, flops, bytes_in, sum(n for (a, _), n in links.items() if a == k)


def _task(task: DeviceTask) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": task.id,
        "kind": task.kind,
        "node": task.node,
        "key": list(task.key),
        "device": f"cpu:{task.device}",
        "inputs": list(task.inputs),
        "nbytes": task.nbytes,
        "seconds": task.seconds,
    }
    return record | {"from": f"cpu:{task.source}"} if task.kind == "move" else record
