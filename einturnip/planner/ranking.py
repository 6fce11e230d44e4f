"""Cost of a plan including its bytes, a lower bound of its time, and the budget for comparing plans."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from einturnip.cost.machine import Machine
from einturnip.memgraph.types import Lane, MemGraph, op_kind
from einturnip.planner.predict import SEARCHED_BY, WRITERS, predicted_seconds
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import SHORT_TRANSFER_SECONDS
from einturnip.tuning.search import (
    COLD_READ_WEIGHT,
    MAX_OPS_COMPARED,
    OPS_COMPARED,
    OPS_COMPARED_LONG,
    OPS_COMPARED_LONG_PER_SECOND,
    OPS_COMPARED_PER_SECOND,
)


def predicted_cost(graph: MemGraph, machine: Machine) -> float:
    """Return the predicted seconds plus the price of the bytes moved, even if kernels hide them."""
    seconds = predicted_seconds(graph, machine, policy(SEARCHED_BY))
    return seconds + byte_cost_seconds(graph.nbytes_by_link(), machine)


def byte_cost_seconds(link_bytes: Mapping[str, int], machine: Machine) -> float:
    """Return the price of moved bytes in seconds, in addition to the simulated run."""
    return COLD_READ_WEIGHT * sum(link_bytes.values()) / machine.read_bandwidth


def comparison_budget(seconds: float) -> float:
    """Return the number of ops of plans that may be made for comparison, for a run of ``seconds``."""
    return min(max_recomputed(seconds), OPS_COMPARED_LONG + OPS_COMPARED_LONG_PER_SECOND * seconds)


def max_recomputed(seconds: float) -> float:
    """Return the maximum number of ops of a plan that is made a second time to recompute values.

    Few such plans are made, and they may save most bytes that a long run spills. ``seconds``: of the run.
    """
    return min(OPS_COMPARED + OPS_COMPARED_PER_SECOND * seconds, MAX_OPS_COMPARED)


def min_task_seconds(tasks: TaskGraph, machine: Machine) -> float:
    """Return a lower bound of the time of tile tasks, without waiting, spilling and short transfers.

    Every task is an op, and one thread at a time dispatches ops.
    """
    lanes = np.array([op_kind(kind).lane for kind in TaskKind])[tasks.kind]
    computing = float(tasks.seconds[lanes == Lane.COMPUTE].sum()) / machine.workers
    long = np.where(tasks.seconds > SHORT_TRANSFER_SECONDS, tasks.seconds, 0.0)
    transfers = float(long[lanes == Lane.IN].sum()), float(long[lanes == Lane.OUT].sum()) / WRITERS
    return max(computing, *transfers, len(tasks) * machine.op_latency)
