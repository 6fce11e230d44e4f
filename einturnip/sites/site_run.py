"""Runs the plan of one site over a wire, driven by ops that end and messages that arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from einturnip.memgraph.types import Lane
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.sites.types import NET, NOTICES, SENDS, Role, SitePlan
from einturnip.sites.wires.protocol import Wire


class SiteRun:
    """The run of one site.

    ``ranks``: priorities of the plan's ops. ``slots``: ops that each lane runs at once, at most; ``window``: values
    that are received at once, at most. ``wire``: takes messages to other sites; the methods ``noticed``, ``fetched``
    and ``acknowledged`` report those that arrive. ``launch``: starts one op of the memory graph, whose end is reported
    to ``local_ended``.
    """

    def __init__(
        self,
        plan: SitePlan,
        ranks: Ranks,
        slots: Mapping[Lane, int],
        window: int,
        wire: Wire,
        launch: Callable[[int], None],
    ) -> None:
        self.plan, self.wire, self.launch = plan, wire, launch
        lanes = plan.lane.tolist()
        n = max(1, len(plan))
        bounds = {int(lane): count for lane, count in slots.items()} | {NET: window, SENDS: n, NOTICES: n}
        self.state = SchedulerState(plan, ranks, bounds, lanes)
        self._role, self._op, self._peer = plan.role.tolist(), plan.op.tolist(), plan.peer.tolist()
        self._at = {(role, op): i for i, (role, op) in enumerate(zip(self._role, self._op, strict=True))}
        self._noticed: set[int] = set()  # offered before the NOTICE op was started
        self._awaited: set[int] = set()  # transfers whose NOTICE op has started and not ended

    @property
    def done(self) -> bool:
        """True when every op has ended."""
        return self.state.done

    def waiting(self) -> list[tuple[Role, int]]:
        """Return the role and the transfer of each transfer op that has started and not ended."""
        running: set[int] = set()
        for event in self.state.events:
            if event >= 0:
                running.add(event)
            else:
                running.discard(~event)
        return [(Role(self._role[i]), self._op[i]) for i in sorted(running) if self._role[i] != Role.LOCAL]

    def awaited_site(self) -> int | None:
        """Return the site of the awaited value that comes first in the serial order; None if none is awaited."""
        first = min((self._at[Role.NOTICE, op] for op in self._awaited), default=None)
        return None if first is None else self._peer[first]

    def start(self) -> None:
        """Start the ops that wait for nothing."""
        self._start(self.state.start())

    def issued(self, role: Role, op: int) -> None:
        """Report that a device has queued an op, so that later ops of its stream can be queued too."""
        self._start(self.state.issued(self._at[role, op]))

    def local_ended(self, op: int) -> None:
        """Report that an op of the memory graph has ended here."""
        self._ended(Role.LOCAL, op)

    def noticed(self, transfer: int) -> None:
        """Report that a sender offers a value."""
        if transfer in self._awaited:
            self._awaited.remove(transfer)
            self._ended(Role.NOTICE, transfer)
        else:
            self._noticed.add(transfer)

    def fetched(self, transfer: int) -> None:
        """Report that a value is in this site's memory; its sender may overwrite it."""
        self.wire.acknowledge(transfer, self._peer[self._at[Role.RECEIVE, transfer]])
        self._ended(Role.RECEIVE, transfer)

    def acknowledged(self, transfer: int) -> None:
        """Report that a receiver has a value of this site."""
        self._ended(Role.SEND, transfer)

    def _ended(self, role: Role, op: int) -> None:
        self._start(self.state.ended(self._at[role, op]))

    def _start(self, launches: list[int]) -> None:
        for i in launches:
            op, peer = self._op[i], self._peer[i]
            match self._role[i]:
                case Role.LOCAL:
                    self.launch(op)
                case Role.SEND:
                    self.wire.notify(op, peer)
                case Role.RECEIVE:
                    self.wire.get_into(op, peer)
                case Role.NOTICE if op in self._noticed:
                    self._noticed.remove(op)
                    self._ended(Role.NOTICE, op)
                case Role.NOTICE:
                    self._awaited.add(op)
