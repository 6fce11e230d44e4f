"""``einturnip plan --simulate MACHINE``: predicts a plan's time on a described machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from einturnip.cli.options import Number

if TYPE_CHECKING:
    from einturnip.planner.planner import PlannedProgram
    from einturnip.runtime.simulate.simulator import Simulation


DISPATCH_OF = {"critical-path": "free"}
"""Dispatch orders of the simulator whose name is not that of the run's policy."""


def options(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a simulation, for the verb ``plan``."""
    for option in (
        click.option("--seed", type=Number(int, 0), default=0, help="Seed of the noise. [0]"),
        click.option(
            "--jitter",
            type=Number(float, 0.0, 3.0),
            default=0.0,
            help="Multiply every op's time by log-normal noise of this spread, 0 to 3 (mean 1). [0]",
        ),
        click.option(
            "--simulate",
            "machine",
            metavar="MACHINE",
            help="Run the plan on a virtual clock: host, p100, nvlink8, …, or a .toml file of that form.",
        ),
    ):
        function = option(function)
    return function


def show(planned: PlannedProgram, machine: str, policy: str, jitter: float, seed: int, form: str) -> None:
    """Simulate a plan under every dispatch policy, and report what workers wait for under ``policy``.

    The link between devices and the rates of their kernels are those of ``--link`` and ``--rates``, if given, else the
    machine's.

    Raises:
        BindError: there is no such machine, or it has too few devices or too little memory.
    """
    from einturnip.cost.described_machines import PEER_LINK, described
    from einturnip.runtime.simulate.dispatch import DISPATCHERS
    from einturnip.runtime.simulate.machine_prices import priced
    from einturnip.runtime.simulate.simulator import TimingNoise, simulate_on

    graph, link = planned.memgraph, planned.machine.link
    target = described(machine)
    if link is not None:
        target = replace(target, links={**target.links, PEER_LINK: link})
    if planned.machine.rates:
        target = replace(target, rates=planned.machine.rates)
    noise = TimingNoise(jitter, jitter, seed)
    ready = priced(graph, target)
    runs = {name: simulate_on(ready, target, dispatcher, noise) for name, dispatcher in DISPATCHERS.items()}
    if form == "json":
        found = {"machine": target.name, "devices": graph.devices, "policy": policy, "jitter": jitter, "seed": seed}
        click.echo(json.dumps(found | {"dispatch": {name: _plain(ran) for name, ran in runs.items()}}, indent=1))
        return
    devices = f" ({graph.devices} of {target.devices} devices)" if target.devices > 1 else ""
    click.echo(f"simulated on {target.title}{devices}, {len(graph):,} ops, jitter {jitter:g}, seed {seed}")
    for line in _lines(runs, DISPATCH_OF.get(policy, policy)):
        click.echo(line)


def _plain(ran: Simulation) -> dict[str, Any]:
    links = {name: {"bytes": nbytes, "seconds": busy} for name, (nbytes, busy) in ran.links.items()}
    return {"seconds": ran.makespan, "computing": ran.busy, "links": links, "stalls": ran.stalls}


def _lines(runs: dict[str, Simulation], policy: str) -> list[str]:
    from einturnip.core.units import format_seconds, format_size

    ran = runs[policy]
    slots = ran.busy + sum(ran.stalls.values())
    waits = [f"{t / slots:.0%} waiting for {cause}" for cause, t in ran.stalls.items() if cause != "idle" and slots]
    idle = f"{ran.stalls['idle'] / slots:.0%} idle" if slots else ""
    lines = [
        f"time      {format_seconds(ran.makespan)} in {policy} order",
        f"busy      {', '.join([f'{ran.busy / slots:.0%} computing' if slots else 'nothing', *waits, idle])}",
    ]
    for name, (nbytes, busy) in ran.links.items():
        lines.append(f"link      {name} {format_size(nbytes)}, busy {busy / ran.makespan:.0%}")
    others = [f"{name} {format_seconds(other.makespan)}" for name, other in runs.items() if name != policy]
    return [*lines, f"dispatch  {', '.join(others)}"]
