"""Signals and standard streams of a running command.

The first SIGINT, SIGTERM or SIGHUP stops the run in order, the second at once. The streams never end a run, even if
they are closed or a pipe's reader exits: a run's outputs matter more than its messages, so a message that cannot be
printed must not stop it.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from einturnip.cli.signals import leave

_outlives_reader = False
_received: int | None = None


def outlive_reader() -> None:
    """Let this command continue when the reader of standard output exits; other commands end then."""
    global _outlives_reader
    _outlives_reader = True


class _SafeStream(io.FileIO):
    """Standard output or error, unbuffered."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            # Errors of standard error cannot be reported; those of standard output, such as a full disk, are.
            if self.fileno() != 2 and not (error.errno == errno.EPIPE and _outlives_reader):
                raise
        _discard(self.fileno())
        return len(memoryview(data).cast("B"))


def prepare() -> None:
    """Replace the standard streams by ones that accept every write."""
    # Otherwise a file opened later would get a closed stream's number, and its text.
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            _discard(fd)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = _stream(sys.stdout, 1)
    sys.stderr = _stream(sys.stderr, 2)


def discard(stream: Any) -> None:
    """Discard a stream's buffered text and everything written to it later."""
    _discard(stream.fileno())


def _discard(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)


def _stream(given: Any, fd: int) -> io.TextIOWrapper:
    """A text stream that writes characters that its encoding lacks as escapes (``\\\\xf6``)."""
    raw = _SafeStream(fd, "w", closefd=False)
    encoding = "utf-8" if given is None else given.encoding
    lines = raw.isatty() or fd == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines)


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
