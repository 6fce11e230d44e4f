"""Checks after a run whether the process stayed within its memory limit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from einturnip.core.errors import RunError
from einturnip.core.resident import peak_resident_nbytes
from einturnip.core.units import format_size

if TYPE_CHECKING:
    from einturnip.runtime.scheduler.report import RunReport


class MemoryLimit:
    """Compares the process's peak, from the command's start on, with its memory limit."""

    def __init__(self) -> None:
        self._before = peak_resident_nbytes()

    def checked(self, report: RunReport) -> RunReport:
        """The report, with the bytes by which the process exceeded the limit."""
        return replace(report, memory_exceeded_nbytes=self.exceeded_nbytes(report.memory_nbytes))

    def exceeded_nbytes(self, limit: int | None) -> int:
        """Bytes by which the process exceeded its limit; 0 within the limit, or without one."""
        peak = peak_resident_nbytes()
        return max(0, peak - limit) if limit is not None and peak > self._before else 0


def require_kept(limit: int | None, exceeded: int) -> None:
    """Raise if the process exceeded its limit; called after outputs and report were written.

    Raises:
        RunError: states by how much.
    """
    if limit is not None and exceeded:
        raise RunError(
            f"the run took {format_size(limit + exceeded)} of memory, {format_size(exceeded)} more than the "
            f"{format_size(limit)} allowed. Its outputs are complete and were kept. help: state a lower --memory, "
            "and please report this: einturnip promises to keep the limit"
        )
