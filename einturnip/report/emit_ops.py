"""The ops and tiers of a memory graph as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from einturnip.memgraph.types import COMPUTE, DISK, FILES, HOST, MemGraph, Op, TierExtent
from einturnip.storage.types import Extent, Region

Files: TypeAlias = Mapping[int, "FileTier"]


@dataclass(frozen=True, slots=True)
class FileTier:
    """A file, or a caller's array, that a plan reads or writes; ``extent`` locates a region in it."""

    name: str
    kind: Literal["input", "output"]
    extent: Callable[[Region], Extent]


def tiers_of(graph: MemGraph, files: Files) -> list[dict[str, Any]]:
    """The memories and files of a plan, with their capacities in bytes."""
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


def op_json(graph: MemGraph, files: Files, op: Op) -> dict[str, Any]:
    """An op with the extents that it reads and writes."""
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


def op_line(op: Mapping[str, Any]) -> str:
    """A line of text for an op."""
    after = f" after {' '.join(map(str, op['after']))}" if op["after"] else ""
    unit = f" unit {op['unit']}" if op["unit"] is not None else ""
    return f"{op['id']}: {op['kind']} {places_text(op['reads'])} -> {places_text(op['writes'])}{unit}{after}"


def places_text(places: Sequence[Sequence[Any]]) -> str:
    """``cpu:0[0:2560]``, and for repeated runs ``x.npy[128:256 x 20]``."""
    parts = []
    for tier, offset, nbytes, _, *repeats in places:
        times = "".join(f" x {count}" for count, _ in repeats[0]) if repeats else ""
        parts.append(f"{tier}[{offset}:{offset + nbytes}{times}]")
    return " ".join(parts) or "nothing"
