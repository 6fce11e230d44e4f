"""Lays a plan out again in fewer bytes where its run would pass the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeAlias

from einturnip.core.errors import CapacityError
from einturnip.core.resident import resident_nbytes
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import MIB, Budget, excess_nbytes, trim_heap
from einturnip.planner.lower import NOISE
from einturnip.planner.plan import LoweredPlan
from einturnip.planner.replayed_plan import class_tiles, tiling_from_extents
from einturnip.planner.variants import PlannedVariant
from einturnip.runtime.scheduler.report import Prediction
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.search import Tiling

# Resident memory is known to some pages for each processor, and plans are laid out in whole extents.
MARGIN = MIB // 4

Choose: TypeAlias = Callable[[EquivalenceClasses], Tiling]


class SmallerPlan(Protocol):
    """Plans a graph in ``withheld_nbytes`` fewer bytes, ``max_arena`` of them for tiles at most.

    The cut is that of ``choose``, or the best.
    """

    def __call__(
        self, graph: EinGraph, *, choose: Choose | None = ..., withheld_nbytes: int = ..., max_arena: int | None = ...
    ) -> tuple[LoweredPlan, Prediction]: ...


def fit_memory(
    search: Callable[[], PlannedVariant],
    memory: int | None,
    began: int,
    workers: int,
    base_nbytes: int,
    replan: SmallerPlan,
) -> PlannedVariant:
    """The plan that ``search`` finds, or its cut laid out in a smaller arena, or another that fits.

    The search estimates the size of plans. Once a plan is made the resident memory is measured, with the heap that the
    search left behind, so that a plan that is too large never runs. The plan that takes the minimum comes last: where
    it fits, nothing is refused, whatever the search proposed.
    ``began``: resident bytes when planning began; ``base_nbytes``: what the user states less ``memory``, for refusals.

    Raises:
        CapacityError: no plan fits in what is left.
    """
    made = search()
    if memory is None:
        return made
    steps = [_same_tiling, _same_tiling, _another_plan, _minimum_plan]
    while (excess := excess_nbytes(made.lowered.memgraph, memory, workers)) > 0 and steps:
        graph, limit, tiles = made.graph, made.limit, class_tiles(made.lowered.decomposition)
        max_arena = made.lowered.memgraph.peak_nbytes - excess - MARGIN
        del made  # the last reference: the next one is laid out in its memory
        lowered = None
        while lowered is None:
            trim_heap()
            # The estimates of the next search include the heap that this one leaves behind, which it uses again.
            reused = resident_nbytes() - began
            lowered = steps.pop(0)(replan, graph, tiles, max_arena, excess + MARGIN, reused)
        made = PlannedVariant(graph, lowered[0], lowered[1], limit)
    if excess <= 0:
        arena = min(made.lowered.budget.arena, made.lowered.memgraph.peak_nbytes - excess)
        return replace(made, lowered=replace(made.lowered, budget=Budget(memory, arena)))
    needed = -(-(memory + base_nbytes + excess + NOISE) // MIB) * MIB
    raise CapacityError(
        f"the program does not fit in {format_size(memory + base_nbytes)}; the least that would do is {format_size(needed)}",
        needed,
    )


def _same_tiling(
    replan: SmallerPlan, graph: EinGraph, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> tuple[LoweredPlan, Prediction] | None:
    """The cut laid out in ``max_arena`` bytes; None where a kernel takes more."""

    def choose(grouped: EquivalenceClasses) -> Tiling:
        tiling = tiling_from_extents(grouped, tiles)
        if tiling.working_set > max_arena:
            raise CapacityError("a tile's kernel takes more", tiling.working_set)
        return tiling

    try:
        return replan(graph, choose=choose, withheld_nbytes=-reused, max_arena=max_arena)
    except CapacityError:
        return None


def _another_plan(
    replan: SmallerPlan, graph: EinGraph, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> tuple[LoweredPlan, Prediction] | None:
    """The best plan in ``excess`` fewer bytes; None where there is none."""
    try:
        return replan(graph, withheld_nbytes=excess - reused)
    except CapacityError:
        return None


def _minimum_plan(
    replan: SmallerPlan, graph: EinGraph, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> tuple[LoweredPlan, Prediction]:
    """The plan that takes the minimum.

    Raises:
        CapacityError: it is too large.
    """
    return replan(graph, withheld_nbytes=-reused, max_arena=0)
