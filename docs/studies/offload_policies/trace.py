"""The trace of a task graph, which policies see, and its memory before placement."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from einturnip.cost.described_machines import DescribedMachine
from einturnip.runtime.simulate.machine_prices import task_seconds
from einturnip.taskgraph.types import TaskGraph, TaskKind
from offload_policies.types import AccessTrace, MemoryBudgets


def granule(capacity: int) -> int:
    """The unit of extents: a page, or a cache line in a tiny arena."""
    return 4096 if capacity >= 4 << 20 else 64


def trace(tasks: TaskGraph, machine: DescribedMachine, budgets: MemoryBudgets) -> AccessTrace:
    """The steps of ``tasks`` in serial order; loads are not steps, since values are loaded when needed."""
    unit = granule(budgets.device)
    kinds = tasks.kind.tolist()
    steps = [i for i, kind in enumerate(kinds) if kind != TaskKind.LOAD]
    value, ptr, read = tasks.value.tolist(), tasks.read_ptr.tolist(), tasks.read.tolist()
    reads = [tuple(dict.fromkeys(read[ptr[i] : ptr[i + 1]])) for i in steps]
    needs = [
        r if kinds[i] == TaskKind.STORE else tuple(dict.fromkeys((*r, value[i])))
        for i, r in zip(steps, reads, strict=True)
    ]
    uses: list[list[int]] = [[] for _ in range(tasks.n_values)]
    maker = [-1] * tasks.n_values
    for step, (i, touched) in enumerate(zip(steps, needs, strict=True)):
        for v in touched:
            uses[v].append(step)
        if kinds[i] in (TaskKind.KERNEL, TaskKind.FINALIZE, TaskKind.MOVE):
            maker[value[i]] = -1 if maker[value[i]] != -1 else step
    shared = np.bincount(tasks.value[tasks.kind == TaskKind.MOVE], minlength=tasks.n_values) > 1
    stored = np.zeros(tasks.n_values, bool)
    stored[tasks.value[tasks.kind == TaskKind.LOAD]] = True
    # A store is a transfer: it takes time of a link, and none of the kernels.
    kernel = task_seconds(tasks, machine).tolist()
    seconds = [0.0 if kinds[i] == TaskKind.STORE else kernel[i] for i in steps]
    return AccessTrace(
        tasks,
        machine,
        budgets,
        steps,
        needs,
        reads,
        uses,
        [max(1, -(-n // unit)) * unit for n in tasks.value_nbytes.tolist()],
        [-(-n // unit) * unit for n in tasks.workspace[steps].tolist()],
        seconds,
        [0.0, *accumulate(seconds)],
        stored.tolist(),
        [-1 if twice else m for m, twice in zip(maker, shared.tolist(), strict=True)],
    )


def peak_nbytes(trace: AccessTrace) -> int:
    """The peak bytes in use in the serial order, if nothing leaves before its last use."""
    change = [0] * (len(trace) + 1)
    for v, uses in enumerate(trace.uses):
        if uses:
            change[uses[0]] += trace.size[v]
            change[uses[-1] + 1] -= trace.size[v]
    held = accumulate(change)
    return max(
        (a + b for a, b in zip(held, (*trace.workspace, 0), strict=True)),
        default=0,
    )


def working_set_nbytes(trace: AccessTrace) -> int:
    """The largest step's bytes: the minimum of every plan."""
    return max(
        (sum(trace.size[v] for v in needs) + w for needs, w in zip(trace.needs, trace.workspace, strict=True)),
        default=0,
    )
