"""``einturnip trace``: draws a recorded run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from einturnip.cli import options


@click.command("trace")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "chrome"]),
    default="text",
    show_default=True,
    help="chrome is for browsers' trace viewers (chrome://tracing, ui.perfetto.dev).",
)
@options.debug
def command(file: Path, form: str) -> None:
    """Draw a run recorded by 'run --trace FILE': every worker, reader and writer over time."""
    from einturnip.cli.output_lines import columns, show_lines
    from einturnip.report.trace import chrome, drawn, read

    run = read(file)
    if form == "text":
        show_lines(drawn(run, columns()))
        return
    for piece in chrome(run):
        sys.stdout.write(piece)
    sys.stdout.write("\n")
