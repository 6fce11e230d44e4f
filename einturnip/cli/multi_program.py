"""``einturnip run a.ein b.ein``: runs several programs within one memory budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from einturnip.cli.planning import budget_options, scalars, targets_of
from einturnip.cli.process import on_signals
from einturnip.cli.recording import require_free
from einturnip.core.errors import BindError, EinturnipError
from einturnip.lang.source_text import STANDARD_INPUT
from einturnip.report.progress import shown
from einturnip.report.summary import output_lines

if TYPE_CHECKING:
    from einturnip.api.jobs import Job, Missing
    from einturnip.api.multi_program import ProgramPart
    from einturnip.lang.program import TypedProgram
    from einturnip.report.multi_program import PartReport
    from einturnip.runtime.scheduler.report import RunReport

T = TypeVar("T")


@dataclass(frozen=True)
class ProgramOutcome:
    """Where the run is reported: files for trace and report, and whether to print."""

    trace: Path | None
    report: Path | None
    quiet: bool


def run_together(
    paths: Sequence[Path],
    inputs: dict[str, str],
    dims: dict[str, int],
    outputs: dict[str, str],
    budget: dict[str, Any],
    missing: Missing,
    outcome: ProgramOutcome,
) -> None:
    """Run programs within one memory budget on one worker pool."""
    from einturnip.api.inputs import close_all, compile_path
    from einturnip.api.multi_program import part_names, shared_job
    from einturnip.cli.planning import MemoryLimit, require_kept
    from einturnip.compiler import reading_within
    from einturnip.report.multi_program import part_reports
    from einturnip.report.summary import summarise, warning_text

    limit, options = MemoryLimit(), budget_options(budget)
    if paths.count(STANDARD_INPUT) > 1:
        raise BindError("standard input holds one program: name '-' once")
    names = part_names([str(path) for path in paths])
    parts: list[ProgramPart] = []
    with on_signals() as stop, shown(outcome.quiet) as show:
        try:
            with reading_within(options):
                programs = dict(zip(names, map(compile_path, paths), strict=True))
                given = _ProgramInputs(programs, inputs, dims, outputs)
                parts += (_part(name, path, given, missing) for name, path in zip(names, paths, strict=True))
                job = shared_job(parts, options)
            require_free({"--report": outcome.report, "--trace": outcome.trace}, paths, job)
            stop.running = True
            report, sinks = job.run(show, stop.event)
            stop.running = False
        finally:
            for part in parts:
                close_all(part.sources.values())
    report = limit.checked(report)
    reports = part_reports(job.planned, report, names, job.sources, sinks)
    _write(outcome, job, report, reports)
    for program_report in reports:
        for warning in program_report.warnings:
            click.echo(f"{program_report.program}: {warning_text(warning)}", err=True)
    if not outcome.quiet:
        for line in [
            *output_lines(sinks, job.targets),
            *(program_report.text() for program_report in reports),
            *summarise(report),
        ]:
            click.echo(line)
    require_kept(report.memory_nbytes, report.memory_exceeded_nbytes)


def _write(outcome: ProgramOutcome, job: Job, report: RunReport, parts: Sequence[PartReport]) -> None:
    if outcome.trace is not None:
        from einturnip.report.trace import write

        write(outcome.trace, job.traced_runs(report), report.wall_seconds, job.planned.graph.program)
    if outcome.report is not None:
        part = {"programs": [part.to_json() for part in parts]} | report.to_json()
        outcome.report.write_text(json.dumps(part, indent=2) + "\n")


class _ProgramInputs:
    """The options by program: ``a.X`` belongs to a.ein, X to the one program that has an X."""

    def __init__(
        self,
        programs: Mapping[str, TypedProgram],
        inputs: dict[str, str],
        dims: dict[str, int],
        outputs: dict[str, str],
    ) -> None:
        self.programs = programs
        inputs_of = {name: {t.name for t in p.inputs} for name, p in programs.items()}
        outputs_of = {name: {o.name for o in p.outputs} for name, p in programs.items()}
        dims_of = {name: set(p.dims) for name, p in programs.items()}
        self.inputs = _by_program("input", inputs, inputs_of, one=True)
        self.outputs = _by_program("output", outputs, outputs_of, one=True)
        self.dims = _by_program("dim", dims, dims_of, one=False)


def _by_program(kind: str, given: Mapping[str, T], known: Mapping[str, set[str]], one: bool) -> dict[str, dict[str, T]]:
    """Assign each value to its programs.

    Raises:
        BindError: there is no such name, or several programs have it although ``one`` is true.
    """
    reports: dict[str, dict[str, T]] = {name: {} for name in known}
    for key, value in given.items():
        program, dot, name = key.partition(".")
        if not dot:
            program, name = "", key
        owners = [p for p, names in known.items() if name in names and program in ("", p)]
        if not owners:
            all_names = ", ".join(f"{p}.{n}" for p, names in known.items() for n in sorted(names))
            raise BindError(f"there is no {kind} {key}; there are {all_names or 'none'}")
        if one and len(owners) > 1:
            raise BindError(f"{' and '.join(owners)} have an {kind} {name}. help: write {owners[0]}.{name}")
        for p in owners:
            reports[p].setdefault(name, value)
            if dot:  # a value with a program overrides one without
                reports[p][name] = value
    return reports


def _part(name: str, path: Path, given: _ProgramInputs, missing: Missing) -> ProgramPart:
    """Bind one program; errors name its file."""
    from einturnip.api.inputs import close_all, open_inputs, require_output
    from einturnip.api.jobs import complete
    from einturnip.api.multi_program import ProgramPart
    from einturnip.compiler import bind

    program = given.programs[name]
    require_output(program)
    for warning in program.warnings:
        click.echo(warning.render(), err=True)
    if program.states:
        raise BindError(
            f"{path} has a state (line {program.states[0].span.line}), so it cannot run together with other programs"
        )
    try:
        sources = open_inputs(program, scalars(program, given.inputs[name]), path.parent, False)
        try:
            graph = bind(program, sources, given.dims[name])
            targets = targets_of(program, given.outputs[name], path.parent)
            return ProgramPart(name, graph, complete(graph, sources, missing), targets)
        except BaseException:
            close_all(sources.values())
            raise
    except EinturnipError as error:
        if str(path) not in str(error):
            error.args = (f"{path}: {error}", *error.args[1:])
        raise
