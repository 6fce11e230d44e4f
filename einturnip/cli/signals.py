"""Signal handlers of the command line from its start; imports only fast modules."""

from __future__ import annotations

# The module signal imports enum, which takes milliseconds, during which Ctrl-C would show a traceback.
import _signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def leave(number: int, frame: FrameType | None = None) -> None:
    """End the process at once with a signal's exit code: there is nothing yet to clean up."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def take_signals(handler: Callable[[int, FrameType | None], None] | int) -> None:
    """Set the handler of SIGINT and SIGTERM; signals ignored at the start stay ignored."""
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, handler if callable(handler) else int(handler))
