"""``einturnip run a.ein b.ein``: several programs in one memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from einturnip.cli.outputs import output_lines
from einturnip.cli.planning import budget_options, scalars, targets_of
from einturnip.cli.progress import shown
from einturnip.cli.recording import require_free
from einturnip.cli.stopping import on_signals
from einturnip.core.errors import BindError, EinturnipError
from einturnip.lang.source_text import STANDARD_INPUT

if TYPE_CHECKING:
    from einturnip.api.jobs import Job, Missing
    from einturnip.api.multi_program import ProgramPart
    from einturnip.lang.program import TypedProgram
    from einturnip.report.multi_program import PartReport
    from einturnip.runtime.scheduler.report import RunReport

T = TypeVar("T")


@dataclass(frozen=True)
class ProgramOutcome:
    """Where what happened is told."""

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
    """Run programs under one budget, by one set of workers."""
    from einturnip.api.inputs import close_all, compile_path
    from einturnip.api.multi_program import part_names, shared_job
    from einturnip.cli.memory_limit import MemoryLimit, require_kept
    from einturnip.report.multi_program import part_reports
    from einturnip.report.summary import summarise, warning_text

    limit = MemoryLimit()
    if paths.count(STANDARD_INPUT) > 1:
        raise BindError("standard input holds one program: name '-' once")
    names = part_names([str(path) for path in paths])
    programs = dict(zip(names, map(compile_path, paths), strict=True))
    given = _ProgramInputs(programs, inputs, dims, outputs)
    parts: list[ProgramPart] = []
    with on_signals() as stop:
        try:
            parts += (_part(name, path, given, missing) for name, path in zip(names, paths, strict=True))
            job = shared_job(parts, budget_options(budget))
            require_free({"--report": outcome.report, "--trace": outcome.trace}, paths, job)
            with shown(outcome.quiet) as show:
                stop.running = True
                report, sinks = job.run(show, stop.event)
                stop.running = False
        finally:
            for part in parts:
                close_all(part.sources.values())
    report = limit.checked(report)
    found = part_reports(job.planned, report, names)
    _write(outcome, job, report, found)
    for told in found:
        for met in told.warnings:
            click.echo(f"{told.program}: {warning_text(met)}", err=True)
    if not outcome.quiet:
        for line in [*output_lines(sinks, job.targets), *(told.text() for told in found), *summarise(report)]:
            click.echo(line)
    require_kept(report.memory_nbytes, report.memory_exceeded_nbytes)


def _write(outcome: ProgramOutcome, job: Job, report: RunReport, parts: Sequence[PartReport]) -> None:
    if outcome.trace is not None:
        from einturnip.report.trace import write

        write(outcome.trace, job.planned, report, job.planned.graph.program)
    if outcome.report is not None:
        told = {"programs": [part.to_json() for part in parts]} | report.to_json()
        outcome.report.write_text(json.dumps(told, indent=2) + "\n")


class _ProgramInputs:
    """What the command line gives, by program: ``a.X`` is a's alone, X that of the one program that has an X."""

    def __init__(
        self,
        programs: Mapping[str, TypedProgram],
        inputs: dict[str, str],
        dims: dict[str, int],
        outputs: dict[str, str],
    ) -> None:
        self.programs = programs
        has = {name: {t.name for t in p.inputs} for name, p in programs.items()}
        makes = {name: {o.name for o in p.outputs} for name, p in programs.items()}
        sized = {name: set(p.dims) for name, p in programs.items()}
        self.inputs = _shared("input", inputs, has, one=True)
        self.outputs = _shared("output", outputs, makes, one=True)
        self.dims = _shared("dim", dims, sized, one=False)


def _shared(kind: str, given: Mapping[str, T], known: Mapping[str, set[str]], one: bool) -> dict[str, dict[str, T]]:
    """Each value for the programs that it is meant for.

    Raises:
        BindError: there is no such name, or several programs have it where it can be meant for ``one`` only.
    """
    found: dict[str, dict[str, T]] = {name: {} for name in known}
    for written, value in given.items():
        program, dot, name = written.partition(".")
        if not dot:
            program, name = "", written
        mine = [p for p, names in known.items() if name in names and program in ("", p)]
        if not mine:
            every = ", ".join(f"{p}.{n}" for p, names in known.items() for n in sorted(names))
            raise BindError(f"there is no {kind} {written}; there are {every or 'none'}")
        if one and len(mine) > 1:
            raise BindError(f"{' and '.join(mine)} have an {kind} {name}. help: write {mine[0]}.{name}")
        for p in mine:
            found[p].setdefault(name, value)
            if dot:  # what names its program counts more than what does not
                found[p][name] = value
    return found


def _part(name: str, path: Path, given: _ProgramInputs, missing: Missing) -> ProgramPart:
    """Bind one program; errors say which it is."""
    from einturnip.api.inputs import close_all, open_inputs, require_output
    from einturnip.api.jobs import complete
    from einturnip.api.multi_program import ProgramPart
    from einturnip.compiler import bind

    program = given.programs[name]
    require_output(program)
    for warning in program.warnings:
        click.echo(warning.render(), err=True)
    if program.states:
        raise BindError(f"{path} has a state (line {program.states[0].span.line}), and runs alone")
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
