"""Places a plan again in a smaller arena if its run would exceed the memory limit."""

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

# Resident memory is known up to some pages per processor, and extents are rounded up.
MARGIN = MIB // 4

Choose: TypeAlias = Callable[[EquivalenceClasses], Tiling]


class SmallerPlan(Protocol):
    """Plans a graph in ``withheld_nbytes`` less memory, at most ``max_arena`` of it for tiles.

    The tiling is that of ``choose``, or the best.
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
    """Return the plan that ``search`` finds or, if its run would not fit, a smaller one.

    The search estimates the size of plans. Once a plan is made, the resident memory is measured, including the heap
    that the search left behind, so that a plan that is too large never runs. Then the same tiling is tried in a smaller
    arena, another search, and finally the plan with minimum memory: if that fits, nothing is refused, whatever the
    search proposed.

    ``began``: resident bytes when planning began; ``base_nbytes``: added to ``memory`` in messages.

    Raises:
        CapacityError: no plan fits.
    """
    made = search()
    if memory is None:
        return made
    steps = [_same_tiling, _same_tiling, _another_plan, _minimum_plan]
    while (excess := excess_nbytes(made.lowered.memgraph, memory, workers)) > 0 and steps:
        graph, limit, tiles = made.graph, made.limit, class_tiles(made.lowered.decomposition)
        max_arena = made.lowered.memgraph.peak_nbytes - excess - MARGIN
        del made  # the last reference, so that the next plan is made in its memory
        lowered = None
        while lowered is None:
            trim_heap()
            # The estimates of the next search count the heap that this one leaves behind, but the search reuses it.
            reused = resident_nbytes() - began
            lowered = steps.pop(0)(replan, graph, tiles, max_arena, excess + MARGIN, reused)
        made = PlannedVariant(graph, lowered[0], lowered[1], limit)
    if excess <= 0:
        arena = min(made.lowered.budget.arena, made.lowered.memgraph.peak_nbytes - excess)
        return replace(made, lowered=replace(made.lowered, budget=Budget(memory, arena)))
    needed = -(-(memory + base_nbytes + excess + NOISE) // MIB) * MIB
    raise CapacityError(
        f"the program does not fit in {format_size(memory + base_nbytes)}; the minimum is {format_size(needed)}",
        needed,
    )


def _same_tiling(
    replan: SmallerPlan, graph: EinGraph, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> tuple[LoweredPlan, Prediction] | None:
    """Return the plan of the same tiling in ``bound`` bytes; None if a kernel needs more."""

    def choose(grouped: EquivalenceClasses) -> Tiling:
        tiling = tiling_from_extents(grouped, tiles)
        if tiling.working_set > max_arena:
            raise CapacityError("a tile's kernel needs more", tiling.working_set)
        return tiling

    try:
        return replan(graph, choose=choose, withheld_nbytes=-reused, max_arena=max_arena)
    except CapacityError:
        return None


def _another_plan(
    replan: SmallerPlan, graph: EinGraph, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> tuple[LoweredPlan, Prediction] | None:
    """Return the best plan in ``excess`` fewer bytes; None if there is none."""
    try:
        return replan(graph, withheld_nbytes=excess - reused)
    except CapacityError:
        return None


def _minimum_plan(
    replan: SmallerPlan, graph: EinGraph, tiles: tuple[int, ...], max_arena: int, excess: int, reused: int
) -> tuple[LoweredPlan, Prediction]:
    """Return the plan with minimum memory.

    Raises:
        CapacityError: it is too large.
    """
    return replan(graph, withheld_nbytes=-reused, max_arena=0)
