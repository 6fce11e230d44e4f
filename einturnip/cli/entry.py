"""Entry point of the command line: signals end the process without a traceback, also during imports."""

from einturnip.cli.signals import leave, take_signals


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    take_signals(leave)
    import signal

    from einturnip.cli.process import prepare

    prepare()
    try:
        from einturnip.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # a signal before the command line installed its handlers
        leave(signal.SIGINT)
