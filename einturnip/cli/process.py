"""Signals and standard streams of the command line from its start; imports only fast modules.

The streams never end a run, even if they are closed or a pipe's reader exits: a run's outputs matter more than its
messages, so a message that cannot be printed must not stop it.
"""

from __future__ import annotations

# The module signal imports enum, which takes milliseconds, during which Ctrl-C would show a traceback.
import _signal  # type: ignore[import-not-found]
import errno
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_outlives_reader = False


def leave(number: int, frame: FrameType | None = None) -> None:
    """End the process at once with a signal's exit code: there is nothing yet to clean up."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def take_signals(handler: Callable[[int, FrameType | None], None] | int) -> None:
    """Set the handler of SIGINT and SIGTERM; signals ignored at the start stay ignored."""
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, handler if callable(handler) else int(handler))


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
