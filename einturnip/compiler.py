"""Entry points from a bound program to a run report: bind, plan, execute.

``bind`` gives the graph for the sizes of the inputs, ``make_plan`` the plan from the cache or a search, ``execute``
runs it on the host or on devices. A new plan is proven by ``planner.check``, unless ``Options.check`` is off.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.core.resident import peak_resident_nbytes, resident_nbytes
from einturnip.cost.machine import Machine
from einturnip.devices.choice import DeviceChoice, choose, open_devices, within
from einturnip.devices.host import available_memory, blas_threads, usable_cores
from einturnip.devices.stored import machine_here
from einturnip.eingraph.build.program import build as build_graph
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.lang.program import TypedProgram
from einturnip.memgraph.types import OpKind
from einturnip.planner import file_layouts, plan_store
from einturnip.planner.budget import LARGE_PLAN, Budget, fits, gc_paused, rounded, trim_heap
from einturnip.planner.options import MAX_SECONDS
from einturnip.planner.options import Options as Options
from einturnip.planner.planned_program import PlannedProgram, run_lower_bound, with_lower_bound
from einturnip.planner.predict import SEARCHED_BY, predict, slots, with_numpy_kernels
from einturnip.runtime.host.compilation import available, compile_ahead, compile_all, has_room, require_room
from einturnip.runtime.host.event_loop import run_ops
from einturnip.runtime.host.executor import OpExecutor, TransferEnds
from einturnip.runtime.host.progress import ProgressReporter
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.host.zero_copy_pricing import zero_copy_machine
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.replay import ReplayState
from einturnip.runtime.scheduler.report import NumericWarning, Prediction, Progress, RunReport
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.runtime.stream.run import dispatched, memory_of, pinned_limit, run_on_devices, with_host_tier
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.io.spill_file import SpillFile
from einturnip.storage.types import Sink, Source
from einturnip.tiling.file_layout import FileLayout

if TYPE_CHECKING:
    from einturnip.planner.plan import LoweredPlan

WARNINGS = ("nan", "overflow", "divide")


@gc_paused()
def bind(program: TypedProgram, sources: Mapping[str, Source], dims: Mapping[str, int]) -> EinGraph:
    """Return the graph of the program for the sizes that its inputs and ``dims`` give.

    Raises:
        SourceError, BindError: sizes disagree or are missing.
    """
    shapes = {name: source.shape for name, source in sources.items()}
    origins = {name: source.name for name, source in sources.items()}
    return build_graph(program, shapes, dims, origins)


@gc_paused()
def make_plan(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options
) -> PlannedProgram:
    """Rewrite, tile, lower, place and price a program.

    ``targets``: files of the outputs that are written.

    Raises:
        CapacityError: the budget is too small; names the minimum. DeviceError: there is no such device.
    """
    device = choose(options.device)
    if device.kind == "cpu":
        return _plan_for(graph, sources, targets, options, device)
    device, arena = within(device, options.memory, options.arena)
    try:
        return _plan_for(graph, sources, targets, replace(options, memory=None, arena=arena), device)
    except CapacityError:
        if options.memory is None or not device.library:
            raise
    options = replace(options, memory=None, arena=options.memory)  # without a workspace for cuBLAS
    return _plan_for(graph, sources, targets, options, replace(device, library=0))


def _plan_for(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options, device: DeviceChoice
) -> PlannedProgram:
    """Return the plan for a device within the options' budget, from the plan cache or from a search."""
    machine, memory = _machine(graph, sources, targets, options, device)
    began, resident = time.monotonic(), resident_nbytes()
    layouts = {n: file_layouts.layout(source) for n, source in sources.items()}
    written = tuple(targets), tuple(file_layouts.layouts(graph, {}, targets).items())
    cache_key = (tuple(layouts.items()), written, options.plan_key, len(device.numbers))
    budget = plan_store.PlanningBudget(
        (memory or 0) - resident if options.arena is None else options.arena, options.arena is not None
    )
    folder = plan_store.plan_folder(graph, machine, budget.stated, *cache_key) if options.replayed is None else None
    found = folder.find(budget) if folder is not None else None
    found = found if found is None or fits(found.memgraph, memory, machine.workers) else None
    chosen = found
    if found is None:
        made = _search(graph, sources, targets, options, (machine, memory), layouts, len(device.numbers))
        chosen = folder.better(_stored(made), budget) if folder is not None and not options.reproducible else None
        chosen = chosen if chosen is None or fits(chosen.memgraph, memory, machine.workers) else None
    if chosen is not None:
        fields = chosen.graph, chosen.memgraph, chosen.prediction, Budget(memory, chosen.arena), machine
        made = PlannedProgram(*fields, sources, targets, capacity=chosen.capacity, limit=chosen.limit)
    if options.reproducible:
        require_room(made.taskgraph, machine, memory, resident_nbytes())
    best = with_lower_bound(_with_actual_kernels(_on_device(made, device, options), options))
    if best.prediction.seconds > MAX_SECONDS:
        from einturnip.planner.feasible import require_planned_in_time

        require_planned_in_time(best.graph, best.prediction.seconds, options)
    if options.check and (found is None or device.kind != "cpu"):
        from einturnip.planner.check import check

        check(best.graph, best.memgraph)
        if folder is not None and found is None:  # only proven plans are cached
            folder.store(_stored(made), budget, time.monotonic() - began)
    if found is None and len(best.memgraph) >= LARGE_PLAN:
        trim_heap()
    return best


def _stored(made: PlannedProgram) -> plan_store.StoredPlan:
    return plan_store.StoredPlan(made.memgraph, made.prediction, made.budget.arena, made.capacity, made.limit)


def _machine(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options, device: DeviceChoice
) -> tuple[Machine, int | None]:
    """Return the machine that the plan is priced for, and the memory limit of the process, if any."""
    machine, devices = machine_here(options.workers or usable_cores()), len(device.numbers)
    if device.kind != "cpu":
        machine = replace(machine, compute=device.name, workers=machine.workers * devices)
    memory = options.memory
    if memory is None and options.arena is None:
        memory = rounded(available_memory() // 2)
    if options.replayed is not None:
        compiled = options.replayed.compiled
    else:
        compiled = options.compiled and (available() if options.reproducible else has_room(memory, resident_nbytes()))
    machine = replace(machine, compiled=compiled)
    if device.kind == "cpu" and not options.reproducible:
        machine = zero_copy_machine(machine, graph, sources, targets)
    return machine, memory


def _search(
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str],
    options: Options,
    within: tuple[Machine, int | None],
    layouts: Mapping[str, FileLayout],
    devices: int,
) -> PlannedProgram:
    """Return the best plan over rewritten and fused variants.

    The planner is imported here, so that runs of cached plans do not load it.
    """
    from einturnip.planner.canonical import canonical_tiling
    from einturnip.planner.fit_memory import Choose, fit_memory
    from einturnip.planner.plan import plan, release_search_memory
    from einturnip.planner.variants import best_variant

    (machine, memory), replayed, began = within, options.replayed, resident_nbytes()
    limit = options.arena if options.arena is not None else memory
    if options.reproducible or replayed is not None:
        limit = None if replayed is None else replayed.limit

    only: Choose | None = canonical_tiling if options.reproducible else None if replayed is None else replayed.tiling

    def planned(
        graph: EinGraph,
        max_price: float = math.inf,
        choose: Choose | None = only,
        withheld_nbytes: int = 0,
        max_arena: int | None = None,
    ) -> tuple[LoweredPlan, Prediction]:
        stored = file_layouts.layouts(graph, layouts, targets)
        readable = frozenset(i for i, (name, _) in enumerate(graph.outputs) if name in targets)
        arena = options.arena if replayed is None else replayed.arena
        lowered = plan(
            *(graph, memory, arena, machine, stored, readable, choose, options.reproducible, devices, max_price),
            *(options.base_nbytes, withheld_nbytes, max_arena),
        )
        known = lowered.seconds if options.policy == SEARCHED_BY else None
        prediction = predict(lowered.memgraph, machine, policy(options.policy), known)
        release_search_memory(lowered.memgraph)
        return lowered, prediction

    search = partial(best_variant, graph, options, limit, machine, planned)
    if options.arena is None and replayed is None:
        best = fit_memory(search, memory, began, machine.workers, options.base_nbytes, planned)
    else:
        best = search()
    lowered = best.lowered
    if replayed is not None:
        replayed.require(lowered.memgraph, memory, machine.workers)
    found = best.graph, lowered.memgraph, best.prediction, lowered.budget, machine, sources, targets
    return PlannedProgram(*found, capacity=lowered.capacity, limit=best.limit)


def _on_device(made: PlannedProgram, device: DeviceChoice, options: Options) -> PlannedProgram:
    """Return the plan for a device: it offloads to host memory while there is space."""
    if device.kind == "cpu":
        return replace(made, device=device)
    memgraph, staging = with_host_tier(made.memgraph, pinned_limit(options.host_memory, resident_nbytes()))
    return replace(made, memgraph=memgraph, device=device, staging=staging)


def _with_actual_kernels(made: PlannedProgram, options: Options) -> PlannedProgram:
    """Return the plan with the prediction for its actual kernels, some of which NumPy runs."""
    if made.device.kind != "cpu" or options.reproducible or options.replayed is not None:
        return made
    graph = with_numpy_kernels(made.memgraph, made.machine)
    if graph is made.memgraph:
        return made
    return replace(made, memgraph=graph, prediction=predict(graph, made.machine, policy(options.policy)))


def execute(
    planned: PlannedProgram,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    options: Options,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    resources: RunResources | None = None,
) -> RunReport:
    """Run a plan; its outputs are committed when every op has ended.

    ``resources``: arena, threads and spill file from an earlier run of the plan.

    Raises:
        RunError, StoreError, Interrupted: nothing is committed; the caller aborts the sinks.
    """
    memgraph, machine = planned.memgraph, planned.machine
    if machine.compiled:
        compile_all(planned.taskgraph) if options.reproducible else compile_ahead(planned.taskgraph, machine)
    host = run_resources_for(planned, options, shared=True) if resources is None else resources
    try:
        nodes = planned.graph.nodes
        by_node = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
        by_output = [sinks[name] for name, _ in planned.graph.outputs]

        def tick(transfers: TransferEnds) -> Callable[[RunTrace], None] | None:
            return None if progress is None else ProgressReporter(memgraph, transfers, progress)

        run_on = _on_host if planned.device.kind == "cpu" else _on_streams
        transfers, trace = run_on(planned, options, host, (by_node, by_output, host.spill), tick, stop)
        require_unchanged_inputs(sources.values(), sinks.values())
        for sink in sinks.values():
            sink.commit()
        touched = host.arena.touched_nbytes() if planned.device.kind == "cpu" else None
        if resources is None:
            host.release()
        bound = run_lower_bound(planned, sources, sinks)
        return report_of(planned, transfers.flags, transfers.moved, trace, touched, bound)
    finally:
        if resources is None:
            host.close()


def run_resources_for(planned: PlannedProgram, options: Options, shared: bool = False) -> RunResources:
    """Return reusable resources for runs of a plan; the caller closes them after the last run."""
    lanes = slots(planned.machine.workers)
    return RunResources(planned.memgraph, lanes, policy(options.policy), options.spill, options.spill_limit, shared)


Ends: TypeAlias = tuple[Sequence[Source | None], Sequence[Sink], SpillFile | None]
Ticks: TypeAlias = Callable[[TransferEnds], Callable[[RunTrace], None] | None]


def _on_host(
    planned: PlannedProgram,
    options: Options,
    host: RunResources,
    ends: Ends,
    ticks: Ticks,
    stop: threading.Event | None,
) -> tuple[TransferEnds, RunTrace]:
    """Run a plan on the host's threads."""
    memgraph, lanes, record = planned.memgraph, host.lanes, options.replayed
    executor = OpExecutor(memgraph, host.arena, *ends)
    state = (
        SchedulerState(memgraph, host.ranks, lanes) if record is None else ReplayState(memgraph, lanes, record.events)
    )
    tick = ticks(executor)
    with blas_threads(1):
        trace = run_ops(
            memgraph, state, executor.run, executor.describe, lanes, tick, stop, executor.is_zero_copy, host.pool
        )
    if tick is not None:
        tick(trace)
    return executor, trace


def _on_streams(
    planned: PlannedProgram,
    options: Options,
    host: RunResources,
    ends: Ends,
    ticks: Ticks,
    stop: threading.Event | None,
) -> tuple[TransferEnds, RunTrace]:
    """Run a plan on the streams of one or more devices."""
    memgraph = planned.memgraph
    pinned = memgraph.host_nbytes + sum(planned.staging)
    devices = open_devices(planned.device, memgraph.device_nbytes, pinned)
    try:
        transfers = TransferEnds(memgraph, memory_of(memgraph, devices), *ends)
        tick, run = ticks(transfers), dispatched(memgraph, options.policy, host.ranks)
        with blas_threads(1):
            trace = run_on_devices(
                run.graph, devices, transfers, planned.staging, run.ranks, tick, stop, in_order=run.in_order
            )
        if tick is not None:
            tick(trace)
        return transfers, trace
    finally:
        for device in devices:
            device.close()


def report_of(
    planned: PlannedProgram,
    flags: Mapping[int, Sequence[int]],
    moved: Mapping[str, int],
    trace: RunTrace,
    touched: int | None = None,
    bound: dict[str, int] | None = None,
) -> RunReport:
    """Return the report of a run.

    ``flags``: for each node the number of tiles with each of WARNINGS; ``moved``: bytes in and out. ``touched``: bytes
    of the arena that were written, counted by the kernel in pages; None if unknown. ``bound``: lower bound of the moved
    bytes, if it differs from the plan's.
    """
    graph = planned.graph
    warnings = []
    for i, counts in sorted(flags.items()):
        node = graph.nodes[i]
        assert isinstance(node, EinsumNode)
        statement = graph.statement(node.line)
        merged = graph.merged_into(node.line)
        found = [(kind, tiles) for kind, tiles in zip(WARNINGS, counts, strict=True) if tiles]
        warnings += [NumericWarning(node.line, statement, kind, tiles, merged) for kind, tiles in found]
    kinds = np.bincount(planned.memgraph.kind, minlength=len(OpKind)).tolist()
    return RunReport(
        wall_seconds=trace.seconds,
        flops=planned.prediction.flops,
        ops={k.name.lower(): kinds[k] for k in OpKind if kinds[k]},
        lanes={lane.name.lower(): seconds for lane, seconds in trace.busy.items()},
        stalls=trace.stalls,
        carried=trace.carried,
        link_bytes=planned.device.link_bytes(moved),
        link_bytes_lower_bound=planned.prediction.link_bytes_lower_bound if bound is None else bound,
        # A cached plan for a larger budget may serve this one.
        arena_nbytes=min(planned.budget.arena, planned.budget.memory or planned.budget.arena),
        # An arena may end inside its last page.
        arena_peak_nbytes=planned.memgraph.peak_nbytes if touched is None else min(touched, planned.memgraph.capacity),
        memory_nbytes=planned.budget.memory,
        peak_resident_nbytes=peak_resident_nbytes(),
        workers=planned.machine.workers,
        warnings=tuple(warnings),
        predicted=planned.prediction,
        order=tuple(trace.order),
        events=trace.events,
        timeline=trace.timeline,
    )
