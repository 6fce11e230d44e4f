"""What a run did, in a few lines: time, rate, memory against its budget, bytes against the least possible, waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from einturnip.core.units import format_seconds, format_size

if TYPE_CHECKING:
    from einturnip.runtime.scheduler.report import NumericWarning, RunReport

FAR_ABOVE = 10
"""Times the lower bound: from here on bytes are no longer compared with it."""
_HAPPENINGS = {
    "nan": "made nan",
    "overflow": "overflowed",
    "divide": "divided by zero",
}


def summarise(report: RunReport, planning: float = 0.0) -> list[str]:
    """The lines of a summary, without the outputs. ``planning``: seconds before the run."""
    kernels = report.ops.get("kernel", 0)
    rate = report.flops / report.wall_seconds / 1e9 if report.wall_seconds > 0 else 0.0
    planned = f" after {format_seconds(planning)} of planning" if planning else ""
    return [
        f"time     {format_seconds(report.wall_seconds)}{planned}, {rate:.1f} GFLOP/s "
        f"({report.flops:.3g} operations in {kernels:,} kernel calls on {report.workers} workers)",
        f"memory   {_memory(report)}",
        f"moved    {links_text(report.link_bytes, report.link_bytes_lower_bound)}",
        f"went to  {_where(report)}",
    ]


def warning_text(warning: NumericWarning) -> str:
    """One numeric warning, naming its statement."""
    what = _HAPPENINGS.get(warning.kind, warning.kind)
    tiles = "one tile" if warning.tiles == 1 else f"{warning.tiles:,} tiles"
    return f"warning: line {warning.line}{_merged(warning)} {what} in {tiles}: {warning.statement}"


def _merged(warning: NumericWarning) -> str:
    """Lines that were computed together with the one that a warning names."""
    if not warning.merged:
        return ""
    lines = ", ".join(map(str, warning.merged))
    return f" (or line{'s' if len(warning.merged) > 1 else ''} {lines}, computed with it)"


def links_text(moved: Mapping[str, int], bound: Mapping[str, int]) -> str:
    """Bytes over each link, each with the lower bound on what any order must move."""
    # Nothing comes from inputs of random numbers, nor goes to outputs that are not kept.
    parts = [f"{link} {bytes_text(nbytes, bound.get(link, 0))}" for link, nbytes in moved.items() if nbytes]
    return "; ".join(parts) or "nothing"


def bytes_text(nbytes: int, bound: int) -> str:
    """Bytes moved, compared with their lower bound (0: there is none).

    The bound covers stored inputs and outputs, and products of stored inputs, but no intermediates. Far below the bytes
    that are moved it does not judge the plan: intermediates were moved that do not fit in the memory.
    """
    if not bound:
        return format_size(nbytes)
    if nbytes < FAR_ABOVE * bound:
        return f"{format_size(nbytes)} ({nbytes / bound:.2f} x the lower bound of {format_size(bound)})"
    return f"{format_size(nbytes)} (any plan moves at least {format_size(bound)})"


def _memory(report: RunReport) -> str:
    arena = f"arena {format_size(report.arena_peak_nbytes)} of {format_size(report.arena_nbytes)}"
    peak = f"peak {format_size(report.peak_resident_nbytes)}"
    if report.memory_nbytes is None:
        return f"{peak}; {arena}"
    share = report.peak_resident_nbytes / report.memory_nbytes
    over = f", {format_size(report.memory_exceeded_nbytes)} too much" if report.memory_exceeded_nbytes else ""
    return f"{peak} of the {format_size(report.memory_nbytes)} allowed ({share:.0%}{over}); {arena}"


def _where(report: RunReport) -> str:
    """Workers' time: computing or waiting, and for what; the lanes beside them."""
    available = report.wall_seconds * report.workers
    parts = [f"computing {_share(report.lanes.get('compute', 0.0), available)}"]
    parts += [f"waiting for {cause} {_share(seconds, available)}" for cause, seconds in report.stalls.items()]
    rest = available - report.lanes.get("compute", 0.0) - sum(report.stalls.values())
    carried = max(0.0, min(report.carried, rest))
    if carried >= 0.01 * available:
        parts.append(f"reading and writing {_share(carried, available)}")
    rest -= carried
    if rest >= 0.01 * available:
        parts.append(f"between steps {_share(rest, available)}")
    lanes = {"in": "reading", "out": "writing"}
    moving = [f"{word} {format_seconds(report.lanes[lane])}" for lane, word in lanes.items() if lane in report.lanes]
    return ", ".join(parts) + (f"; meanwhile {', '.join(moving)}" if moving else "")


def _share(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total > 0 else "0%"
