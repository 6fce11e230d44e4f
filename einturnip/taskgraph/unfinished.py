"""Removes tasks whose results an earlier attempt of the run has stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.einsum import Box
from einturnip.taskgraph.subgraph import subgraph
from einturnip.taskgraph.types import Ints, TaskGraph, TaskKind
from einturnip.tuning.memory import MAX_CELLS_OF_BOX


def unfinished(graph: TaskGraph, finished: Mapping[int, Sequence[Box]]) -> TaskGraph:
    """Return the graph without the stores of finished tiles and the tasks that only these stores need.

    If all stores are finished, the last one stays, so that there is something to run.

    ``graph``: for one device, without recomputed values. ``finished``: by output, boxes that may overlap.
    """
    stores = np.flatnonzero(graph.kind == TaskKind.STORE)
    done, elements = np.zeros(len(stores), bool), np.zeros(len(stores), np.int64)
    for output, (_, node) in enumerate(graph.decomposition.graph.outputs):
        rank, mine = len(graph.decomposition.graph.nodes[node].shape), graph.node[stores] == output
        boxes = graph.boxes(graph.value[stores[mine]], rank)
        done[mine] = _covered(boxes, np.array(finished.get(output, ()), np.int64).reshape(-1, rank, 2))
        elements[mine] = (boxes[:, :, 1] - boxes[:, :, 0]).prod(axis=1)
    if done.all():
        done[-1:] = False
    counts = np.zeros(len(graph.decomposition.graph.outputs), np.int64)
    np.add.at(counts, graph.node[stores[done]], elements[done])
    return replace(_needed_by(graph, stores[~done]), finished=counts)


def _needed_by(graph: TaskGraph, stores: Ints) -> TaskGraph:
    """Return the graph of some stores, and of the tasks and values that they need."""
    is_needed, value = np.zeros(len(graph), bool), np.zeros(graph.n_values, bool)
    is_needed[stores] = True
    kind, made, ptr = graph.kind.tolist(), graph.value.tolist(), graph.read_ptr.tolist()
    for i in range(len(graph) - 1, -1, -1):
        if is_needed[i] or (kind[i] != TaskKind.STORE and value[made[i]]):
            is_needed[i] = value[made[i]] = True
            value[graph.read[ptr[i] : ptr[i + 1]]] = True
            value[graph.seen[ptr[i] : ptr[i + 1]]] = True
    return subgraph(graph, np.flatnonzero(is_needed), np.flatnonzero(value))


def _covered(boxes: Ints, finished: Ints) -> NDArray[np.bool_]:
    """Return whether each box is inside the union of the finished ones. Shapes: (boxes, axes, 2)."""
    if not len(finished):
        return np.zeros(len(boxes), bool)
    # The borders of the finished boxes divide space into cells. Each cell is inside one of them, or outside of all.
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
