"""``einturnip check``: parses a program and prints every tensor's shape and dtype."""

from __future__ import annotations

from pathlib import Path

import click

from einturnip.cli import options


@click.command("check")
@options.program
@options.inputs
@click.option("--all", "every", is_flag=True, help="Also show the tensors within functions.")
@options.debug
def command(program: Path, inputs: dict[str, str], dims: dict[str, int], every: bool) -> None:
    """Check PROG.ein and print every tensor's labels, dtype and shape.

    Sizes are numbers if --dim, -i or a default file gives them, and names of the program otherwise.
    """
    from einturnip.api.inputs import check_names, close_all, compile_path, open_inputs
    from einturnip.api.known_sizes import known_sizes
    from einturnip.cli.planning import scalars
    from einturnip.report.signature import rows, table

    compiled = compile_path(program)
    for warning in compiled.warnings:
        click.echo(warning.render(), err=True)
    check_names("dim", dims, compiled.dims)
    sources = open_inputs(compiled, scalars(compiled, inputs), program.parent, lenient=True)
    try:
        sizes = known_sizes(compiled, sources, dims)
    finally:
        close_all(sources.values())
    for line in table([row for row in rows(compiled, sizes) if every or not row.hidden]):
        click.echo(line)
