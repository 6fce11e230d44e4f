"""Searches for the plan of one graph: prices tilings that fit, lowers and simulates the best few.

The sequence of tilings does not depend on the budget, so feasibility is monotone: a tiling that fits a budget fits
every larger one.
"""

from __future__ import annotations

from dataclasses import dataclass

from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import Budget, trim_heap
from einturnip.planner.candidates import LazyTilings, TilingCandidates
from einturnip.planner.compare import best_plan
from einturnip.planner.lower import PlanLowering
from einturnip.planner.request import GraphRequest
from einturnip.tiling.build import label_classes
from einturnip.tiling.equivalence import equivalence_classes
from einturnip.tiling.file_layout import in_chunks
from einturnip.tiling.price import TilingPrices
from einturnip.tiling.search import successive_tilings
from einturnip.tiling.types import Decomposition
from einturnip.tuning.memory import LARGE_PLAN
from einturnip.tuning.search import MAX_CALLS, MAX_DEVICES_COMPARED, MAX_GROUPS_BLOCKED


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A decomposition and its memory graph, with the budget.

    ``capacity``: arena bytes that it was placed in; ``price``: cost of its cheapest tiling by formula, in seconds,
    bytes included; ``seconds``: simulated time in critical-path order, if it was compared with others.
    """

    decomposition: Decomposition
    memgraph: MemGraph
    budget: Budget
    capacity: int
    price: float = 0.0
    seconds: float | None = None


class TooExpensive(Exception):
    """By formula, every plan of the graph costs more than the given limit."""


def plan(request: GraphRequest) -> LoweredPlan:
    """Return the best plan of a graph that fits its memory.

    Raises:
        CapacityError: none fits; ``needed`` is the minimum budget of the kind given.
        TooExpensive: every tiling costs more than ``max_price`` by formula, so that none was lowered.
    """
    graph, machine, layouts, choose = request.graph, request.machine, request.layouts, request.choose
    classes = label_classes(graph)
    sites = None
    if request.devices > 1:
        from einturnip.tiling.sites import Sites, align

        sites = Sites(graph, request.devices)
        classes = align(classes, sites) if choose is None else classes
    grouped = equivalence_classes(graph, in_chunks(classes, graph, layouts) if choose is None else classes)
    lowering = PlanLowering(grouped, request, sites)
    tilings = LazyTilings(
        successive_tilings(grouped, machine, layouts, MAX_CALLS) if choose is None else iter([choose(grouped)])
    )
    price, seconds, best = 0.0, None, None
    found = None
    if choose is not None:
        found = lowering.lower(tilings.coarsest, request.max_arena)
    elif request.max_arena is None:
        prices = TilingPrices(grouped, machine, layouts, len(grouped.groups) <= MAX_GROUPS_BLOCKED)
        candidates = TilingCandidates(grouped, tilings, prices, lowering.available)
        cheapest = candidates.by_price()
        price = min(map(candidates.price, cheapest), default=0.0)
        if price > request.max_price:
            raise TooExpensive
        if request.devices > MAX_DEVICES_COMPARED:
            found = next((memgraph for memgraph in map(lowering.lower, cheapest) if memgraph is not None), None)
        else:
            best = best_plan(candidates, lowering.lower, machine)
            if best is not None:
                found, seconds = best.memgraph, best.seconds
        del candidates, prices
    if found is None:
        needed, found = lowering.min_budget(tilings.all())
        if found is None:
            lowering.release_memory()
            raise lowering.refusal(needed)
        found = lowering.with_recompute(found)
    lowering.release_memory()
    budget = Budget(request.memory.memory, lowering.available_beside(found))
    return LoweredPlan(found.taskgraph.decomposition, found, budget, lowering.capacity_of(found), price, seconds)


def release_search_memory(graph: MemGraph) -> None:
    """Return the heap to the system after making or pricing a large plan."""
    if len(graph) >= LARGE_PLAN:
        trim_heap()
