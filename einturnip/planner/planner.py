"""Plans a program: ``Planner.passes`` lists the passes from a request to a proven plan.

Each pass takes one immutable value and returns one. Modules of the search are imported when it begins, so that runs of
cached plans do not load them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from einturnip.core.phases import enter
from einturnip.core.planning_limit import require_free
from einturnip.core.resident import resident_nbytes, trim_heap
from einturnip.planner import plan_store
from einturnip.planner.budget import Budget, fits
from einturnip.planner.planned_program import PlannedProgram, with_lower_bound
from einturnip.planner.predict import predict, with_numpy_kernels
from einturnip.planner.request import PlanRequest, file_layouts
from einturnip.runtime.host.compilation import require_room
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.stream.run import pinned_limit, with_host_tier
from einturnip.tuning.memory import LARGE_PLAN, SEARCH_MODULES_NBYTES
from einturnip.tuning.search import MAX_RUN_SECONDS


class Planner:
    """Plans one request, from the plan cache or by a search."""

    def __init__(self, request: PlanRequest) -> None:
        self._request, self._began = request, time.monotonic()
        options, resident = request.options, resident_nbytes()
        self._budget = plan_store.PlanningBudget(
            (request.memory or 0) - resident if options.arena is None else options.arena, options.arena is not None
        )
        single_use = options.replayed is not None or bool(request.finished)
        self._folder = None if single_use else self._plan_folder()

    def passes(self) -> Iterator[tuple[str, PlannedProgram]]:
        """Yield the plan after each pass, with the name of the pass; then prove the last plan and cache it.

        Raises:
            CapacityError: the budget is too small; names the minimum.
        """
        enter("planning")
        request = self._request
        cached = self._cached()
        found = cached or self._better_cached(self._search())
        yield "search", found
        if request.options.reproducible:
            require_room(found.taskgraph, request.machine, request.memory, resident_nbytes())
        planned = _on_device(found, request)
        yield "device", planned
        planned = _with_actual_kernels(planned, request)
        yield "kernels", planned
        planned = with_lower_bound(planned)
        yield "bound", planned
        _require_in_time(planned, request)
        if request.options.check and (cached is None or not request.device.kind.on_host):
            from einturnip.planner.check import check

            check(planned.graph, planned.memgraph)
            if self._folder is not None and cached is None:  # only proven plans are cached
                self._folder.store(_stored(found), self._budget, time.monotonic() - self._began)
        if cached is None and len(planned.memgraph) >= LARGE_PLAN:
            trim_heap()

    def _plan_folder(self) -> plan_store.PlanFolder | None:
        """Return the folder of cached plans of this program, files, options, machine and devices."""
        r = self._request
        written = tuple(r.targets), tuple(file_layouts(r.graph, {}, r.targets).items())
        key = tuple(r.layouts.items()), written, r.options.plan_key, len(r.device.numbers)
        return plan_store.plan_folder(r.graph, r.machine, self._budget.stated, *key)

    def _cached(self) -> PlannedProgram | None:
        """Return the cached plan for this budget, if there is one and it still fits the memory."""
        return self._fitting(None if self._folder is None else self._folder.find(self._budget))

    def _search(self) -> PlannedProgram:
        """Return the best plan over rewritten and fused variants."""
        if "einturnip.planner.variants" not in sys.modules:
            require_free(SEARCH_MODULES_NBYTES)
        from einturnip.planner.variants import best_variant_in_memory

        request, best = self._request, best_variant_in_memory(self._request)
        lowered = best.lowered
        if request.options.replayed is not None:
            request.options.replayed.require(lowered.memgraph, request.memory, request.machine.workers)
        found = best.graph, lowered.memgraph, best.prediction, lowered.budget, request.machine
        return PlannedProgram(*found, request.sources, request.targets, capacity=lowered.capacity, limit=best.limit)

    def _better_cached(self, found: PlannedProgram) -> PlannedProgram:
        """Return the found plan, or a cached one for less memory that is predicted to be faster."""
        if self._folder is None or self._request.options.reproducible:
            return found
        return self._fitting(self._folder.better(_stored(found), self._budget)) or found

    def _fitting(self, plan: plan_store.StoredPlan | None) -> PlannedProgram | None:
        """Return a cached plan for the files of this request; None if its run would exceed the memory."""
        r = self._request
        if plan is None or not fits(plan.memgraph, r.memory, r.machine.workers):
            return None
        fields = plan.graph, plan.memgraph, plan.prediction, Budget(r.memory, plan.arena, r.options.extra), r.machine
        return PlannedProgram(*fields, r.sources, r.targets, capacity=plan.capacity, limit=plan.limit)


def _stored(planned: PlannedProgram) -> plan_store.StoredPlan:
    fields = planned.memgraph, planned.prediction, planned.budget.arena, planned.capacity, planned.limit
    return plan_store.StoredPlan(*fields)


def _on_device(planned: PlannedProgram, request: PlanRequest) -> PlannedProgram:
    """Return the plan for the device: offloads go to host memory as long as it has space."""
    if request.device.kind.on_host:
        return replace(planned, device=request.device)
    pinned = pinned_limit(request.options.host_memory, resident_nbytes())
    memgraph, staging = with_host_tier(planned.memgraph, pinned)
    return replace(planned, memgraph=memgraph, device=request.device, staging=staging)


def _with_actual_kernels(planned: PlannedProgram, request: PlanRequest) -> PlannedProgram:
    """Return the plan with the times of NumPy for kernels that will not be compiled."""
    options = request.options
    if not request.device.kind.on_host or options.reproducible or options.replayed is not None:
        return planned
    graph = with_numpy_kernels(planned.memgraph, planned.machine)
    if graph is planned.memgraph:
        return planned
    return replace(planned, memgraph=graph, prediction=predict(graph, planned.machine, policy(options.policy)))


def _require_in_time(planned: PlannedProgram, request: PlanRequest) -> None:
    """Refuse a plan that is predicted to take more than MAX_RUN_SECONDS."""
    if planned.prediction.seconds > MAX_RUN_SECONDS:
        from einturnip.planner.feasible import require_planned_in_time

        require_planned_in_time(planned.graph, planned.prediction.seconds, request.options)
