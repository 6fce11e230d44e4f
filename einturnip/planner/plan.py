"""The search: cuts that fit the budget, priced by formula; the best few are lowered, placed and simulated.

Ever finer cuts stand on a way that does not depend on the budget, so feasibility is monotone: a cut that fits a budget
fits every larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import LARGE_PLAN, Budget, trim_heap
from einturnip.planner.candidates import MOST_CALLS, MOST_GROUPS_BLOCKED, CandidateGroup, TilingCandidates
from einturnip.planner.compare import best_plan
from einturnip.planner.lower import PlanLowering
from einturnip.tiling.build import label_classes
from einturnip.tiling.equivalence import EquivalenceClasses, equivalence_classes
from einturnip.tiling.file_layout import FileLayout, in_chunks
from einturnip.tiling.price import TilingPrices
from einturnip.tiling.search import Tiling, successive_tilings
from einturnip.tiling.types import Decomposition


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A program with its decomposition, every op placed in the budget's arena.

    ``room``: bytes it was laid out for; ``price``: seconds that its cheapest cut costs by formula, bytes included;
    ``seconds``: what the search found it to take in the order of the critical path, if it was compared with others.
    """

    decomposition: Decomposition
    memgraph: MemGraph
    budget: Budget
    room: int
    price: float = 0.0
    seconds: float | None = None


class TooExpensive(Exception):
    """A formula tells that no plan of the graph would be taken."""


def plan(
    graph: EinGraph,
    memory: int | None,
    arena: int | None,
    machine: Machine,
    layouts: Mapping[int, FileLayout],
    readable: frozenset[int] = frozenset(),
    only: Callable[[EquivalenceClasses], Tiling] | None = None,
    ordered: bool = False,
    devices: int = 1,
    most_price: float = math.inf,
    beside: int = 0,
    less: int = 0,
    bound: int | None = None,
) -> LoweredPlan:
    """The best plan that fits ``memory`` for the whole process, or ``arena`` for tiles alone, on each of ``devices``.

    ``layouts``: how stored tensors lie in their files, by node; ``readable``: outputs that can be read again.
    ``only``: the one cut to lower, instead of a search; ``ordered``: states are summed in one order, whatever the walk.
    ``beside``: by how much what the user states differs from ``memory``, for refusals. ``less``: bytes of the memory
    that are not there for this plan. ``bound``: the maximum of the arena; 0 asks for the plan of the minimum memory.

    Raises:
        CapacityError: none fits; ``needed`` is the least budget of the kind stated that would do.
        TooDear: every cut costs more than ``most_price`` by formula, so that none was lowered.
    """
    classes = label_classes(graph)
    together = equivalence_classes(graph, in_chunks(classes, graph, layouts) if only is None else classes)
    lowering = PlanLowering(together, memory, arena, machine, layouts, readable, ordered, devices, less)
    way = CandidateGroup(
        successive_tilings(together, machine, layouts, MOST_CALLS) if only is None else iter([only(together)])
    )
    price, seconds, best = 0.0, None, None
    found = None
    if only is not None:
        found = lowering.lower(way.coarsest, bound)
    elif bound is None:
        prices = TilingPrices(together, machine, layouts, len(together.groups) <= MOST_GROUPS_BLOCKED)
        candidates = TilingCandidates(together, way, prices, lowering.room)
        price = min(map(candidates.price, candidates.by_price()), default=0.0)
        if price > most_price:
            raise TooExpensive
        best = best_plan(candidates, lowering.lower, machine)
        if best is not None:
            found, seconds = best.memgraph, best.seconds
        del candidates, prices
    if found is None:
        needed, found = lowering.least(way.all())
        if found is None:
            lowering.tidy_up()
            raise lowering.refusal(needed, beside)
        found = lowering.remade(found)
    lowering.tidy_up()
    budget = Budget(memory, lowering.left(found))
    return LoweredPlan(found.taskgraph.decomposition, found, budget, lowering.room_of(found), price, seconds)


def release_search_memory(graph: MemGraph) -> None:
    """Return to the system what making or pricing a large plan left behind."""
    if len(graph) >= LARGE_PLAN:
        trim_heap()
