"""``--record`` and ``--replay`` of ``einturnip run``, and checks of the files of all its reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from einturnip.core.errors import BindError

if TYPE_CHECKING:
    from einturnip.api.jobs import Job
    from einturnip.api.staged_job import StagedJob
    from einturnip.runtime.scheduler.report import RunReport


def replayed(budget: dict[str, Any], replay: Path) -> dict[str, Any]:
    """Merge the options of a run with those of the recorded run that it repeats.

    Raises:
        UsageError: the options contradict the recording.
    """
    from einturnip.report.recording import read

    if budget["arena"] is not None:
        raise click.UsageError("--replay has the arena of the recording; leave out --arena")
    replayed, recorded = read(replay)
    if budget["device"] not in ("auto", recorded["device"]):
        raise click.UsageError(f"--device {budget['device']}: the recorded run had --device {recorded['device']}")
    for name in ("link", "rates"):
        if budget[name] not in (None, recorded[name]):
            raise click.UsageError(f"--replay has the {name} of the recording; leave out --{name}")
    if budget["workers"] not in (None, recorded["workers"]):
        raise click.UsageError(f"--workers {budget['workers']}: the recorded run had {recorded['workers']}")
    return budget | recorded | {"replayed": replayed}


def record(file: Path, job: Job, report: RunReport, program: str) -> None:
    """Write a run's schedule."""
    from einturnip.report.recording import write

    write(file, job.planned, report, job.options, program)


def require_places(files: Mapping[str, Path]) -> None:
    """Check before the run that the files of options such as ``--trace`` can be written.

    Raises:
        BindError: a folder does not exist, or two options name the same file.
    """
    taken = dict[str, str]()
    for option, file in files.items():
        if not file.parent.is_dir():
            raise BindError(f"{file}: there is no directory {file.parent}; create it first")
        if file.is_dir():
            raise BindError(f"{option} {file}: is a directory; name a file")
        rival = taken.setdefault(os.path.realpath(file), option)
        if rival != option:
            raise BindError(f"{rival} and {option} both write to {file}; name two files")


def require_free(files: Mapping[str, Path | None], programs: Iterable[Path], job: Job | StagedJob) -> None:
    """Refuse to write a report over a program, an input or an output.

    Raises:
        BindError: names the option and the use of the file.
    """
    used = {"the program": list(map(os.fspath, programs))}
    used |= {f"input {name}": [source.name] for name, source in job.sources.items()}
    used |= {f"output {name}": [target] for name, target in job.targets.items() if isinstance(target, str)}
    taken = {os.path.realpath(spec.partition("::")[0]): what for what, specs in used.items() for spec in specs}
    for option, file in files.items():
        if file is not None and (what := taken.get(os.path.realpath(file))) is not None:
            raise BindError(f"{option} {file}: is the file of {what}, which it would overwrite; name another")
