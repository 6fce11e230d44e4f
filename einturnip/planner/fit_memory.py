"""Finds the best plan of a program whose run keeps the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from einturnip.core.errors import CapacityError
from einturnip.core.resident import resident_nbytes
from einturnip.core.units import format_size
from einturnip.planner.budget import MIB, Budget, excess_nbytes, trim_heap
from einturnip.planner.lower import NOISE
from einturnip.planner.replayed_plan import class_tiles, tiling_from_extents
from einturnip.planner.request import GraphRequest, PlanRequest
from einturnip.planner.variants import PlannedVariant, best_variant, plan_variant
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.search import Tiling

# Resident memory is known up to some pages per processor, and extents are rounded up.
MARGIN = MIB // 4


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
    for step in (_same_tiling, _same_tiling, _another_plan, _minimum_plan):
        if excess <= 0:
            break
        if found is not None:
            graph, limit, tiles = request.of_graph(found.graph), found.limit, class_tiles(found.lowered.decomposition)
            max_arena = found.lowered.memgraph.peak_nbytes - excess - MARGIN
            found = None  # the last reference, so that the next plan is made in its memory
        trim_heap()
        # The estimates of the next search count the heap that this one leaves behind, but the search reuses it.
        reused = resident_nbytes() - began
        try:
            found = plan_variant(request, step(graph, tiles, max_arena, excess + MARGIN, reused), limit)
        except CapacityError:
            if step is _minimum_plan:
                raise
            continue
        excess = excess_nbytes(found.lowered.memgraph, memory, workers)
    assert found is not None
    if excess <= 0:
        arena = min(found.lowered.budget.arena, found.lowered.memgraph.peak_nbytes - excess)
        return replace(found, lowered=replace(found.lowered, budget=Budget(memory, arena)))
    stated = memory + request.options.base_nbytes
    needed = -(-(stated + excess + NOISE) // MIB) * MIB
    raise CapacityError(
        f"the program does not fit in {format_size(stated)}; the minimum is {format_size(needed)}", needed
    )


Step: TypeAlias = Callable[[GraphRequest, tuple[int, ...], int, int, int], GraphRequest]
"""Returns the request for a smaller plan.

Its arguments are the request and the tile extents of the plan that does not fit, the arena to use, the bytes in excess,
and the bytes of heap that the next search reuses."""


def _same_tiling(graph: GraphRequest, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int) -> GraphRequest:
    """Return the request for the same tiling in ``max_arena`` bytes; it is refused if a kernel needs more."""

    def choose(grouped: EquivalenceClasses) -> Tiling:
        tiling = tiling_from_extents(grouped, tiles)
        if tiling.working_set > max_arena:
            raise CapacityError("a tile's kernel needs more", tiling.working_set)
        return tiling

    return replace(graph, choose=choose, memory=replace(graph.memory, withheld=-reused), max_arena=max_arena)


def _another_plan(
    graph: GraphRequest, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> GraphRequest:
    """Return the request for the best plan in ``excess`` fewer bytes."""
    return replace(graph, memory=replace(graph.memory, withheld=excess - reused))


def _minimum_plan(
    graph: GraphRequest, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> GraphRequest:
    """Return the request for the plan with minimum memory."""
    return replace(graph, memory=replace(graph.memory, withheld=-reused), max_arena=0)
