"""The search: ever finer cuts, each with the least budget it needs; the best that fits is lowered and placed.

The cuts do not depend on the budget, so feasibility is monotone: a cut that fits a budget fits every larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.errors import CapacityError
from einturnip.core.machine import Machine
from einturnip.core.settings import format_size
from einturnip.decomp.alike import Grouped, grouped
from einturnip.decomp.build import label_classes, lay_out, price, whole_is_best
from einturnip.decomp.classes import label_bounds
from einturnip.decomp.search import Cut, cuts, thinner
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.memgraph.build import build as build_memgraph
from einturnip.memgraph.build import granule
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import MIB, Budget, give_back, overhead_nbytes, resident_nbytes
from einturnip.taskgraph.build import build as build_taskgraph

# Working sets that should fit at once, for overlap and for blocks of accumulators; the fewest that are tried before a
# cut is only a last resort; and how much slower a run is taken to be as it nears having just one.
SETS = 12
LEAST_SETS = 3
CROWDING = 0.5
# A tile need not be larger for any kernel to run at full rate; smaller ones leave room to overlap.
LARGEST_WORKING_SET = 48 * MIB
MOST_CALLS = 1_000_000
# Cuts that are priced, and the most kinds of einsum for which I/O blocks are part of the price.
MOST_PRICED = 10
MOST_GROUPS_BLOCKED = 200
# Page rounding of a task's operands, result and workspace.
MOST_EXTENTS = 16
# Ops from which on what planning left behind is worth collecting before the run.
LARGE_PLAN = 2000


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program with its decomposition, and every op placed in the budget's arena."""

    decomposition: Decomposition
    memgraph: MemGraph
    budget: Budget


def plan(
    graph: EinGraph,
    memory: int | None,
    arena: int | None,
    machine: Machine,
    layouts: Mapping[int, Sequence[int]],
    readable: frozenset[int] = frozenset(),
) -> Lowered:
    """The best plan that fits ``memory`` for the whole process, or ``arena`` for tiles alone.

    ``layouts``: of stored tensors, by node, their axes slowest first; ``readable``: outputs that can be read again.

    Raises:
        CapacityError: none fits; ``needed`` is the least budget of the kind stated that would do.
    """
    together = grouped(graph, label_classes(graph))
    tasks_of = TileTasks(together)
    resident = resident_nbytes()

    def room(cut: Cut) -> int:
        """Arena bytes that the budget leaves if the plan is as large as this cut's."""
        if arena is not None:
            return arena
        assert memory is not None
        return memory - overhead_nbytes(resident, machine.workers, tasks_of(cut))

    way = Way(cuts(together, machine, layouts, MOST_CALLS))
    for cut in _candidates(together, way, machine, room):
        capacity = room(cut)
        try:
            decomposition = lay_out(together, cut.tiles, capacity)
            memgraph = build_memgraph(build_taskgraph(decomposition, machine), capacity, machine, readable)
        except CapacityError:
            continue
        tidy_up(memgraph)
        return Lowered(decomposition, memgraph, Budget(memory, capacity))
    raise _does_not_fit(tasks_of, way.all(), memory, arena, resident, machine)


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


def least_arena(cut: Cut) -> int:
    """Bytes in which the cut can run: its largest working set, with each extent rounded up."""
    page = granule(cut.working_set)
    return cut.working_set + MOST_EXTENTS * page


class Way:
    """The cuts, found as far as they are asked for."""

    def __init__(self, cuts: Iterator[Cut]) -> None:
        self._rest = cuts
        self.coarsest = next(cuts)
        self._all: list[Cut] = []

    def all(self) -> Sequence[Cut]:
        """Every cut, coarsest first."""
        if not self._all:
            self._all = [self.coarsest, *self._rest]
        return self._all


def _candidates(graph: Grouped, way: Way, machine: Machine, room: Callable[[Cut], int]) -> Iterator[Cut]:
    """The cuts that fit, best first: by price those of which several working sets fit, then ever finer ones.

    A cut whose largest working set fits may fail all the same, for tiles of other nodes that must stay beside it.
    """
    whole = way.coarsest
    if whole.working_set * SETS <= room(whole) - MOST_EXTENTS * granule(room(whole)) and whole_is_best(graph, machine):
        yield whole
    fitting = [c for c in way.all() if least_arena(c) <= room(c)]
    roomy = [c for c in fitting if c.working_set <= min(LARGEST_WORKING_SET, room(c) // LEAST_SETS)][:MOST_PRICED]
    blocked = len(graph.groups) <= MOST_GROUPS_BLOCKED
    if blocked:
        roomy += [t for c in roomy for t in thinner(graph, c) if t.kernel_calls <= MOST_CALLS]

    def cost(cut: Cut) -> float:
        # With few working sets in memory, transfers and kernels wait for each other.
        crowding = max(0.0, 1 - room(cut) / max(1, cut.working_set) / SETS)
        return price(graph, cut, room(cut), machine, blocked) * (1 + CROWDING * crowding)

    best = sorted(roomy, key=cost)[:3]
    yield from best
    calls = 0
    for cut in fitting[:-1]:
        if cut.kernel_calls >= 2 * calls and cut not in best:
            calls = cut.kernel_calls
            yield cut
    yield from fitting[-1:]


def _does_not_fit(
    tasks_of: TileTasks, way: Sequence[Cut], memory: int | None, arena: int | None, resident: int, machine: Machine
) -> CapacityError:
    if arena is not None:
        needed = min(map(least_arena, way))
        return CapacityError(
            f"the program does not fit an arena of {format_size(arena)}; the least that would do is {needed} bytes "
            f"(--arena {format_size(needed)})",
            needed,
        )
    least = min(least_arena(c) + overhead_nbytes(resident, machine.workers, tasks_of(c)) for c in way)
    needed = -(-(least + 2 * MIB) // MIB) * MIB
    return CapacityError(
        f"the program does not fit in {format_size(memory or 0)}; the least that would do is {format_size(needed)} "
        f"(of which {format_size(resident)} are Python and its libraries)",
        needed,
    )
