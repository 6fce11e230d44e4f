"""The row of calls from a bound program to its report, with the check after each."""

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
    """The program with the sizes that its inputs and ``dims`` give.

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
    """Rewrite, decompose, lower, place and price. ``targets``: the outputs that are kept, and where.

    Raises:
        CapacityError: the budget is too small; says the minimum. DeviceError: there is no such device.
    """
    device = choose(options.device)
    if device.kind == "cpu":
        return _made(graph, sources, targets, options, device)
    device, arena = within(device, options.memory, options.arena)
    try:
        return _made(graph, sources, targets, replace(options, memory=None, arena=arena), device)
    except CapacityError:
        if options.memory is None or not device.library:
            raise
    options = replace(options, memory=None, arena=options.memory)  # cuBLAS then has no workspace
    return _made(graph, sources, targets, options, replace(device, library=0))


def _made(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options, device: DeviceChoice
) -> PlannedProgram:
    """The plan for a device, whose budget is the options' arena: one that was kept, or one made now."""
    machine, memory = _machine(graph, sources, targets, options, device)
    began, resident = time.monotonic(), resident_nbytes()
    layouts = {n: file_layouts.layout(source) for n, source in sources.items()}
    written = tuple(targets), tuple(file_layouts.layouts(graph, {}, targets).items())
    asked = (tuple(layouts.items()), written, options.plan_key, len(device.numbers))
    room = plan_store.PlanningBudget(
        (memory or 0) - resident if options.arena is None else options.arena, options.arena is not None
    )
    place = plan_store.plan_folder(graph, machine, room.stated, *asked) if options.replayed is None else None
    found = place.find(room) if place is not None else None
    found = found if found is None or fits(found.memgraph, memory, machine.workers) else None
    given = found
    if found is None:
        made = _searched(graph, sources, targets, options, (machine, memory), layouts, len(device.numbers))
        given = place.better(_kept(made), room) if place is not None and not options.reproducible else None
        given = given if given is None or fits(given.memgraph, memory, machine.workers) else None
    if given is not None:
        told = given.graph, given.memgraph, given.prediction, Budget(memory, given.arena), machine, sources, targets
        made = PlannedProgram(*told, capacity=given.capacity, limit=given.limit)
    if options.reproducible:
        require_room(made.taskgraph, machine, memory, resident_nbytes())
    best = with_lower_bound(_as_it_runs(_on_device(made, device, options), options))
    if best.prediction.seconds > MAX_SECONDS:
        from einturnip.planner.feasible import require_planned_in_time

        require_planned_in_time(best.graph, best.prediction.seconds, options)
    if options.check and (found is None or device.kind != "cpu"):
        from einturnip.planner.check import check

        check(best.graph, best.memgraph)
        if place is not None and found is None:  # what is kept was proven
            place.store(_kept(made), room, time.monotonic() - began)
    if found is None and len(best.memgraph) >= LARGE_PLAN:
        trim_heap()
    return best


def _kept(made: PlannedProgram) -> plan_store.StoredPlan:
    return plan_store.StoredPlan(made.memgraph, made.prediction, made.budget.arena, made.capacity, made.limit)


def _machine(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options, device: DeviceChoice
) -> tuple[Machine, int | None]:
    """The machine that a plan is priced for, and the memory of the process, if that is what is bounded."""
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


def _searched(
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str],
    options: Options,
    within: tuple[Machine, int | None],
    layouts: Mapping[str, FileLayout],
    devices: int,
) -> PlannedProgram:
    """The best plan of the program, rewritten and fused or not, that the search finds; loaded where none is kept."""
    from einturnip.planner.canonical import canonical_tiling
    from einturnip.planner.fit_memory import Choose, fit_memory
    from einturnip.planner.plan import plan, release_search_memory
    from einturnip.planner.variants import best_variant

    (machine, memory), again, began = within, options.replayed, resident_nbytes()
    limit = options.arena if options.arena is not None else memory
    if options.reproducible or again is not None:
        limit = None if again is None else again.limit

    only: Choose | None = canonical_tiling if options.reproducible else None if again is None else again.tiling

    def planned(
        graph: EinGraph,
        max_price: float = math.inf,
        choose: Choose | None = only,
        withheld_nbytes: int = 0,
        max_arena: int | None = None,
    ) -> tuple[LoweredPlan, Prediction]:
        lie = file_layouts.layouts(graph, layouts, targets)
        readable = frozenset(i for i, (name, _) in enumerate(graph.outputs) if name in targets)
        arena = options.arena if again is None else again.arena
        lowered = plan(
            *(graph, memory, arena, machine, lie, readable, choose, options.reproducible, devices, max_price),
            *(options.base_nbytes, withheld_nbytes, max_arena),
        )
        known = lowered.seconds if options.policy == SEARCHED_BY else None
        prediction = predict(lowered.memgraph, machine, policy(options.policy), known)
        release_search_memory(lowered.memgraph)
        return lowered, prediction

    search = partial(best_variant, graph, options, limit, machine, planned)
    if options.arena is None and again is None:
        best = fit_memory(search, memory, began, machine.workers, options.base_nbytes, planned)
    else:
        best = search()
    low = best.lowered
    if again is not None:
        again.require(low.memgraph, memory, machine.workers)
    found = best.graph, low.memgraph, best.prediction, low.budget, machine, sources, targets
    return PlannedProgram(*found, capacity=low.capacity, limit=best.limit)


def _on_device(made: PlannedProgram, device: DeviceChoice, options: Options) -> PlannedProgram:
    """The plan for a device: what it offloads goes to host memory while there is room."""
    if device.kind == "cpu":
        return replace(made, device=device)
    memgraph, staging = with_host_tier(made.memgraph, pinned_limit(options.host_memory, resident_nbytes()))
    return replace(made, memgraph=memgraph, device=device, staging=staging)


def _as_it_runs(made: PlannedProgram, options: Options) -> PlannedProgram:
    """The plan with what its run will take, where NumPy does some of its kernels."""
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
    standing: RunResources | None = None,
) -> RunReport:
    """Run a plan; its outputs are committed when every op has ended.

    ``standing``: arena, threads and spill file from an earlier run of the plan.

    Raises:
        RunError, StoreError, Interrupted: nothing is committed; the caller aborts the sinks.
    """
    memgraph, machine = planned.memgraph, planned.machine
    if machine.compiled:
        compile_all(planned.taskgraph) if options.reproducible else compile_ahead(planned.taskgraph, machine)
    ready = run_resources_for(planned, options, shared=True) if standing is None else standing
    try:
        nodes = planned.graph.nodes
        by_node = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
        by_output = [sinks[name] for name, _ in planned.graph.outputs]

        def tick(transfers: TransferEnds) -> Callable[[RunTrace], None] | None:
            return None if progress is None else ProgressReporter(memgraph, transfers, progress)

        ran = _on_host if planned.device.kind == "cpu" else _on_streams
        transfers, trace = ran(planned, options, ready, (by_node, by_output, ready.spill), tick, stop)
        require_unchanged_inputs(sources.values(), sinks.values())
        for sink in sinks.values():
            sink.commit()
        touched = ready.arena.touched_nbytes() if planned.device.kind == "cpu" else None
        if standing is None:
            ready.leave()
        bound = run_lower_bound(planned, sources, sinks)
        return report_of(planned, transfers.flags, transfers.moved, trace, touched, bound)
    finally:
        if standing is None:
            ready.close()


def run_resources_for(planned: PlannedProgram, options: Options, shared: bool = False) -> RunResources:
    """What runs of a plan take of the host; for several runs of it, and to be closed after the last."""
    lanes = slots(planned.machine.workers)
    return RunResources(planned.memgraph, lanes, policy(options.policy), options.spill, options.spill_limit, shared)


Far: TypeAlias = tuple[Sequence[Source | None], Sequence[Sink], SpillFile | None]
Ticks: TypeAlias = Callable[[TransferEnds], Callable[[RunTrace], None] | None]


def _on_host(
    planned: PlannedProgram, options: Options, ready: RunResources, far: Far, ticks: Ticks, stop: threading.Event | None
) -> tuple[TransferEnds, RunTrace]:
    """Run a plan on the host's threads."""
    memgraph, lanes, again = planned.memgraph, ready.lanes, options.replayed
    executor = OpExecutor(memgraph, ready.arena, *far)
    state = (
        SchedulerState(memgraph, ready.ranks, lanes) if again is None else ReplayState(memgraph, lanes, again.events)
    )
    tick = ticks(executor)
    with blas_threads(1):
        trace = run_ops(
            memgraph, state, executor.run, executor.describe, lanes, tick, stop, executor.only_counts, ready.crew
        )
    if tick is not None:
        tick(trace)
    return executor, trace


def _on_streams(
    planned: PlannedProgram, options: Options, ready: RunResources, far: Far, ticks: Ticks, stop: threading.Event | None
) -> tuple[TransferEnds, RunTrace]:
    """Run a plan on the streams of a device, or of several."""
    memgraph = planned.memgraph
    pinned = memgraph.host_nbytes + sum(planned.staging)
    devices = open_devices(planned.device, memgraph.device_nbytes, pinned)
    try:
        transfers = TransferEnds(memgraph, memory_of(memgraph, devices), *far)
        tick, way = ticks(transfers), dispatched(memgraph, options.policy, ready.ranks)
        with blas_threads(1):
            trace = run_on_devices(
                way.graph, devices, transfers, planned.staging, way.ranks, tick, stop, in_order=way.in_order
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
    """What a run did.

    ``flags``: by node, in how many tiles what WARNINGS name happened; ``moved``: bytes in and out. ``touched``: bytes
    of the arena that it wrote to, as the kernel counts its pages; None where only the plan tells. ``bound``: bytes that
    had to move, where that differs from the plan's.
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
        # A plan made for more memory may serve less.
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
