"""Handles SIGINT, SIGTERM and SIGHUP: the first stops the run in order, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from einturnip.cli.process import leave

_received: int | None = None


def exit_code() -> int:
    """The exit code of a command that a signal ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (signal.SIGINT if _received is None else _received)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler while no program runs: end the command.

    An exception raised during an import may be swallowed or printed by the importing code. No command has anything to
    clean up then, so the process ends at once.
    """
    global _received
    _received = number
    current = frame
    while current is not None:
        if current.f_code.co_filename.startswith("<frozen importlib"):
            leave(number)
        current = current.f_back
    raise KeyboardInterrupt


class StopRequest:
    """Signal handler that sets ``event`` to end a run; if none is ``running``, it ends the command."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.running = False
        self._insisted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        global _received
        repeated = self.event.is_set()
        if not repeated:
            _received = number
        self.event.set()
        if self.running and (not repeated or self._insisted):
            return
        self._insisted = self.running
        if self.running:
            raise KeyboardInterrupt
        interrupt(number, frame)


@contextmanager
def on_signals() -> Iterator[StopRequest]:
    """Context in which signals go to a ``StopRequest``; outside the main thread nothing changes.

    SIGHUP stays ignored if it was, for ``nohup``. After a signal the command is about to end, and further signals are
    ignored so that they do not interrupt its last message.
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
