"""``einturnip verify``: checks a memory graph of any planner against every rule."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from einturnip.cli import options


@click.command("verify")
@click.argument("plan", metavar="PLAN.json", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--stored",
    type=options.NameValue("OUTPUT=SIZE"),
    multiple=True,
    help="Total bytes of an output: --stored C.npy=4MiB. Needed to detect a missing end of a file.",
)
@click.option(
    "--limit", type=options.Number(int, 1), default=20, show_default=True, help="Maximum number of faults shown."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to show it."
)
@options.debug
def command(plan: Path, stored: tuple[tuple[str, str], ...], limit: int, form: str) -> None:
    """Prove a memory graph: acyclic, within its memory, free of races, every output stored once.

    PLAN.json has the format of 'einturnip plan PROG --emit memgraph --format json'; another planner may have made it;
    '-' reads it from standard input. Exit codes: 0 valid, 1 invalid, 2 not a plan.
    """
    from einturnip.core.units import parse_size
    from einturnip.verify.check import check
    from einturnip.verify.read import read
    from einturnip.verify.show import show
    from einturnip.verify.types import NotAPlan

    expected = {name: parse_size(size) for name, size in stored}
    name = "standard input" if str(plan) == "-" else str(plan)
    if str(plan) == "-":
        found = read(sys.stdin.buffer, name)
    else:
        try:
            with plan.open("rb") as stream:
                found = read(stream, name)
        except FileNotFoundError:
            raise NotAPlan(f"there is no plan {plan}") from None
        except IsADirectoryError:
            raise NotAPlan(f"{plan} is a folder, not a plan") from None
    verdict = check(found, expected, limit)
    if form == "json":
        click.echo(json.dumps(verdict.to_json(), indent=1))
    else:
        for line in show(verdict, name, limit):
            # A file's name need not be text.
            click.echo(line.encode("utf-8", "replace").decode())
    if not verdict.valid:
        raise click.exceptions.Exit(1)
