"""``einturnip bench``: this machine, with einturnip and its peers on it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from einturnip.cli import options


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


@command.command("gpu")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where results are kept.")
@click.option("--device", default="cuda", show_default=True, help="cuda, cuda:1; sim only with --tiny.")
@click.option("--part", "parts", multiple=True, type=click.Choice("abcde"), help="Only these parts. [all]")
@click.option("--minutes", default=10.0, show_default=True, help="The most that a part may take.")
@click.option("--tiny", is_flag=True, help="Sizes that say nothing, to see that the benchmarks run.")
@options.debug
def gpu(out: Path, device: str, parts: tuple[str, ...], minutes: float, tiny: bool) -> None:
    """Run the parts a to e that OUT does not hold yet.

    \b
    a  matrix products, square, skinny, batched, and contractions
    b  generated kernels against a copy
    c  a LLaMA-shaped prefill under 4, 8, 16 GB and no cap
    d  a chain of large products under 8 GB and no cap
    e  free order, fixed order and double buffering on c and d
    """
    from einturnip.cli.bench_gpu import run
    from einturnip.core.errors import DeviceError
    from einturnip.devices.choice import choose

    chosen = choose(device)
    if chosen.kind == "cpu" or (chosen.kind == "sim" and not tiny):
        raise DeviceError(f"these benchmarks measure a GPU, and --device {device} is none. help: --tiny --device sim")
    out.mkdir(parents=True, exist_ok=True)
    for line in run(out, device, parts or tuple("abcde"), 60 * minutes, tiny):
        click.echo(line)
