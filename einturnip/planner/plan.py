"""The search: cuts that fit the budget, priced by formula; the best few are lowered, placed and simulated.

Ever finer cuts stand on a way that does not depend on the budget, so feasibility is monotone: a cut that fits a budget
fits every larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.errors import CapacityError
from einturnip.core.machine import Machine
from einturnip.core.settings import format_size
from einturnip.decomp.alike import Grouped, grouped
from einturnip.decomp.build import label_classes, lay_out
from einturnip.decomp.classes import label_bounds
from einturnip.decomp.price import Prices
from einturnip.decomp.search import Cut, cuts
from einturnip.decomp.stored import FileLayout, in_chunks
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.memgraph.build import build as build_memgraph
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import MIB, Budget, give_back, overhead_nbytes, resident_nbytes
from einturnip.planner.candidates import MOST_CALLS, MOST_GROUPS_BLOCKED, Candidates, Way, least_arena
from einturnip.planner.compare import best_plan
from einturnip.planner.remake import remade
from einturnip.taskgraph.build import build as build_taskgraph
from einturnip.taskgraph.types import TaskGraph

# Ops from which on what planning left behind is worth collecting before the run.
LARGE_PLAN = 2000


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program with its decomposition, every op placed in the budget's arena.

    ``room``: bytes it was laid out for; ``price``: seconds that its cheapest cut costs by formula, bytes included.
    """

    decomposition: Decomposition
    memgraph: MemGraph
    budget: Budget
    room: int
    price: float = 0.0


class TooDear(Exception):
    """A formula tells that no plan of the graph would be taken."""


def plan(
    graph: EinGraph,
    memory: int | None,
    arena: int | None,
    machine: Machine,
    layouts: Mapping[int, FileLayout],
    readable: frozenset[int] = frozenset(),
    only: Callable[[Grouped], Cut] | None = None,
    ordered: bool = False,
    devices: int = 1,
    most_price: float = math.inf,
) -> Lowered:
    """The best plan that fits ``memory`` for the whole process, or ``arena`` for tiles alone, on each of ``devices``.

    ``layouts``: how stored tensors lie in their files, by node; ``readable``: outputs that can be read again.
    ``only``: the one cut to lower, instead of a search; ``ordered``: states are summed in one order, whatever the walk.

    Raises:
        CapacityError: none fits; ``needed`` is the least budget of the kind stated that would do.
        TooDear: every cut costs more than ``most_price`` by formula, so that none was lowered.
    """
    classes = label_classes(graph)
    together = grouped(graph, in_chunks(classes, graph, layouts) if only is None else classes)
    tasks_of = TileTasks(together)
    resident, searched = resident_nbytes(), False

    def room(cut: Cut) -> int:
        """Arena bytes that the budget leaves if the plan is as large as this cut's."""
        if arena is not None:
            return arena
        assert memory is not None
        return memory - overhead_nbytes(resident, machine.workers, tasks_of(cut))

    laid_out: dict[int, tuple[int, int]] = {}

    def lower(cut: Cut, bound: int | None = None) -> MemGraph | None:
        """The plan of one cut, in ``bound`` bytes if stated; None where it cannot be laid out in the memory."""
        nonlocal resident, searched
        if not searched:  # what the search brought in, kernels and modules, stays beside the arena
            resident, searched = max(resident, resident_nbytes()), True
        most = room(cut)
        capacity = most if bound is None else min(bound, most)
        try:
            made = placed(cut, capacity)
        except CapacityError:
            return None
        laid_out[id(made)] = capacity, most
        return made

    def placed(cut: Cut, capacity: int) -> MemGraph:
        decomposition = lay_out(together, cut.tiles, capacity * devices)
        tasks = build_taskgraph(decomposition, machine, ordered=ordered, layouts=layouts)
        return build_memgraph(tasks if devices == 1 else _over(tasks, devices, machine), capacity, machine, readable)

    def least(cut: Cut) -> int:
        """Bytes in which a cut can be laid out; more than its working set where other tiles must stay beside it."""
        capacity = least_arena(cut)
        while True:
            try:
                placed(cut, capacity)
                return capacity
            except CapacityError as error:
                capacity = max(error.needed, int(1.05 * capacity))

    way = Way(cuts(together, machine, layouts, MOST_CALLS) if only is None else iter([only(together)]))
    price = 0.0
    if only is not None:
        found = lower(way.coarsest)
    else:
        prices = Prices(together, machine, layouts, len(together.groups) <= MOST_GROUPS_BLOCKED)
        candidates = Candidates(together, way, prices, room)
        price = min(map(candidates.price, candidates.by_price()), default=0.0)
        if price > most_price:
            raise TooDear
        found = best_plan(candidates, lower, machine)
    if found is None:
        raise _does_not_fit(
            tasks_of, way.all(), memory, arena, resident, machine, least_arena if only is None else least
        )
    capacity, most = laid_out[id(found)]

    def longer(tasks: TaskGraph) -> MemGraph:
        """The same tiles in the same memory, of which the tasks that repeat others take some."""
        beside = 0
        if memory is not None:
            more = (overhead_nbytes(resident, machine.workers, n) for n in (tasks.repeats, 0))
            beside = next(more) - next(more)
        return build_memgraph(tasks, capacity - beside, machine, readable)

    found = remade(found, machine, longer)
    tidy_up(found)
    return Lowered(found.taskgraph.decomposition, found, Budget(memory, most), capacity, price)


def _over(tasks: TaskGraph, devices: int, machine: Machine) -> TaskGraph:
    """The tasks on several devices; imported late, for most runs have one."""
    from einturnip.taskgraph.several import over

    return over(tasks, devices, machine)


def tidy_up(graph: MemGraph) -> None:
    """Return to the system what making or pricing a large plan left behind."""
    if len(graph) >= LARGE_PLAN:
        give_back()


class TileTasks:
    """Counts the tile tasks of a cut: kernel calls, and the loads and stores of whole tiles."""

    def __init__(self, graph: Grouped) -> None:
        self.classes = graph.classes
        nodes = graph.graph.nodes
        stored = {i for i, node in enumerate(nodes) if isinstance(node, InputNode)}
        stored |= {i for _, i in graph.graph.outputs}
        self.stored = [(i, label_bounds(nodes[i]), len(nodes[i].shape)) for i in sorted(stored)]

    def __call__(self, cut: Cut) -> int:
        """For one cut."""
        tiles = (Partitioning(b, self.classes.tiles(i, b, cut.tiles)).counts[:rank] for i, b, rank in self.stored)
        return cut.kernel_calls + sum(map(math.prod, tiles))


def _does_not_fit(
    tasks_of: TileTasks,
    way: Sequence[Cut],
    memory: int | None,
    arena: int | None,
    resident: int,
    machine: Machine,
    nbytes: Callable[[Cut], int],
) -> CapacityError:
    if arena is not None:
        needed = min(map(nbytes, way))
        return CapacityError(
            f"the program does not fit an arena of {format_size(arena)}; the least that would do is {needed} bytes "
            f"(--arena {format_size(needed)})",
            needed,
        )
    least = min(nbytes(c) + overhead_nbytes(resident, machine.workers, tasks_of(c)) for c in way)
    needed = -(-(least + 2 * MIB) // MIB) * MIB
    return CapacityError(
        f"the program does not fit in {format_size(memory or 0)}; the least that would do is {format_size(needed)} "
        f"(of which {format_size(resident)} are Python and its libraries)",
        needed,
    )
