"""Entry point of the command line: signals end the process quietly, also during imports."""

from einturnip.cli.signals import leave, take_signals


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    take_signals(leave)
    import signal

    from einturnip.cli.streams import prepare

    prepare()
    try:
        from einturnip.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # one that came between the handlers of the command line
        leave(signal.SIGINT)
