"""Summarizes a run: outputs, time, rate, memory, bytes and their lower bound, waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from einturnip.core.units import counted, format_seconds, format_size

if TYPE_CHECKING:
    from einturnip.runtime.scheduler.report import NumericWarning, RunReport, SiteReport, WhileReport
    from einturnip.storage.generated import SummarySink
    from einturnip.storage.types import Sink

MAX_RATIO = 10
"""Ratio to the lower bound above which bytes are no longer compared with it."""
_EVENTS = {
    "nan": "made nan",
    "overflow": "overflowed",
    "divide": "divided by zero",
}


def summarise(report: RunReport, planning: float = 0.0) -> list[str]:
    """The lines of a summary without the outputs. ``planning``: seconds before the run."""
    kernels = report.ops.get("kernel", 0)
    rate = report.flops / report.wall_seconds / 1e9 if report.wall_seconds > 0 else 0.0
    planned = f" after {format_seconds(planning)} of planning" if planning else ""
    return [
        f"time     {format_seconds(report.wall_seconds)}{planned}, {rate:.1f} GFLOP/s "
        f"({report.flops:.3g} operations in {counted(kernels, 'kernel call')} on {counted(report.workers, 'worker')})",
        f"memory   {_memory(report)}",
        f"moved    {links_text(report.link_bytes, report.link_bytes_lower_bound)}",
        f"busy     {_worker_time(report)}",
        *map(_while, report.loops),
        *_sites(report.sites),
        *(f"retry {k}  {reason}" for k, reason in enumerate(report.retries, 1)),
    ]


def _while(loop: WhileReport) -> str:
    """How a ``while`` ended."""
    if loop.reached_bound:
        return f"loop     line {loop.line}: its bound, {counted(loop.bound, 'iteration')}; its condition still holds"
    return f"loop     line {loop.line}: {loop.iterations:,} of at most {counted(loop.bound, 'iteration')}"


def warning_lines(report: RunReport) -> list[str]:
    """The warnings of a run: numeric ones, and each ``while`` that its bound ended."""
    lines = [warning_text(warning) for warning in report.warnings]
    for loop in report.loops:
        if loop.reached_bound:
            ended = f"ended at its bound of {counted(loop.bound, 'iteration')}, and its condition still holds"
            lines.append(f"warning: line {loop.line}: the loop {ended}: {loop.statement}")
    return lines


def _sites(sites: Sequence[SiteReport]) -> list[str]:
    """The line of each worker, with its memory if these differ."""
    are_unlike = len({site.memory_nbytes for site in sites}) > 1
    return [_site(site, site.memory_nbytes if are_unlike else None) for site in sites]


def _site(site: SiteReport, memory: int | None) -> str:
    """One worker's peak memory, the bytes that it received and spilled, and the sites that it waited for."""
    allowed = "" if memory is None else f" of the {format_size(memory)} allowed"
    parts = [f"peak {format_size(site.peak_resident_nbytes)}{allowed}"]
    parts += [f"{format_size(nbytes)} from site {k}" for k, nbytes in sorted(site.received_nbytes.items())]
    if site.spilled_nbytes:
        parts.append(f"spilled {format_size(site.spilled_nbytes)}")
    waited = [f"{format_seconds(seconds)} for site {k}" for k, seconds in sorted(site.waited_seconds.items())]
    parts += [f"waited {' and '.join(waited)}"] * bool(waited)
    return f"site {site.site}   {site.worker} on {site.host}: {', '.join(parts)}"


def warning_text(warning: NumericWarning) -> str:
    """Format a numeric warning with its statement."""
    event = _EVENTS.get(warning.kind, warning.kind)
    tiles = "one tile" if warning.tiles == 1 else counted(warning.tiles, "tile")
    where = first_text(warning.element, warning.causes)
    return f"warning: line {warning.line}{_merged(warning)} {event} in {tiles}{where}: {warning.statement}"


def first_text(element: str, causes: Sequence[str]) -> str:
    """Format the first element that shows an event, and the elements of inputs that it comes from."""
    parts = [f"first {element}"] * bool(element) + [f"from {' and '.join(causes)}"] * bool(causes)
    return f" ({', '.join(parts)})" if parts else ""


def _merged(warning: NumericWarning) -> str:
    """The lines that were computed together with the line of a warning."""
    if not warning.merged:
        return ""
    lines = ", ".join(map(str, warning.merged))
    return f" (or line{'s' if len(warning.merged) > 1 else ''} {lines}, computed with it)"


def links_text(moved: Mapping[str, int], bound: Mapping[str, int]) -> str:
    """Bytes over each link, each with its lower bound."""
    # Random inputs and discarded outputs transfer nothing.
    parts = [f"{link} {bytes_text(nbytes, bound.get(link, 0))}" for link, nbytes in moved.items() if nbytes]
    return "; ".join(parts) or "nothing"


def bytes_text(nbytes: int, bound: int) -> str:
    """Bytes moved, compared with their lower bound (0: there is none).

    The bound covers stored inputs and outputs, and products of stored inputs, but not intermediates. Far below the
    bytes moved it says little about the plan: then intermediates were moved that do not fit in memory.
    """
    if not bound:
        return format_size(nbytes)
    if nbytes < MAX_RATIO * bound:
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


def _worker_time(report: RunReport) -> str:
    """The workers' time: computing, or waiting and for what; and the busy times of the lanes."""
    available = report.wall_seconds * report.workers
    parts = [f"{_share(report.lanes.get('compute', 0.0), available)} computing"]
    parts += [f"{_share(seconds, available)} waiting for {cause}" for cause, seconds in report.stalls.items()]
    other = available - report.lanes.get("compute", 0.0) - sum(report.stalls.values())
    transfers = max(0.0, min(report.carried, other))
    if transfers >= 0.01 * available:
        parts.append(f"{_share(transfers, available)} reading and writing")
    other -= transfers
    if other >= 0.01 * available:
        parts.append(f"{_share(other, available)} between steps")
    lanes = {"in": "reading", "out": "writing"}
    moving = [f"{word} {format_seconds(report.lanes[lane])}" for lane, word in lanes.items() if lane in report.lanes]
    return ", ".join(parts) + (f"; meanwhile, in sum over threads, {', '.join(moving)}" if moving else "")


def _share(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total > 0 else "0%"


def output_lines(sinks: Mapping[str, Sink], targets: Mapping[str, Any]) -> list[str]:
    """One line for each output: dtype and shape, and its file or a summary of its values."""
    from einturnip.storage.generated import SummarySink

    width = max(map(len, sinks), default=0)
    lines = []
    for name, sink in sinks.items():
        shape = ", ".join(map(str, sink.shape))
        kind = f"{name:<{max(width, 7)}}  {sink.dtype}[{shape}]" if shape else f"{name:<{max(width, 7)}}  {sink.dtype}"
        lines.append(f"{kind}  {_tally(sink) if isinstance(sink, SummarySink) else f'written to {targets[name]}'}")
    return lines


def _tally(tally: SummarySink) -> str:
    from einturnip.core.units import element_name

    place = element_name(tally.name, tally.first_nan) if tally.first_nan else ""
    nan = f", {tally.nan:,} nan{first_text(place, tally.nan_causes)}" if tally.nan else ""
    if tally.low is None:
        return f"no numbers{nan}, checksum {tally.checksum}"
    if tally.low == tally.high:
        return f"value {tally.low:g}{nan}, checksum {tally.checksum}"
    return f"from {tally.low:g} to {tally.high:g}{nan}, checksum {tally.checksum}"
