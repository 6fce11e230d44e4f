"""Plans that were made before, in this process: those used last, within a bound on their bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

import numpy as np

from einturnip.api.jobs import Job
from einturnip.api.prepared_plan import PreparedPlan
from einturnip.core.process_limits import available_memory
from einturnip.devices.stored import read_stored
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import rounded
from einturnip.planner.planned_program import PlannedProgram
from einturnip.runtime.host.prepared_ops import STEP_NBYTES, arena_nbytes
from einturnip.storage.arrays import ArraySource
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.types import Source

# Bytes of plans that stay in memory, and what a plan takes beside its columns.
MOST_NBYTES = 32 << 20
BESIDE_COLUMNS = 20_000


@dataclass(eq=False)
class CachedPlan:
    """A plan, the program that it is of (so that its id stays taken), and what runs of it leave for the next.

    ``used`` grows with every time that it is found.
    """

    key: Hashable
    owner: object
    bound: EinGraph
    planned: PlannedProgram
    nbytes: int
    ready: PreparedPlan
    used: int = 0

    def use(self) -> None:
        """It is found once more."""
        self.used = next(_turns)


# Any thread may look, keep and drop: a plain dictionary is read and listed in one go, an ordered one is not.
_kept: dict[Hashable, CachedPlan] = {}
_turns = count(1)


def find(key: Hashable) -> CachedPlan | None:
    """The plan of a key, if it is still kept."""
    found = _kept.get(key)
    if found is not None:
        found.use()
    return found


def keep(key: Hashable, owner: object, job: Job) -> CachedPlan:
    """Keep a job's plan, without the inputs that it was made for."""
    planned = replace(job.planned, sources={}, targets={})
    nbytes = _columns_nbytes(planned.memgraph) + _columns_nbytes(planned.taskgraph) + BESIDE_COLUMNS
    nbytes += 1000 * len(planned.graph.nodes)
    ready = PreparedPlan(planned)
    if ready.again:
        nbytes += STEP_NBYTES * len(planned.memgraph) + (arena_nbytes(planned.memgraph) if ready.small else 0)
    made = CachedPlan(key, owner, job.bound, planned, nbytes, ready, next(_turns))
    if nbytes <= MOST_NBYTES:
        _kept[key] = made
        _drop_the_oldest()
    return made


def drop(kept: CachedPlan) -> None:
    """Keep a plan no longer."""
    _kept.pop(kept.key, None)


def _drop_the_oldest() -> None:
    total = 0
    for plan in sorted(_kept.values(), key=lambda plan: plan.used, reverse=True):
        total += plan.nbytes
        if total > MOST_NBYTES:
            _kept.pop(plan.key, None)


def release_idle_resources() -> None:
    """Give back what plans hold beside themselves to run again at once."""
    for kept in list(_kept.values()):
        kept.ready.rest()


def forget() -> None:
    """Drop every plan, and what is known of the machine."""
    global _measured
    _kept.clear()
    _measured = float("-inf"), ()


def _columns_nbytes(graph: Any) -> int:
    values = (getattr(graph, f.name) for f in fields(graph))
    return sum(v.nbytes for v in values if isinstance(v, np.ndarray))


def shapes_key(sources: Mapping[str, Source]) -> Hashable:
    """What a plan depends on of its inputs: shapes, and how their bytes lie."""
    return tuple((name, source.shape, _layout(source)) for name, source in sources.items())


def _layout(source: Source) -> Hashable:
    if isinstance(source, ArraySource):
        return source.array.strides, source.array.dtype.isnative  # what is native may be worked on where it stands
    axes = range(len(source.shape))
    decoded = (source.chunks, source.held_nbytes) if isinstance(source, ChunkedSource) else ()
    return *decoded, *(
        source.contiguous_nbytes(tuple((0, min(n, 2 if a == b else 1)) for b, n in enumerate(source.shape)))
        for a in axes
    )


# How long a reading of the free memory, or of the measured machine, serves, in seconds: it may take a millisecond.
FRESH = 1.0
_reading = (0.0, 0)
_measured: tuple[float, Hashable] = (float("-inf"), ())


def machine_key() -> Hashable:
    """What may change of the machine while a process lives: the cores that it may use, the rates measured for it."""
    global _measured
    now = time.monotonic()
    if now - _measured[0] > FRESH:
        machine = read_stored().machine
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        _measured = now, (cores, "" if machine is None else machine.fingerprint)
    return _measured[1]


def free_share() -> int:
    """Half of what the machine has free or, where it was less before, that: calls in a row are to have equal budgets.

    A budget is given up when it is not free any longer, or when twice as much is.
    """
    global _reading
    now = time.monotonic()
    when, budget = _reading
    if now - when > FRESH or not budget:
        half = available_memory() // 2
        _reading = now, budget if budget <= half < 2 * budget else rounded(half)
    return _reading[1]
