"""Standard streams that never end a run, even if they are closed or the reader of a pipe leaves.

A run's outputs are worth more than what it prints about them: what cannot be shown must not stop it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_outlives_reader = False


def outlive_reader() -> None:
    """Go on from here when the reader of standard output leaves; other commands end then."""
    global _outlives_reader
    _outlives_reader = True


class _SafeStream(io.FileIO):
    """Standard output or error, written without buffer."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            # Nobody is left to tell of standard error's own errors; those of a full disk under output are reported.
            if self.fileno() != 2 and not (error.errno == errno.EPIPE and _outlives_reader):
                raise
        _lead_nowhere(self.fileno())
        return len(memoryview(data).cast("B"))


def prepare() -> None:
    """Replace the standard streams by ones that can always be written to."""
    # A file opened later would take a closed stream's number, and the text meant for that stream.
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            _lead_nowhere(fd)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = _stream(sys.stdout, 1)
    sys.stderr = _stream(sys.stderr, 2)


def lead_nowhere(stream: Any) -> None:
    """Have what a stream still holds, and all that follows, vanish."""
    _lead_nowhere(stream.fileno())


def _lead_nowhere(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)


def _stream(given: Any, fd: int) -> io.TextIOWrapper:
    """The stream in its encoding; a character that it lacks is written as an escape (``\\\\xf6``)."""
    raw = _SafeStream(fd, "w", closefd=False)
    encoding = "utf-8" if given is None else given.encoding
    lines = raw.isatty() or fd == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines)
