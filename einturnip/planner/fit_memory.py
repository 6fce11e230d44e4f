"""Lays a plan out again in fewer bytes where its run would pass the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias

from einturnip.core.errors import CapacityError
from einturnip.core.resident import resident_nbytes
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph
from einturnip.planner.budget import MIB, Budget, excess_nbytes, trim_heap
from einturnip.planner.plan import LoweredPlan
from einturnip.planner.replayed_plan import class_tiles, tiling_from_extents
from einturnip.planner.variants import PlannedVariant
from einturnip.runtime.scheduler.report import Prediction
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.search import Tiling

# How often a plan is laid out again.
ROUNDS = 4
# Resident memory is known to some pages for each processor, and plans are laid out in whole extents.
MARGIN = MIB // 4

Choose: TypeAlias = Callable[[EquivalenceClasses], Tiling]


class SmallerPlan(Protocol):
    """Plans a graph in ``less`` fewer bytes: the cut that ``choose`` names, or the best of all."""

    def __call__(
        self, graph: EinGraph, *, choose: Choose | None = ..., less: int = ...
    ) -> tuple[LoweredPlan, Prediction]: ...


def fit_memory(
    search: Callable[[], PlannedVariant], memory: int | None, began: int, workers: int, beside: int, replan: SmallerPlan
) -> PlannedVariant:
    """The plan that ``search`` finds, or the same cut laid out in fewer bytes, or another that fits.

    The search estimates the size of plans. Once a plan is made the resident memory is measured, with the heap that the
    search left behind, so that a plan that is too large never runs.
    ``began``: resident bytes when planning began; ``beside``: what the user states less ``memory``, for refusals.

    Raises:
        CapacityError: no plan fits in what is left.
    """
    made = search()
    if memory is None:
        return made
    found = rounds = 0
    while (over := excess_nbytes(made.lowered.memgraph, memory, workers)) > 0 and rounds < ROUNDS:
        found, rounds = found + over + MARGIN, rounds + 1
        graph, limit, tiles = made.graph, made.limit, class_tiles(made.lowered.decomposition)
        del made  # the last reference: the next one is laid out in its memory
        trim_heap()
        # The estimates of the next search include the heap that a search leaves behind, which it uses again.
        less = found - (resident_nbytes() - began)
        try:
            lowered, prediction = replan(graph, choose=partial(tiling_from_extents, tiles=tiles), less=less)
        except CapacityError:
            lowered, prediction = replan(graph, less=less)
        made = PlannedVariant(graph, replace(lowered, budget=Budget(memory, lowered.budget.arena)), prediction, limit)
    if over <= 0:
        return made
    needed = -(-(memory + beside + over + MIB) // MIB) * MIB
    raise CapacityError(
        f"the program does not fit in {format_size(memory + beside)}; the least that would do is {format_size(needed)}",
        needed,
    )
