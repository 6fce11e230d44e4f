"""Finds the best plan of a program whose run keeps the memory limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from einturnip.core.errors import CapacityError
from einturnip.core.resident import resident_nbytes
from einturnip.core.units import MIB, format_size
from einturnip.planner.budget import Budget, excess_nbytes, trim_heap
from einturnip.planner.replayed_plan import class_tiles, tiling_from_extents
from einturnip.planner.request import GraphRequest, PlanRequest
from einturnip.planner.variants import PlannedVariant, best_variant, plan_variant
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.search import Tiling
from einturnip.tuning.memory import FIT_MARGIN, RESIDENT_NOISE_NBYTES

Step: TypeAlias = Literal["same tiling", "another search", "minimum memory"]
STEPS: tuple[Step, ...] = ("same tiling", "same tiling", "another search", "minimum memory")


def best_variant_in_memory(request: PlanRequest) -> PlannedVariant:
    """Return the best plan over all variants or, if its run would not fit the memory, a smaller one.

    The search estimates the size of plans. Once a plan is made, the resident memory is measured, including the heap
    that the search left behind, so that a plan that is too large never runs. Then the same tiling is tried in a smaller
    arena, another search, and finally the plan with minimum memory: if that fits, nothing is refused, whatever the
    search proposed.

    Raises:
        CapacityError: no plan fits.
    """
    began, memory, workers = resident_nbytes(), request.memory, request.machine.workers
    found: PlannedVariant | None = best_variant(request)
    assert found is not None
    if memory is None or request.options.arena is not None or request.options.replayed is not None:
        return found
    excess = excess_nbytes(found.lowered.memgraph, memory, workers)
    for step in STEPS:
        if excess <= 0:
            break
        if found is not None:
            graph, limit, tiles = request.of_graph(found.graph), found.limit, class_tiles(found.lowered.decomposition)
            max_arena = found.lowered.memgraph.peak_nbytes - excess - FIT_MARGIN
            found = None  # the last reference, so that the next plan is made in its memory
        trim_heap()
        # The estimates of the next search count the heap that this one leaves behind, but the search reuses it.
        reused = resident_nbytes() - began
        try:
            found = plan_variant(request, _smaller(step, graph, tiles, max_arena, excess + FIT_MARGIN, reused), limit)
        except CapacityError:
            if step == "minimum memory":
                raise
            continue
        excess = excess_nbytes(found.lowered.memgraph, memory, workers)
    assert found is not None
    if excess <= 0:
        arena = min(found.lowered.budget.arena, found.lowered.memgraph.peak_nbytes - excess)
        return replace(found, lowered=replace(found.lowered, budget=Budget(memory, arena)))
    stated = memory + request.options.base_nbytes
    needed = -(-(stated + excess + RESIDENT_NOISE_NBYTES) // MIB) * MIB
    raise CapacityError(
        f"the program does not fit in {format_size(stated)}; the minimum is {format_size(needed)}", needed
    )


def _smaller(
    step: Step, graph: GraphRequest, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> GraphRequest:
    """Return the request for a smaller plan of a graph.

    ``tiles``: of the plan that exceeds the memory by ``excess`` bytes; they are placed in ``max_arena`` bytes.
    ``reused``: bytes of heap that the next search reuses.
    """
    if step == "another search":
        return replace(graph, memory=replace(graph.memory, withheld=excess - reused))
    smaller = replace(graph, memory=replace(graph.memory, withheld=-reused), max_arena=0)
    if step == "minimum memory":
        return smaller

    def choose(grouped: EquivalenceClasses) -> Tiling:
        tiling = tiling_from_extents(grouped, tiles)
        if tiling.working_set > max_arena:
            raise CapacityError("a tile's kernel needs more", tiling.working_set)
        return tiling

    return replace(smaller, choose=choose, max_arena=max_arena)
