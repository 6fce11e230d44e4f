"""``einturnip plan``: shows the plan of a run without running it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from einturnip.cli import options, simulate
from einturnip.lang.source_text import program_name

if TYPE_CHECKING:
    from einturnip.api.jobs import Job
    from einturnip.api.segmented_plan import PlannedSegments
    from einturnip.api.staged_job import StagedJob
    from einturnip.planner.planner import PlannedProgram
    from einturnip.report.emit import IRLevel

# Maximum number of ops of a plan for which other budgets are examined by default.
MAX_CHARTED_OPS = 5000


@click.command("plan")
@options.program
@options.inputs
@options.outputs
@options.budget
@click.option(
    "--emit",
    type=click.Choice(["einsum", "decomposition", "relation", "taskgraph", "memgraph", "sites"]),
    help="The intermediate representation to show, or its tensor relations. [an overview of the plan]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "dot"]),
    default="text",
    show_default=True,
    help="How to show it; dot is for Graphviz.",
)
@click.option(
    "--budgets/--no-budgets",
    default=None,
    help="Chart the predicted time against the memory. [for plans of at most 5000 ops]",
)
@click.option(
    "--parts",
    type=options.Number(int, 1),
    metavar="P",
    help="Split every node into P kernel calls that move the fewest bytes, without memory limits.",
)
@click.option(
    "--sites",
    is_eager=True,
    type=options.Number(int, 1, 1024),
    metavar="P",
    help="Plan for P sites (up to 1024), such as GPUs, whose tiles have the --memory or --arena each, instead of for "
    "--device.",
)
@simulate.options
@options.debug
def command(
    program: Path,
    inputs: dict[str, str],
    dims: dict[str, int],
    outputs: dict[str, str],
    emit: IRLevel | None,
    form: str,
    budgets: bool | None,
    parts: int | None,
    sites: int | None,
    machine: str | None,
    jitter: float,
    seed: int,
    **budget: Any,
) -> None:
    """Show the plan of PROG.ein: its steps, predicted time, bytes over each link and peak memory.

    Planning needs sizes, not data: existing input files, or --dim.
    """
    from einturnip.api.segmented_plan import PlannedSegments
    from einturnip.api.staged_job import StagedJob
    from einturnip.cli.planning import ProgramArguments, planned
    from einturnip.devices.kind import of_sites
    from einturnip.report.progress import shown
    from einturnip.report.sites import idle_text, require_work
    from einturnip.storage.generated import AbsentSource

    if sites is not None:
        if budget["device"] != "auto" or parts is not None:
            raise click.UsageError(
                "--sites plans for P sites, each with memory of its own; it excludes --device and --parts"
            )
        budget["device"] = of_sites(sites)
    if parts is not None:
        from einturnip.cli.parts import show_parts

        show_parts(program, inputs, dims, emit, form, parts)
        return
    if machine is not None and (emit is not None or form == "dot"):
        raise click.UsageError("--simulate shows a run as text or json; it excludes --emit and --format dot")
    if form == "dot" and emit is None:
        raise click.UsageError(
            "--format dot needs --emit einsum, decomposition, relation, taskgraph, memgraph or sites"
        )
    arguments = ProgramArguments(program, inputs, dims, outputs, budget)
    overview = emit is None and machine is None
    with shown(quiet=False):
        job = planned(
            arguments,
            lambda node: AbsentSource(node.name, node.shape, node.dtype),
            lenient=True,
            stages=overview,
            segments=overview and sites is not None,
        )
    if isinstance(job, StagedJob):
        _stages(job, form, program_name(program))
        return
    if isinstance(job, PlannedSegments):
        require_work([planned.memgraph for _, planned in job.plans], budget["rates"])
        _segments(job, form, program_name(program))
        return
    if sites is not None:
        require_work([job.planned.memgraph], budget["rates"])
    elif not overview or form == "json":  # the overview itself names them
        _warn(idle_text(job.planned.memgraph))
    if machine is not None:
        simulate.show(job.planned, machine, budget["policy"], jitter, seed, form)
        return
    if emit is not None:
        _emit(job, emit, form, program_name(program))
        return
    charted = len(job.planned.memgraph) <= MAX_CHARTED_OPS if budgets is None else budgets
    _overview(job, form, program_name(program), charted, budgets)


def _warn(text: str) -> None:
    if text:
        click.echo(f"warning: {text}", err=True)


def _emit(job: Job, level: IRLevel, form: str, program: str) -> None:
    """Print one IR of the plan."""
    from einturnip.api.jobs import file_tiers
    from einturnip.report.emit import emit_json, emit_text

    if form == "json":
        for piece in emit_json(job.planned, level, program, file_tiers(job)):
            sys.stdout.write(piece)
        sys.stdout.write("\n")
        return
    if form == "dot":
        from einturnip.report.dot import emit_dot

        lines = emit_dot(job.planned, level)
    else:
        lines = emit_text(job.planned, level, file_tiers(job))
    for line in lines:
        click.echo(line)


def _stages(job: StagedJob, form: str, program: str) -> None:
    """Print the plan of each stage of a program with long loops, and the whole run's prediction."""
    from einturnip.api.stage_progress import heading, is_while
    from einturnip.core.units import format_seconds

    plans = [
        (
            heading(stage),
            {"line": stage.line, "iterations": len(stage.iterations.values) if stage.iterations else 1}
            | {"at_most": is_while(stage)},
            plan.planned,
        )
        for stage, plan in job.plans
    ]
    at_most = "at most " if any(is_while(stage) for stage, _ in job.plans) else ""
    total = f"all stages and iterations: {at_most}{format_seconds(job.prediction.seconds)}"
    _several(plans, {"predicted": job.prediction.to_json()}, [total], form, program)


def _segments(job: PlannedSegments, form: str, program: str) -> None:
    """Print the plan of each segment of a program with equal layers, and the traffic of all."""
    from einturnip.core.units import format_seconds
    from einturnip.eingraph.types import InputNode
    from einturnip.report.sites import traffic_json, traffic_text

    plans = []
    for segment, made in job.plans:
        line = next(node.line for node in segment.graph.nodes if not isinstance(node, InputNode))
        equal = f": one of {segment.times:,} equal layers" if segment.times > 1 else ""
        plans.append(
            (f"from line {line} on{equal}", {"line": line, "iterations": segment.times, "at_most": False}, made)
        )
    traffic = job.traffic
    totals = [f"all layers: {format_seconds(job.prediction.seconds)}", f"all layers: {traffic_text(traffic)}"]
    _several(plans, {"predicted": job.prediction.to_json()} | traffic_json(traffic), totals, form, program)


def _several(
    plans: list[tuple[str, dict[str, Any], PlannedProgram]],
    joined: dict[str, Any],
    totals: list[str],
    form: str,
    program: str,
) -> None:
    """Print plans that run one after the other: heading, fields and plan of each, then totals."""
    from einturnip.cli.output_lines import columns, show_lines
    from einturnip.report.explain import explained
    from einturnip.report.overview import to_json

    if form == "json":
        head = {"schema": "einturnip.stages/1", "program": program} | joined
        stages = [fields | {"plan": to_json(made, program, None)} for _, fields, made in plans]
        click.echo(json.dumps(head | {"stages": stages}, indent=1))
        return
    for heading, _, made in plans:
        show_lines([((heading, "head"),), (), *explained(made, columns()), ()])
    show_lines([((total, "head"),) for total in totals])


def _overview(job: Job, form: str, program: str, charted: bool, requested: bool | None) -> None:
    """Print the plan statement by statement, and the predicted time for other budgets."""
    from einturnip.cli.output_lines import columns, show_lines
    from einturnip.report.budgets import PATIENCE, chart, sweep
    from einturnip.report.explain import explained
    from einturnip.report.overview import to_json
    from einturnip.report.progress import shown

    if form == "text":
        show_lines(explained(job.planned, columns()))
    swept = None
    if charted:
        sys.stdout.flush()  # the plan first, then the status line
        with shown(quiet=False):
            swept = sweep(job.replanned, job.planned, float("inf") if requested else PATIENCE)
    if form == "json":
        click.echo(json.dumps(to_json(job.planned, program, swept), indent=1))
    elif swept is not None and len(swept.points) > 1:
        show_lines([(), *chart(swept, columns())])
    elif swept is None and requested is None:
        show_lines([(("--budgets charts the time against the memory given", "note"),)])
