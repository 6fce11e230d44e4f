"""``einturnip plan --simulate MACHINE``: predicts a plan's time on a described machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from einturnip.memgraph.types import MemGraph
    from einturnip.runtime.simulate.simulator import Simulation


def options(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a simulation, for the verb ``plan``."""
    for option in (
        click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the noise. [0]"),
        click.option(
            "--jitter",
            type=click.FloatRange(min=0, max=3),
            default=0.0,
            help="Multiply every op's time by log-normal noise of this spread (mean 1). [0]",
        ),
        click.option(
            "--simulate",
            "machine",
            metavar="MACHINE",
            help="Run the plan on a virtual clock: host, p100, h200, nvlink8, gh200, or a .toml file of that form.",
        ),
    ):
        function = option(function)
    return function


def show(graph: MemGraph, machine: str, jitter: float, seed: int, form: str) -> None:
    """Simulate a plan under every dispatch policy, and report what workers wait for.

    Raises:
        BindError: there is no such machine.
    """
    from einturnip.cost.described_machines import described
    from einturnip.runtime.simulate.dispatch import DISPATCHERS
    from einturnip.runtime.simulate.machine_prices import priced
    from einturnip.runtime.simulate.simulator import TimingNoise, simulate_on

    target = described(machine)
    noise = TimingNoise(jitter, jitter, seed)
    ready = priced(graph, target)
    runs = {name: simulate_on(ready, target, dispatcher, noise) for name, dispatcher in DISPATCHERS.items()}
    if form == "json":
        found = {"machine": target.name, "jitter": jitter, "seed": seed}
        click.echo(json.dumps(found | {"dispatch": {name: _plain(ran) for name, ran in runs.items()}}, indent=1))
        return
    click.echo(f"simulated on {target.title}, {len(graph):,} ops, jitter {jitter:g}, seed {seed}")
    for line in _lines(runs):
        click.echo(line)


def _plain(ran: Simulation) -> dict[str, Any]:
    links = {name: {"bytes": nbytes, "seconds": busy} for name, (nbytes, busy) in ran.links.items()}
    return {"seconds": ran.makespan, "computing": ran.busy, "links": links, "stalls": ran.stalls}


def _lines(runs: dict[str, Simulation]) -> list[str]:
    from einturnip.core.units import format_seconds, format_size

    free = runs["free"]
    slots = free.busy + sum(free.stalls.values())
    waits = [f"{t / slots:.0%} waiting for {cause}" for cause, t in free.stalls.items() if cause != "idle" and slots]
    idle = f"{free.stalls['idle'] / slots:.0%} idle" if slots else ""
    lines = [
        f"time      {format_seconds(free.makespan)} in free order",
        f"busy      {', '.join([f'{free.busy / slots:.0%} computing' if slots else 'nothing', *waits, idle])}",
    ]
    for name, (nbytes, busy) in free.links.items():
        lines.append(f"link      {name} {format_size(nbytes)}, busy {busy / free.makespan:.0%}")
    others = [f"{name} {format_seconds(ran.makespan)}" for name, ran in runs.items() if name != "free"]
    return [*lines, f"dispatch  {', '.join(others)}"]
