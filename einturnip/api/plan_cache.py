"""Plan cache in memory: recently used plans, within a bound on their bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any

import numpy as np

from einturnip.api.jobs import Job
from einturnip.api.prepared_plan import PreparedPlan
from einturnip.api.stage_plans import StagePlans
from einturnip.api.staged_job import StagedJob
from einturnip.core.process_resources import available_memory
from einturnip.devices.stored import read_stored
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import rounded
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.host.driver_choice import arena_nbytes
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.device_arrays import DeviceArray
from einturnip.storage.strided_array import StridedArray
from einturnip.storage.types import Source, contiguous_nbytes
from einturnip.tuning.memory import KEPT_STAGES_NBYTES, PREPARED_OP_NBYTES

# Maximum bytes of cached plans, and the bytes of a plan besides its columns.
MAX_NBYTES = 32 << 20
PLAN_OVERHEAD_NBYTES = 20_000
# Maximum number of plans that a session keeps: one for each of the last shapes of inputs.
MAX_SESSION_PLANS = 8


@dataclass(eq=False)
class CachedPlan:
    """A plan, its program (which keeps the program's id in use), and resources for further runs.

    ``last_use`` increases with every use.
    """

    key: Hashable
    owner: object
    bound: EinGraph
    planned: PlannedProgram
    nbytes: int
    prepared: PreparedPlan
    last_use: int = 0

    def use(self) -> None:
        """Record a use of the plan."""
        self.last_use = next(_use_counter)


@dataclass(eq=False)
class CachedStages:
    """The plans of a program in stages, and its program.

    ``last_use`` increases with every use. ``idle``: a job of an earlier call, with its values and prepared runs.
    """

    key: Hashable
    owner: object
    plans: StagePlans
    nbytes: int
    last_use: int = 0
    idle: list[StagedJob] = field(default_factory=list)

    def take_idle(self) -> StagedJob | None:
        """Return the idle job, for another call; None if there is none."""
        try:
            return self.idle.pop()
        except IndexError:  # another thread took it
            return None

    def use(self) -> None:
        """Record a use of the plans."""
        self.last_use = next(_use_counter)


# Any thread may call find, keep and drop: reading and listing a plain dict is atomic, unlike an OrderedDict.
_plans: dict[Hashable, CachedPlan | CachedStages] = {}
_use_counter = count(1)


def find(key: Hashable) -> CachedPlan | CachedStages | None:
    """The cached plan of a key, or plans of stages; None if there is none."""
    found = _plans.get(key)
    if found is not None:
        found.use()
    return found


def keep(key: Hashable, owner: object, job: Job) -> CachedPlan:
    """Cache a job's plan without its inputs."""
    planned = replace(job.planned, sources={}, targets={})
    nbytes = _nbytes(planned)
    prepared = PreparedPlan(planned)
    if prepared.is_reusable:
        nbytes += PREPARED_OP_NBYTES * len(planned.memgraph)
        nbytes += arena_nbytes(planned.memgraph) if prepared.is_inline else 0
    plan = CachedPlan(key, owner, job.bound, planned, nbytes, prepared, next(_use_counter))
    if nbytes <= MAX_NBYTES:
        _plans[key] = plan
        _evict_oldest()
    return plan


def keep_stages(key: Hashable, owner: object, plans: StagePlans) -> CachedStages:
    """Cache the plans of a program in stages."""
    found = CachedStages(key, owner, plans, sum(_nbytes(planned) for planned, _ in plans.planned))
    found.use()
    if found.nbytes <= MAX_NBYTES:
        _plans[key] = found
        _evict_oldest()
    return found


def _nbytes(planned: PlannedProgram) -> int:
    nbytes = _columns_nbytes(planned.memgraph) + _columns_nbytes(planned.taskgraph) + PLAN_OVERHEAD_NBYTES
    return nbytes + 1000 * len(planned.graph.nodes)


def end_call(job: Job | StagedJob, cached: CachedPlan | CachedStages) -> None:
    """Close a job whose call has ended; a job in stages that is small waits for the next call."""
    if not isinstance(cached, CachedStages) or not isinstance(job, StagedJob) or cached.idle or not job.rest():
        job.close()
        return
    cached.idle.append(job)
    _evict_oldest()


def drop(cached: CachedPlan | CachedStages) -> None:
    """Remove a plan from the cache."""
    _plans.pop(cached.key, None)


def _evict_oldest() -> None:
    total = 0
    for plan in sorted(_plans.values(), key=lambda plan: plan.last_use, reverse=True):
        total += plan.nbytes + (KEPT_STAGES_NBYTES if isinstance(plan, CachedStages) and plan.idle else 0)
        if total > MAX_NBYTES:
            _plans.pop(plan.key, None)


def release_idle_resources() -> None:
    """Free the resources that plans keep for further runs."""
    for cached in list(_plans.values()):
        if isinstance(cached, CachedPlan):
            cached.prepared.release_idle()
        else:
            cached.idle.clear()


def forget() -> None:
    """Drop every plan and the cached readings of the machine."""
    global _measured
    _plans.clear()
    _measured = float("-inf"), ()


def _columns_nbytes(graph: Any) -> int:
    values = (getattr(graph, f.name) for f in fields(graph))
    return sum(v.nbytes for v in values if isinstance(v, np.ndarray))


def shapes_key(sources: Mapping[str, Source]) -> Hashable:
    """The properties of inputs on which a plan depends: shapes and layouts."""
    return tuple((name, source.shape, _layout(source)) for name, source in sources.items())


def _layout(source: Source) -> Hashable:
    if isinstance(source, StridedArray):  # native arrays may be used in place
        return source.array.strides, source.array.dtype.isnative, isinstance(source, DeviceArray)
    axes = range(len(source.shape))
    decoded = (source.chunks, source.reading_nbytes) if isinstance(source, ChunkedSource) else ()
    return *decoded, *(
        contiguous_nbytes(source, tuple((0, min(n, 2 if a == b else 1)) for b, n in enumerate(source.shape)))
        for a in axes
    )


# Seconds for which a reading of free memory, or of the measured machine, is reused: a reading may take a millisecond.
FRESH = 1.0
_reading = (0.0, 0)
_measured: tuple[float, Hashable] = (float("-inf"), ())


def machine_key() -> Hashable:
    """The machine properties that may change during a process: usable cores and measured rates."""
    global _measured
    now = time.monotonic()
    if now - _measured[0] > FRESH:
        machine = read_stored().machine
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        _measured = now, (cores, "" if machine is None else machine.fingerprint)
    return _measured[1]


def free_share() -> int:
    """Half of the machine's free memory, constant over consecutive calls so that their budgets are equal.

    The value is renewed when it is no longer free, or when twice as much is free.
    """
    global _reading
    now = time.monotonic()
    read_at, budget = _reading
    if now - read_at > FRESH or not budget:
        half = available_memory() // 2
        _reading = now, budget if budget <= half < 2 * budget else rounded(half)
    return _reading[1]
