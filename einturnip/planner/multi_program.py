"""One plan for several programs: how they share the memory, and whether they alternate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import resident_nbytes
from einturnip.core.units import PAGE_NBYTES
from einturnip.cost.machine import Machine
from einturnip.memgraph.build import build as build_memgraph
from einturnip.memgraph.multi_arena import ArenaParts
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.planner.budget import PlanningMemory, size_of
from einturnip.planner.io_lower_bound import TrafficBound
from einturnip.planner.predict import predicted_cost, predicted_seconds, processor_seconds, slots
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.multi_program import join
from einturnip.taskgraph.types import TaskGraph
from einturnip.tuning.search import GOOD_ENOUGH, PROGRAM_SHARES, REPLANNING_SECONDS, SEPARATE_FACTOR

Lower = Callable[[int, int], TaskGraph]
"""Returns the task graph of a program (by number) for an arena; raises CapacityError if it does not fit."""


@dataclass(frozen=True)
class _Arrangement:
    """The order of several task graphs, and their parts of the arena.

    ``alternating``: tasks of the programs alternate. ``nbytes``: the arena bytes of each program, if they are separate.
    """

    graphs: Sequence[TaskGraph]
    alternating: bool = True
    nbytes: Sequence[int] | None = None

    def built(self, names: Sequence[str], available: int, machine: Machine, readable: frozenset[str]) -> MemGraph:
        """Return the joint plan in an arena of ``available`` bytes."""
        tasks = join(self.graphs, names, self.alternating)
        outputs = tasks.decomposition.graph.outputs
        rereadable = frozenset(i for i, (name, _) in enumerate(outputs) if name in readable)
        parts = None
        if self.nbytes is not None:
            owner = np.repeat(np.arange(len(self.graphs), dtype=np.uint8), [g.n_values for g in self.graphs])
            smaller = min(1.0, available / sum(self.nbytes))  # larger plans leave a smaller arena
            parts = ArenaParts([int(n * smaller) for n in self.nbytes], owner.tobytes())
        return build_memgraph(tasks, available, machine, rereadable, parts=parts)


def plan_together(
    alone: Sequence[MemGraph],
    lower: Lower,
    names: Sequence[str],
    shared: PlanningMemory,
    machine: Machine,
    readable: frozenset[str],
) -> MemGraph:
    """Return the joint plan of the arrangement with the lowest predicted cost, or the first good one.

    ``alone``: the programs, each planned for all of the memory; executed one after the other, they always fit.
    ``readable``: outputs, by their joint names, that can be read back.

    Raises:
        CapacityError: the programs do not fit together with their plans, even one after the other.
    """

    def available(graphs: Sequence[TaskGraph]) -> int:
        return shared.available(resident_nbytes(), machine.workers, size_of(*graphs))

    best: tuple[float, MemGraph] | None = None
    refused: CapacityError | None = None
    for arrangement in _arrangements(alone, lower, available([g.taskgraph for g in alone])):
        try:
            found = arrangement.built(names, available(arrangement.graphs), machine, readable)
        except CapacityError as error:
            if not arrangement.alternating:
                refused = error
            continue
        cost = predicted_cost(found, machine) * (1.0 if arrangement.nbytes is None else SEPARATE_FACTOR)
        if best is None or cost < best[0]:
            best = cost, found
        if _is_good(found, machine):
            break
    if best is None:
        assert refused is not None
        raise CapacityError(f"the programs do not fit together: {refused}", refused.needed) from None
    return best[1]


def _is_good(graph: MemGraph, machine: Machine) -> bool:
    """Return whether the lanes hardly wait for each other and hardly more bytes than necessary are moved."""
    lanes = np.array([kind.lane for kind in OpKind])[graph.kind]
    alone = [float(graph.seconds[lanes == lane].sum()) / n for lane, n in slots(machine.workers).items()]
    minimum = max(*alone, processor_seconds(graph, machine) / machine.workers)
    blocked = TrafficBound(graph.taskgraph.decomposition.graph).blocked_nbytes(graph.capacity)
    if sum(graph.nbytes_by_link().values()) > GOOD_ENOUGH * sum(blocked):
        return False
    return predicted_seconds(graph, machine, policy("critical-path")) <= max(
        GOOD_ENOUGH * minimum, minimum + REPLANNING_SECONDS
    )


def _arrangements(alone: Sequence[MemGraph], lower: Lower, available: int) -> Iterator[_Arrangement]:
    """Yield arrangements: separate parts if all fit, then one arena, then plans for less memory."""
    graphs = [g.taskgraph for g in alone]
    peaks = [-(-g.peak_nbytes // PAGE_NBYTES) * PAGE_NBYTES for g in alone]
    if sum(peaks) <= available:
        yield _Arrangement(graphs, nbytes=[n + (available - sum(peaks)) // len(peaks) for n in peaks])
    yield _Arrangement(graphs)
    yield _Arrangement(graphs, alternating=False)
    n = len(alone)
    for first in PROGRAM_SHARES if n == 2 else (1 / n,):
        nbytes = [int(available * part) for part in (first, *[(1 - first) / (n - 1)] * (n - 1))]
        try:
            smaller = [lower(p, part) for p, part in enumerate(nbytes)]
        except CapacityError:
            continue
        yield _Arrangement(smaller)
        yield _Arrangement(smaller, nbytes=nbytes)
