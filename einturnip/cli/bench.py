"""``einturnip bench``: this machine, with einturnip and its peers on it."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group("bench")
def command() -> None:
    """Measure einturnip beside what else one would use. Peers take part where they are installed."""


@command.command("host")
@click.argument("names", nargs=-1, metavar="[CASE]...")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write host.json, host.md and host.svg.")
@click.option("--rounds", default=9, show_default=True, help="Calls of every contender, in turn.")
@click.option("--small", is_flag=True, help="Tiny sizes: they try the harness and measure nothing.")
def host(names: tuple[str, ...], out: Path | None, rounds: int, small: bool) -> None:
    """In memory: contractions, attention, joins, rows, transposes, gathers. CASE is a part of a case's name."""
    from einturnip.bench.host import bench, geometric_mean, machine, write

    if rounds < 1:
        raise click.BadParameter("at least one round", param_hint="--rounds")
    outcomes = bench(names, rounds, small, click.echo)
    if not outcomes:
        raise click.UsageError(f"no case's name holds {' or '.join(repr(n) for n in names)}")
    click.echo(f"geometric mean of the ratios to the fastest peer: {geometric_mean(outcomes):.2f}")
    if out is not None:
        words = " ".join(["einturnip bench host", *names, *sys.argv[3 + len(names) :]])
        for path in write(outcomes, out, machine(), words):
            click.echo(f"wrote {path}")
