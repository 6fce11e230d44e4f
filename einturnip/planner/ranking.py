"""What a plan is held to cost, its bytes counted too; what it costs at least; what may be made only to be compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from einturnip.cost.machine import Machine
from einturnip.memgraph.types import Lane, MemGraph, op_kind
from einturnip.planner.predict import SEARCHED_BY, WRITERS, predicted_seconds
from einturnip.runtime.host.thread_pool import SHORT_TRANSFER
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tiling.price import COLD

# What making an op of a plan takes, tasks, places and simulation together.
OP_SECONDS = 7e-5
# Ops of plans that are made only to be compared: so many, and so many for each second that the run will take.
OPS_COMPARED = 6000
OPS_COMPARED_PER_SECOND = 6000
# And no more than these, however long the run.
MAX_COMPARED = 300_000


def predicted_cost(graph: MemGraph, machine: Machine) -> float:
    """Predicted seconds, and what the bytes moved cost even where kernels hide them."""
    seconds = predicted_seconds(graph, machine, policy(SEARCHED_BY))
    return seconds + byte_cost_seconds(graph.nbytes_by_link(), machine)


def byte_cost_seconds(link_bytes: Mapping[str, int], machine: Machine) -> float:
    """Seconds that moved bytes are held to cost beside those of the simulated run."""
    return COLD * sum(link_bytes.values()) / machine.read_bandwidth


def comparison_budget(seconds: float) -> float:
    """Ops of plans that may be made only to be compared, for a run of so many seconds."""
    return min(OPS_COMPARED + OPS_COMPARED_PER_SECOND * seconds, MAX_COMPARED)


def min_task_seconds(tasks: TaskGraph, machine: Machine) -> float:
    """What tile tasks take at least: nothing waits, nothing leaves the memory; short transfers are left out."""
    lanes = np.array([op_kind(kind).lane for kind in TaskKind])[tasks.kind]
    computing = float(tasks.seconds[lanes == Lane.COMPUTE].sum()) / machine.workers
    long = np.where(tasks.seconds > SHORT_TRANSFER, tasks.seconds, 0.0)
    return max(computing, float(long[lanes == Lane.IN].sum()), float(long[lanes == Lane.OUT].sum()) / WRITERS)
