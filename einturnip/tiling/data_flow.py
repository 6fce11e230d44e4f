"""Data flow between the kernel calls of a decomposition, used to assign calls to devices.

A tensor is divided into atoms by its own tiles and by the parts that its readers take, so that no reader needs a part
of an atom. The bytes that pass between devices are then a sum over atoms: each atom is sent once to each device that
needs it, and to no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from einturnip.core.distinct import sorted_distinct
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import Box, Einsum, contraction
from einturnip.ir.region import Region, Space
from einturnip.ir.scalar import ScalarCall, labels_of, walk
from einturnip.kernels.mask import LabelMask
from einturnip.tiling.pieces import ConcatPieces, intersection, points, read_ranges
from einturnip.tiling.types import Decomposition
from einturnip.tuning.sites import MASK_PARTS

Ints = NDArray[np.int64]
_NONE: Ints = np.empty(0, np.int64)


@dataclass
class NodeCalls:
    """The kernel calls of one node: keys, operations, and output tile of each."""

    keys: list[tuple[int, ...]]
    flops: NDArray[np.float64]
    tile: NDArray[np.int64]
    reads: list[list[tuple[int, Box]]]


@dataclass(frozen=True, slots=True)
class CallAtoms:
    """The atoms that calls of a node read: distinct pairs of a call and an atom, by call."""

    call: Ints
    atom: Ints


@dataclass
class TensorAtoms:
    """The atoms of one node's tensor, in row-major order.

    ``ends``: by axis, the boundaries of the atoms, from 0 to the size. ``tile``: the tile of each atom. ``needs[k]``:
    the atoms that each call of node ``readers[k]`` reads.
    """

    ends: list[Ints]
    tile: Ints
    nbytes: NDArray[np.float64]
    state_nbytes: NDArray[np.float64]
    readers: list[int] = field(default_factory=list)
    needs: list[CallAtoms] = field(default_factory=list)

    @cached_property
    def by_tile(self) -> Ints:
        """The atoms of one tile after the other."""
        return np.argsort(self.tile, kind="stable")

    @cached_property
    def tile_ptr(self) -> Ints:
        """Where the atoms of each tile begin in ``by_tile``; the last entry is their number."""
        tiles = np.arange(int(self.tile.max(initial=-1)) + 2)
        return np.searchsorted(self.tile[self.by_tile], tiles).astype(np.int64)


@dataclass
class DataFlow:
    """The calls of every computing node, and the atoms of every computed tensor.

    ``shared``: the atoms of inputs that several nodes read, one entry for each set of nodes whose boxes overlap, so
    that calls of different nodes may read the same bytes of a file. ``shared_by_node``: the entries that a node reads.
    """

    decomposition: Decomposition
    calls: dict[int, NodeCalls]
    tensors: dict[int, TensorAtoms]
    reads: dict[int, list[int]]
    shared: list[TensorAtoms]
    shared_by_node: dict[int, list[TensorAtoms]]


def data_flow(decomposition: Decomposition) -> DataFlow:
    """Return the calls and atoms of a decomposition."""
    graph, computed = decomposition.graph, dict[tuple[object, ...], float]()
    ranges = read_ranges(graph)
    calls = {
        i: _calls(decomposition, i, computed, ranges[i])
        for i, n in enumerate(graph.nodes)
        if not isinstance(n, InputNode)
    }
    users: dict[int, list[int]] = {}
    for j, c in calls.items():
        for i in dict.fromkeys(i for read in c.reads for i, _ in read):
            users.setdefault(i, []).append(j)
    shared = [
        _tensor(decomposition, i, calls, some)
        for i, found in users.items()
        if i not in calls
        for some in _overlapping(i, calls, found)
    ]
    shared_by_node: dict[int, list[TensorAtoms]] = {j: [t for t in shared if j in t.readers] for j in calls}
    tensors = {i: _tensor(decomposition, i, calls, users.get(i, ())) for i in calls}
    reads: dict[int, list[int]] = {j: [] for j in calls}
    for i, t in tensors.items():
        for j in t.readers:
            reads[j].append(i)
    return DataFlow(decomposition, calls, tensors, reads, shared, shared_by_node)


def _overlapping(i: int, calls: dict[int, NodeCalls], users: Sequence[int]) -> list[list[int]]:
    """Return the sets of two or more nodes that read overlapping boxes of input ``i``."""
    sets: list[tuple[Box, list[int]]] = []
    for j in users if len(users) > 1 else ():
        boxes = [box for read in calls[j].reads for o, box in read if o == i]
        hull = tuple((min(lo for lo, _ in axis), max(hi for _, hi in axis)) for axis in zip(*boxes, strict=True))
        met = [(other, nodes) for other, nodes in sets if intersection(other, hull) is not None]
        sets = [entry for entry in sets if entry not in met]
        for other, _ in met:
            hull = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(hull, other, strict=True))
        sets.append((hull, [*(k for _, nodes in met for k in nodes), j]))
    return [nodes for _, nodes in sets if len(nodes) > 1]


def call_flops(einsum: Space, extents: Sequence[int]) -> int:
    """Return the scalar operations of one call: 2 per point of a contraction, else the join's, at least 1."""
    if isinstance(einsum, Region):
        return sum(math.prod(extents[p] for p in s.labels) * _point_flops(s.einsum) for s in einsum.steps)
    return math.prod(extents) * _point_flops(einsum)


def _point_flops(einsum: Einsum) -> int:
    if contraction(einsum) is not None:
        return 2
    return max(1, sum(isinstance(e, ScalarCall) for e in walk(einsum.join)) + bool(einsum.aggregated))


def _calls(d: Decomposition, i: int, computed: dict[tuple[object, ...], float], needed: Box) -> NodeCalls:
    """Return the calls of a node; those whose outputs nothing depends on neither compute nor read."""
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
        if intersection(box[: e.n_out], needed or box[: e.n_out]) is None:
            flops.append(0.0)
            reads.append([])
            continue
        flops.append(call_flops(e, [hi - lo for lo, hi in box]) * _computed_share(e, mask, box, computed))
        reads.append([(o, e.operand_box(slot, box)) for slot, o in enumerate(node.operands)])
    return NodeCalls(keys, np.array(flops), np.array([tiles[k[: e.n_out]] for k in keys], np.int64), reads)


def _computed_share(e: Space, mask: LabelMask, box: Box, known: dict[tuple[object, ...], float]) -> float:
    """Return the share of a box that is computed, without the parts to which the mask adds nothing.

    The labels of the mask divide the box into up to MASK_PARTS parts; one that its edge crosses counts as computed.
    """
    if not mask.conditions:
        return 1.0
    labels = sorted(frozenset().union(*map(labels_of, mask.conditions)))
    found = known.get(key := (id(e), *(box[p] for p in labels)))
    if found is None:
        each = max(1, int(MASK_PARTS ** (1 / len(labels))))
        lines = [_parts(*box[p], each) for p in labels]
        total = computed = 0
        for some in product(*lines):
            part = list(box)
            for p, line in zip(labels, some, strict=True):
                part[p] = line
            n = points(tuple(some))
            total, computed = total + n, computed + (0 if mask.is_idle(part) else n)
        found = known[key] = computed / total if total else 1.0
    return found


def _parts(lo: int, hi: int, count: int) -> list[tuple[int, int]]:
    """Divide an interval into at most ``count`` parts."""
    step = max(1, -(-(hi - lo) // count))
    return [(start, min(start + step, hi)) for start in range(lo, hi, step)]


def _tensor(d: Decomposition, i: int, calls: dict[int, NodeCalls], users: Sequence[int]) -> TensorAtoms:
    node, out = d.graph.nodes[i], d.output(i)
    boxes = {j: [[b for o, b in read if o == i] for read in calls[j].reads] for j in users}
    ends_of = []
    for axis, (size, tile) in enumerate(zip(node.shape, out.tiles, strict=True)):
        ends = {0, size, *range(0, size, tile)}
        for found in boxes.values():
            ends.update(end for some in found for box in some for end in box[axis])
        ends_of.append(np.array(sorted(ends), np.int64))
    starts = [p[:-1] for p in ends_of]
    shape = tuple(map(len, starts))
    number = np.zeros(shape, np.int64)
    elements = np.ones(shape)
    for axis, (p, t, count) in enumerate(zip(ends_of, out.tiles, out.counts, strict=True)):
        line = tuple(-1 if a == axis else 1 for a in range(len(shape)))
        number = number * count + (p[:-1] // t).reshape(line)
        elements = elements * np.diff(p).reshape(line)
    each = node.dtype.itemsize
    state = each
    if isinstance(node, EinsumNode) and not isinstance(node.einsum, Region):
        state = sum(dtype.itemsize for dtype in node.einsum.state_dtypes) or each
    made = TensorAtoms(ends_of, number.reshape(-1), elements.reshape(-1) * each, elements.reshape(-1) * state)
    inside = _AtomsOfBoxes(ends_of)
    for j, found in boxes.items():
        atoms = [inside[some] for some in map(tuple, found)]
        made.readers.append(j)
        call = np.repeat(np.arange(len(atoms)), [len(x) for x in atoms])
        made.needs.append(CallAtoms(call, np.concatenate([_NONE, *atoms])))
    return made


class _AtomsOfBoxes(dict[tuple[Box, ...], Ints]):
    """The atoms in some boxes of a tensor, which end where atoms do."""

    def __init__(self, ends: Sequence[Ints]) -> None:
        super().__init__()
        self.ends = ends

    def __missing__(self, boxes: tuple[Box, ...]) -> Ints:
        found = [self._atoms(box) for box in boxes]
        self[boxes] = found[0] if len(found) == 1 else sorted_distinct(np.concatenate([_NONE, *found]))
        return self[boxes]

    def _atoms(self, box: Box) -> Ints:
        atoms = np.zeros(1, np.int64)
        for (lo, hi), ends in zip(box, self.ends, strict=True):
            first, last = np.searchsorted(ends, (lo, hi))
            atoms = (atoms[:, None] * (len(ends) - 1) + np.arange(first, last)).reshape(-1)
        return atoms


def levels(graph: EinGraph) -> list[int]:
    """Return for each node the length of the longest chain of computed nodes before it."""
    found: list[int] = []
    for node in graph.nodes:
        operands = () if isinstance(node, InputNode) else node.operands
        found.append(max((found[o] + (not isinstance(graph.nodes[o], InputNode)) for o in operands), default=0))
    return found
