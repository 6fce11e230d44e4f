"""Shows the progress of a program, as a status line or as a line every few seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from einturnip.core.errors import BindError
from einturnip.core.phases import listening
from einturnip.core.units import counted, format_seconds, format_size

if TYPE_CHECKING:
    from einturnip.runtime.scheduler.report import Progress

Show = Callable[["Progress"], None]

_DELAY, _REFRESH, _LINE = 0.5, 0.1, 10.0
"""[seconds] Until the first status line; between two of them; between lines where there is no terminal."""
_COLUMNS = 80  # of a notebook


@contextmanager
def shown(quiet: bool, notebook: bool = False) -> Iterator[Show | None]:
    """Context that shows phases, and yields the function that shows a run's progress; None if ``quiet``."""
    if quiet:
        yield None
    elif notebook or sys.stderr.isatty():
        status = StatusLine(sys.stderr)
        with status.refreshed(), listening(status):
            yield status.run
    else:
        yield _lines()


@contextmanager
def showing(progress: Show | bool | None) -> Iterator[Show | None]:
    """Context with the function that receives progress: the caller's, or for True one that shows it.

    Raises:
        BindError: it is neither.
    """
    if progress is True:
        with shown(False, notebook="ipykernel" in sys.modules) as show:
            yield show
    elif progress is None or progress is False or callable(progress):
        yield progress or None
    else:
        raise BindError(
            f"progress={progress!r} is neither True nor a function. help: progress=True shows a status line"
        )


class StatusLine:
    """A line with the progress of a program, from _DELAY seconds on; each drawing overwrites the last.

    A thread refreshes it, since one step of planning may take seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._began = stream, clock, clock()
        self._phase, self._plans, self._best = "reading", 0, float("inf")
        self._progress: Progress | None = None
        self._width = 0

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        """Context in which a thread draws the line."""
        ended = threading.Event()

        def draw() -> None:
            while not ended.wait(_REFRESH):
                self.draw()

        thread = threading.Thread(target=draw, name="status line", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.clear()

    def enter(self, phase: str) -> None:
        """Note that a phase begins."""
        self._phase, self._progress = phase, None

    def tried(self, seconds: float) -> None:
        """Note that a plan was made whose run is predicted to take ``seconds``."""
        self._plans, self._best = self._plans + 1, min(self._best, seconds)

    def run(self, progress: Progress) -> None:
        """Note how much of the run is done."""
        self._progress = progress

    def text(self) -> str:
        """The text of the line."""
        if self._progress is not None:
            return f"running {line(self._progress)}  {self._progress.statement}".rstrip()
        if self._phase != "planning" or not self._plans:
            return self._phase
        return f"planning  {counted(self._plans, 'plan')} compared, best {format_seconds(self._best)}"

    def draw(self) -> None:
        """Draw the line, cut to the terminal's width, once _DELAY is over."""
        seconds = self._clock() - self._began
        if seconds >= _DELAY:
            self._write(f"{clock(seconds)}  {self.text()}")

    def clear(self) -> None:
        """Remove the line."""
        if self._width:
            self._write("")
            self._width = 0

    def _write(self, text: str) -> None:
        """Overwrite the line, and leave the cursor at its beginning if it is empty."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):  # a notebook has no width
            columns = _COLUMNS
        text = text[: columns - 1]
        with suppress(OSError):  # the terminal is gone
            self._stream.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
            self._stream.flush()
        self._width = len(text)


def line(progress: Progress) -> str:
    """The progress of a run: the share done, tiles, bytes, rate and time left."""
    elapsed, fraction = progress.elapsed_seconds, _fraction(progress)
    parts = [
        f"{fraction:4.0%}",
        f"{progress.done_ops:,}/{progress.total_ops:,} tiles",
        f"{format_size(progress.done_nbytes)} of {format_size(progress.total_nbytes)}",
    ]
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


def _lines() -> Show:
    """Return the function that prints a line at most once in _LINE seconds."""
    return at_most_once_in(_LINE, lambda progress: print(line(progress), file=sys.stderr, flush=True))


def at_most_once_in(seconds: float, show: Show) -> Show:
    """Return a function that calls ``show`` after ``seconds``, and then at most once in as many."""
    due = time.monotonic() + seconds

    def seldom(progress: Progress) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + seconds
            show(progress)

    return seldom
