"""Entry point of the command line: signals end the process quietly, also during imports."""

import signal

from einturnip.cli.signals import leave, take_signals
from einturnip.cli.streams import prepare


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    take_signals(leave)
    prepare()
    try:
        from einturnip.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # one that came between the handlers of the command line
        leave(signal.SIGINT)
