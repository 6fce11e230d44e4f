"""``einturnip plan --parts``: a program on P devices, without memory limits."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from einturnip.lang.source_text import program_name


def show_parts(
    program: Path, inputs: dict[str, str], dims: dict[str, int], emit: str | None, form: str, parts: int
) -> None:
    """Print EinDecomp's decomposition into ``parts``, or its tasks on as many devices."""
    from einturnip.cli.planning import bound
    from einturnip.cost.machine import Machine
    from einturnip.eingraph.rewrite.passes import rewrite
    from einturnip.report.parts import parts_json, parts_text, placed_json, placed_text
    from einturnip.taskgraph.multi_device import tasks_of_calls
    from einturnip.tiling.baselines import baselines
    from einturnip.tiling.eindecomp import eindecomp
    from einturnip.tiling.sites import Sites

    if emit not in (None, "decomposition", "taskgraph"):
        raise click.UsageError("--parts goes with --emit decomposition or taskgraph")
    if form == "dot":
        raise click.UsageError("--parts is shown as text or json")
    graph = rewrite(bound(program, inputs, dims), None)
    name = program_name(program)
    if emit == "taskgraph":
        tasks = tasks_of_calls(Sites(graph, parts), Machine())
        show = placed_json(tasks, name) if form == "json" else placed_text(tasks)
    else:
        decomposition = eindecomp(graph, parts)
        hand_tilings = baselines(graph, parts)
        show = (
            parts_json(decomposition, hand_tilings, parts, name)
            if form == "json"
            else parts_text(decomposition, hand_tilings)
        )
    if form == "json":
        sys.stdout.writelines(show)
        sys.stdout.write("\n")
    else:
        for line in show:
            click.echo(line)
