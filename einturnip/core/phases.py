"""Reports what a program does before its run: reading, planning, compiling.

The display installs a listener with ``listening``; the packages that do the work call ``enter`` and ``tried``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from einturnip.core.events import log


class Listener(Protocol):
    """Receives the phases of a program."""

    def enter(self, phase: str) -> None:
        """Note that a phase begins, for example ``planning``."""

    def tried(self, seconds: float) -> None:
        """Note that a plan was made whose run is predicted to take ``seconds``."""

    def clear(self) -> None:
        """Make room for a message."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Context in which ``listener`` receives the phases of this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def enter(phase: str) -> None:
    """Report that a phase begins."""
    log("phase", phase, level="DEBUG")
    if (listener := _listener.get()) is not None:
        listener.enter(phase)


def tried(seconds: float) -> None:
    """Report a plan that was made for comparison, with the predicted time of its run."""
    if (listener := _listener.get()) is not None:
        listener.tried(seconds)


def clear() -> None:
    """Remove what the listener shows until its next refresh, to make room for a message."""
    if (listener := _listener.get()) is not None:
        listener.clear()
