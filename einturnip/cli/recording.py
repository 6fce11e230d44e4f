"""``--record`` and ``--replay`` of ``einturnip run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from einturnip.core.errors import BindError

if TYPE_CHECKING:
    from einturnip.api.jobs import Job
    from einturnip.runtime.types import RunReport

F = TypeVar("F", bound=Callable[..., Any])


def options(function: F) -> F:
    """Adds both options; ``replayed`` and ``record`` see to them."""
    replay = click.option(
        "--replay",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Repeat the schedule of a recorded run exactly.",
    )
    record = click.option(
        "--record", type=click.Path(path_type=Path), metavar="FILE", help="Write the schedule of the run, for --replay."
    )
    return record(replay(function))


def replayed(budget: dict[str, Any], replay: Path | None) -> dict[str, Any]:
    """The options of a run, and those of the recorded one that it repeats.

    Raises:
        UsageError: they contradict the recording.
    """
    if replay is None:
        return budget
    from einturnip.report.recording import read

    if budget["arena"] is not None:
        raise click.UsageError("--replay has the arena of the recording; leave out --arena")
    again, recorded = read(replay)
    if budget["workers"] not in (None, recorded["workers"]):
        raise click.UsageError(f"--workers {budget['workers']}: the recorded run had {recorded['workers']}")
    return budget | recorded | {"again": again}


def record(file: Path | None, job: Job, report: RunReport, program: str) -> None:
    """Write a run's schedule, where it is asked for."""
    if file is not None:
        from einturnip.report.recording import write

        write(file, job.planned, report, job.options, program)


def require_folders(*files: Path | None) -> None:
    """See to it, before anything runs, that files can be written where they are wanted.

    Raises:
        BindError: a folder is not there.
    """
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise BindError(f"{file}: there is no directory {file.parent}; create it first")
