"""Writes the intermediate representations of each plan to the folder that ``EINTURNIP_DUMP`` names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from einturnip.core.errors import StoreError
from einturnip.eingraph.printer import show
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph
from einturnip.planner.planner import PlannedProgram
from einturnip.report.emit import Files, IRLevel, emit_text

_plans = itertools.count()
LEVELS: tuple[IRLevel, ...] = ("einsum", "decomposition", "taskgraph", "memgraph")


class PlanDump:
    """Writes a file ``PLAN-NUMBER-PASS-IR.txt`` for each IR that a pass of one plan makes.

    Raises:
        StoreError: the folder cannot be written.
    """

    def __init__(self, graph: EinGraph) -> None:
        self._folder, self._plan = Path(os.environ["EINTURNIP_DUMP"]), f"{os.getpid()}.{next(_plans)}"
        self._number = itertools.count()
        self._last: MemGraph | None = None
        self._write("compile", "einsum", show(graph).splitlines())

    def write(self, name: str, planned: PlannedProgram, files: Files) -> None:
        """Write the IRs that the pass ``name`` changed. ``files``: the tiers of files."""
        levels = LEVELS if self._last is None else LEVELS[-1:] if planned.memgraph is not self._last else ()
        for level in levels:
            self._write(name, level, emit_text(planned, level, files))
        self._last = planned.memgraph

    def _write(self, name: str, level: str, lines: Iterable[str]) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._plan}-{next(self._number)}-{name}-{level}.txt"
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        except OSError as error:
            raise StoreError(f"EINTURNIP_DUMP={self._folder}: cannot be written: {error.strerror}") from error
