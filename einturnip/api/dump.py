"""Writes the intermediate representations of each plan to the folder that ``EINTURNIP_DUMP`` names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from einturnip.core.errors import StoreError
from einturnip.eingraph.printer import show
from einturnip.eingraph.types import EinGraph
from einturnip.planner.planned_program import PlannedProgram
from einturnip.report.emit import Files, emit_text

_plans = itertools.count()


def dump(graph: EinGraph, planned: PlannedProgram, files: Files) -> None:
    """Write ``PLAN-STAGE.txt`` for the program as compiled and each IR of its plan.

    ``files``: the tiers of files.

    Raises:
        StoreError: the folder cannot be written.
    """
    stages: dict[str, Iterable[str]] = {
        "0-compiled": show(graph).splitlines(),
        "1-einsum": emit_text(planned, "einsum", files),
        "2-decomposition": emit_text(planned, "decomposition", files),
        "3-taskgraph": emit_text(planned, "taskgraph", files),
        "4-memgraph": emit_text(planned, "memgraph", files),
    }
    folder, plan = Path(os.environ["EINTURNIP_DUMP"]), f"{os.getpid()}.{next(_plans)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stage, lines in stages.items():
            with open(folder / f"{plan}-{stage}.txt", "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise StoreError(f"EINTURNIP_DUMP={folder}: cannot be written: {error.strerror}") from error
