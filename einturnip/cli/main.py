"""The command ``einturnip``: its verbs, and the message and exit code of every failure."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module

import click

from einturnip import __version__
from einturnip.cli.process import discard, exit_code, interrupt
from einturnip.cli.signals import take_signals
from einturnip.core.diagnostics import did_you_mean
from einturnip.core.errors import EinturnipError, InternalError, Interrupted

# Descriptions are here and not in the verbs' modules, so that --help imports none of them.
VERBS = {
    "run": "Run a program and write its outputs.",
    "check": "Check a program and print every tensor's shape and dtype.",
    "plan": "Show the plan of a run without running it.",
    "trace": "Draw a recorded run: lanes over time.",
    "verify": "Prove a plan in JSON, from any planner.",
    "fmt": "Write programs in canonical form.",
    "lsp": "Start the language server: errors, shapes, completion.",
    "bench": "Compare einturnip with the alternatives that are installed.",
    "doctor": "Show and measure this machine.",
}

BUG_REPORT = (
    "This is a bug in einturnip, not in your program. Please report it with the program and what --debug prints."
)


class LazyGroup(click.Group):
    """A click group that imports a verb's module when the verb runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"einturnip.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], VERBS) or f"the verbs are {', '.join(VERBS)}"
            if args[0].endswith(".ein"):
                hint = f"to run a program, write: einturnip run {args[0]}"
            raise click.UsageError(f"there is no verb '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, subcommand_metavar="VERB ...", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="einturnip")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Tensor programs written as index equations, run in the memory you have.

    Exit codes: 0 done, 1 the run failed, 2 the program or the command line is wrong, 3 it does not fit in the memory
    given, 130 interrupted, 143 terminated.
    """
    ctx.obj = debug


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    take_signals(interrupt)
    code = run(arguments)
    take_signals(signal.SIG_IGN)  # the command has ended; its exit code is final
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would report the same error again when it closes the stream.
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError) and code == 0:
            code = _fail(f"error: standard output: {error.strerror}", 1, False)
    gc.freeze()  # a last garbage collection would take 50 ms, and the process ends anyway
    sys.exit(code)


# The exception for a missing verb, in the releases of click that have it.
_NO_VERB: type[click.ClickException] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; errors go to standard error."""
    debug, as_json = "--debug" in arguments, "--json-log" in arguments
    try:
        # Click returns the code of an Exit, otherwise the verb's result, None.
        return cli.main(arguments, prog_name="einturnip", standalone_mode=False) or 0
    except _NO_VERB as error:
        return _fail(error.format_message(), 2, debug, as_json)
    except click.ClickException as error:
        if _is_other_rank(arguments):
            return 2
        usage = error.ctx.get_usage() + "\n" if isinstance(error, click.UsageError) and error.ctx else ""
        return _fail(f"{usage}error: {error.format_message()}", 2, debug, as_json)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", exit_code(), debug, as_json)
    except (BrokenPipeError, SystemExit):
        # The reader of the output closed the pipe (which click turns into SystemExit).
        return 0
    except Interrupted as error:
        return _fail(_message(error), exit_code(), debug, as_json)
    except EinturnipError as error:
        return _fail(_message(error), error.exit_code, debug, as_json)
    except InternalError as error:
        return _fail(str(error), 1, debug, as_json)
    except MemoryError:
        return _fail("error: the system refused memory. help: lower --memory", 1, debug, as_json)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"error: {where}{error.strerror or error}", 1, debug, as_json)
    except Exception as error:
        return _fail(f"internal error: {type(error).__name__}: {error}\n{BUG_REPORT}", 1, debug, as_json)


def _is_other_rank(arguments: list[str]) -> bool:
    """Return whether rank 0 of the same MPI job reports what is wrong with the command line.

    Launchers name the rank in the environment; MPI itself is not started yet.
    """
    at = "--at=mpi" in arguments or ("--at", "mpi") in zip(arguments, arguments[1:], strict=False)
    names = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    return at and any(os.environ.get(name, "0") != "0" for name in names)


def _message(error: EinturnipError) -> str:
    """The text of an error with the prefix 'error:', which diagnostics already have."""
    text = str(error)
    return text if text.startswith(("error", "interrupted")) else f"error: {text}"


def _fail(message: str, code: int, debug: bool, as_json: bool = False) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    if as_json:
        from einturnip.cli.json_log import log_failure

        log_failure(message, code)
    else:
        click.echo(message, err=True)
    return code


if __name__ == "__main__":
    main()
