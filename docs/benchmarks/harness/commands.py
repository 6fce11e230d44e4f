"""The commands under ``einturnip bench``, which ``einturnip.cli.bench`` finds in a checkout."""

from __future__ import annotations

import math
import time
from pathlib import Path

import click

from einturnip.cli import options


@click.group("bench")
def command() -> None:
    """Compare einturnip with the alternatives that are installed."""


@command.command("host")
@click.argument("names", nargs=-1, metavar="[CASE]...")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write host.json, host.md and host.svg.")
@click.option(
    "--rounds",
    default=9,
    show_default=True,
    help="Calls of every contender, interleaved; short ones more often, a second for each.",
)
@click.option("--small", is_flag=True, help="Tiny sizes: they try the harness and measure nothing.")
def host(names: tuple[str, ...], out: Path | None, rounds: int, small: bool) -> None:
    """Work in memory: contractions, attention, joins, rows, transposes, gathers. CASE: part of a name."""
    from harness.host import bench, geometric_mean, line, machine, typed, write

    if rounds < 1:
        raise click.BadParameter("at least one round", param_hint="--rounds")
    outcomes = []
    words = typed()
    for outcome in bench(names, rounds, small):
        outcomes.append(outcome)
        click.echo(line(outcome))
        if out is not None:  # results are stored before anything else can fail
            write(outcomes, out, machine(), words)
    if not outcomes:
        raise click.UsageError(f"no case's name holds {' or '.join(repr(n) for n in names)}")
    click.echo(f"geometric mean of the ratios to the fastest peer: {geometric_mean(outcomes):.2f}")


@command.command("loop")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write loop.json and loop.md.")
@click.option("--folder", default=".", type=click.Path(path_type=Path), help="Where a file is read. [this one]")
@click.option("--small", is_flag=True, help="Tiny sizes: they try the harness and measure nothing.")
def loop(out: Path | None, folder: Path, small: bool) -> None:
    """Time of the runtime in addition to the ops that it runs, and of a run in addition to its program."""
    from harness.host import machine, typed
    from harness.loop import bench, write

    figures = []
    for figure in bench(folder, small):
        figures.append(figure)
        click.echo(f"{figure.what}: {figure.value:.3g} {figure.unit}")
    if out is not None:
        for path in write(figures, out, machine(), typed()):
            click.echo(f"wrote {path}")


@command.command("disk")
@click.argument("names", nargs=-1, metavar="[CASE]...")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write disk.json and disk.md.")
@click.option("--folder", required=True, type=click.Path(path_type=Path), help="Where the data lie, and are made once.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each kind, interleaved.")
@click.option("--share", "shares", multiple=True, type=click.IntRange(min=2), help="Memory: 1/SHARE. [2, 4, 8, 16]")
@click.option("--only", multiple=True, help="Only such runs: 'dask', 'npy cold', 'einturnip 1/4', 'memmap all'.")
@click.option("--seconds", type=float, help="Begin no run after so long; called again, it goes on from OUT.")
@click.option("--small", is_flag=True, help="Tiny sizes: they try the harness and measure nothing.")
@options.debug
def disk(
    names: tuple[str, ...],
    out: Path | None,
    folder: Path,
    rounds: int,
    shares: tuple[int, ...],
    only: tuple[str, ...],
    seconds: float | None,
    small: bool,
) -> None:
    """Out of core: files of up to 5 GB in a fraction of that memory. CASE: part of a name.

    Results of this machine that OUT already has are not measured again.
    """
    from einturnip.devices.measure import measure_disk
    from harness.disk import SHARES, bench
    from harness.disk_page import earlier, line, write
    from harness.host import machine, typed

    until = math.inf if seconds is None else time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    words, about = typed(), machine()
    records, there = ({}, None) if out is None else earlier(out, about, small)
    if there is None:
        rates = measure_disk(folder)
        told = f"{rates.read / 1e9:.2f} GB/s read, {rates.write / 1e9:.2f} written"
        there = about | {"disk": told, "disk_read": rates.read, "disk_write": rates.write}
    for case, run in bench(names, folder, rounds, shares or SHARES, small, records, until, only):
        click.echo(line(case, run))
        if out is not None:  # results are stored before anything else can fail
            write(records, out, there, words)
    if not records:
        raise click.UsageError(f"no case's name holds {' or '.join(repr(n) for n in names)}")


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
    b  generated kernels against a copy and a loop of multiply-adds
    c  a LLaMA-shaped prefill under 4, 8, 16 GB and no cap
    d  a chain of large products under 8 GB and no cap
    e  free order, fixed order and double buffering on c and d
    """
    from einturnip.core.errors import DeviceError
    from einturnip.devices.kind import choose
    from harness.gpu import run

    chosen = choose(device)
    if chosen.kind.on_host or (chosen.kind.name != "cuda" and not tiny):
        raise DeviceError(f"these benchmarks measure a GPU, and --device {device} is none. help: --tiny --device sim")
    out.mkdir(parents=True, exist_ok=True)
    for line in run(out, device, chosen, "".join(parts) or "abcde", 60 * minutes, tiny):
        click.echo(line)
