"""Shows the progress of a run: a bar on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from einturnip.core.units import format_size

if TYPE_CHECKING:
    from einturnip.runtime.scheduler.report import Progress

Show = Callable[["Progress"], None]

# Seconds between refreshes of the bar, and between lines.
_BAR, _LINE = 0.1, 10.0


@contextmanager
def shown(quiet: bool) -> Iterator[Show | None]:
    """Context with the function that shows progress on standard error; None if ``quiet``."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _rate_limited(_LINE, lambda p: print(line(p), file=sys.stderr, flush=True), at_end=False)


def line(progress: Progress) -> str:
    """The progress of a run in one line."""
    return f"{_fraction(progress):4.0%}  {details(progress)}"


def details(progress: Progress) -> str:
    """Tiles, bytes, rate and time left."""
    parts = [
        f"{progress.done_ops:,}/{progress.total_ops:,} tiles",
        f"{format_size(progress.done_nbytes)} of {format_size(progress.total_nbytes)}",
    ]
    elapsed, fraction = progress.elapsed_seconds, _fraction(progress)
    if elapsed > 0:
        parts.append(f"{progress.done_flops / elapsed / 1e9:.1f} GFLOP/s")
    if fraction > 0:
        parts.append(f"{clock(elapsed * (1 - fraction) / fraction)} left")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """``4:05``, or ``1:04:05`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _fraction(progress: Progress) -> float:
    """The completed fraction: mean of ops and of flops, since either may pause while the other advances."""
    parts = [
        done / total
        for done, total in (
            (progress.done_ops, progress.total_ops),
            (progress.done_flops, progress.total_flops),
        )
        if total
    ]
    return sum(parts) / len(parts) if parts else 1.0


def _rate_limited(seconds: float, show: Show, at_end: bool) -> Show:
    """Call ``show`` at most once in ``seconds``, and with ``at_end`` also for the last op."""
    due = time.monotonic() + (0 if at_end else seconds)

    def call(progress: Progress) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or (at_end and progress.done_ops == progress.total_ops):
            due = now + seconds
            show(progress)

    return call


@contextmanager
def _bar() -> Iterator[Show]:
    # Rich takes about 4 MiB of the budget, so it is imported only for a bar.
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(bar_width=None), TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.fields[details]}"))
    with Bar(*columns, console=Console(stderr=True), auto_refresh=False, transient=True, expand=True) as bar:
        task = bar.add_task("", total=1.0, details="")

        def show(progress: Progress) -> None:
            bar.update(task, completed=_fraction(progress), details=details(progress), refresh=True)

        yield _rate_limited(_BAR, show, at_end=True)
