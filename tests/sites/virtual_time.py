"""Runs of the plans of all sites in virtual time, over a wire whose delays the tests draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from einturnip.core.errors import InternalError
from einturnip.memgraph.types import Lane
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.sites.site_run import SiteRun
from einturnip.sites.types import SitePlan
from einturnip.sites.wires.protocol import Arrivals


class Links(Protocol):
    """When messages arrive."""

    def arrival(self, now: float, sender: int, receiver: int, nbytes: int) -> float:
        """Return when a message that is sent now has arrived. Units: seconds, bytes."""
        ...


class Clock:
    """Virtual time, and what is to happen; at equal times what was stated first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._stated = 0

    def at(self, time: float, happen: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._stated += 1
        heappush(self._events, (time, self._stated, happen))

    def run(self) -> None:
        """Let everything happen."""
        while self._events:
            self.now, _, happen = heappop(self._events)
            happen()


@dataclass
class Network:
    """The state that the wires of all sites share.

    ``offered``: values that their senders have announced; ``order``: see ``SimulatedRun``.
    """

    clock: Clock
    links: Links
    nbytes: Mapping[int, int]
    runs: list[Arrivals] = field(default_factory=list)
    offered: set[int] = field(default_factory=set)
    awaited: dict[int, Callable[[], None]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


class SimulatedWire:
    """One site's end of the network.

    A value travels once both ends are ready: the receiver has called ``get_into``, and the sender ``notify``. A message
    may overtake another.
    """

    def __init__(self, network: Network, site: int) -> None:
        self._network, self._site = network, site

    def notify(self, transfer: int, peer: int) -> None:
        """Tell the receiver that a value can be fetched."""
        self._send(peer, lambda run: run.noticed(transfer))
        self._network.offered.add(transfer)
        fetch = self._network.awaited.pop(transfer, None)
        if fetch is not None:
            fetch()

    def get_into(self, transfer: int, peer: int) -> None:
        """Fetch a value as soon as it is offered."""
        net = self._network

        def fetch() -> None:
            end = net.links.arrival(net.clock.now, peer, self._site, net.nbytes[transfer])
            net.clock.at(end, arrived)

        def arrived() -> None:
            net.order.append(transfer)
            net.runs[self._site].fetched(transfer)

        if transfer in net.offered:
            fetch()
        else:
            net.awaited[transfer] = fetch

    def acknowledge(self, transfer: int, peer: int) -> None:
        """Tell the sender that the value has arrived."""
        self._send(peer, lambda run: run.acknowledged(transfer))

    def _send(self, peer: int, arrive: Callable[[Arrivals], None]) -> None:
        net = self._network
        net.clock.at(net.links.arrival(net.clock.now, self._site, peer, 0), lambda: arrive(net.runs[peer]))


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
