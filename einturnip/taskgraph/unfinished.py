"""Leaves out of a task graph what is only needed for regions of outputs that are stored already."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from einturnip.taskgraph.types import Ints, TaskGraph, TaskKind
from einturnip.tiling.types import Box
from einturnip.tuning.memory import MAX_CELLS_OF_BOX


def unfinished(graph: TaskGraph, finished: Mapping[int, Sequence[Box]]) -> TaskGraph:
    """Return the graph without the stores of stored tiles, and without what only these need.

    One store is kept if all could go, so that there is something to run. ``finished``: by output, boxes that may
    overlap. The graph must be of one that has neither copies on several devices nor repeats.
    """
    task = graph.kind != TaskKind.STORE
    counts = np.zeros(len(graph.decomposition.graph.outputs), np.int64)
    for output in range(len(counts)):
        stores = np.flatnonzero((graph.kind == TaskKind.STORE) & (graph.node == output))
        rank = len(graph.decomposition.graph.nodes[graph.decomposition.graph.outputs[output][1]].shape)
        boxes = _boxes(graph, graph.value[stores], rank)
        done = _covered(boxes, np.array(finished.get(output, ()), np.int64).reshape(-1, rank, 2))
        task[stores[~done]] = True
        counts[output] = _points(boxes[done])
    if not (task & (graph.kind == TaskKind.STORE)).any():
        last = np.flatnonzero(graph.kind == TaskKind.STORE)[-1]
        task[last], output = True, int(graph.node[last])
        rank = len(graph.decomposition.graph.nodes[graph.decomposition.graph.outputs[output][1]].shape)
        counts[output] -= _points(_boxes(graph, graph.value[last : last + 1], rank))
    return replace(_only(graph, *_needed(graph, task)), finished=counts)


def _boxes(graph: TaskGraph, values: NDArray[np.int32], rank: int) -> Ints:
    """Return boxes of values. Shapes: (values, axes, 2)."""
    boxes: Ints = graph.box[graph.box_ptr[values][:, None] + np.arange(2 * rank)]
    return boxes.reshape(len(values), rank, 2)


def _points(boxes: Ints) -> int:
    return int((boxes[:, :, 1] - boxes[:, :, 0]).prod(axis=1).sum())


def _covered(boxes: Ints, finished: Ints) -> NDArray[np.bool_]:
    """Return which boxes are inside the union of others. Shapes: (boxes, axes, 2), (others, axes, 2)."""
    if not len(finished):
        return np.zeros(len(boxes), bool)
    # The cells between all borders of the others are wholly inside one of them, or outside of all.
    cuts = [np.unique(finished[:, axis]) for axis in range(boxes.shape[1])]
    if math.prod(len(c) + 1 for c in cuts) > MAX_CELLS_OF_BOX * (len(finished) + len(boxes)):
        return np.array([((finished[:, :, 0] <= b[:, 0]) & (b[:, 1] <= finished[:, :, 1])).all(1).any() for b in boxes])
    inside = np.zeros([len(c) + 1 for c in cuts], bool)  # cell k is from border k - 1 to border k
    for box in finished:
        inside[tuple(slice(*(np.searchsorted(c, ends) + 1)) for c, ends in zip(cuts, box, strict=True))] = True

    def cells(axis_cuts: Ints, ends: Ints) -> slice:
        first, last = np.searchsorted(axis_cuts, ends[0], "right"), np.searchsorted(axis_cuts, ends[1], "left")
        return slice(int(first), int(last) + 1)

    return np.array([inside[tuple(cells(c, e) for c, e in zip(cuts, box, strict=True))].all() for box in boxes], bool)


def _needed(graph: TaskGraph, task: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the tasks and the values that the stores among the given tasks need."""
    task, value = task.copy(), np.zeros(graph.n_values, bool)
    kind, made, ptr = graph.kind.tolist(), graph.value.tolist(), graph.read_ptr.tolist()
    for i in range(len(graph) - 1, -1, -1):
        if task[i] and (kind[i] == TaskKind.STORE or value[made[i]]):
            value[made[i]] = True
            value[graph.read[ptr[i] : ptr[i + 1]]] = True
            value[graph.seen[ptr[i] : ptr[i + 1]]] = True
        else:
            task[i] = False
    return task, value


def _only(graph: TaskGraph, task: NDArray[np.bool_], value: NDArray[np.bool_]) -> TaskGraph:
    """Return a graph of some tasks and of the values that they use."""
    number = (np.cumsum(value) - 1).astype(np.int32)
    key_ptr, key = _rows(graph.key_ptr, task)
    read_ptr, read = _rows(graph.read_ptr, task)
    box_ptr, box = _rows(graph.box_ptr, value)
    return replace(
        graph,
        **{name: getattr(graph, name)[task] for name in ("kind", "node", "workspace", "seconds", "flops")},
        **{name: getattr(graph, name)[value] for name in ("value_kind", "value_node", "value_nbytes")},
        value=number[graph.value[task]],
        key_ptr=key_ptr,
        key=graph.key[key],
        read_ptr=read_ptr,
        read=number[graph.read[read]],
        seen=number[graph.seen[read]],
        box_ptr=box_ptr,
        box=graph.box[box],
        device=graph.device[value] if len(graph.device) else graph.device,
    )


def _rows(ptr: Ints, kept: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the pointers of some rows of a CSR table, and which of its entries these have."""
    counts = np.diff(ptr)
    return np.concatenate([[0], np.cumsum(counts[kept])]).astype(ptr.dtype), np.repeat(kept, counts)
