"""Runs the plans of all sites in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.errors import InternalError
from einturnip.memgraph.types import Lane
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.sites.site_run import SiteRun
from einturnip.sites.types import SitePlan
from einturnip.sites.wires.simulated import Clock, Links, Network, SimulatedWire


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The order and the time of a simulated run.

    ``order``: ops of the memory graph by their end; a transfer ends when its receiver has the value.
    ``seconds``: the time of the whole run.
    """

    order: tuple[int, ...]
    seconds: float


def simulate(
    plans: Sequence[SitePlan],
    ranks: Sequence[Ranks],
    slots: Mapping[Lane, int],
    window: int,
    links: Links,
    op_seconds: Callable[[int], float],
) -> SimulatedRun:
    """Run the plans of all sites in virtual time. ``ranks``: of each plan's ops.

    Raises:
        InternalError: the sites wait for each other forever; names what each of them waits for.
    """
    clock = Clock()
    nbytes = {op: size for plan in plans for op, size in zip(plan.op.tolist(), plan.nbytes.tolist(), strict=True)}
    network = Network(clock, links, nbytes)
    runs: list[SiteRun] = []
    for plan, ranking in zip(plans, ranks, strict=True):
        wire = SimulatedWire(network, plan.site)
        runs.append(SiteRun(plan, ranking, slots, window, wire, _launcher(network, runs, plan.site, op_seconds)))
    network.runs += runs
    for run in runs:
        run.start()
    clock.run()
    stuck = [run for run in runs if not run.done]
    if stuck:
        waits = "; ".join(f"site {run.plan.site} waits for {_named(run)}" for run in stuck)
        raise InternalError(f"the sites wait for each other: {waits}")
    return SimulatedRun(tuple(network.order), clock.now)


def _launcher(
    network: Network, runs: list[SiteRun], site: int, op_seconds: Callable[[int], float]
) -> Callable[[int], None]:
    """Return a function that runs an op of one site in virtual time."""

    def launch(op: int) -> None:
        def end() -> None:
            network.order.append(op)
            runs[site].local_ended(op)

        network.clock.at(network.clock.now + op_seconds(op), end)

    return launch


def _named(run: SiteRun) -> str:
    return ", ".join(f"{role.name} {op}" for role, op in run.waiting()) or "nothing that runs"
