"""Predicts the time, the memory and the traffic of a plan, by simulation on a virtual clock.

Also the cost of a plan including its bytes, a lower bound of its time, and the budget for comparing plans.
"""

from __future__ import annotations

import math
import os
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import READERS
from einturnip.devices.kind import kind_of
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.memgraph.types import COMPUTE, DISK, FILES, Lane, MemGraph, OpKind, op_kind
from einturnip.runtime.host.compilation import left_to_numpy
from einturnip.runtime.scheduler.policies import Policy, policy
from einturnip.runtime.scheduler.report import Prediction
from einturnip.runtime.scheduler.state_machine import lanes_of_kinds
from einturnip.runtime.simulate.virtual_clock import SharedCores, simulate
from einturnip.taskgraph.build import MODES
from einturnip.taskgraph.types import TaskGraph, TaskKind
from einturnip.tuning.memory import SHORT_TRANSFER_SECONDS
from einturnip.tuning.search import (
    COLD_READ_WEIGHT,
    EQUAL_WITHIN,
    MAX_OPS_COMPARED,
    OPS_COMPARED,
    OPS_COMPARED_LONG,
    OPS_COMPARED_LONG_PER_SECOND,
    OPS_COMPARED_PER_SECOND,
)

WRITERS = 1
# The policy by which the search compares plans.
SEARCHED_BY = "critical-path"


def slots(workers: int) -> dict[Lane, int]:
    """Return the number of ops that each lane runs at once."""
    return {Lane.COMPUTE: workers, Lane.IN: READERS, Lane.OUT: WRITERS}


def ranking_key(seconds: float, nbytes: int) -> tuple[int, int]:
    """Return a key that is smaller for a better plan: its time, then the bytes that it moves."""
    return round(math.log(max(1e-9, seconds)) / EQUAL_WITHIN), nbytes


def predict(graph: MemGraph, machine: Machine, policy: Policy, seconds: float | None = None) -> Prediction:
    """Return the prediction of a plan, without the lower bound, which depends on the budget.

    ``seconds``: the predicted time, if already known.
    """
    return Prediction(
        seconds=predicted_seconds(graph, machine, policy) if seconds is None else seconds,
        flops=float(graph.taskgraph.flops.sum()),
        peak_nbytes=peak_nbytes(graph, machine),
        link_bytes=graph.nbytes_by_link(),
        link_bytes_lower_bound={},
    )


def predicted_seconds(graph: MemGraph, machine: Machine, policy: Policy) -> float:
    """Return the time of a plan on a virtual clock, including Python's dispatch and page faults.

    On the host, threads that compute, read and write share the cores; compute threads also run short transfers.
    """
    touched = touched_nbytes(graph)
    graph = _with_cached_copies(graph, machine, touched)
    of_lanes, linked = slots(machine.workers), machine.link is not None
    if kind_of(machine.compute).on_host:
        cores = SharedCores(machine.workers, array("d", used_cores(graph, machine).tobytes()))
        lanes = lanes_of_kinds(graph.kind)
        short = (lanes != Lane.COMPUTE) & (graph.seconds <= SHORT_TRANSFER_SECONDS)
        seconds, _ = simulate(graph, policy, of_lanes, cores=cores, by_workers=short, linked=linked)
    else:
        seconds, _ = simulate(graph, policy, of_lanes, linked=linked)
    dispatching = len(graph) * machine.op_latency
    return max(seconds, dispatching) + touched * machine.fault


def _with_cached_copies(graph: MemGraph, machine: Machine, touched: int) -> MemGraph:
    """Return the plan with faster file copies, if the used arena pages fit the last-level cache.

    The speed-up is complete up to half of the cache, which files also pass through, and none from one and a half on.
    For transfers that wait for a disk only the copy counts.
    """
    inside = min(1.0, max(0.0, 1.5 - touched / machine.cache_nbytes))
    each = inside * machine.read_core * (1 / machine.cached_bandwidth - 1 / machine.near_bandwidth)
    if each <= 0 or not len(graph.read):
        return graph
    first = graph.read[np.minimum(graph.read_ptr[:-1], len(graph.read) - 1)]
    stored = np.isin(graph.kind, (OpKind.LOAD, OpKind.RELOAD)) & (first[:, 0] >= FILES)
    seconds = graph.seconds - np.where(stored, each * first[:, 2], 0.0)
    return replace(graph, seconds=np.where(stored, np.maximum(seconds, machine.op_latency), graph.seconds))


def used_cores(graph: MemGraph, machine: Machine) -> NDArray[np.float64]:
    """Return the share of a core that each op keeps busy: one, unless the op waits for a disk."""
    found = np.ones(len(graph))
    found[graph.kind == OpKind.LOAD] = machine.read_core
    found[graph.kind == OpKind.STORE] = machine.write_core
    for kind, ptr, rows in (
        (OpKind.RELOAD, graph.read_ptr, graph.read),
        (OpKind.OFFLOAD, graph.write_ptr, graph.write),
    ):
        ops = np.flatnonzero(graph.kind == kind)
        found[ops[rows[ptr[ops], 0] == DISK]] = machine.spill_core
    return found


def with_numpy_kernels(graph: MemGraph, machine: Machine, memory: int | None) -> MemGraph:
    """Return the plan with the times of NumPy for kernels that will not be compiled in ``memory`` bytes."""
    numpy_kernels = left_to_numpy(graph.taskgraph, machine, memory, machine.runs) if machine.compiled else []
    if not numpy_kernels:
        return graph
    from einturnip.cost.kernel_time import kernel_seconds, numpy_seconds

    tasks, seconds = graph.taskgraph, graph.seconds.copy()
    running = (graph.task >= 0) & np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE))
    kinds, of = tasks.kind[graph.task], tasks.node[graph.task]
    for kind, node in numpy_kernels:
        space = tasks.decomposition.graph.nodes[node]
        tiles, mode = tasks.decomposition.partitionings[node].tiles, MODES[kind]
        assert isinstance(space, EinsumNode)
        longer = numpy_seconds(space.einsum, tiles, machine, mode) - kernel_seconds(space.einsum, tiles, machine, mode)
        points = tasks.flops[graph.task]
        mine = running & (kinds == kind) & (of == node)
        seconds[mine] += (
            longer * points[mine] / max(1, int(points[mine].max(initial=0)))
        )  # tiles at the edges are smaller
    return replace(graph, seconds=np.maximum(seconds, 0.0))


def peak_nbytes(graph: MemGraph, machine: Machine) -> dict[str, int]:
    """Return the bytes that a plan uses of the device's memory, or of that of each site."""
    if graph.devices == 1:
        return {machine.compute: touched_nbytes(graph)}
    return {f"cpu:{site}": nbytes for site, nbytes in enumerate(graph.used_nbytes().tolist())}


def touched_nbytes(graph: MemGraph) -> int:
    """Return the bytes of arena pages that any op reads or writes.

    Small values are placed at the far end of the arena, and the pages between remain unused. For several devices, whose
    memory has no pages, return the end of the last extent.
    """
    if graph.devices > 1:
        return graph.peak_nbytes
    page = os.sysconf("SC_PAGE_SIZE")
    change = np.zeros(-(-graph.capacity // page) + 1, np.int64)
    for rows in (graph.read, graph.write):
        begin, nbytes = rows[(rows[:, 0] == COMPUTE) & (rows[:, 2] > 0), 1:3].T
        change += np.bincount(begin // page, minlength=len(change))
        change -= np.bincount(-(-(begin + nbytes) // page), minlength=len(change))
    return min(int(np.count_nonzero(np.cumsum(change))) * page, graph.capacity)


def processor_seconds(graph: MemGraph, machine: Machine) -> float:
    """Return the core seconds of all ops.

    Read rates are those of all readers together, so each reader uses a part of a core.
    """
    each = np.array([READERS if kind.lane == Lane.IN else 1 for kind in OpKind])[graph.kind]
    return float((graph.seconds * each * used_cores(graph, machine)).sum())


def min_seconds(graph: EinGraph, machine: Machine) -> float:
    """Return the time of a graph's kernels by formula, evenly shared among workers that never wait."""
    from einturnip.cost.kernel_time import kernel_seconds

    einsums = [node.einsum for node in graph.nodes if isinstance(node, EinsumNode)]
    counted = Counter(map(id, einsums))
    each = {id(e): kernel_seconds(e, e.bounds, machine) - machine.op_latency for e in einsums}
    return sum(n * each[e] for e, n in counted.items()) / machine.workers


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
