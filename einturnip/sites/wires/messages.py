"""Messages for a site and the numbers of its transfers, for all wires between processes.

A message names a number of the whole plan; the site translates it to its own op.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError, RunError
from einturnip.memgraph.views import Array, OpViews
from einturnip.sites.part import SitePart
from einturnip.sites.types import Role
from einturnip.sites.wires.protocol import Arrivals

Report = Callable[[Arrivals], None]
"""Reports a message to a site."""


Event = tuple[str, int, dict[str, Any]]
"""(state, site, content): a report of a site to the coordinator, or ``lost`` if its connection has ended."""


class PeerLost(RunError):
    """Another site does not answer."""


class SiteInbox:
    """Messages for one run at one site; those that come before the run begins there are kept.

    ``numbered``: the ops of the site by their number in the whole plan.
    """

    def __init__(self) -> None:
        self._early: list[Report] = []
        self._post: Callable[[Report], None] | None = None
        self._values: Callable[[int], Array] | None = None
        self.numbered: dict[int, int] = {}
        self._lock = threading.Lock()

    def attach(self, post: Callable[[Report], None], values: Callable[[int], Array], numbered: dict[int, int]) -> None:
        """Deliver messages from now on.

        ``post``: receives the reports; ``values``: returns the bytes of a number of the plan.
        """
        with self._lock:
            self._values, self.numbered = values, numbered
            for report in self._early:
                post(report)
            self._post = post

    def detach(self) -> None:
        """Drop messages from now on."""
        with self._lock:
            self._values, self._post, self._early = None, _unread, []

    def arrived(self, report: Report) -> None:
        """Deliver a message, or keep it until the run begins."""
        with self._lock:
            if self._post is None:
                self._early.append(report)
            else:
                self._post(report)

    def noticed(self, number: int) -> None:
        """Deliver the offer of a value."""
        self.arrived(lambda site: site.noticed(self.numbered[number]))

    def acknowledged(self, number: int) -> None:
        """Deliver the arrival of a value at another site."""
        self.arrived(lambda site: site.acknowledged(self.numbered[number]))

    def value(self, number: int) -> Array:
        """Return the bytes of a value that this site has offered."""
        if self._values is None:
            raise RunError("a value was requested before the run began")
        return self._values(number)


def _unread(report: Report) -> None:
    """Drop a message for a run that has ended."""


class NumberedTransfers:
    """The transfers of one site, as ops of the site's own graph.

    ``post``: receives ``OpEnded`` of the ops that ``launch`` starts. ``received``: bytes by the site that they came
    from.
    """

    def __init__(self, part: SitePart, views: OpViews, post: Callable[[Any], None]) -> None:
        self.part, self.views, self.post = part, views, post
        self.number: list[int] = part.number.tolist()
        self.peer = dict(zip(part.plan.op.tolist(), part.plan.peer.tolist(), strict=True))
        self.received: dict[int, int] = defaultdict(int)
        self.launch: Callable[[int], None] = _unlaunched

    def get_into(self, transfer: int, peer: int) -> None:
        """Launch the op that fetches the value."""
        self.launch(transfer)

    def target(self, op: int) -> Array:
        """Return the place of a value that an op receives."""
        ((target, _),) = self.views.moved(self.part.graph[op])
        return target

    def value(self, number: int) -> Array:
        """Return the bytes of a value that this site sends."""
        op = int(np.searchsorted(self.part.number, number))
        ((_, source),) = self.views.moved(self.part.graph[op])
        return source


def _unlaunched(op: int) -> None:
    raise InternalError("a wire that no run uses")


def sent_ops(part: SitePart) -> dict[int, int]:
    """Return the op of each transfer of a part, by its number in the whole plan."""
    ops = np.unique(part.plan.op[part.plan.role != Role.LOCAL])
    return dict(zip(part.number[ops].tolist(), ops.tolist(), strict=True))
