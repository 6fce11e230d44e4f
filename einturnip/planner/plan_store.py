"""Plans kept on disk, in the user's cache: made once, read by every process that asks the same again.

A plan lies under the digest of what it depends on, the budget aside; its file's name says which budgets it serves, so
that one that is nearly the same finds it. How entries are written and checked: ``einturnip.caches``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from einturnip import core
from einturnip.caches import PLANS, DamagedEntry
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.planner.budget import MIB
from einturnip.planner.codec import PLAN, NotEncodable
from einturnip.planner.predict import ranking_key
from einturnip.runtime.scheduler.report import Prediction

SWITCH = PLANS.switch
"""Environment variable: ``off`` keeps no plans on disk; a path is the folder to use instead of the cache's."""

FORMAT, SUFFIX = 2, ".plan"
# A plan is kept if making it took this many times what finding and writing a file takes, and so many bytes a second.
WORTH, OPEN_SECONDS, READ_BANDWIDTH = 3.0, 0.005, 100e6
# Resident memory differs by so much from one process to the next that do the same.
NOISE = MIB
# A plan serves budgets that are larger than its own by no more than this part, and any if it lets nothing leave the
# memory of which it uses half at most.
MAX_UNUSED, UNLIMITED = 1 / 16, 1 << 62
# What of einturnip a plan depends on.
_PACKAGES = (
    "core", "cost", "devices", "eingraph", "ir", "kernels", "memgraph", "planner", "runtime", "taskgraph", "tiling",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanningBudget:
    """What a budget leaves before planning begins: the arena where it is stated, else the memory not yet resident."""

    nbytes: int
    stated: bool

    def is_served_by(self, min_nbytes: int, max_nbytes: int) -> bool:
        """Whether a plan for so many bytes to so many is as good here as one made anew."""
        noise = 0 if self.stated else NOISE
        return min_nbytes - noise <= self.nbytes <= max_nbytes + noise

    def served_range(self, plan: StoredPlan) -> tuple[int, int]:
        """The fewest bytes that a plan made in this room can do with, and the most to which none is better."""
        if self.stated:
            return self.nbytes, self.nbytes
        min_nbytes = self.nbytes - (plan.arena - plan.memgraph.device_nbytes)
        leaves = np.isin(plan.memgraph.kind, (OpKind.OFFLOAD, OpKind.RELOAD)).any()
        return max(0, min_nbytes), UNLIMITED if not leaves and 2 * min_nbytes <= self.nbytes else int(
            self.nbytes * (1 + MAX_UNUSED)
        )


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan as it is kept: without data, and without the machine, which the question names. Units: bytes."""

    memgraph: MemGraph
    prediction: Prediction
    arena: int
    capacity: int
    limit: int | None = None

    @property
    def graph(self) -> EinGraph:
        """The graph that was planned."""
        return self.memgraph.taskgraph.decomposition.graph


def plan_folder(graph: EinGraph, machine: Machine, *depends_on: object) -> PlanFolder | None:
    """Where the plans of a question are; None where plans are not kept, or this one has no name.

    ``depends_on``: what a plan depends on beside graph, machine, budget and einturnip itself: plain values.
    """
    if PLANS.path() is None:
        return None
    try:
        key = hashlib.sha256(
            repr((FORMAT, version(_PACKAGES), machine.fingerprint, PLAN.digest(graph), depends_on)).encode()
        ).hexdigest()[:40]
    except (NotEncodable, RecursionError):
        return None
    return PlanFolder(key)


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """Where the plans of one question are, those of all budgets."""

    key: str

    def find(self, budget: PlanningBudget) -> StoredPlan | None:
        """A plan that is as good in this room as one made anew; of several, the one that takes most."""
        for name in sorted(self._names(), reverse=True):
            if budget.is_served_by(name.min_nbytes, name.max_nbytes):
                found = self._read(name)
                if found is not None:
                    return found
        return None

    def better(self, made: StoredPlan, budget: PlanningBudget) -> StoredPlan | None:
        """A plan for less memory that is predicted to take less time than one ``made`` for this room, if there is one.

        Or as long, with fewer bytes. So more memory is never predicted to take longer than less, once both are kept.
        """
        fitting = (name for name in self._names() if name.min_nbytes <= budget.nbytes)
        for name in sorted(fitting, key=_PlanFileName.rank):
            if name.rank() >= _rank(made.prediction):
                return None
            found = self._read(name)
            if found is not None:
                other = 0 if budget.stated else name.min_nbytes - found.memgraph.device_nbytes
                return replace(found, arena=budget.nbytes - other)
        return None

    def store(self, plan: StoredPlan, budget: PlanningBudget, seconds: float) -> None:
        """Keep a plan that took ``seconds`` to make, if reading it takes less; nothing happens where that fails."""
        if seconds < WORTH * OPEN_SECONDS:
            return
        try:
            pieces = PLAN.to_bytes((plan.memgraph, plan.prediction, plan.arena, plan.capacity, plan.limit))
        except (NotEncodable, RecursionError):
            return
        if seconds < WORTH * (OPEN_SECONDS + sum(map(len, pieces)) / READ_BANDWIDTH):
            return
        name = _PlanFileName(*budget.served_range(plan), *_measures(plan.prediction))
        with contextlib.suppress(OSError):
            PLANS.write({self._entry(name): pieces})
            for other in self._names():  # a plan for more memory that is no better is to be made anew
                if other.min_nbytes > name.min_nbytes and other.rank() > name.rank():
                    PLANS.remove(self._entry(other))

    def _read(self, name: _PlanFileName) -> StoredPlan | None:
        entry = self._entry(name)
        with contextlib.suppress(OSError, DamagedEntry):
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
    """The name of a plan's file: the bytes that it serves, its predicted time and the bytes that it moves."""

    min_nbytes: int
    max_nbytes: int
    time_ns: int
    moved: int

    def __str__(self) -> str:
        return "-".join(map(str, self)) + SUFFIX

    def rank(self) -> tuple[int, int]:
        """What is less for a better plan: its time, and of times that hardly differ the bytes."""
        return ranking_key(self.time_ns / 1e9, self.moved)


def _measures(prediction: Prediction) -> tuple[int, int]:
    return round(prediction.seconds * 1e9), sum(prediction.link_bytes.values())


def _rank(prediction: Prediction) -> tuple[int, int]:
    return _PlanFileName(0, 0, *_measures(prediction)).rank()


@lru_cache(maxsize=4)
def version(packages: tuple[str, ...], *more: Path) -> tuple[object, ...]:
    """What of einturnip itself a value that is kept depends on: the files that made it, by size and time of change.

    ``packages``: of einturnip; ``more``: other folders, all that is in them.
    """
    root = os.path.dirname(os.path.dirname(core.__file__))
    files, folders = [], [os.path.join(root, package) for package in packages] + [os.fspath(path) for path in more]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.name.endswith((".py", ".ein", ".lark", ".tables.json")):
                status = entry.stat()
                files.append((entry.path.removeprefix(root), status.st_size, status.st_mtime_ns))
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                folders.append(entry.path)
    return sys.version_info[:2], np.__version__, *sorted(files)
