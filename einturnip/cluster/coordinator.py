"""Plans a program for workers, runs it, again if a worker is lost, and publishes its outputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from einturnip.cluster.cluster_run import ClusterRun, no_scheduler
from einturnip.cluster.planning import SitesPlan, WorkersRequest, plan_on
from einturnip.cluster.planning_process import plan_apart
from einturnip.cluster.site_reports import joined_events, run_report
from einturnip.cluster.tensors import planned_inputs
from einturnip.cluster.transport import Cluster
from einturnip.cluster.workers import Worker
from einturnip.core.errors import DeviceError, EinturnipError, Interrupted, RunError, WorkerLost
from einturnip.core.events import log
from einturnip.core.units import smallest_and_extra
from einturnip.eingraph.types import EinGraph
from einturnip.planner.planner import run_lower_bound
from einturnip.planner.request import Options
from einturnip.runtime.scheduler.report import Progress, RunReport
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.types import Region, Sink, Source
from einturnip.tuning.memory import JOIN_SECONDS, TICK_SECONDS


def plan_on_workers(
    cluster: Cluster,
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str],
    options: Options,
    kept: frozenset[str] = frozenset(),
) -> OnWorkers:
    """Plan a program for the workers of a cluster; see ``planning.plan_on``."""
    cluster.locate(sources, options.memory)
    workers = cluster.workers()
    extra = dict(zip((worker.address for worker in workers), options.extra, strict=False))  # planning compares lengths
    plan = _plan(cluster, workers, graph, sources, targets, options, kept)
    return OnWorkers(cluster, graph, targets, plan, extra)


def _plan(
    cluster: Cluster,
    workers: tuple[Worker, ...],
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str],
    options: Options,
    kept: frozenset[str],
    finished: Mapping[str, Sequence[Region]] = MappingProxyType({}),
    stop: threading.Event | None = None,
) -> SitesPlan:
    if options.link is None and len(workers) > 1:
        options = replace(options, link=cluster.link)
    request = WorkersRequest(
        workers,
        graph,
        planned_inputs(sources),
        dict(targets),
        options,
        tuple(sorted(kept)),
        {name: tuple(regions) for name, regions in finished.items()},
    )
    return plan_on(request) if cluster.plans_within_memory else plan_apart(request, stop)


@dataclass(slots=True)
class OnWorkers:
    """A bound program, and the cluster whose workers run it.

    ``plan``: of the last attempt to run it. ``extra``: by address, bytes that the workers of the first attempt have
    beyond the memory of the smallest one; {} if all have the same. ``arrays``: the outputs that stayed on the workers
    in the last run, as Dask arrays.
    """

    cluster: Cluster
    graph: EinGraph
    targets: Mapping[str, str]
    plan: SitesPlan
    extra: Mapping[str, int] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def execute(
        self,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: Options,
        progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> RunReport:
        """Run the plan; its outputs are committed when every site has ended.

        A run that loses a worker is planned anew for those that are left, up to ``options.retries`` times.

        Raises:
            RunError, StoreError, DeviceError, Interrupted: nothing is committed; the caller aborts the sinks.
        """
        lost = list[str]()
        finished = dict[str, list[Region]]()
        while True:
            run: ClusterRun | None = None
            try:
                run = ClusterRun(self.cluster, self.plan, sources, sinks, options, len(lost) < options.retries)
                report = self._run(run, progress, stop, not finished)
                return replace(report, retries=tuple(lost))
            except WorkerLost as error:
                if len(lost) == options.retries:
                    raise WorkerLost(error.reason, len(lost) + 1) from error
                lost.append(error.reason)
                log("retry", f"retry {len(lost)}: {error.reason}", level="WARNING")
                for name, regions in run.finished().items() if run is not None else ():
                    finished.setdefault(name, []).extend(regions)
            self.plan = self._planned_anew(sources, options, finished, lost[-1], stop)

    def _run(
        self,
        run: ClusterRun,
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
        is_whole: bool,
    ) -> RunReport:
        planned, sources, sinks = run.plan.planned, run.sources, run.sinks
        began = time.perf_counter()
        results = run.results(progress, stop)
        seconds = time.perf_counter() - began
        require_unchanged_inputs(sources.values(), sinks.values())
        events = joined_events(run.plan, results, sources, sinks)
        for sink in sinks.values():
            sink.commit()
        self.arrays.update(run.arrays)
        bound = run_lower_bound(planned, sources, sinks) if is_whole else {}
        return run_report(run.plan, results, events, bound, seconds, run.settings["bounded"], run.chunks)

    def _planned_anew(
        self,
        sources: Mapping[str, Source],
        options: Options,
        finished: Mapping[str, Sequence[Region]],
        reason: str,
        stop: threading.Event | None,
    ) -> SitesPlan:
        """Return the plan of what is left to do, for the workers that are there.

        A worker that has ended stays in the list for a moment, and others may join, so workers that do not answer are
        asked again for ``JOIN_SECONDS``.

        Raises:
            RunError: no worker is left, or an input was lost with the worker.
        """
        until = time.monotonic() + JOIN_SECONDS
        while True:
            if stop is not None and stop.is_set():
                raise Interrupted("interrupted")
            if not self.cluster.answers():
                raise no_scheduler()
            try:
                self.cluster.workers()
                self.cluster.locate(sources, options.memory)
                workers = self.cluster.workers()  # chunks may have been computed again by one that has joined
                break
            except (DeviceError, WorkerLost) as error:
                if time.monotonic() > until:
                    raise _not_repeatable(reason, error) from error
            except RunError as error:
                raise _not_repeatable(reason, error) from error
            time.sleep(TICK_SECONDS)
        options = self._for_workers(options, workers)
        kept = self.plan.kept
        return _plan(self.cluster, workers, self.graph, sources, self.targets, options, kept, finished, stop)

    def _for_workers(self, options: Options, workers: Sequence[Worker]) -> Options:
        """Return the options for other workers than those that the user stated rates and memories for.

        A worker that has joined since has the memory of the smallest one.
        """
        options = replace(options, rates=())
        if not options.extra:
            return options
        more, extra = smallest_and_extra([self.extra.get(worker.address, 0) for worker in workers])
        if options.arena is not None:
            return replace(options, arena=options.arena + more, extra=extra)
        assert options.memory is not None
        return replace(options, memory=options.memory + more, extra=extra)


def _not_repeatable(reason: str, why: EinturnipError) -> RunError:
    return RunError(f"{reason} Nothing was written, and the run cannot be repeated: {why}")
