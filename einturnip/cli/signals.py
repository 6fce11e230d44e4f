"""Signal handlers of the command line, from its first moment on. Imports nothing that takes time."""

import os
import signal
from types import FrameType


def leave(number: int, frame: FrameType | None = None) -> None:
    """End the process at once with a signal's exit code: there is nothing yet to clean up."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def take_signals(handler: object) -> None:
    """Set the handler of SIGINT and SIGTERM; signals ignored at the start stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)  # type: ignore[arg-type]
