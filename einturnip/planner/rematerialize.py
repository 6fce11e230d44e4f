"""A plan that makes values again rather than spill them, where that is predicted to be better."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.core.errors import CapacityError
from einturnip.cost.machine import Machine
from einturnip.memgraph.recompute import recompute_spilled
from einturnip.memgraph.types import MemGraph
from einturnip.planner.ranking import comparison_budget, predicted_cost
from einturnip.taskgraph.types import TaskGraph

# Of the plan's cost, what must be saved by formula for another to be made, and how often one follows on another.
WORTH = 0.01
ROUNDS = 2


def rematerialize(graph: MemGraph, machine: Machine, placed: Callable[[TaskGraph], MemGraph]) -> MemGraph:
    """The plan, or one with the same tiles in the same memory that spills less and computes more.

    A value made again makes room for others, so what was not worth it may be: the choice is made anew for the new plan.
    """
    cost = None
    for _ in range(ROUNDS):
        if not graph.spill_nbytes or len(graph) > comparison_budget(float(graph.seconds.sum()) / machine.workers):
            return graph
        cost = predicted_cost(graph, machine) if cost is None else cost
        tasks = recompute_spilled(graph, machine, WORTH * cost)
        if tasks is None:
            return graph
        try:
            other = placed(tasks)
        except CapacityError:
            return graph
        other_cost = predicted_cost(other, machine)
        if other_cost >= cost:
            return graph
        graph, cost = other, other_cost
    return graph
