"""SIGINT, SIGTERM, SIGHUP: the first asks the run to stop, a second one does not wait for it, more change nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from einturnip.cli.signals import leave

_received: int | None = None


def exit_code() -> int:
    """The exit code of a command that a signal ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (signal.SIGINT if _received is None else _received)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler of a command that is not running a program: ends it.

    An exception that is raised while a module is imported may be swallowed there, or printed. No command has anything
    to clean up at such moments, so the process ends at once.
    """
    global _received
    _received = number
    at = frame
    while at is not None:
        if at.f_code.co_filename.startswith("<frozen importlib"):
            leave(number)
        at = at.f_back
    raise KeyboardInterrupt


class StopRequest:
    """Set ``event`` to end a run in order. Until ``running`` is set there is no run, and a signal ends the command."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.running = False
        self._insisted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        global _received
        again = self.event.is_set()
        if not again:
            _received = number
        self.event.set()
        if self.running and (not again or self._insisted):
            return
        self._insisted = self.running
        if self.running:
            raise KeyboardInterrupt
        interrupt(number, frame)


@contextmanager
def on_signals() -> Iterator[StopRequest]:
    """While in force, these signals go to the Stop that is given; outside the main thread nothing changes.

    SIGHUP stays ignored where it was: ``nohup`` is to outlive its terminal.
    After one came the command is at its end, and no further one may break into its last message.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if stop.event.is_set() else handler)
