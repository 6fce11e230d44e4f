"""The work of a plan for each tensor: seconds, bytes, kernel calls, and its peak share of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from einturnip.memgraph.types import COMPUTE, Lane, MemGraph, OpKind
from einturnip.taskgraph.types import TaskKind

Ints = NDArray[np.int64]
Ops = NDArray[np.int32]
Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TensorWork:
    """The work for one or several tensors.

    Seconds are summed over the ops of a lane, bytes over the ops of a kind. ``peak_nbytes``: maximum bytes in compute
    memory at once, in the plan's order (of several tensors: the largest of their maxima).
    """

    calls: int = 0
    seconds: dict[Lane, float] = field(default_factory=lambda: dict.fromkeys(Lane, 0.0))
    nbytes: dict[OpKind, int] = field(default_factory=dict)
    ops: dict[OpKind, int] = field(default_factory=dict)
    flops: int = 0
    peak_nbytes: int = 0

    def __add__(self, other: TensorWork) -> TensorWork:
        """Return the work of both together."""
        return TensorWork(
            self.calls + other.calls,
            {lane: self.seconds[lane] + other.seconds[lane] for lane in Lane},
            {k: self.nbytes.get(k, 0) + other.nbytes.get(k, 0) for k in self.nbytes.keys() | other.nbytes.keys()},
            {k: self.ops.get(k, 0) + other.ops.get(k, 0) for k in self.ops.keys() | other.ops.keys()},
            self.flops + other.flops,
            max(self.peak_nbytes, other.peak_nbytes),
        )

    def moved(self, lane: Lane) -> int:
        """Bytes over a lane."""
        return sum(nbytes for kind, nbytes in self.nbytes.items() if kind.lane == lane)


def total(parts: Sequence[TensorWork]) -> TensorWork:
    """The sum of several; the zero work for none."""
    return sum(parts, TensorWork())


def nodes_of_ops(graph: MemGraph) -> Ints:
    """The node whose tensor each op produces or moves."""
    tasks = graph.taskgraph
    outputs = np.array([node for _, node in tasks.decomposition.graph.outputs], dtype=np.int64)
    nodes = np.zeros(len(graph), dtype=np.int64)
    of_task = graph.task >= 0
    nodes[of_task] = tasks.node[graph.task[of_task]]
    stores = of_task & (tasks.kind[np.maximum(graph.task, 0)] == TaskKind.STORE)
    nodes[stores] = outputs[nodes[stores]]
    # Spills and reloads belong to no task: the value identifies the node.
    transfers = np.flatnonzero(~of_task)
    nodes[transfers] = tasks.value_node[graph.all_unversioned(graph.read[graph.read_ptr[transfers], 3])]
    return nodes


def work_by_node(graph: MemGraph, seconds: Seconds | None = None) -> tuple[TensorWork, ...]:
    """The work for each node of the einsum graph. ``seconds``: of each op; by default the predicted ones."""
    n = len(graph.taskgraph.decomposition.graph.nodes)
    nodes, kinds = nodes_of_ops(graph), graph.kind.astype(np.int64)
    lanes = np.array([kind.lane for kind in OpKind], dtype=np.int64)[kinds]
    op_seconds = graph.seconds if seconds is None else seconds
    by_lane = np.bincount(nodes * len(Lane) + lanes, op_seconds, n * len(Lane)).reshape(n, len(Lane)).tolist()
    node_kind = nodes * len(OpKind) + kinds
    ops = np.bincount(node_kind, minlength=n * len(OpKind)).reshape(n, len(OpKind)).tolist()
    nbytes = np.bincount(node_kind, graph.moved_nbytes(), n * len(OpKind)).reshape(n, len(OpKind)).tolist()
    flops = np.bincount(nodes, np.where(graph.task >= 0, graph.taskgraph.flops[graph.task], 0), n).tolist()
    peaks = _peaks_by_node(graph, n).tolist()
    return tuple(
        TensorWork(
            ops[i][OpKind.KERNEL],
            {lane: by_lane[i][lane] for lane in Lane},
            {kind: int(nbytes[i][kind]) for kind in OpKind if ops[i][kind] and kind.lane != Lane.COMPUTE},
            {kind: ops[i][kind] for kind in OpKind if ops[i][kind]},
            int(flops[i]),
            peaks[i],
        )
        for i in range(n)
    )


def _peaks_by_node(graph: MemGraph, n: int) -> Ints:
    """For each node the maximum bytes of its values in compute memory at once, in the plan's order."""
    accesses = [_in_memory(ptr, rows) for ptr, rows in ((graph.write_ptr, graph.write), (graph.read_ptr, graph.read))]
    nbytes, value, op = (np.concatenate(columns) for columns in zip(*accesses, strict=True))
    if not len(op):
        return np.zeros(n, dtype=np.int64)
    order = np.lexsort((op, value))
    nbytes, value, op = nbytes[order], value[order], op[order]
    # A residence begins when a value first appears or is reloaded, and ends at its last use before the next reload.
    is_loaded = np.isin(graph.kind[op], (OpKind.LOAD, OpKind.RELOAD))
    begins = np.ones(len(op), dtype=bool)
    begins[1:] = (value[1:] != value[:-1]) | is_loaded[1:]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(op)) - 1
    node = graph.taskgraph.value_node[graph.all_unversioned(value[first])].astype(np.int64)
    return _peaks(np.concatenate([node, node]), np.concatenate([op[first], op[last] + 1]), nbytes[first], n)


def _in_memory(ptr: Ints, rows: Ints) -> tuple[Ints, Ops, Ops]:
    """Bytes, value and op of the accesses to compute memory, in narrow types because there are millions."""
    in_compute = (rows[:, 0] == COMPUTE) & (rows[:, 3] >= 0)
    ops = np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))
    return rows[in_compute, 2], rows[in_compute, 3].astype(np.int32), ops[in_compute]


def _peaks(node: Ints, at: Ints, nbytes: Ints, n: int) -> Ints:
    """The peak running sum of each node: its first half of events adds, the second subtracts."""
    change = np.concatenate([nbytes, -nbytes])
    order = np.lexsort((change, at, node))
    node, change = node[order], change[order]
    running = np.cumsum(change)
    # A node subtracts all that it adds, so the sum is 0 again where the next node begins.
    peaks = np.zeros(n, dtype=np.int64)
    np.maximum.at(peaks, node, running)
    return peaks
