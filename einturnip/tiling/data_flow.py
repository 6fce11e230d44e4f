"""Data flow between the kernel calls of a decomposition, used to assign calls to devices.

A tensor is divided into atoms by its own tiles and by the parts that its readers take, so that no reader needs a part
of an atom. The bytes that pass between devices are then a sum over atoms: no atom is sent twice to one device, and none
to a device that does not need it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region, Space
from einturnip.ir.scalar import ScalarCall, walk
from einturnip.kernels.mask import LabelMask
from einturnip.tiling.pieces import ConcatPieces
from einturnip.tiling.types import Box, Decomposition

Bools = NDArray[np.bool_]


@dataclass
class NodeCalls:
    """The kernel calls of one node: keys, operations, and output tile of each."""

    keys: list[tuple[int, ...]]
    flops: NDArray[np.float64]
    tile: NDArray[np.int64]
    reads: list[list[tuple[int, Box]]]


@dataclass
class TensorAtoms:
    """The atoms of one node's tensor. ``needs[k]``: the atoms that each call of ``readers[k]`` reads."""

    points: list[NDArray[np.int64]]
    tile: NDArray[np.int64]
    nbytes: NDArray[np.float64]
    state_nbytes: NDArray[np.float64]
    readers: list[int] = field(default_factory=list)
    needs: list[Bools] = field(default_factory=list)


@dataclass
class DataFlow:
    """The calls of every computing node, and the atoms of every computed tensor."""

    decomposition: Decomposition
    calls: dict[int, NodeCalls]
    tensors: dict[int, TensorAtoms]
    reads: dict[int, list[int]]


def data_flow(decomposition: Decomposition) -> DataFlow:
    """Return the calls and atoms of a decomposition."""
    graph = decomposition.graph
    calls = {i: _calls(decomposition, i) for i, n in enumerate(graph.nodes) if not isinstance(n, InputNode)}
    users: dict[int, list[int]] = {}
    for j, c in calls.items():
        for i in dict.fromkeys(i for read in c.reads for i, _ in read if i in calls):
            users.setdefault(i, []).append(j)
    tensors = {i: _tensor(decomposition, i, calls, users.get(i, ())) for i in calls}
    reads: dict[int, list[int]] = {j: [] for j in calls}
    for i, t in tensors.items():
        for j in t.readers:
            reads[j].append(i)
    return DataFlow(decomposition, calls, tensors, reads)


def call_flops(einsum: Space, extents: Sequence[int]) -> int:
    """Return the scalar operations of one call: 2 per point of a contraction, else the join's, at least 1."""
    if isinstance(einsum, Region):
        return sum(math.prod(extents[p] for p in s.labels) * _point_flops(s.einsum) for s in einsum.steps)
    return math.prod(extents) * _point_flops(einsum)


def _point_flops(einsum: Einsum) -> int:
    if contraction(einsum) is not None:
        return 2
    return max(1, sum(isinstance(e, ScalarCall) for e in walk(einsum.join)) + bool(einsum.aggregated))


def _calls(d: Decomposition, i: int) -> NodeCalls:
    node, part = d.graph.nodes[i], d.partitionings[i]
    if isinstance(node, ConcatNode):
        pieces = ConcatPieces(d.graph, node)
        keys = list(part.each())
        reads = [[(p.operand, p.within) for p in pieces.parts(part.box(k))] for k in keys]
        return NodeCalls(keys, np.zeros(len(keys)), np.arange(len(keys)), reads)
    assert isinstance(node, EinsumNode)
    e = node.einsum
    mask = LabelMask(e)
    tiles = {k: n for n, k in enumerate(d.output(i).each())}
    inner = list(product(*(range(max(1, c)) for c in part.counts[e.n_out :])))
    keys = []
    for k in tiles:
        mine = [k + rest for rest in inner]
        some = [key for key in mine if not mask.is_idle(part.box(key))] if mask.conditions and len(mine) > 1 else mine
        keys += some or mine[:1]  # an output tile without terms still needs a call
    flops, reads = [], []
    for key in keys:
        box = part.box(key)
        flops.append(float(call_flops(e, [hi - lo for lo, hi in box])))
        reads.append([(o, e.operand_box(slot, box)) for slot, o in enumerate(node.operands)])
    return NodeCalls(keys, np.array(flops), np.array([tiles[k[: e.n_out]] for k in keys], np.int64), reads)


def _tensor(d: Decomposition, i: int, calls: dict[int, NodeCalls], users: Sequence[int]) -> TensorAtoms:
    node, out = d.graph.nodes[i], d.output(i)
    boxes = {j: [[b for o, b in read if o == i] for read in calls[j].reads] for j in users}
    points = []
    for axis, (size, tile) in enumerate(zip(node.shape, out.tiles, strict=True)):
        ends = {0, size, *range(0, size, tile)}
        for found in boxes.values():
            ends.update(end for some in found for box in some for end in box[axis])
        points.append(np.array(sorted(ends), np.int64))
    starts = [p[:-1] for p in points]
    shape = tuple(map(len, starts))
    number = np.zeros(shape, np.int64)
    elements = np.ones(shape)
    for axis, (p, t, count) in enumerate(zip(points, out.tiles, out.counts, strict=True)):
        line = tuple(-1 if a == axis else 1 for a in range(len(shape)))
        number = number * count + (p[:-1] // t).reshape(line)
        elements = elements * np.diff(p).reshape(line)
    each = node.dtype.itemsize
    state = each
    if isinstance(node, EinsumNode) and not isinstance(node.einsum, Region):
        state = sum(dtype.itemsize for dtype in node.einsum.state_dtypes) or each
    made = TensorAtoms(points, number.reshape(-1), elements.reshape(-1) * each, elements.reshape(-1) * state)
    for j, found in boxes.items():
        needs = np.zeros((len(found), elements.size), bool)
        for row, some in zip(needs, found, strict=True):
            for box in some:
                inside = np.ones(shape, bool)
                for axis, ((lo, hi), s) in enumerate(zip(box, starts, strict=True)):
                    line = tuple(-1 if a == axis else 1 for a in range(len(shape)))
                    inside = inside & ((s >= lo) & (s < hi)).reshape(line)
                row |= inside.reshape(-1)
        made.readers.append(j)
        made.needs.append(needs)
    return made


def levels(graph: EinGraph) -> list[int]:
    """Return for each node the length of the longest chain of computed nodes before it."""
    found: list[int] = []
    for node in graph.nodes:
        operands = () if isinstance(node, InputNode) else node.operands
        found.append(max((found[o] + (not isinstance(graph.nodes[o], InputNode)) for o in operands), default=0))
    return found
