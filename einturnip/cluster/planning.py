"""Plans a program for all workers at once, in the memory that each worker's process leaves for tiles."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.cluster.chunks import extra_nbytes
from einturnip.cluster.tensors import CoordinatorTensor, PlannedInput
from einturnip.cluster.workers import Worker, default_memory
from einturnip.compiler import compile_kernels
from einturnip.core.errors import CapacityError, InternalError
from einturnip.core.process_resources import resident_nbytes, trim_heap
from einturnip.core.units import MIB, format_minimum, format_size, smallest_and_extra
from einturnip.cost.machine import Machine
from einturnip.devices.kind import CpuKind, DeviceChoice, DeviceKind
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.arena import largest_working_set
from einturnip.memgraph.types import FILES, Lane
from einturnip.planner.budget import PlanSize, overhead_nbytes, size_of
from einturnip.planner.codec import EXPRESSIONS, GRAPHS, PlanCodec
from einturnip.planner.planner import PlannedProgram, Planner
from einturnip.planner.predict import slots
from einturnip.planner.request import Options, output_chunks, request_for, require_one_for_each
from einturnip.runtime.scheduler.policies import policy
from einturnip.sites.input_traffic import input_traffic
from einturnip.sites.output_chunks import has_one_writer, one_writer_chunks, periods, stored_boxes
from einturnip.sites.part import SitePart, part_of
from einturnip.sites.split import split
from einturnip.sites.types import Role, SitePlan
from einturnip.storage.remote import library_nbytes
from einturnip.storage.shared_outputs import chunks_of
from einturnip.storage.types import Region, Sink
from einturnip.taskgraph.types import ValueKind
from einturnip.tuning.memory import (
    RECEIVE_WINDOW,
    RESIDENT_NOISE_NBYTES,
    SITE_ARENA_NBYTES,
    SITE_NBYTES,
    SITE_ROUNDS,
    SITE_SHRINK,
)

PARTS = PlanCodec((*EXPRESSIONS, *GRAPHS, SitePlan, SitePart))
"""Encodes parts, which travel to workers as data."""
THREADS = 1
"""Compute threads of a worker."""


class _Sites(CpuKind):
    """The CPUs of several processes, each with an arena of its own."""

    def machine(self, host: Machine, chosen: DeviceChoice) -> Machine:
        """See DeviceKind."""
        return DeviceKind.machine(self, host, chosen)


_SITES = _Sites()


def devices(sites: int) -> DeviceChoice:
    """Return the CPUs of a number of processes."""
    return DeviceChoice(_SITES, 0, further=tuple(range(1, sites)))


@dataclass(frozen=True, slots=True)
class WorkersRequest:
    """A program to plan for workers: plain data, so that any process can plan it.

    ``options.memory``: limit of each worker's process, or of the smallest one; ``options.arena``: of its arena,
    instead. ``options.extra``: by worker, bytes beyond that. ``targets``: files of the outputs that are written;
    ``kept``: outputs whose blocks stay on the workers. ``finished``: regions of outputs that are stored already.
    """

    workers: tuple[Worker, ...]
    graph: EinGraph
    inputs: Mapping[str, PlannedInput]
    targets: Mapping[str, str]
    options: Options
    kept: tuple[str, ...] = ()
    finished: Mapping[str, tuple[Region, ...]] = field(default_factory=dict)

    @property
    def memories(self) -> tuple[int, ...]:
        """The bytes of each worker's process."""
        options, count = self.options, len(self.workers)
        if options.memory is None:
            return (default_memory(self.workers),) * count
        return _each(options.memory, () if options.arena is not None else options.extra, count)

    @property
    def arenas(self) -> tuple[int, ...]:
        """The bytes of each worker's memory that are left for tiles and plan."""
        options = self.options
        if options.arena is not None:
            return _each(options.arena, options.extra, len(self.workers))
        return tuple(memory - self.fixed_nbytes for memory in self.memories)

    @property
    def fixed_nbytes(self) -> int:
        """The bytes of a worker's process that any run takes; of the largest process."""
        fixed = max(w.resident for w in self.workers) + overhead_nbytes(0, THREADS, PlanSize(0))
        return fixed + SITE_NBYTES + library_nbytes(each.path for each in self.inputs.values())


def _each(smallest: int, extra: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(smallest + more for more in extra or (0,) * count)


@dataclass(frozen=True)
class SitesPlan:
    """A plan for workers.

    ``memories``: limits of the workers' processes in bytes. ``parts``: the part of each worker. ``kept``: outputs whose
    blocks stay on the workers; ``extra``: bytes that Dask arrays take in each worker. ``read_again``: inputs, by node,
    of which several workers read the same tiles. ``output_chunks``: see ``_output_chunks``. ``periods``: of each output
    (see ``sites.output_chunks``). ``pages``: the mapped file that the plan's arrays are in; None if they are in memory.
    """

    planned: PlannedProgram
    workers: tuple[Worker, ...]
    memories: tuple[int, ...]
    parts: tuple[SitePart, ...]
    kept: frozenset[str]
    extra: tuple[int, ...]
    read_again: tuple[int, ...] = ()
    output_chunks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    periods: tuple[tuple[int, ...], ...] = ()
    pages: mmap.mmap | None = None

    def forget_pages(self) -> None:
        """Remove the plan's pages from this process's memory; those used later are read from the file again."""
        if self.pages is not None:
            self.pages.madvise(mmap.MADV_DONTNEED)

    def written_by_workers(self, sinks: Mapping[str, Sink]) -> set[str]:
        """Return the outputs that workers can write: one worker alone writes each chunk of the open file."""
        found = set[str]()
        for apart, (name, _) in zip(self.periods, self.planned.graph.outputs, strict=True):
            chunks = chunks_of(sinks[name]) if name in sinks else ()
            if not chunks or has_one_writer(apart, chunks):
                found.add(name)
        return found

    @cached_property
    def _sites(self) -> NDArray[np.int32]:
        """The site of each op of the whole plan; of a transfer, one of its two."""
        found = np.full(len(self.planned.memgraph), -1, np.int32)
        for site, part in enumerate(self.parts):
            found[part.number] = site
        return found

    def site_of(self, number: int) -> int:
        """Return the site of an op of the whole plan."""
        site = int(self._sites[number]) if 0 <= number < len(self._sites) else -1
        if site < 0:
            raise InternalError(f"no site has op {number}")
        return site

    @property
    def tables_nbytes(self) -> int:
        """Bytes of the largest part, without its arena."""
        sizes = [size_of(part.graph.taskgraph, ops=len(part.graph)) for part in self.parts]
        return max(size.nbytes + size.run_nbytes for size in sizes)


def plan_on(request: WorkersRequest) -> SitesPlan:
    """Plan a program for workers, and compile its kernels.

    Raises:
        BindError: memories are stated for another number of workers. CapacityError: it does not fit; names the worker,
            the statement with the largest tiles, and the minimum.
    """
    require_one_for_each(request.options, len(request.workers))
    plan = _Search(request).plan()
    compile_kernels(plan.planned, request.options)
    memgraph = plan.planned.memgraph
    return replace(
        plan,
        read_again=tuple(found.node for found in input_traffic(memgraph) if found.read_again),
        output_chunks=_output_chunks(plan.planned),
        periods=tuple(periods(*stored_boxes(memgraph, output)) for output in range(len(plan.planned.graph.outputs))),
    )


def _output_chunks(planned: PlannedProgram) -> dict[str, tuple[int, ...]]:
    """Return chunk shapes of outputs by name, chosen so that one worker alone writes each chunk.

    () if the file is contiguous. Outputs for which no such chunks exist are left out.
    """
    found = dict[str, tuple[int, ...]]()
    for output, (name, number) in enumerate(planned.graph.outputs):
        node = planned.graph.nodes[number]
        choose = partial(output_chunks, planned.targets.get(name, ""), node.shape, node.dtype)
        chunks = one_writer_chunks(planned.memgraph, output, choose)
        if chunks is not None:
            found[name] = chunks
    return found


class _Found(NamedTuple):
    """A plan, and the bytes that each worker needs for it."""

    plan: SitesPlan
    needed: tuple[int, ...]

    @property
    def missing(self) -> int:
        """The bytes that the fullest worker needs beyond its memory; at most 0 if all have enough."""
        return max(self._missing)

    @property
    def _missing(self) -> list[int]:
        return [needed - memory for needed, memory in zip(self.needed, self.plan.memories, strict=True)]

    def refusal(self) -> CapacityError:
        """Return the error for workers with less memory than this plan needs."""
        site = self._missing.index(self.missing)
        worker, tasks = self.plan.workers[site], self.plan.parts[site].graph.taskgraph
        needed = -(-(self.needed[site] + RESIDENT_NOISE_NBYTES) // MIB) * MIB
        task, _ = largest_working_set(tasks)
        node = tasks.decomposition.graph.nodes[tasks.node[task]]
        return CapacityError(
            f"the program does not fit in {format_size(self.plan.memories[site])} of site {site} ({worker.name}), "
            f"for the tiles of {node.name} (line {node.line}); the minimum is {format_minimum(needed)} "
            f"(of which {format_size(worker.resident)} are Python and libraries)",
            needed,
        )


class _Search:
    """Plans of one program in arenas of any size."""

    def __init__(self, request: WorkersRequest) -> None:
        self.request, self.memories, self.device = request, request.memories, devices(len(request.workers))

    def plan(self) -> SitesPlan:
        """Return the plan for the workers' memories.

        Raises:
            CapacityError: it does not fit.
        """
        arenas = self.request.arenas
        if self.request.options.arena is not None:
            return self.plan_in(arenas).plan
        for _ in range(SITE_ROUNDS):
            if min(arenas) <= 0:
                break
            try:
                found = self.plan_in(arenas)
            except CapacityError:
                break
            if found.missing <= 0:
                return found.plan
            if found.plan.tables_nbytes > min(arenas):  # a smaller arena needs more ops, and with them larger tables
                break
            arenas = self._smaller(arenas, found)
        smallest = self.smallest()
        if smallest.missing <= 0:
            return smallest.plan
        raise smallest.refusal()

    def _smaller(self, arenas: tuple[int, ...], found: _Found) -> tuple[int, ...]:
        """Return smaller arenas for the workers that need more than their memory; equal ones stay equal.

        Tiles, and with them the receive window and the size of a plan, grow with the arena.
        """
        fixed = self.request.fixed_nbytes
        smaller = tuple(
            int(SITE_SHRINK * arena * (memory - fixed) / (needed - fixed)) if needed > memory else arena
            for arena, memory, needed in zip(arenas, self.memories, found.needed, strict=True)
        )
        return (min(smaller),) * len(arenas) if len(set(self.memories)) == 1 else smaller

    def plan_in(self, arenas: tuple[int, ...]) -> _Found:
        """Return the plan in an arena of each worker.

        Raises:
            CapacityError: there is none; ``needed`` is the minimum arena.
        """
        made = self.request
        arena, extra = smallest_and_extra(arenas)
        extra = extra if any(extra) else ()
        options = replace(made.options, memory=None, arena=arena, extra=extra, workers=THREADS)
        sources = {name: CoordinatorTensor(name, each.shape, each.dtype) for name, each in made.inputs.items()}
        request = request_for(made.graph, sources, made.targets, options, self.device)
        layouts = {name: each.layout for name, each in made.inputs.items()}
        names = sorted({worker.host for worker in made.workers})
        machine = replace(request.machine, hosts=tuple(names.index(worker.host) for worker in made.workers))
        request = replace(request, finished=made.finished, layouts=layouts, machine=machine)
        ((_, planned),) = deque(Planner(request).passes(), maxlen=1)
        ranks = policy(options.policy)(planned.memgraph)
        plans = deque(split(planned.memgraph))
        parts = tuple(part_of(plans.popleft(), ranks) for _ in range(len(plans)))  # each plan is freed at once
        chunks = extra_nbytes(parts, planned.graph, made.inputs, made.kept)
        served = tuple(n + w.is_coordinator * served_nbytes(parts) for w, n in zip(made.workers, chunks, strict=True))
        each = zip(made.workers, parts, served, strict=True)
        needs = tuple(required_nbytes(_resident_nbytes(w), p, made.inputs) + nbytes for w, p, nbytes in each)
        return _Found(SitesPlan(planned, made.workers, self.memories, parts, frozenset(made.kept), served), needs)

    def smallest(self) -> _Found:
        """Return the plan that needs the smallest memory, of plans in smaller and smaller arenas.

        The tables of a plan grow as its arena shrinks. Once they take more than the arena, the sum grows too.

        Raises:
            CapacityError: no plan was found, in an arena of any size.
        """
        arena, smallest = SITE_ARENA_NBYTES, 0
        best: _Found | None = None
        refused: CapacityError | None = None
        for _ in range(SITE_ROUNDS):
            try:
                found = self.plan_in((arena,) * len(self.memories))
            except CapacityError as error:
                if error.needed <= arena:
                    raise
                refused, arena, smallest = error, error.needed, error.needed
                continue
            if best is None or found.missing < best.missing:
                best = found
            if arena == smallest or found.plan.tables_nbytes > arena:
                break
            arena = max(arena // 2, smallest)
        if best is None:
            assert refused is not None
            raise refused
        return best


def _resident_nbytes(worker: Worker) -> int:
    """Return the bytes of a worker before its part arrives; of the coordinator, those with the whole plan."""
    if not worker.is_coordinator:
        return worker.resident
    trim_heap()
    return resident_nbytes()


def required_nbytes(resident: int, part: SitePart, inputs: Mapping[str, PlannedInput]) -> int:
    """Return the peak memory of a worker that runs a part.

    ``resident``: its bytes before the part arrives.
    """
    size = size_of(part.graph.taskgraph, ops=len(part.graph))
    other = overhead_nbytes(resident, THREADS, size) + SITE_NBYTES
    other += library_nbytes(each.path for each in inputs.values())
    fetches = any(each.is_at_coordinator for each in inputs.values())
    return other + in_transit_nbytes(part, fetches) + part.graph.peak_nbytes


def served_nbytes(parts: Sequence[SitePart]) -> int:
    """Return the bytes that the coordinator needs to serve tiles: one tile at a time, and its message."""
    tables = [table for part in parts for table in (part.graph.read, part.graph.write)]
    return 2 * max(int(table[table[:, 0] >= FILES, 2].max(initial=0)) for table in tables)


def in_transit_nbytes(part: SitePart, fetches: bool) -> int:
    """Return the bytes of values that are between a worker's arena and the network.

    ``fetches``: the worker fetches tiles of inputs from the coordinator.
    """
    received, fetched = RECEIVE_WINDOW * part.largest_nbytes(Role.RECEIVE), 0
    # A tile is sent from its place in the arena, without a copy, unless it is a part of a view.
    views = bool((part.graph.taskgraph.value_kind == ValueKind.VIEW).any())
    sent = RECEIVE_WINDOW * part.largest_nbytes(Role.SEND) if views else 0
    if fetches:
        fetched = int(part.graph.read[part.graph.read[:, 0] >= FILES, 2].max(initial=0))
    return received + slots(THREADS)[Lane.IN] * fetched + sent
