"""Defines the meaning of a TaskGraph: its tasks in order, over a dictionary of values, in plain NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Box
from einturnip.ir.evaluate import State
from einturnip.taskgraph.types import Task, TaskGraph, TaskKind, Value, ValueKind
from einturnip.tiling.types import index
from tests.reference.region import combine_spaces, evaluate_space, finalize_space

Array = NDArray[Any]


def evaluate(graph: TaskGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return every output by name."""
    eingraph = graph.decomposition.graph
    outputs = {n: np.empty(eingraph.nodes[i].shape, eingraph.nodes[i].dtype.numpy) for n, i in eingraph.outputs}
    values: dict[int, State] = {}
    for task in graph:
        v = graph.get_value(task.value)
        match task.kind:
            case TaskKind.LOAD:
                values[v.id] = (np.asarray(inputs[eingraph.nodes[task.node].name])[index(v.box)],)
            case TaskKind.STORE:
                outputs[eingraph.outputs[task.node][0]][index(v.box)] = _part(graph, task, 0, v.box, values)
            case TaskKind.MOVE:
                values[v.id] = (_copied(graph, task, v, values),)
            case TaskKind.FINALIZE | TaskKind.KERNEL | TaskKind.ACCUMULATE | TaskKind.COMBINE:
                values[v.id] = _kernel(graph, task, values)
    return outputs


def _kernel(graph: TaskGraph, task: Task, values: dict[int, State]) -> State:
    node = graph.decomposition.graph.nodes[task.node]
    assert isinstance(node, EinsumNode)
    e = node.einsum
    if task.kind == TaskKind.FINALIZE:
        return (finalize_space(e, values[task.reads[0]]),)
    if task.kind == TaskKind.COMBINE:
        part = values[task.reads[0]]
        return combine_spaces(e, values[task.value], part) if task.value in values else part
    box = graph.decomposition.partitionings[task.node].box(task.key)
    operands = [_part(graph, task, slot, e.operand_box(slot, box), values) for slot in range(len(task.reads))]
    origins, extents = [lo for lo, _ in box], [hi - lo for lo, hi in box]
    if task.kind == TaskKind.KERNEL:
        return evaluate_space(e, operands, origins, extents)
    state = evaluate_space(e, operands, origins, extents, "state")
    assert graph.value_kind[task.value] == ValueKind.STATE
    return combine_spaces(e, values[task.value], state) if task.value in values else state


def _part(graph: TaskGraph, task: Task, slot: int, need: Box, values: dict[int, State]) -> Array:
    """Return box ``need`` of an operand of the task, in the coordinates of the value it is seen as."""
    seen = graph.get_value(task.seen[slot])
    whole: Array = values[task.reads[slot]][0].reshape([hi - lo for lo, hi in seen.box])
    return np.asarray(whole[index(need, seen.box)])


def _copied(graph: TaskGraph, task: Task, out: Value, values: dict[int, State]) -> Array:
    dtype = graph.decomposition.graph.nodes[task.node].dtype
    shape = [hi - lo for lo, hi in out.box]
    made = values[out.id][0] if out.id in values else np.empty(shape, dtype.numpy)
    for slot, box in enumerate(graph.copied(task)):
        made[index(box, out.box)] = _part(graph, task, slot, box, values)
    return made
