"""Where the command line begins: from here on a signal ends the process without a traceback, also during imports."""

import signal

from einturnip.cli.signals import leave, take_signals


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    take_signals(leave)
    try:
        from einturnip.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # one that came between the handlers of the command line
        leave(signal.SIGINT)
