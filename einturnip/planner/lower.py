"""Lowers tilings to plans within a memory limit, and finds the minimum memory of a program.

The limit bounds the planning process as well as the run. In: a tiling. Out: a ``MemGraph``, or an error that names the
minimum. Values are recomputed instead of spilled where that is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from einturnip.core.errors import CapacityError, TooLarge
from einturnip.core.process_resources import resident_nbytes, trim_heap
from einturnip.core.units import MIB, format_minimum, format_size
from einturnip.cost.machine import Machine
from einturnip.cost.working_set import across, needs_finalize, splits_aggregation
from einturnip.devices.kind import HOST
from einturnip.eingraph.types import InputNode
from einturnip.kernels.contraction_choice import packed_nbytes
from einturnip.memgraph.arena import min_capacity
from einturnip.memgraph.build import build as build_memgraph
from einturnip.memgraph.columns import PlanLimits
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import PlanSize, overhead_nbytes, size_of
from einturnip.planner.candidates import min_arena
from einturnip.planner.compare import Rival
from einturnip.planner.recomputing import recompute_while_better
from einturnip.planner.request import GraphRequest
from einturnip.storage.chunks.chunked_source import largest_nbytes
from einturnip.taskgraph.build import build as build_taskgraph
from einturnip.taskgraph.types import TaskGraph
from einturnip.taskgraph.unfinished import unfinished
from einturnip.tiling.build import lay_out
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.file_layout import FileLayout, layout_of
from einturnip.tiling.label_classes import label_bounds
from einturnip.tiling.search import Tiling, calls_of
from einturnip.tiling.types import Partitioning
from einturnip.tuning.memory import (
    EXTRA_OPS,
    LARGE_PLAN,
    MAKING_OP_NBYTES,
    MAKING_TASK_NBYTES,
    MAX_CALLS_MEASURED,
    MAX_EXTRA_SHARE,
    MAX_MEASURED,
    OP_NBYTES,
    OPS_PER_TASK,
    PARTS_ACROSS,
    PLACING_ROUNDS,
    PLANNING_MARGIN_NBYTES,
    RESIDENT_NOISE_NBYTES,
    SAFETY_FACTOR,
    SEARCH_NBYTES,
)
from einturnip.tuning.search import MAX_CALLS, MAX_TASKS

if TYPE_CHECKING:
    from einturnip.tiling.sites import Sites


class PlanLowering:
    """Lowers tilings of a requested graph within its memory. Units: bytes."""

    def __init__(self, grouped: EquivalenceClasses, request: GraphRequest, sites: Sites | None = None) -> None:
        self.grouped, self.request, self.sites = grouped, request, sites
        self.machine, self.arena, stated = request.machine, request.memory.arena, request.memory.memory
        self.memory = None if stated is None else stated - request.memory.withheld
        self._began, self._searched = resident_nbytes(), False
        self.resident = self._began + SEARCH_NBYTES
        self._sizes = _PlanSizes(grouped, request.layouts)
        self._stated = self._planning_limit = stated
        self._capacities: dict[int, int] = {}
        self._largest = 0  # ops of the largest plan made
        # A plan's peak is that of the fullest arena, which may be one that has more bytes than the smallest.
        self._max_extra = max(request.extra, default=0)
        self._smallest: Tiling | None = None

    def available(self, tiling: Tiling) -> int:
        """Return the arena bytes that the budget leaves, given the estimated size of this tiling's plan."""
        return self._available(self._sizes(tiling))

    def lower(self, tiling: Tiling, bound: int | None = None, rival: Rival | None = None) -> MemGraph | None:
        """Return a tiling's plan, in ``bound`` bytes if given; None if it does not fit or a rival is better.

        Values that are cheaper to recompute than to spill are recomputed.
        """
        self._search_ended()
        limit = self.available(tiling)
        if self.arena is None:
            limit -= min(int(EXTRA_OPS * OP_NBYTES * self._sizes(tiling).tasks), int(MAX_EXTRA_SHARE * max(0, limit)))
        capacity = limit if bound is None else min(bound, limit)
        if capacity < tiling.working_set:
            return None
        try:
            for _ in range(PLACING_ROUNDS):
                tasks = self._tasks(tiling, capacity)
                available = self._available(size_of(tasks))
                if available >= capacity:
                    moved = None if rival is None else rival.max_nbytes(tasks, self.machine)
                    if moved is not None and moved < 0:
                        return None
                    made = self._built(tasks, capacity, moved)
                    available = self.available_with_plan(made)
                    if made.peak_nbytes <= available + self._max_extra:
                        return self.with_recompute(made)
                    available -= (capacity - available) // 2  # a smaller arena needs more ops
                capacity = available
        except CapacityError:
            pass
        return None

    def with_recompute(self, made: MemGraph) -> MemGraph:
        """Return the plan, or one in the same bytes that recomputes values instead of spilling them."""
        if not made.spill_nbytes:
            return made
        available = self.capacity_of(made)
        found = recompute_while_better(made, self.machine, lambda tasks: self._built_with_repeats(tasks, available))
        self._capacities[id(found)] = available
        return found

    def capacity_of(self, made: MemGraph) -> int:
        """Return the arena bytes that a plan was placed in."""
        return self._capacities[id(made)]

    def release_memory(self) -> None:
        """Trim the heap after large plans, including plans that were not chosen."""
        if self._largest >= LARGE_PLAN:
            trim_heap()

    def available_with_plan(self, made: MemGraph) -> int:
        """Return the arena bytes that the budget leaves when a plan is in memory."""
        return self._available(size_of(made.taskgraph, ops=len(made)))

    def min_budget(self, tilings: Sequence[Tiling]) -> tuple[int, MemGraph | None]:
        """Return the minimum memory or arena found, as the budget states one, and the plan if it fits it.

        The minimum for a process is above the given memory, because with more memory the search is larger and leaves
        more heap behind. A minimum arena of at most the given one, without a plan, means that a plan in it would have
        too many tasks.
        """
        stated = self.memory if self.arena is None else self.arena
        assert stated is not None
        best: int | None = None
        self._search_ended()
        self._smallest = min(tilings, key=lambda tiling: tiling.working_set)
        for tiling in sorted(tilings, key=self._by_formula)[:MAX_MEASURED]:
            total = self._by_formula(tiling)
            if best is not None and best <= total:
                break
            if self._stated is not None:  # a limit below what Python needs cannot be kept
                self._planning_limit = self._stated if self._stated > self.resident else total
            needed, made = self._measured_budget(tiling)
            if made is not None and needed <= stated:
                return needed, made
            best = needed if best is None else min(best, needed)
        assert best is not None
        if self.arena is not None:
            return best, None
        return max(best + max(0, self._began + SEARCH_NBYTES - self.resident), stated + 1), None

    def refusal(self, needed: int) -> CapacityError:
        """Return the error that names the minimum, which is ``needed`` before it is rounded."""
        return self._memory_refusal(needed) if self.arena is None else self._arena_refusal(self.arena, needed)

    def _arena_refusal(self, arena: int, needed: int) -> CapacityError:
        """Return the error for an arena; it names the statement with the largest tiles, and the sites."""
        smallest, devices, largest_tiles = self._smallest_sites, self.request.devices, ""
        each = self._on_sites(smallest) or (f" on each of {devices} devices" if devices > 1 else "")
        if needed <= arena:
            return CapacityError(
                f"no plan was found for an arena of {format_size(arena)}{each}: the program is too large. A "
                f"plan has at most {MAX_CALLS:,} kernel calls and {MAX_TASKS:,} tasks",
                2 * arena,
            )
        if self._smallest is not None and self.grouped.groups:
            tiles = self._smallest.tiles
            group = max(self.grouped.groups, key=lambda group: self.grouped.working_set_nbytes(group, tiles))
            node = self.grouped.graph.nodes[group.node]
            sites = () if self.sites is None else self.sites.of_node(group.node)
            at = self._on_sites([site for site in smallest or sites if site in sites])
            largest_tiles = f", for the tiles of {node.name} (line {node.line}){at}"
        return CapacityError(
            f"the program does not fit an arena of {format_size(arena)}{each}; the minimum is {needed} "
            f"bytes ({format_minimum(needed)}){largest_tiles}",
            needed,
        )

    def _memory_refusal(self, needed: int) -> CapacityError:
        """Return the error for the memory of a process; it names what else takes much of the minimum."""
        assert self.memory is not None
        base, withheld = self.request.memory.base, self.request.memory.base + self.request.memory.withheld
        needed = -(-(needed + RESIDENT_NOISE_NBYTES + withheld) // MIB) * MIB
        taken = self.resident + withheld
        contents = "einturnip's modules and the results" if base else "Python and its libraries"
        libraries = f" (of which {format_size(taken)} are {contents})" if taken >= MIB else ""
        return CapacityError(
            f"the program does not fit in {format_size(self.memory + withheld)}; the minimum is "
            f"{format_minimum(needed)}{libraries}{_decoding_note(needed)}",
            needed,
        )

    @property
    def _smallest_sites(self) -> list[int]:
        """The sites with the smallest arena; none if all are equal."""
        return [site for site, more in enumerate(self.request.extra) if not more and any(self.request.extra)]

    def _on_sites(self, sites: Sequence[int]) -> str:
        """Return the part of a refusal that names sites; "" for none."""
        host = self.request.devices - 1 if self.machine.compute.endswith(HOST) else None
        named = [f"{site} (the CPU)" if site == host else str(site) for site in sites]
        return f" on site{'s' * (len(sites) > 1)} {', '.join(named)}" if sites else ""

    def _search_ended(self) -> None:
        """Count kernels and modules that the search loaded as resident, since they stay."""
        if not self._searched:
            self.resident, self._searched = max(self._began, resident_nbytes()), True

    def _measured_budget(self, tiling: Tiling) -> tuple[int, MemGraph | None]:
        """Return the budget in which a tiling was placed, and its plan; None as plan if it is only estimated."""
        if tiling.kernel_calls > MAX_CALLS_MEASURED:
            return self._by_formula(tiling, OPS_PER_TASK), None
        capacity, needed_nbytes = 0, min_arena(tiling)
        tasks: TaskGraph | None = None
        try:
            while tasks is None or capacity < needed_nbytes:
                capacity, tasks = needed_nbytes, None
                tasks = self._tasks(tiling, capacity)
                needed_nbytes = min_capacity(tasks) if self.request.devices == 1 else capacity
            made = self._built(tasks, capacity)
        except TooLarge as error:
            return self._extrapolated(tiling, max(capacity, needed_nbytes), tasks, error), None
        except CapacityError:
            return self._by_formula(tiling, OPS_PER_TASK), None
        if self.arena is not None:
            return capacity, made
        return self._needed(size_of(tasks, ops=len(made)), made.peak_nbytes), made

    def _extrapolated(self, tiling: Tiling, capacity: int, tasks: TaskGraph | None, error: TooLarge) -> int:
        """Return the estimated budget of a tiling from the part of its plan that could be made.

        Loops, which have the largest plans, make tasks and ops at an even rate.
        """
        rate = error.made / error.done if error.done else OPS_PER_TASK
        if tasks is None:
            n = max(self._sizes(tiling).tasks, int(rate * tiling.kernel_calls * SAFETY_FACTOR))
            plan = replace(self._sizes(tiling), tasks=n, ops=int(OPS_PER_TASK * n))
        else:
            plan = size_of(tasks, ops=int(rate * len(tasks) * SAFETY_FACTOR))
        return max(self._needed(plan, capacity), self._by_formula(tiling, OPS_PER_TASK))

    def _needed(self, plan: PlanSize, arena: int) -> int:
        """Return the memory for making a plan and for running it with ``arena`` bytes for tiles."""
        making = max(plan.tasks * MAKING_TASK_NBYTES, plan.nbytes - plan.ops * OP_NBYTES + plan.ops * MAKING_OP_NBYTES)
        return max(
            arena + overhead_nbytes(self.resident, self.machine.workers, plan), self.resident + SEARCH_NBYTES + making
        )

    def _by_formula(self, tiling: Tiling, ops_per_task: float = 1.0) -> int:
        plan = self._sizes(tiling)
        if self.arena is not None:
            return min_arena(tiling)
        return self._needed(replace(plan, ops=int(ops_per_task * plan.tasks)), min_arena(tiling))

    def _built_with_repeats(self, tasks: TaskGraph, capacity: int) -> MemGraph:
        """Return the plan of tasks with recomputed values, whose arena is smaller since the plan is larger.

        Raises:
            CapacityError: it does not fit.
        """
        made = self._built(tasks, capacity - (0 if self.memory is None else PlanSize(tasks.repeats).nbytes))
        if made.peak_nbytes > self.available_with_plan(made) + self._max_extra:
            raise CapacityError("the plan itself fills the memory", 0)
        return made

    def _tasks(self, tiling: Tiling, capacity: int) -> TaskGraph:
        request, decomposition = self.request, lay_out(self.grouped, tiling.tiles, capacity)
        limit = MAX_TASKS
        if self._planning_limit is not None:
            limit = max(0, self._planning_nbytes(self._sizes(tiling).tasks * MAKING_TASK_NBYTES) // MAKING_TASK_NBYTES)
        tasks = build_taskgraph(
            decomposition, self.machine, min(limit, MAX_TASKS), request.ordered, request.layouts, self.sites
        )
        if request.finished:
            tasks = unfinished(tasks, request.finished)
        if request.devices == 1:
            return tasks
        sent = frozenset(i for i, layout in request.layouts.items() if not layout.shared)
        return _on_devices(tasks, request.devices, self.machine, sent)

    def _built(self, tasks: TaskGraph, capacity: int, max_nbytes: int | None = None) -> MemGraph:
        max_ops = None
        if self._planning_limit is not None:
            more = PlanSize(len(tasks), len(tasks.read)).nbytes - PlanSize(len(tasks)).nbytes
            expected = int(OPS_PER_TASK * len(tasks)) * MAKING_OP_NBYTES + more
            max_ops = (self._planning_nbytes(expected) - more) // MAKING_OP_NBYTES
            if max_ops < len(tasks):
                raise TooLarge("making the plan takes more memory than there is")
        if self.request.devices == 1 and (needed_nbytes := min_capacity(tasks)) > capacity:
            raise CapacityError(f"a tile's kernel holds {needed_nbytes} bytes at once", needed_nbytes)
        made = build_memgraph(
            tasks,
            capacity,
            self.machine,
            self.request.readable,
            limits=PlanLimits(max_ops, max_nbytes),
            extra=self.request.extra,
        )
        self._capacities[id(made)] = capacity
        self._largest = max(self._largest, len(made))
        return made

    def _planning_nbytes(self, expected: int) -> int:
        """Return the bytes that planning may use now; arena, threads and files of the run do not exist yet.

        If that is less than ``expected``, the heap is trimmed first.
        """
        assert self._planning_limit is not None
        free = self._planning_limit - PLANNING_MARGIN_NBYTES - resident_nbytes()
        if free < expected:
            trim_heap()
            free = self._planning_limit - PLANNING_MARGIN_NBYTES - resident_nbytes()
        return free

    def _available(self, plan: PlanSize) -> int:
        return self.request.memory.available(self.resident, self.machine.workers, plan)


def _decoding_note(needed: int) -> str:
    """Return the part of a refusal that names chunks, if decoding them takes a quarter of the memory."""
    name, chunk, decoding_nbytes = largest_nbytes()
    if 4 * decoding_nbytes < needed:
        return ""
    return f"; decoding one of the chunks of {format_size(chunk)} of {name} takes {format_size(decoding_nbytes)} of it"


def _on_devices(tasks: TaskGraph, devices: int, machine: Machine, sent: frozenset[int]) -> TaskGraph:
    """Return the tasks distributed over several devices; imported late, since most runs have one."""
    from einturnip.taskgraph.multi_device import on_devices

    return on_devices(tasks, devices, machine, sent)


class _PlanSizes:
    """Estimates the sizes of plans before they are made.

    Tasks are kernel calls, loads and stores of whole tiles, copies or loads of parts that cross tiles, and
    finalizations of accumulators.
    """

    def __init__(self, graph: EquivalenceClasses, layouts: Mapping[int, FileLayout]) -> None:
        self.graph = graph
        nodes = graph.graph.nodes
        inputs = {i: node for i, node in enumerate(nodes) if isinstance(node, InputNode) and 0 not in node.shape}
        self.inputs = [(i, node, layout_of(layouts, i, len(node.shape))) for i, node in inputs.items()]
        stored = {i for i, node in enumerate(nodes) if isinstance(node, InputNode)}
        stored |= {i for _, i in graph.graph.outputs}
        self.stored = [(i, label_bounds(nodes[i]), len(nodes[i].shape)) for i in sorted(stored)]
        self._known: dict[tuple[int, ...], PlanSize] = {}

    def __call__(self, tiling: Tiling) -> PlanSize:
        """Return the estimated size of a tiling's plan."""
        if tiling.tiles not in self._known:
            of = self.graph.classes.tiles
            tiles = (Partitioning(b, of(i, b, tiling.tiles)).counts[:rank] for i, b, rank in self.stored)
            whole = sum(map(math.prod, tiles))
            tasks, read, packed = tiling.kernel_calls + whole, whole, 0
            for group, n in calls_of(self.graph, tiling.tiles):
                e, tile = group.einsum, self.graph.tiles(group, tiling.tiles)
                parts = sum(bool(across(e, slot, tile)) for slot in range(len(e.accesses)))
                calls = max(1, math.prod(-(-e.bounds[p] // tile[p]) for p in e.aggregated))  # 0 if a size is 0
                tasks += n * PARTS_ACROSS * parts + (
                    n // calls if splits_aggregation(e, tile) and needs_finalize(e) else 0
                )
                read += n * (len(e.accesses) + PARTS_ACROSS * parts)
                packed = max(packed, packed_nbytes(e, tile))
            extents = (of(i, node.shape, tiling.tiles)[: len(node.shape)] for i, node, _ in self.inputs)
            counts = sum(
                layout.counts_nbytes(node.shape, tile, node.dtype.itemsize)
                for (_, node, layout), tile in zip(self.inputs, extents, strict=True)
            )
            self._known[tiling.tiles] = PlanSize(tasks, read, packed=packed, counts=counts)
        return self._known[tiling.tiles]
