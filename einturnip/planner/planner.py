"""Plans a program: ``Planner.passes`` lists the passes from a request to a proven ``PlannedProgram``.

Each pass takes one immutable value and returns one. Modules of the search are imported when it begins, so that runs of
cached plans do not load them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from einturnip.caches import PLANS
from einturnip.core.phases import enter
from einturnip.core.process_resources import resident_nbytes, trim_heap
from einturnip.core.program_limits import require_free
from einturnip.cost.machine import Machine
from einturnip.devices.kind import ON_CPU, DeviceChoice
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import FILES, MemGraph, output_tier
from einturnip.planner.budget import Budget, fits
from einturnip.planner.io_lower_bound import io_lower_bound
from einturnip.planner.predict import predict, with_numpy_kernels
from einturnip.planner.request import PlanRequest, file_layouts
from einturnip.runtime.host.compilation import has_room, lacks_code, require_room
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.report import Prediction
from einturnip.storage.device_arrays import DeviceArray
from einturnip.storage.types import Sink, Source, transfer_itemsize
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.types import Decomposition
from einturnip.tuning.memory import LARGE_PLAN, SEARCH_MODULES_NBYTES
from einturnip.tuning.search import MAX_RUN_SECONDS

if TYPE_CHECKING:
    from einturnip.planner.plan_store import PlanFolder, StoredPlan


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """A plan with its budget, its predictions, and the files or arrays that it reads and writes.

    ``capacity``: arena bytes that it was placed in. ``limit``: maximum bytes of an intermediate of products, if any.
    """

    graph: EinGraph
    memgraph: MemGraph
    prediction: Prediction
    budget: Budget
    machine: Machine
    sources: Mapping[str, Source]
    targets: Mapping[str, str]
    device: DeviceChoice = ON_CPU
    staging: tuple[int, int] = (0, 0)
    capacity: int = 0
    limit: int | None = None

    @property
    def taskgraph(self) -> TaskGraph:
        """The tile tasks."""
        return self.memgraph.taskgraph

    @property
    def decomposition(self) -> Decomposition:
        """The tiling of each einsum."""
        return self.taskgraph.decomposition


def with_lower_bound(made: PlannedProgram) -> PlannedProgram:
    """Return the plan with the I/O lower bound for its arena, every tensor stored as it is in memory."""
    bound = io_lower_bound(made.graph, made.budget.arenas_nbytes(made.memgraph.devices))
    return replace(made, prediction=replace(made.prediction, link_bytes_lower_bound=bound))


def run_lower_bound(
    planned: PlannedProgram, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> dict[str, int]:
    """Return the I/O lower bound of a run with these sources and sinks, which may move fewer bytes."""
    sizes = {name: transfer_itemsize(source) for name, source in sources.items()}
    discarded = frozenset(name for name, sink in sinks.items() if not transfer_itemsize(sink))
    if not discarded and all(size == sources[name].dtype.itemsize for name, size in sizes.items()):
        return planned.prediction.link_bytes_lower_bound
    return io_lower_bound(planned.graph, planned.budget.arenas_nbytes(planned.memgraph.devices), sizes, discarded)


class Planner:
    """Plans one request, from the plan cache or by a search."""

    def __init__(self, request: PlanRequest) -> None:
        self._request, self._began = request, time.monotonic()
        single_use = request.options.replayed is not None or bool(request.finished)
        self._folder = None if single_use or PLANS.path() is None else self._plan_folder()

    def passes(self) -> Iterator[tuple[str, PlannedProgram]]:
        """Yield the plan after each pass, with the name of the pass; then prove the last plan and cache it.

        Raises:
            CapacityError: the budget is too small; names the minimum.
        """
        enter("planning")
        cached = self._cached()
        if self._cannot_compile() and (cached is None or self._lacks_code(cached)):
            # NumPy is faster in other tiles, and with more workspace, than in the place of machine code. A second
            # search would leave more of the heap in use than what a refusal names.
            self._request = replace(self._request, machine=replace(self._request.machine, compiled=False))
            self._folder = None if self._folder is None else self._plan_folder()
            cached = self._cached()
        found, is_new = (self._better_cached(self._search()), True) if cached is None else (cached, False)
        request = self._request
        yield "search", found
        if request.options.reproducible:
            require_room(found.taskgraph, request.machine, request.memory, resident_nbytes())
        planned = _on_device(found, request)
        if request.options.replayed is not None:
            request.options.replayed.require(planned.memgraph, request.memory, request.machine.workers)
        yield "device", planned
        planned = _with_actual_kernels(planned, request)
        yield "kernels", planned
        planned = with_lower_bound(planned)
        yield "bound", planned
        _require_in_time(planned, request)
        if request.options.check and (is_new or not request.device.kind.on_host):
            prove(planned.graph, planned.memgraph)
            if self._folder is not None and is_new:  # only proven plans are cached
                self._folder.store(_stored(found), time.monotonic() - self._began)
        if is_new and len(planned.memgraph) >= LARGE_PLAN:
            trim_heap()

    def _cannot_compile(self) -> bool:
        """Return whether the compiler has no room in the memory of a plan that may use machine code."""
        request = self._request
        if not request.machine.compiled or not request.device.kind.on_host:
            return False
        if request.options.reproducible or request.options.replayed is not None:
            return False
        return not has_room(request.memory, resident_nbytes())

    def _lacks_code(self, cached: PlannedProgram) -> bool:
        """Return whether machine code that a cached plan counts on is not on disk."""
        return lacks_code(cached.taskgraph, self._request.machine, self._request.machine.runs)

    def _plan_folder(self) -> PlanFolder | None:
        """Return the folder of cached plans of this program, files, options, machine and devices."""
        from einturnip.planner.plan_store import PlanningBudget, plan_folder

        r = self._request
        nbytes = (r.memory or 0) - resident_nbytes() if r.options.arena is None else r.options.arena
        budget = PlanningBudget(nbytes, r.options.arena is not None)
        written = tuple(r.targets), tuple(file_layouts(r.graph, {}, r.targets).items())
        key = tuple(r.layouts.items()), written, r.options.plan_key, r.device.count
        return plan_folder(r.graph, r.machine, budget, *key)

    def _cached(self) -> PlannedProgram | None:
        """Return the cached plan for this budget, if there is one and it still fits the memory."""
        return self._fitting(None if self._folder is None else self._folder.find())

    def _search(self) -> PlannedProgram:
        """Return the best plan over rewritten and fused variants."""
        if "einturnip.planner.variants" not in sys.modules:
            require_free(SEARCH_MODULES_NBYTES)
        from einturnip.planner.variants import best_variant_in_memory

        request, best = self._request, best_variant_in_memory(self._request)
        lowered = best.lowered
        found = best.graph, lowered.memgraph, best.prediction, lowered.budget, request.machine
        return PlannedProgram(*found, request.sources, request.targets, capacity=lowered.capacity, limit=best.limit)

    def _better_cached(self, found: PlannedProgram) -> PlannedProgram:
        """Return the found plan, or a cached one for less memory that is predicted to be faster."""
        if self._folder is None or self._request.options.reproducible:
            return found
        return self._fitting(self._folder.better(_stored(found))) or found

    def _fitting(self, plan: StoredPlan | None) -> PlannedProgram | None:
        """Return a cached plan for the files of this request; None if its run would exceed the memory."""
        r = self._request
        if plan is None or not fits(plan.memgraph, r.memory, r.machine.workers):
            return None
        fields = plan.graph, plan.memgraph, plan.prediction, Budget(r.memory, plan.arena, r.options.extra), r.machine
        return PlannedProgram(*fields, r.sources, r.targets, capacity=plan.capacity, limit=plan.limit)


def _stored(planned: PlannedProgram) -> StoredPlan:
    from einturnip.planner.plan_store import StoredPlan

    fields = planned.memgraph, planned.prediction, planned.budget.arena, planned.capacity, planned.limit
    return StoredPlan(*fields)


def prove(graph: EinGraph, memgraph: MemGraph) -> None:
    """Run the check of every IR that a plan was lowered through.

    Raises:
        InternalError: an IR violates one of its invariants.
    """
    # Runs of cached plans do not load these.
    from einturnip.eingraph.check import check as check_graph
    from einturnip.memgraph.check import check as check_memgraph
    from einturnip.taskgraph.check import check as check_taskgraph
    from einturnip.tiling.check import check as check_decomposition

    check_graph(graph)
    check_decomposition(memgraph.taskgraph.decomposition)
    check_taskgraph(memgraph.taskgraph)
    check_memgraph(memgraph)


def _on_device(planned: PlannedProgram, request: PlanRequest) -> PlannedProgram:
    """Return the plan for the device: offloads go to host memory as long as it has space."""
    if request.device.kind.on_host:
        return replace(planned, device=request.device)
    from einturnip.runtime.stream.run import pinned_limit, with_host_tier

    arena = planned.memgraph.arenas_nbytes[-1] if request.device.host else 0
    pinned = pinned_limit(request.options.host_memory, resident_nbytes(), arena)
    nodes = enumerate(planned.graph.nodes)
    inputs = (FILES + i for i, node in nodes if isinstance(request.sources.get(node.name), DeviceArray))
    named = enumerate(planned.graph.outputs)
    outputs = (output_tier(planned.graph, o) for o, (name, _) in named if name in request.options.on_device)
    memgraph, staging = with_host_tier(planned.memgraph, pinned, frozenset((*inputs, *outputs)))
    return replace(planned, memgraph=memgraph, device=request.device, staging=staging)


def _with_actual_kernels(planned: PlannedProgram, request: PlanRequest) -> PlannedProgram:
    """Return the plan with the times of NumPy for kernels that will not be compiled."""
    options = request.options
    if not request.device.kind.on_host or options.reproducible or options.replayed is not None:
        return planned
    graph = with_numpy_kernels(planned.memgraph, planned.machine, request.memory)
    if graph is planned.memgraph:
        return planned
    return replace(planned, memgraph=graph, prediction=predict(graph, planned.machine, policy(options.policy)))


def _require_in_time(planned: PlannedProgram, request: PlanRequest) -> None:
    """Refuse a plan that is predicted to take more than MAX_RUN_SECONDS."""
    if planned.prediction.seconds > MAX_RUN_SECONDS:
        from einturnip.planner.feasible import require_planned_in_time

        require_planned_in_time(planned.graph, planned.prediction.seconds, request.options)
