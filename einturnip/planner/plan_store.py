"""Cache of plans on disk, shared by all processes of a user.

Plans are filed under the digest of everything that they depend on except the budget. The file name contains the budgets
that a plan serves, so that a similar budget finds it. ``einturnip.caches`` writes and checks the entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from einturnip.caches import PLANS, DamagedEntry
from einturnip.core.errors import NeedsMore
from einturnip.core.package_data import source_version
from einturnip.core.units import UNLIMITED_NBYTES
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.planner.codec import EXPRESSIONS, GRAPHS, NotEncodable, PlanCodec
from einturnip.planner.predict import ranking_key
from einturnip.runtime.scheduler.report import Prediction
from einturnip.tuning.memory import STORED_NOISE_NBYTES
from einturnip.tuning.search import MAX_UNUSED, OPEN_SECONDS, PLAN_BANDWIDTH, WORTH_STORING

SWITCH = PLANS.switch
"""Environment variable: ``off`` disables the cache; a path replaces its folder."""

FORMAT, SUFFIX = 2, ".plan"
PLAN = PlanCodec(EXPRESSIONS + GRAPHS)
# Subpackages that a plan depends on.
_PACKAGES = (
    "core", "cost", "devices", "eingraph", "ir", "kernels", "memgraph", "planner", "runtime", "taskgraph", "tiling",
    "tuning",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanningBudget:
    """The budget before planning: the arena if ``stated``, else the memory that is not yet resident."""

    nbytes: int
    stated: bool

    def is_served_by(self, min_nbytes: int, max_nbytes: int) -> bool:
        """Return whether a cached plan for budgets in [min_nbytes, max_nbytes] is good for this budget."""
        noise = 0 if self.stated else STORED_NOISE_NBYTES
        return min_nbytes - noise <= self.nbytes <= max_nbytes + noise

    def served_range(self, plan: StoredPlan) -> tuple[int, int]:
        """Return the minimum bytes that a plan needs, and the maximum for which it is still good enough."""
        if self.stated:
            return self.nbytes, self.nbytes
        min_nbytes = self.nbytes - (plan.arena - min(plan.memgraph.arenas_nbytes))
        moves_again = np.isin(plan.memgraph.kind, (OpKind.OFFLOAD, OpKind.RELOAD)).any()
        return max(0, min_nbytes), UNLIMITED_NBYTES if not moves_again and 2 * min_nbytes <= self.nbytes else int(
            self.nbytes * (1 + MAX_UNUSED)
        )


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A cached plan, without data and without the machine, which is part of the key. Units: bytes."""

    memgraph: MemGraph
    prediction: Prediction
    arena: int
    capacity: int
    limit: int | None = None

    @property
    def graph(self) -> EinGraph:
        """The graph that was planned."""
        return self.memgraph.taskgraph.decomposition.graph


def plan_folder(graph: EinGraph, machine: Machine, budget: PlanningBudget, *depends_on: object) -> PlanFolder | None:
    """Return the folder of plans with the same key; None if the graph has no key.

    ``depends_on``: plain values that a plan depends on, in addition to graph, machine and einturnip itself.
    """
    try:
        version = source_version(_PACKAGES), np.__version__
        key = hashlib.sha256(
            repr((FORMAT, version, machine.fingerprint, PLAN.digest(graph), budget.stated, depends_on)).encode()
        ).hexdigest()[:40]
    except (NotEncodable, RecursionError):
        return None
    return PlanFolder(key, budget)


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """The plans of one key, for all budgets. ``budget``: the one to plan for."""

    key: str
    budget: PlanningBudget

    def find(self) -> StoredPlan | None:
        """Return a plan that serves this budget, the one for the largest budget; None if there is none."""
        for name in sorted(self._names(), reverse=True):
            if self.budget.is_served_by(name.min_nbytes, name.max_nbytes):
                found = self._read(name)
                if found is not None:
                    return found
        return None

    def better(self, made: StoredPlan) -> StoredPlan | None:
        """Return a cached plan for less memory that is predicted to be faster than ``made``, if there is one.

        Or equally fast, with fewer bytes moved. So a larger budget never has a longer predicted time than a smaller
        one, once both plans are cached.
        """
        budget = self.budget
        fitting = (name for name in self._names() if name.min_nbytes <= budget.nbytes)
        for name in sorted(fitting, key=_PlanFileName.rank):
            if name.rank() >= _rank(made.prediction):
                return None
            found = self._read(name)
            if found is not None:
                other = 0 if budget.stated else name.min_nbytes - min(found.memgraph.arenas_nbytes)
                return replace(found, arena=budget.nbytes - other)
        return None

    def store(self, plan: StoredPlan, seconds: float) -> None:
        """Store a plan that took ``seconds`` to make, if reading it is faster; failures are ignored."""
        if seconds < WORTH_STORING * OPEN_SECONDS:
            return
        try:
            pieces = PLAN.to_bytes((plan.memgraph, plan.prediction, plan.arena, plan.capacity, plan.limit))
        except (NotEncodable, RecursionError):
            return
        if seconds < WORTH_STORING * (OPEN_SECONDS + sum(map(len, pieces)) / PLAN_BANDWIDTH):
            return
        name = _PlanFileName(*self.budget.served_range(plan), *_measures(plan.prediction))
        with contextlib.suppress(OSError):
            PLANS.write({self._entry(name): pieces})
            for other in self._names():  # remove plans for more memory that are worse
                if other.min_nbytes > name.min_nbytes and other.rank() > name.rank():
                    PLANS.remove(self._entry(other))

    def _read(self, name: _PlanFileName) -> StoredPlan | None:
        entry = self._entry(name)
        with contextlib.suppress(OSError, DamagedEntry, NeedsMore):
            memgraph, prediction, arena, capacity, limit = PLAN.from_bytes(PLANS.read(entry))
            PLANS.touch(entry)
            return StoredPlan(memgraph, prediction, arena, capacity, limit)
        return None

    def _entry(self, name: _PlanFileName) -> str:
        return os.path.join(self.key, str(name))

    def _names(self) -> Iterator[_PlanFileName]:
        with contextlib.suppress(OSError):
            for name in os.listdir(os.path.join(PLANS.path() or os.devnull, self.key)):
                numbers = name.removesuffix(SUFFIX).split("-")
                if name.endswith(SUFFIX) and len(numbers) == 4 and all(n.isdecimal() for n in numbers):
                    yield _PlanFileName(*map(int, numbers))


class _PlanFileName(NamedTuple):
    """The file name of a plan: the budgets that it serves, its predicted time and the bytes that it moves."""

    min_nbytes: int
    max_nbytes: int
    time_ns: int
    moved: int

    def __str__(self) -> str:
        return "-".join(map(str, self)) + SUFFIX

    def rank(self) -> tuple[int, int]:
        """Return a key that is smaller for a better plan: the time, then the bytes moved."""
        return ranking_key(self.time_ns / 1e9, self.moved)


def _measures(prediction: Prediction) -> tuple[int, int]:
    return round(prediction.seconds * 1e9), sum(prediction.link_bytes.values())


def _rank(prediction: Prediction) -> tuple[int, int]:
    return _PlanFileName(0, 0, *_measures(prediction)).rank()
