"""``einturnip plan``: what would run, without running it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from einturnip.cli import options

if TYPE_CHECKING:
    from einturnip.report.emit import Floor


@click.command("plan")
@options.program
@options.inputs
@options.outputs
@options.budget
@click.option(
    "--emit",
    type=click.Choice(["einsum", "decomposition", "taskgraph", "memgraph"]),
    help="The floor to show. [an overview of all]",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to show it."
)
@click.option(
    "--parts",
    type=click.IntRange(min=1),
    metavar="P",
    help="With --emit decomposition: cut every node into P kernel calls that move the fewest bytes, memory aside.",
)
@options.debug
def command(
    program: Path,
    inputs: dict[str, str],
    dims: dict[str, int],
    outputs: dict[str, str],
    emit: Floor | None,
    form: str,
    parts: int | None,
    **budget: Any,
) -> None:
    """Show what PROG.ein would do: its steps, predicted time, bytes over each link and peak memory.

    Needs sizes, not data: input files that exist, or --dim.
    """
    from einturnip.api.jobs import file_tiers
    from einturnip.cli.planning import planned
    from einturnip.report.emit import emit_json, emit_text
    from einturnip.report.explain import explain
    from einturnip.stores.generated import Absent

    if parts is not None:
        from einturnip.cli.parts import show_parts

        show_parts(program, inputs, dims, emit, form, parts)
        return
    if form == "json" and emit is None:
        raise click.UsageError("--format json needs --emit einsum, decomposition, taskgraph or memgraph")
    job = planned(program, inputs, dims, outputs, budget, lambda node: Absent(node.name, node.shape, node.dtype), True)
    if emit is None:
        click.echo(explain(job.planned))
    elif form == "json":
        for piece in emit_json(job.planned, emit, os.fspath(program), file_tiers(job)):
            sys.stdout.write(piece)
        sys.stdout.write("\n")
    else:
        for line in emit_text(job.planned, emit, file_tiers(job)):
            click.echo(line)
