"""Recomputes spilled values of a plan as long as the predicted cost falls."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.core.errors import CapacityError
from einturnip.cost.machine import Machine
from einturnip.memgraph.recompute import recompute_spilled
from einturnip.memgraph.types import MemGraph
from einturnip.planner.predict import max_recomputed, predicted_cost
from einturnip.taskgraph.types import TaskGraph
from einturnip.tuning.search import MIN_RECOMPUTING_GAIN, RECOMPUTING_ROUNDS


def recompute_while_better(graph: MemGraph, machine: Machine, placed: Callable[[TaskGraph], MemGraph]) -> MemGraph:
    """Return the plan, or one with the same tiles in the same memory that spills less and computes more.

    A recomputed value frees memory for others, which changes what is worth recomputing, so the choice is repeated for
    the new plan.
    """
    cost = None
    for _ in range(RECOMPUTING_ROUNDS):
        if not graph.spill_nbytes or len(graph) > max_recomputed(float(graph.seconds.sum()) / machine.workers):
            return graph
        cost = predicted_cost(graph, machine) if cost is None else cost
        tasks = recompute_spilled(graph, machine, MIN_RECOMPUTING_GAIN * cost)
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
