"""Searches for the plan of one graph: prices tilings that fit, lowers and simulates the best few.

The sequence of tilings does not depend on the budget, so feasibility is monotone: a tiling that fits a budget fits
every larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import LARGE_PLAN, Budget, trim_heap
from einturnip.planner.candidates import MAX_CALLS, MAX_GROUPS_BLOCKED, LazyTilings, TilingCandidates
from einturnip.planner.compare import best_plan
from einturnip.planner.lower import PlanLowering
from einturnip.tiling.build import label_classes
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.file_layout import FileLayout, in_chunks
from einturnip.tiling.price import TilingPrices
from einturnip.tiling.search import Tiling, successive_tilings
from einturnip.tiling.types import Decomposition

MAX_DEVICES_COMPARED = 16
"""Plans for more devices are chosen by formula: lowering several of 48,000 ops for 64 devices took 30 s."""


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


def plan(
    graph: EinGraph,
    memory: int | None,
    arena: int | None,
    machine: Machine,
    layouts: Mapping[int, FileLayout],
    readable: frozenset[int] = frozenset(),
    choose: Callable[[EquivalenceClasses], Tiling] | None = None,
    ordered: bool = False,
    devices: int = 1,
    max_price: float = math.inf,
    base_nbytes: int = 0,
    withheld_nbytes: int = 0,
    max_arena: int | None = None,
) -> LoweredPlan:
    """Return the best plan of a graph that fits the budget.

    ``memory`` limits the process, or ``arena`` the tiles on each of ``devices``. ``layouts``: layouts of stored tensors
    by node; ``readable``: outputs that can be read back. ``choose``: returns the one tiling to lower, instead of a
    search; ``ordered``: states are summed in one order, whatever the walk. ``base_nbytes``: added to ``memory`` in
    messages. ``withheld_nbytes``: part of the memory that the plan must not use. ``max_arena``: limit of the arena; 0
    requests the plan with minimum memory.

    Raises:
        CapacityError: none fits; ``needed`` is the minimum budget of the kind given.
        TooExpensive: every tiling costs more than ``max_price`` by formula, so that none was lowered.
    """
    classes = label_classes(graph)
    sites = None
    if devices > 1:
        from einturnip.tiling.sites import Sites, align

        sites = Sites(graph, devices)
        classes = align(classes, sites) if choose is None else classes
    grouped = equivalence_classes(graph, in_chunks(classes, graph, layouts) if choose is None else classes)
    lowering = PlanLowering(grouped, memory, arena, machine, layouts, readable, ordered, sites, withheld_nbytes)
    tilings = LazyTilings(
        successive_tilings(grouped, machine, layouts, MAX_CALLS) if choose is None else iter([choose(grouped)])
    )
    price, seconds, best = 0.0, None, None
    found = None
    if choose is not None:
        found = lowering.lower(tilings.coarsest, max_arena)
    elif max_arena is None:
        prices = TilingPrices(grouped, machine, layouts, len(grouped.groups) <= MAX_GROUPS_BLOCKED)
        candidates = TilingCandidates(grouped, tilings, prices, lowering.available)
        cheapest = candidates.by_price()
        price = min(map(candidates.price, cheapest), default=0.0)
        if price > max_price:
            raise TooExpensive
        if devices > MAX_DEVICES_COMPARED:
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
            raise lowering.refusal(needed, base_nbytes)
        found = lowering.with_recompute(found)
    lowering.release_memory()
    budget = Budget(memory, lowering.available_beside(found))
    return LoweredPlan(found.taskgraph.decomposition, found, budget, lowering.capacity_of(found), price, seconds)


def release_search_memory(graph: MemGraph) -> None:
    """Return the heap to the system after making or pricing a large plan."""
    if len(graph) >= LARGE_PLAN:
        trim_heap()
