"""Proves a task graph.

Operands precede readers, each value is made once, each output point stored once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import take_rows
from einturnip.core.distinct import sorted_distinct
from einturnip.core.errors import InternalError
from einturnip.eingraph.types import ConcatNode
from einturnip.ir.einsum import Box
from einturnip.taskgraph.types import TaskGraph, TaskKind, ValueKind
from einturnip.tiling.pieces import disjoint_groups, intersection, points


def check(graph: TaskGraph) -> None:
    """Prove the graph.

    Raises:
        InternalError: naming the task at fault.
    """
    n = len(graph)
    made = np.full(graph.n_values, n, np.int64)
    done = np.full(graph.n_values, -1, np.int64)
    makers = np.flatnonzero(graph.kind != TaskKind.STORE)
    np.minimum.at(made, graph.value[makers], makers)
    np.maximum.at(done, graph.value[makers], makers)
    views = graph.value_kind == ValueKind.VIEW
    if ((made == n) != views).any():
        raise InternalError(f"value {int(np.argmax((made == n) != views))} is never made, or is a view that is")
    _check_makers(graph, makers)
    users = np.repeat(np.arange(n), np.diff(graph.read_ptr))
    early = np.flatnonzero(done[graph.read] >= users)
    if len(early):
        task = int(users[early[0]])
        raise InternalError(f"task {task} reads value {int(graph.read[early[0]])} before it is complete")
    if (graph.value_nbytes[graph.seen] > graph.value_nbytes[graph.read]).any():
        raise InternalError("a value is seen as more bytes than it has")
    for number in range(len(graph.decomposition.graph.outputs)):
        _check_stored(graph, number)
    if graph.devices > 1:
        _check_devices(graph)


def _check_makers(graph: TaskGraph, makers: NDArray[np.int64]) -> None:
    """Check that one task makes each value, except states and boxes that several moves fill completely."""
    several = np.bincount(graph.value[makers], minlength=graph.n_values) > 1
    moved = np.zeros(graph.n_values, bool)
    moved[graph.value[graph.kind == TaskKind.MOVE]] = True
    if (several & ~moved & (graph.value_kind != ValueKind.STATE)).any():
        raise InternalError("a tile is made twice")
    _check_copies(graph)


def _check_copies(graph: TaskGraph) -> None:
    """Check that the moves into each value copy each of its points once.

    Equal patterns of boxes are checked once.
    """
    moves = np.flatnonzero(graph.kind == TaskKind.MOVE)
    moves = moves[np.argsort(graph.value[moves], kind="stable")]
    of, reads = graph.value[moves], np.diff(graph.read_ptr)[moves]
    ptr, at = take_rows(graph.key_ptr, moves)
    # Boxes relative to the first point of their value.
    value = np.repeat(of, np.diff(ptr))
    bound = (np.arange(len(at)) - np.repeat(ptr[:-1], np.diff(ptr))) % np.maximum(1, np.diff(graph.box_ptr)[value])
    copied = graph.key[at] - graph.box[graph.box_ptr[value] + bound // 2 * 2]
    values = sorted_distinct(of)
    first = np.append(np.searchsorted(of, values), len(of))
    n_boxes = np.diff(np.append(0, np.cumsum(reads))[first])
    known = set[tuple[int, bytes, bytes]]()
    for v, start, stop, n in zip(
        values.tolist(), *(ptr[x].tolist() for x in (first[:-1], first[1:])), n_boxes.tolist(), strict=True
    ):
        whole = graph.box[graph.box_ptr[v] : graph.box_ptr[v + 1]]
        extents, boxes = whole[1::2] - whole[::2], copied[start:stop]
        pattern = n, extents.tobytes(), boxes.tobytes()
        if pattern in known:
            continue
        known.add(pattern)
        rows = boxes.reshape(n, len(extents), 2).tolist()
        if not tiled([tuple((lo, hi) for lo, hi in row) for row in rows], tuple((0, x) for x in extents.tolist())):
            raise InternalError(f"the moves into value {v} do not copy each of its points once")


def _check_devices(graph: TaskGraph) -> None:
    """Check that tasks read values of their own device, except moves of whole values."""
    counts = np.diff(graph.read_ptr)
    first = graph.read[np.minimum(graph.read_ptr[:-1], max(0, len(graph.read) - 1))]
    made = np.where(graph.kind == TaskKind.STORE, first, graph.value)
    far = graph.device[graph.read] != np.repeat(graph.device[made], counts)
    tasks = np.repeat(np.arange(len(graph)), counts)[far]
    copies = (graph.kind[tasks] == TaskKind.MOVE) & (counts[tasks] == 1)
    copies &= graph.original[graph.value[tasks]] == graph.original[first[tasks]]
    if not copies.all():
        i = int(tasks[np.argmin(copies)])
        raise InternalError(f"task {i} reads value {int(first[i])}, which is on another device")


def _check_stored(graph: TaskGraph, number: int) -> None:
    """Check that every point of an output is stored once."""
    name, node = graph.decomposition.graph.outputs[number]
    stores = np.flatnonzero((graph.kind == TaskKind.STORE) & (graph.node == number))
    values = graph.value[stores]
    whole: Box = tuple((0, n) for n in graph.decomposition.graph.nodes[node].shape)
    if len(graph.finished):
        boxes = [graph.get_value(v).box for v in values.tolist()]
        stored = _disjoint([b for b in boxes if points(b)], 0)
        stored &= sum(map(points, boxes)) + int(graph.finished[number]) == points(whole)
    elif isinstance(graph.decomposition.graph.nodes[node], ConcatNode):
        stored = tiled([graph.get_value(v).box for v in values.tolist()], whole)
    else:
        counts = graph.decomposition.output(node).counts
        stored = len(stores) == math.prod(counts) and len(sorted_distinct(values)) == len(stores)
    if not stored:
        raise InternalError(f"the tiles of output {name!r} are not stored once each")


def tiled(boxes: Sequence[Box], whole: Box) -> bool:
    """Return whether the boxes are disjoint and their union is ``whole``."""
    size = [points(b) for b in boxes]
    inside = all(a <= lo and hi <= b for box in boxes for (lo, hi), (a, b) in zip(box, whole, strict=True))
    return inside and sum(size) == points(whole) and _disjoint([b for b, n in zip(boxes, size, strict=True) if n], 0)


def _disjoint(boxes: list[Box], axis: int) -> bool:
    """Return whether no two boxes share a point: split along one axis after the other, then by pairs."""
    if len(boxes) < 2:
        return True
    if axis == len(boxes[0]):
        return all(intersection(a, b) is None for a, b in combinations(boxes, 2))
    return all(_disjoint(group, axis + 1) for group in disjoint_groups(boxes, axis))
