"""A run's schedule in a file, to be repeated exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from einturnip.core.errors import BindError
from einturnip.core.region import Region
from einturnip.eingraph.types import EinsumNode
from einturnip.pipeline import Options, Planned
from einturnip.planner.again import Again, class_tiles
from einturnip.runtime.replay import digest
from einturnip.runtime.types import RunReport

SCHEMA = "einturnip/recording/1"


def write(path: Path, planned: Planned, report: RunReport, options: Options, program: str) -> None:
    """Write how a run went, and what it takes to make its plan once more."""
    graph = planned.memgraph
    told = {
        "recording": SCHEMA,
        "program": program,
        "workers": planned.machine.workers,
        "reproducible": options.reproducible,
        "exact": options.exact,
        "limit": planned.limit,
        "arena": planned.room,
        "fused": any(isinstance(n, EinsumNode) and isinstance(n.einsum, Region) for n in planned.graph.nodes),
        "compiled": planned.machine.compiled,
        "tiles": class_tiles(planned.decomposition),
        "plan": digest(graph),
        "ops": len(graph),
        "events": list(report.events),
    }
    path.write_text(json.dumps(told) + "\n")


def read(path: Path) -> tuple[Again, dict[str, Any]]:
    """A recording, and the options that its run had.

    Raises:
        BindError: there is none, or it is no recording.
    """
    try:
        told = json.loads(path.read_text())
        if not isinstance(told, dict) or told["recording"] != SCHEMA:
            raise ValueError
        again = Again(
            told=f"{path} (of {told['program']})",
            limit=None if told["limit"] is None else int(told["limit"]),
            arena=int(told["arena"]),
            tiles=tuple(map(int, told["tiles"])),
            fused=bool(told["fused"]),
            compiled=bool(told["compiled"]),
            plan=str(told["plan"]),
            ops=int(told["ops"]),
            events=tuple(map(int, told["events"])),
        )
        return again, {name: told[name] for name in ("workers", "reproducible", "exact")}
    except FileNotFoundError:
        raise BindError(f"there is no recording {path}") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError, OSError):
        raise BindError(f"{path} is no recording. help: 'einturnip run --record FILE' writes one") from None
