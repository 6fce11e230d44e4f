"""``einturnip plan --parts``: one program on P devices, memory aside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


def show_parts(
    program: Path, inputs: dict[str, str], dims: dict[str, int], emit: str | None, form: str, parts: int
) -> None:
    """Show EinDecomp's decomposition, which regards devices and not memory."""
    from einturnip.cli.planning import bound
    from einturnip.decomp.baselines import baselines
    from einturnip.decomp.eindecomp import eindecomp
    from einturnip.eingraph.rewrite import rewrite
    from einturnip.report.parts import parts_json, parts_text

    if emit not in (None, "decomposition"):
        raise click.UsageError("--parts goes with --emit decomposition")
    if form == "dot":
        raise click.UsageError("--parts is shown as text or json")
    graph = rewrite(bound(program, inputs, dims), None)
    decomposition, beside = eindecomp(graph, parts), baselines(graph, parts)
    if form == "json":
        sys.stdout.writelines(parts_json(decomposition, beside, parts, os.fspath(program)))
        sys.stdout.write("\n")
    else:
        for line in parts_text(decomposition, beside):
            click.echo(line)
