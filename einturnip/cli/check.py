"""``einturnip check``: parse, infer, and print every tensor's shape and dtype."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from einturnip.cli import options
from einturnip.core.errors import BindError

if TYPE_CHECKING:
    from einturnip.lang.types import Program
    from einturnip.stores.types import Source


@click.command("check")
@options.program
@options.inputs
@options.debug
def command(program: Path, inputs: dict[str, str], dims: dict[str, int]) -> None:
    """Check PROG.ein and print every tensor's labels, dtype and shape.

    Sizes are numbers where --dim, -i or a default file gives them, else the names they have in the program.
    """
    from einturnip.api.inputs import check_names, close_all, compile_path, open_inputs
    from einturnip.report.signature import rows, table

    compiled = compile_path(program)
    for warning in compiled.warnings:
        click.echo(warning.render(), err=True)
    check_names("dim", dims, compiled.dims)
    sources = open_inputs(compiled, inputs, program.parent, lenient=True)
    try:
        sizes = _sizes(compiled, sources, dims)
    finally:
        close_all(sources.values())
    for line in table(rows(compiled, sizes)):
        click.echo(line)


def _sizes(program: Program, sources: Mapping[str, Source], dims: Mapping[str, int]) -> Mapping[str, int]:
    """The value of every dim, once all statements agree with them; only those given, where some have no value yet."""
    from einturnip.eingraph.build import build
    from einturnip.eingraph.sizes import bind_sizes

    shapes = {name: source.shape for name, source in sources.items()}
    origins = {name: source.name for name, source in sources.items()}
    try:
        sizes = bind_sizes(program, shapes, dims, origins).values
    except BindError as error:
        if set(re.findall(r"error\[(E\d+)\]", str(error))) == {_UNBOUND}:
            return dims
        raise
    build(program, shapes, dims, origins)
    return sizes


# The code of "size 'n' has no value", which is no error in a check.
_UNBOUND = "E205"
