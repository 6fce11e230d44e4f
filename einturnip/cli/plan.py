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
    from einturnip.api.staged_job import StagedJob
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
    help="Chart the predicted time against the memory. [if planning takes less than 2 s]",
)
@click.option(
    "--parts",
    type=click.IntRange(min=1),
    metavar="P",
    help="Split every node into P kernel calls that move the fewest bytes, without memory limits.",
)
@click.option(
    "--sites",
    is_eager=True,
    type=click.IntRange(1, 1024),
    metavar="P",
    help="Plan for P sites that have the given memory each, such as GPUs, instead of for --device.",
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
    from einturnip.api.staged_job import StagedJob
    from einturnip.cli.planning import ProgramArguments, planned
    from einturnip.devices.choice import of_sites
    from einturnip.report.progress import shown
    from einturnip.report.sites import require_work
    from einturnip.storage.generated import AbsentSource

    if sites is not None:
        if budget["device"] != "auto" or parts is not None:
            raise click.UsageError("--sites plans for P equal sites in their memory; it excludes --device and --parts")
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
            arguments, lambda node: AbsentSource(node.name, node.shape, node.dtype), lenient=True, stages=overview
        )
    if isinstance(job, StagedJob):
        _stages(job, form, program_name(program))
        return
    if sites is not None:
        require_work(job.planned.memgraph)
    if machine is not None:
        simulate.show(job.planned, machine, budget["policy"], jitter, seed, form)
        return
    if emit is not None:
        _emit(job, emit, form, program_name(program))
        return
    charted = len(job.planned.memgraph) <= MAX_CHARTED_OPS if budgets is None else budgets
    _overview(job, form, program_name(program), charted, budgets)


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
    from einturnip.cli.output_lines import columns, show_lines
    from einturnip.core.units import format_seconds
    from einturnip.report.explain import explained
    from einturnip.report.overview import to_json

    if form == "json":
        stages = [
            {"line": stage.line, "iterations": len(stage.iterations.values) if stage.iterations else 1}
            | {"at_most": is_while(stage), "plan": to_json(plan.planned, program, None)}
            for stage, plan in job.plans
        ]
        head = {"schema": "einturnip.stages/1", "program": program, "predicted": job.prediction.to_json()}
        click.echo(json.dumps(head | {"stages": stages}, indent=1))
        return
    for stage, plan in job.plans:
        show_lines([((heading(stage), "head"),), (), *explained(plan.planned, columns()), ()])
    at_most = "at most " if any(is_while(stage) for stage, _ in job.plans) else ""
    show_lines([((f"all stages and iterations: {at_most}{format_seconds(job.prediction.seconds)}", "head"),)])


def _overview(job: Job, form: str, program: str, charted: bool, requested: bool | None) -> None:
    """Print the plan statement by statement, and the predicted time for other budgets."""
    from einturnip.cli.output_lines import columns, show_lines
    from einturnip.report.budgets import PATIENCE, chart, sweep
    from einturnip.report.explain import explained
    from einturnip.report.overview import to_json

    if form == "text":
        show_lines(explained(job.planned, columns()))
    swept = sweep(job.replanned, job.planned, float("inf") if requested else PATIENCE) if charted else None
    if form == "json":
        click.echo(json.dumps(to_json(job.planned, program, swept), indent=1))
    elif swept is not None and len(swept.points) > 1:
        show_lines([(), *chart(swept, columns())])
    elif swept is None and requested is None:
        show_lines([(("--budgets charts the time against the memory given", "note"),)])
