"""Recordings of a run's schedule in a file, for exact repetition."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from einturnip.compiler import Options
from einturnip.core.errors import BindError
from einturnip.core.process_resources import usable_cores
from einturnip.core.regular_files import read_regular
from einturnip.cost.site_rates import MachineLink
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.region import Region
from einturnip.planner.planner import PlannedProgram
from einturnip.planner.replayed_plan import ReplayedChoices, class_tiles, classes_for
from einturnip.runtime.scheduler.replay import digest
from einturnip.runtime.scheduler.report import RunReport

SCHEMA = "einturnip/recording/1"
MAX_NBYTES = 64 << 20
"""Maximum size of a recording: four million ops."""
MAX_WORKERS = 4096
_MAX_SHOWN = 60


def write(path: Path, planned: PlannedProgram, report: RunReport, options: Options, program: str) -> None:
    """Record a run's schedule, and the options to repeat its plan."""
    graph, machine = planned.memgraph, planned.machine
    classes, _ = classes_for(planned.graph, graph.devices, machine.rates, options.reproducible)
    record = {
        "recording": SCHEMA,
        "program": program,
        "device": planned.device.kind.name if options.device == "auto" else options.device,
        "workers": options.workers or usable_cores(),
        "reproducible": options.reproducible,
        "exact": options.exact,
        "link": options.link,
        "rates": options.rates,
        "extra": options.extra,
        "limit": planned.limit,
        "arena": planned.capacity,
        "fused": any(isinstance(n, EinsumNode) and isinstance(n.einsum, Region) for n in planned.graph.nodes),
        "compiled": machine.compiled,
        "tiles": class_tiles(planned.decomposition, classes),
        "plan": digest(graph),
        "ops": len(graph),
        "events": list(report.events),
    }
    path.write_text(json.dumps(record) + "\n")


def read(path: Path) -> tuple[ReplayedChoices, dict[str, Any]]:
    """Read a recording, and the options of its run.

    Raises:
        BindError: there is none, or the file is not a recording.
    """
    try:
        record = json.loads(read_regular(path, MAX_NBYTES))
    except FileNotFoundError:
        raise BindError(f"there is no recording {path}") from None
    except (ValueError, RecursionError):
        record = None
    except OSError as error:
        raise BindError(f"{path} is no recording that can be read: {error.strerror}") from None
    if not isinstance(record, dict) or record.get("recording") != SCHEMA:
        raise BindError(f"{path} is no recording. help: 'einturnip run --record FILE' writes one")
    for name, (is_valid, expected) in _FIELDS.items():
        if name not in record:
            raise BindError(f"{path}: the recording lacks {name!r}. help: record the run again")
        if not is_valid(record[name]):
            value_text = json.dumps(record[name])
            value_text = value_text if len(value_text) <= _MAX_SHOWN else value_text[:_MAX_SHOWN] + "..."
            raise BindError(f"{path}: {name!r} must be {expected}, and is {value_text}. help: record the run again")
    choices = ReplayedChoices(
        source=f"{path} (of {record['program']})",
        limit=record["limit"],
        arena=record["arena"],
        tiles=tuple(record["tiles"]),
        fused=record["fused"],
        compiled=record["compiled"],
        plan=record["plan"],
        ops=record["ops"],
        events=tuple(record["events"]),
    )
    options = {name: record[name] for name in ("device", "workers", "reproducible", "exact")}
    options |= {name: tuple(record[name]) for name in ("rates", "extra")}
    return choices, options | {"link": record["link"] and MachineLink(*record["link"])}


def _within(low: int, high: int = (1 << 63) - 1) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _each(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_valid, value))


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


_FLAG = (lambda value: isinstance(value, bool)), "true or false"
_TEXT = (lambda value: isinstance(value, str)), "a text"
_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "program": _TEXT,
    "device": _TEXT,
    "workers": (_within(1, MAX_WORKERS), f"a whole number from 1 to {MAX_WORKERS}"),
    "reproducible": _FLAG,
    "exact": _FLAG,
    "link": (
        lambda value: value is None or (_each(_is_rate)(value) and len(value) == 2),
        "bytes per second and seconds, or null",
    ),
    "rates": (_each(_is_rate), "a list of positive numbers"),
    "extra": (_each(_within(0)), "a list of numbers of bytes"),
    "limit": (lambda value: value is None or _within(0)(value), "a number of bytes or null"),
    "arena": (_within(0), "a number of bytes"),
    "fused": _FLAG,
    "compiled": _FLAG,
    "tiles": (_each(_within(1)), "a list of whole numbers from 1 on"),
    "plan": _TEXT,
    "ops": (_within(0), "a whole number"),
    "events": (_each(_within(-1 << 63)), "a list of whole numbers"),
}
"""Each field of a recording: the check of its value, and a description of valid values."""
