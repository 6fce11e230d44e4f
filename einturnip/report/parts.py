"""Prints ``plan --parts``: decompositions for P devices, and the bytes that they move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.report.emit import decomposition_lines, decomposition_nodes, pieces, task_items, task_lines
from einturnip.taskgraph.multi_device import moved_nbytes
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.baselines import HandTiling
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


def placed_json(tasks: TaskGraph, program: str) -> Iterator[str]:
    """The tasks of P devices, the work and traffic of each device, and the bytes over each link."""
    first = head(tasks.decomposition, "taskgraph", tasks.devices, program)
    moved = moved_nbytes(tasks)
    first["predicted"] |= {
        "flops": int(tasks.flops.sum()),
        "link_bytes": {f"cpu:{a}->cpu:{b}": int(moved[a, b]) for a, b in np.argwhere(moved).tolist()},
    }
    first["moved_bytes"] = int(moved.sum())
    first["devices"] = [
        {"id": f"cpu:{k}", "flops": flops, "bytes_in": bytes_in, "bytes_out": bytes_out}
        for k, flops, bytes_in, bytes_out in _devices(tasks, moved)
    ]
    yield from pieces(first, {"tasks": task_items(tasks)})


def placed_text(tasks: TaskGraph) -> Iterator[str]:
    """The same in lines."""
    moved = moved_nbytes(tasks)
    yield from task_lines(tasks)
    for k, flops, bytes_in, bytes_out in _devices(tasks, moved):
        yield f"cpu:{k}: {flops} operations, {bytes_in} bytes in, {bytes_out} bytes out"
    yield f"in all {moved.sum()} bytes moved"
    yield from notes(tasks.decomposition)


def _devices(tasks: TaskGraph, moved: NDArray[np.int64]) -> Iterator[tuple[int, int, int, int]]:
    kernels = np.isin(tasks.kind, (TaskKind.KERNEL, TaskKind.ACCUMULATE, TaskKind.COMBINE, TaskKind.FINALIZE))
    device = tasks.device[tasks.value[kernels]] if tasks.devices > 1 else np.zeros(int(kernels.sum()), np.int64)
    flops = np.bincount(device, tasks.flops[kernels], tasks.devices)
    for k in range(tasks.devices):
        yield k, int(flops[k]), int(moved[:, k].sum()), int(moved[k].sum())
