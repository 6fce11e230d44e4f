"""A wire in virtual time, on links of stated rate and latency; tests draw delays instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from einturnip.sites.wires.protocol import Arrivals


class Links(Protocol):
    """When messages arrive."""

    def arrival(self, now: float, sender: int, receiver: int, nbytes: int) -> float:
        """Return when a message that is sent now has arrived. Units: seconds, bytes."""
        ...


@dataclass
class EqualLinks:
    """Each site receives one value after the other. Units: ``rate`` bytes per second, ``latency`` seconds."""

    rate: float
    latency: float
    _free: dict[int, float] = field(default_factory=dict)  # when the link into a site is free

    def arrival(self, now: float, sender: int, receiver: int, nbytes: int) -> float:
        """Return when a message that is sent now has arrived."""
        if not nbytes:  # notices and acknowledgements pass the values
            return now + self.latency
        end = max(now, self._free.get(receiver, 0.0)) + nbytes / self.rate
        self._free[receiver] = end
        return end + self.latency


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

    ``offered``: values that their senders have announced; ``order``: see ``simulate.SimulatedRun``.
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
