"""Entry points from a bound program to a run report: bind, plan, execute.

``bind`` gives the graph for the sizes of the inputs, ``make_plan`` the plan from the cache or a search, ``execute``
runs it on the host or on devices. A new plan is proven by ``planner.prove``, unless ``Options.check`` is off.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.core.phases import enter
from einturnip.core.process_resources import gc_paused, peak_resident_nbytes, reserved, usable_cores
from einturnip.core.units import smallest_and_extra
from einturnip.devices.host import blas_threads
from einturnip.devices.kind import DeviceChoice, choose, default_memory, within
from einturnip.eingraph.build.program import build as build_graph
from einturnip.eingraph.types import EinGraph, EinsumNode, InputNode
from einturnip.lang.program import Loop, TypedProgram
from einturnip.memgraph.types import OpKind
from einturnip.planner.budget import planning_within
from einturnip.planner.io_lower_bound import IN, OUT
from einturnip.planner.planner import PlannedProgram, Planner, run_lower_bound
from einturnip.planner.predict import slots
from einturnip.planner.request import Options as Options
from einturnip.planner.request import request_for
from einturnip.runtime.host.compilation import compile_ahead, compile_all
from einturnip.runtime.host.event_loop import ProgressReporter, run_ops
from einturnip.runtime.host.executor import OpExecutor, TransferEnds
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.numeric_events import KINDS, NumericEvents, causes_of, from_sources
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.replay import ReplayState
from einturnip.runtime.scheduler.report import NumericWarning, Progress, RunReport, log_plan
from einturnip.runtime.scheduler.state_machine import Schedule, SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.storage.device_arrays import DeviceArray
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.generated import SummarySink
from einturnip.storage.io.spill_file import SpillFile
from einturnip.storage.open import packages_nbytes
from einturnip.storage.types import Sink, Source

if TYPE_CHECKING:
    from einturnip.eingraph.build.stage_types import StagedProgram


@gc_paused()
def bind(program: TypedProgram, sources: Mapping[str, Source], dims: Mapping[str, int]) -> EinGraph:
    """Return the graph of the program for the sizes that its inputs and ``dims`` give.

    Raises:
        SourceError, BindError: sizes disagree or are missing.
    """
    shapes, origins = shapes_of(sources)
    return build_graph(program, shapes, dims, origins)


def shapes_of(sources: Mapping[str, Source]) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the shape of each source, and the name for messages of where it comes from."""
    return {n: source.shape for n, source in sources.items()}, {n: source.name for n, source in sources.items()}


@gc_paused()
def bind_stages(
    program: TypedProgram, sources: Mapping[str, Source], dims: Mapping[str, int], options: Options
) -> StagedProgram | None:
    """Return the stages of a program with long loops that runs on the host; None for other programs."""
    if not any(isinstance(s, Loop) for s in program.statements) or not choose(options.device).kind.on_host:
        return None
    from einturnip.eingraph.build.stages import build_stages

    shapes, origins = shapes_of(sources)
    return build_stages(program, shapes, dims, origins)


@gc_paused()
def make_plan(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options
) -> PlannedProgram:
    """Rewrite, tile, lower, place, price and prove a program.

    ``targets``: files of the outputs that are written. Packages that their formats need are counted here and loaded
    after planning.

    Raises:
        CapacityError: the budget is too small; names the minimum. DeviceError: there is no such device.
        StoreError: a package for an output's file is missing.
    """
    ((_, planned),) = deque(plan_passes(graph, sources, targets, options), maxlen=1)
    log_plan(planned.prediction)
    return planned


def plan_passes(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options
) -> Iterator[tuple[str, PlannedProgram]]:
    """Yield the plan after each pass of ``make_plan``, with the name of the pass."""
    device = choose(options.device)
    with reading_within(options, device), reserved(packages_nbytes(targets.values())):
        yield from _passes(graph, sources, targets, options, device)


@contextmanager
def reading_within(options: Options, device: DeviceChoice | None = None) -> Iterator[None]:
    """Context in which this thread reads and plans within ``options.memory``, if that limits the process.

    Raises:
        NeedsMore: the program needs more.
    """
    on_host = (device or choose(options.device)).kind.on_host
    with planning_within(options.memory if on_host else None, options.workers or 1, options.base_nbytes):
        yield


def _passes(
    graph: EinGraph,
    sources: Mapping[str, Source],
    targets: Mapping[str, str],
    options: Options,
    device: DeviceChoice,
) -> Iterator[tuple[str, PlannedProgram]]:
    if device.kind.on_host:
        yield from Planner(request_for(graph, sources, targets, options, device)).passes()
        return
    if options.memory is None and options.arena is None:
        memory, extra = smallest_and_extra(default_memory(device))
        options = replace(options, memory=memory, extra=options.extra or extra)
    device, arena = within(device, options.memory, options.arena)
    within_arena = replace(options, memory=None, arena=arena)
    try:
        yield from Planner(request_for(graph, sources, targets, within_arena, device)).passes()
        return
    except CapacityError:
        if options.memory is None or not device.library:
            raise
    without_library = replace(options, memory=None, arena=options.memory)  # without memory for the device's libraries
    yield from Planner(request_for(graph, sources, targets, without_library, replace(device, library=0))).passes()


def compile_kernels(planned: PlannedProgram, options: Options) -> None:
    """Load or compile the machine code of a plan: all of it in reproducible runs, else what saves time."""
    if planned.machine.compiled:
        enter("compiling")
        if options.reproducible:
            compile_all(planned.taskgraph)
        else:
            compile_ahead(planned.taskgraph, planned.machine, planned.budget.memory)


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

    ``resources``: arena, threads and spill file of several runs of the plan, whose kernels the caller has compiled.

    Raises:
        RunError, StoreError, Interrupted: nothing is committed; the caller aborts the sinks.
    """
    memgraph = planned.memgraph
    if resources is None:
        compile_kernels(planned, options)
    host = run_resources_for(planned, options, shared=True) if resources is None else resources
    try:
        nodes = planned.graph.nodes
        by_node = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
        by_output = [sinks[name] for name, _ in planned.graph.outputs]

        def tick(transfers: TransferEnds) -> Callable[[RunTrace], None] | None:
            return None if progress is None else ProgressReporter(memgraph, transfers, progress)

        run_on = _on_host if planned.device.kind.on_host else _on_streams
        transfers, trace = run_on(planned, options, host, (by_node, by_output, host.spill), tick, stop)
        require_unchanged_inputs(sources.values(), sinks.values())
        read = from_sources(by_node)
        for (_, number), sink in zip(planned.graph.outputs, by_output, strict=True):
            if isinstance(sink, SummarySink) and sink.first_nan is not None:
                sink.nan_causes = causes_of(planned.graph, number, sink.first_nan, read)
        events = transfers.events.locate(read)
        for sink in sinks.values():
            sink.commit()
        touched = host.arena.touched_nbytes() if planned.device.kind.on_host else None
        if resources is None:
            host.release()
        bound = run_lower_bound(planned, sources, sinks)
        return report_of(planned, events, transfers.moved, trace, touched, bound)
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
    # Runs on the host do not load these.
    from einturnip.devices.open_sites import open_sites
    from einturnip.runtime.stream.driver import window
    from einturnip.runtime.stream.run import dispatched, memory_of, one_schedule, run_on_devices

    memgraph = planned.memgraph
    pinned = memgraph.host_nbytes + sum(planned.staging)
    devices = open_sites(planned.device, memgraph.arenas_nbytes, pinned, options.workers or usable_cores())
    try:
        transfers = TransferEnds(memgraph, memory_of(memgraph, devices), *ends)
        arrays = [end for end in (*ends[0], *ends[1]) if isinstance(end, DeviceArray)]
        if arrays:
            transfers.use_arrays_on_device()
            planned.device.kind.join_callers(devices[0], arrays)
        tick, run = ticks(transfers), dispatched(memgraph, options.policy, host.ranks)
        if memgraph.devices == 1 or run.in_order:
            schedule: Schedule = one_schedule(run, devices)
        else:
            from einturnip.sites.local_run import LocalSites

            schedule = LocalSites(memgraph, run.ranks, [window([device]) for device in devices])
        site = len(devices) - 1 if planned.device.host else None
        with blas_threads(1):
            trace = run_on_devices(run.graph, schedule, devices, transfers, planned.staging, site, tick, stop)
        if tick is not None:
            tick(trace)
        return transfers, trace
    finally:
        for device in reversed(devices):  # the CPU's arena is memory of another device
            device.close()


def _named_links(planned: PlannedProgram, bound: Mapping[str, int]) -> dict[str, int]:
    """Return the lower bounds of the links to and from the disk under the names of the run's devices."""
    if planned.device.kind.on_host:
        return dict(bound)
    named = planned.device.link_bytes({"in": bound.get(IN, 0), "out": bound.get(OUT, 0)})
    return {link: nbytes for link, nbytes in named.items() if nbytes}


def report_of(
    planned: PlannedProgram,
    events: NumericEvents,
    moved: Mapping[str, int],
    trace: RunTrace,
    touched: int | None = None,
    bound: dict[str, int] | None = None,
) -> RunReport:
    """Return the report of a run.

    ``moved``: bytes in and out. ``touched``: bytes of the arena that were written, counted by the kernel in pages; None
    if unknown. ``bound``: lower bound of the moved bytes, if it differs from the plan's.
    """
    graph = planned.graph
    warnings = []
    for i, counts in sorted(events.counts.items()):
        node = graph.nodes[i]
        assert isinstance(node, EinsumNode)
        statement = graph.statement(node.line)
        merged = graph.merged_into(node.line)
        warnings += [
            NumericWarning(node.line, statement, kind, tiles, merged, *events.elements.get((i, k), ()))
            for k, (kind, tiles) in enumerate(zip(KINDS, counts, strict=True))
            if tiles
        ]
    kinds = np.bincount(planned.memgraph.kind, minlength=len(OpKind)).tolist()
    prediction = planned.prediction
    if not planned.device.kind.on_host:
        links = planned.device.link_bytes(planned.memgraph.nbytes_by_direction())
        prediction = replace(prediction, link_bytes=links)
    return RunReport(
        wall_seconds=trace.seconds,
        flops=planned.prediction.flops,
        ops={k.name.lower(): kinds[k] for k in OpKind if kinds[k]},
        lanes={lane.name.lower(): seconds for lane, seconds in trace.busy.items()},
        stalls=trace.stalls,
        carried=trace.carried,
        link_bytes=planned.device.link_bytes(moved),
        link_bytes_lower_bound=_named_links(planned, prediction.link_bytes_lower_bound if bound is None else bound),
        # A cached plan for a larger budget may serve this one.
        arena_nbytes=min(planned.budget.largest_arena, planned.budget.memory or planned.budget.largest_arena),
        # An arena may end inside its last page.
        arena_peak_nbytes=planned.memgraph.peak_nbytes if touched is None else min(touched, planned.memgraph.capacity),
        memory_nbytes=planned.budget.memory,
        peak_resident_nbytes=peak_resident_nbytes(),
        workers=planned.machine.workers,
        warnings=tuple(warnings),
        predicted=prediction,
        order=tuple(trace.order),
        events=trace.events,
        timeline=trace.timeline,
    )
