"""Plans a program from command-line options, and checks after its run that it kept the memory limit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import click

from einturnip.core import phases
from einturnip.core.errors import BindError, RunError
from einturnip.core.process_resources import peak_resident_nbytes
from einturnip.core.units import format_size, smallest_and_extra

if TYPE_CHECKING:
    from einturnip.api.jobs import Job, Missing
    from einturnip.api.segmented_plan import PlannedSegments
    from einturnip.api.staged_job import StagedJob
    from einturnip.cluster.transport import Cluster
    from einturnip.compiler import Options
    from einturnip.eingraph.types import EinGraph
    from einturnip.lang.program import TypedProgram
    from einturnip.runtime.scheduler.report import RunReport
    from einturnip.tiling.graph_segments import GraphSegment


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """A program with its files, sizes and options as a command line states them."""

    path: Path
    inputs: dict[str, str]
    dims: dict[str, int]
    outputs: dict[str, str]
    budget: dict[str, Any]

    def compiled(self) -> TypedProgram:
        """Compile the program, print its warnings, and check the names of sizes and outputs."""
        from einturnip.api.inputs import check_names, compile_path, require_output

        program = compile_path(self.path)
        require_output(program)
        phases.clear()
        for warning in program.warnings:
            click.echo(warning.render(), err=True)
        names = [o.name for o in program.outputs] + [s.name for s in program.states]
        check_names("dim", self.dims, program.dims)
        check_names("output", self.outputs, dict.fromkeys(names))
        return program


@overload
def planned(arguments: ProgramArguments, missing: Missing, lenient: bool, cluster: Cluster | None = None) -> Job: ...
@overload
def planned(
    arguments: ProgramArguments, missing: Missing, lenient: bool, cluster: Cluster | None = None, *, stages: bool
) -> Job | StagedJob: ...
@overload
def planned(
    arguments: ProgramArguments, missing: Missing, lenient: bool, *, stages: bool, segments: bool
) -> Job | StagedJob | PlannedSegments: ...
def planned(
    arguments: ProgramArguments,
    missing: Missing,
    lenient: bool,
    cluster: Cluster | None = None,
    *,
    stages: bool = False,
    segments: bool = False,
) -> Job | StagedJob | PlannedSegments:
    """Compile, bind and plan a program with the options of a command line.

    ``missing`` returns a placeholder for an input without data. ``lenient``, for a plan that is only shown, accepts
    missing default files and plans a step of ``run --steps``: the outputs and every changing state. ``cluster``: the
    one whose workers ``--memory`` bounds. ``stages``: long loops of a run on the host are not unrolled. ``segments``:
    equal layers of a plan for many sites are planned once.
    """
    from einturnip.api.inputs import close_all, open_inputs
    from einturnip.api.jobs import complete, plan_job
    from einturnip.compiler import bind, bind_stages, reading_within

    folder, outputs, options = arguments.path.parent, arguments.outputs, budget_options(arguments.budget)
    with reading_within(options) if cluster is None or cluster.plans_within_memory else nullcontext():
        program = arguments.compiled()
        if program.states:
            from einturnip.api.session_states import initial_state, with_state_outputs

            program = with_state_outputs(program, [*outputs, *program.updates] if lenient else outputs)
            missing = initial_state(program, missing)
        sources = open_inputs(program, scalars(program, arguments.inputs), folder, lenient)
        try:
            targets = targets_of(program, outputs, folder)
            if stages and cluster is None and (staged := bind_stages(program, sources, arguments.dims, options)):
                from einturnip.api.staged_job import StagedJob

                return StagedJob(staged, sources, missing, targets, options)
            graph = bind(program, sources, arguments.dims)
            if segments and (parts := _equal_layers(graph, options)):
                from einturnip.api.segmented_plan import plan_segments

                return plan_segments(parts, sources, missing, targets, options)
            return plan_job(graph, complete(graph, sources, missing), targets, options, cluster)
        except BaseException:
            close_all(sources.values())
            raise


def _equal_layers(graph: EinGraph, options: Options) -> tuple[GraphSegment, ...] | None:
    """Return the segments of a program to be planned for many sites, if it has equal layers."""
    from einturnip.api.segmented_plan import equal_layers
    from einturnip.devices.kind import choose

    return equal_layers(graph, choose(options.device).count)


def bound(path: Path, inputs: dict[str, str], dims: dict[str, int]) -> EinGraph:
    """Compile a program and bind its sizes, from files that need not exist or from ``dims``."""
    from einturnip.api.inputs import check_names, close_all, compile_path, open_inputs, require_output
    from einturnip.api.session_states import with_state_outputs
    from einturnip.compiler import bind

    program = compile_path(path)
    require_output(program)
    check_names("dim", dims, program.dims)
    program = with_state_outputs(program, program.updates)
    sources = open_inputs(program, scalars(program, inputs), path.parent, True)
    try:
        return bind(program, sources, dims)
    finally:
        close_all(sources.values())


def scalars(program: TypedProgram, inputs: dict[str, str]) -> dict[str, Any]:
    """Convert the texts of scalar inputs to numbers: ``-i a=3``."""
    ranks = {tensor.name: tensor.rank for tensor in program.inputs}
    return {name: text if ranks.get(name, 1) else _scalar(name, text) for name, text in inputs.items()}


def _scalar(name: str, text: str) -> str | bool | int | float | complex:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            pass
    if not Path(text.partition("::")[0]).suffix:
        raise BindError(f"input {name} is a scalar, and '{text}' is neither a number nor a file. help: -i {name}=3.5")
    return text


def targets_of(program: TypedProgram, outputs: dict[str, str], folder: Path) -> dict[str, Any]:
    """A file for each output that has one, on the command line or in the program; None for the others."""
    from einturnip.api.inputs import file_spec

    named = {o.name: file_spec(o.file, folder) if o.file else None for o in program.outputs}
    return named | outputs


def budget_options(budget: dict[str, Any]) -> Options:
    """Convert the budget options of the command line to planner options."""
    from einturnip.compiler import Options

    settings = dict(budget)
    if settings["memory"] is not None and settings["arena"] is not None:
        raise click.UsageError("--arena sets the arena instead of --memory; give one of them")
    for name in ("memory", "arena"):
        if isinstance(settings[name], tuple):
            settings[name], settings["extra"] = smallest_and_extra(settings[name])
    settings["rates"] = settings["rates"] or ()
    return Options(**settings)


class MemoryLimit:
    """Compares the process's peak, from the command's start on, with its memory limit."""

    def __init__(self) -> None:
        self._before = peak_resident_nbytes()

    def checked(self, report: RunReport) -> RunReport:
        """The report, with the bytes by which the process exceeded the limit."""
        return replace(report, memory_exceeded_nbytes=self.exceeded_nbytes(report.memory_nbytes))

    def exceeded_nbytes(self, limit: int | None) -> int:
        """Bytes by which the process exceeded its limit; 0 within the limit, or without one."""
        peak = peak_resident_nbytes()
        return max(0, peak - limit) if limit is not None and peak > self._before else 0


def require_kept(limit: int | None, exceeded: int) -> None:
    """Raise if the process exceeded its limit; called after outputs and report were written.

    Raises:
        RunError: states by how much.
    """
    if limit is not None and exceeded:
        raise RunError(
            f"the run took {format_size(limit + exceeded)} of memory, {format_size(exceeded)} more than the "
            f"{format_size(limit)} allowed. Its outputs are complete and were kept. help: state a lower --memory, "
            "and please report this: einturnip promises to keep the limit"
        )
