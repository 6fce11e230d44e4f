"""The plan of one site: its part of a memory graph, with an op for each end of a transfer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.scheduler.state_machine import lanes_of_kinds

Ints = NDArray[np.int64]

NET = len(Lane)
"""The lane of receives. Its slots are the receive window: the number of values that a site receives at once."""
SENDS, NOTICES = NET + 1, NET + 2
"""Lanes without a bound on their ops, which take no time of this site: they wait for the other one."""


class Role(IntEnum):
    """The role of an op in the plan of a site."""

    LOCAL = 0  # runs the op of the memory graph
    SEND = 1  # offers a value to another site; ends when that site has it
    NOTICE = 2  # ends when another site offers a value
    RECEIVE = 3  # copies the value from the other site


@dataclass(frozen=True)
class SitePlan:
    """The ops of one site in the serial order of the whole plan, as columns.

    ``op``: the op of the memory graph that a LOCAL op runs; for the other roles, the move that was split, which is also
    the number of the transfer. ``peer``: the site at the other end of a transfer, else -1. ``kind``, ``unit`` and
    ``seconds`` are those of that op. ``after``: as in ``MemGraph``, by position among the ops of this site.
    """

    graph: MemGraph
    site: int
    role: NDArray[np.uint8]
    op: NDArray[np.int32]
    peer: NDArray[np.int32]
    kind: NDArray[np.uint8]
    unit: NDArray[np.int32]
    seconds: NDArray[np.float64]
    after_ptr: Ints
    after: NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of ops."""
        return len(self.op)

    @property
    def lane(self) -> NDArray[np.uint8]:
        """The lane of each op."""
        of_role = np.array([0, SENDS, NOTICES, NET], np.uint8)[self.role]
        found: NDArray[np.uint8] = np.where(self.role == Role.LOCAL, lanes_of_kinds(self.kind), of_role)
        return found

    @property
    def nbytes(self) -> Ints:
        """The bytes of the value that each transfer moves; 0 for local ops."""
        found, ends = np.zeros(len(self), np.int64), self.role != Role.LOCAL
        found[ends] = self.graph.read[self.graph.read_ptr[self.op[ends]], 2]
        return found
