"""Runs the plans of all sites in one process, as one schedule for an engine that serves all devices."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.runtime.scheduler.state_machine import lanes
from einturnip.sites.site_run import SiteRun
from einturnip.sites.split import split
from einturnip.sites.types import Role
from einturnip.sites.wires.local import LocalWire, Messages
from einturnip.tuning.memory import RECEIVE_WINDOW


class LocalSites:
    """The runs of all sites of a graph; implements ``Schedule`` (see ``state_machine``).

    Each site decides on its own what it runs next, and learns about the others only through its wire. ``slots``: for
    each site, the number of ops that each of its lanes runs at once.
    """

    def __init__(self, graph: MemGraph, ranks: Ranks, slots: Sequence[Mapping[Lane, int]]) -> None:
        of, _ = lanes(graph, slots[0])
        assert of is not None
        self.lane: Sequence[int] = of
        self.remaining = len(graph)
        self.running: dict[int, int] = Counter(dict.fromkeys({*Lane, *of}, 0))
        self.events = array("i")
        self._site, self._source = graph.op_devices().tolist(), graph.source_devices().tolist()
        self._launches: list[int] = []
        self._messages: Messages = Messages()
        wire = LocalWire(self._messages, self._launches.append)
        self._runs = [
            SiteRun(plan, [ranks[op] for op in plan.op], of_site, RECEIVE_WINDOW, wire, self._launches.append)
            for plan, of_site in zip(split(graph), slots, strict=True)
        ]

    @property
    def done(self) -> bool:
        """True when every op of every site has ended."""
        return self.remaining == 0

    def start(self) -> list[int]:
        """Return the ops to launch first."""
        for run in self._runs:
            run.start()
        return self._delivered()

    def issued(self, op: int) -> list[int]:
        """Record that a device has queued ``op`` and keeps later ops in order; return the ops to issue now."""
        site, source = self._site[op], self._source[op]
        if site == source:
            self._runs[site].issued(Role.LOCAL, op)
        else:
            self._runs[site].issued(Role.RECEIVE, op)
            self._runs[source].issued(Role.SEND, op)
        return self._delivered()

    def ended(self, op: int) -> list[int]:
        """Record that ``op`` has ended; return the ops to launch now, in order."""
        self.remaining -= 1
        self.running[self.lane[op]] -= 1
        self.events.append(~op)
        run = self._runs[self._site[op]]
        if self._site[op] == self._source[op]:
            run.local_ended(op)
        else:
            run.fetched(op)
        return self._delivered()

    def _delivered(self) -> list[int]:
        """Deliver all messages; return the ops that the sites have started."""
        while self._messages:
            site, report = self._messages.popleft()
            report(self._runs[site])
        launches = self._launches.copy()
        self._launches.clear()
        for op in launches:
            self.running[self.lane[op]] += 1
        self.events.extend(launches)
        return launches
