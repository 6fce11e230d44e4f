"""Steps of a session on the workers of a cluster; its states stay there between the steps."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from einturnip.api import plan_cache
from einturnip.api.jobs import Job, Missing, complete, plan_job
from einturnip.api.results import Result
from einturnip.api.run_program import run_on_cluster, with_arrays
from einturnip.compiler import Options, bind
from einturnip.core.errors import CapacityError, RunError, WorkerLost
from einturnip.lang.program import TypedProgram
from einturnip.runtime.scheduler.report import Progress
from einturnip.storage.types import Source

if TYPE_CHECKING:
    from einturnip.cluster.transport import Cluster


class ClusterSteps:
    """Plans and runs steps on workers.

    ``options.memory`` bounds each worker. ``states``: those that a step has made, in chunks on the workers.
    """

    def __init__(
        self, cluster: Cluster, program: TypedProgram, dims: Mapping[str, int], options: Options, missing: Missing
    ) -> None:
        self._cluster, self._program, self._dims, self._options = cluster, program, dims, options
        self._missing = missing
        self._plans: OrderedDict[Hashable, Job] = OrderedDict()
        self.states: dict[str, Source] = {}

    def run(
        self,
        sources: Mapping[str, Source],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Result:
        """Run a step, and replace the states that it changes. If it fails, they are those of the step before.

        Raises:
            CapacityError, DeviceError, RunError, StoreError: see ``Program.__call__``. WorkerLost: also if a state was
            lost.
        """
        sources, updates = {**sources, **self.states}, self._program.updates
        key = plan_cache.shapes_key(sources)
        try:
            result = self._run(self._plans.get(key), key, sources, progress, stop)
            changed = {name: self._cluster.kept_source(name, result[name]) for name in updates}
        except BaseException as error:
            self._plans.clear()  # other workers may be left
            if isinstance(error, RunError):
                self._require_states()
            raise
        for name, source in changed.items():
            self.set(name, source)
        return result.without(updates)

    def _require_states(self) -> None:
        """Check that the workers that have the states are there.

        Raises:
            WorkerLost: one is gone.
        """
        try:
            self._cluster.locate(self.states, None)
        except RunError as error:
            raise WorkerLost(f"the states are incomplete: {error}.") from error

    def set(self, name: str, source: Source) -> None:
        """Replace a state."""
        if name in self.states:
            self.states[name].close()
        self.states[name] = source

    def close(self) -> None:
        """Free the states."""
        for source in self.states.values():
            source.close()
        self.states.clear()
        self._plans.clear()

    def _run(
        self,
        planned: Job | None,
        key: Hashable,
        sources: Mapping[str, Source],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Result:
        if planned is not None:
            self._plans.move_to_end(key)
            every = complete(planned.planned.graph, sources, self._missing)
            # Dask may have moved chunks of states since they were made. A new plan locates its inputs itself.
            self._cluster.locate(every, self._options.memory)
            try:
                targets = with_arrays(planned.bound, {}, self._program.updates)
                job = replace(_without_data(planned), sources=every, targets=targets)
                result = run_on_cluster(job, progress, stop)
                if result.report.retries:  # a worker that the plan needs is gone
                    self._plans.pop(key)
                return result
            except CapacityError:  # the workers have grown since it was planned
                self._plans.pop(key)
        graph = bind(self._program, sources, self._dims)
        every, kept = complete(graph, sources, self._missing), frozenset(self._program.updates)
        job = plan_job(graph, every, with_arrays(graph, {}, kept), self._options, self._cluster, kept)
        result = run_on_cluster(job, progress, stop)
        if not result.report.retries:  # else the job's plan is for workers of which one is gone
            self._plans[key] = _without_data(job)
            if len(self._plans) > plan_cache.MAX_SESSION_PLANS:
                self._plans.popitem(last=False)
        return result


def _without_data(job: Job) -> Job:
    """Return a job without the sources and results of a run, which would stay in memory with it."""
    assert job.on_workers is not None
    planned = replace(job.planned, sources={}, targets={})
    on_workers = replace(job.on_workers, plan=replace(job.on_workers.plan, planned=planned), arrays={})
    return replace(job, planned=planned, sources={}, targets={}, on_workers=on_workers)
