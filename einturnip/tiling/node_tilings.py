"""The ways to cut one node, what each costs in bytes, and what it costs that two nodes cut a tensor differently.

A join of P kernel calls takes P (nX + nY), an aggregation in groups of nagg (P / nagg) (nagg - 1) nZ, and a tensor cut
by d that is wanted cut by d' (|tile d| + |tile d'|) prod max(d, d'). Where a tile is read with what surrounds it, as by
a convolution, and both are cut alike, only the surroundings are moved. Of an input any part can be read: it costs
nothing to cut.

Source: EinDecomp (Bourgeois et al., 2024, arXiv 2410.02682), whose counts of elements are bytes here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node
from einturnip.ir.einsum import Index
from einturnip.ir.region import Space

Ints = NDArray[np.int64]
"""One row a way, one column a label or axis."""
Costs = NDArray[Any]


@dataclass(frozen=True)
class TensorTilings:
    """The ways as they look from one tensor: distinct (counts, tiles) a row, and the row ``of`` each way.

    ``exact``: along which axes tiles are read as they are, not with what surrounds them. ``times``: by how many nodes.
    """

    counts: Ints
    tiles: Ints
    of: Ints
    exact: NDArray[np.bool_]
    times: int = 1


@dataclass(frozen=True)
class NodeTilings:
    """Ways to cut one node: tiles along each label, and the bytes that the kernel calls take in and hand on.

    Or ``times`` nodes that are cut alike.
    """

    bounds: tuple[int, ...]
    n_out: int
    itemsize: int
    tiles: Ints
    join: Costs
    aggregate: Costs
    reads: tuple[tuple[Ints, Ints, NDArray[np.bool_]], ...]
    times: int = 1

    def __len__(self) -> int:
        return len(self.tiles)

    @cached_property
    def counts(self) -> Ints:
        """Tiles along each label; 1 for a label of size 0."""
        return tile_counts(self.bounds, self.tiles)

    @cached_property
    def own(self) -> Costs:
        """Bytes of each way that hang on this node alone."""
        return (self.join + self.aggregate) * self.times

    @cached_property
    def made(self) -> TensorTilings:
        """The ways as a reader of the node's tensor sees them."""
        n = self.n_out
        return distinct_rows(self.counts[:, :n], self.tiles[:, :n], np.ones(n, bool))

    @cached_property
    def wanted(self) -> tuple[TensorTilings, ...]:
        """How each way wants each operand cut; operands that are read alike share theirs."""
        once = {key: distinct_rows(*read, self.times) for key, read in {id(read): read for read in self.reads}.items()}
        return tuple(once[id(read)] for read in self.reads)

    @cached_property
    def alike_slots(self) -> Ints:
        """For each operand the first that is read as it is."""
        first: dict[int, int] = {}
        return np.array([first.setdefault(id(read), slot) for slot, read in enumerate(self.reads)], np.int64)


def distinct_rows(counts: Ints, tiles: Ints, exact: NDArray[np.bool_], times: int = 1) -> TensorTilings:
    """Distinct rows, in the order of their first appearance."""
    rows: dict[tuple[int, ...], int] = {}
    of = [rows.setdefault(tuple(row), len(rows)) for row in np.concatenate((counts, tiles), 1).tolist()]
    table = np.array(list(rows), np.int64).reshape(len(rows), -1)
    return TensorTilings(table[:, : counts.shape[1]], table[:, counts.shape[1] :], np.array(of, np.int64), exact, times)


def repartition(made: TensorTilings, wanted: TensorTilings, itemsize: int) -> Costs:
    """Bytes that it takes to cut a tensor anew: one row a way that it is made, one column a way that it is wanted."""
    before, after = made.counts[:, None, :], wanted.counts[None, :, :]
    cells = np.maximum(before, after).prod(2) * (itemsize * wanted.times)
    given, taken = made.tiles.prod(1)[:, None], wanted.tiles.prod(1)[None, :]
    same = made.tiles[:, None, :] == wanted.tiles[None, :, :]
    alike = ((before == after) & (same | ~wanted.exact)).all(2)
    costs: Costs = np.where(alike, np.maximum(0, taken - given), given + taken) * cells.astype(np.float64)
    return costs


def node_tilings(node: Node, graph: EinGraph, tiles: Ints) -> NodeTilings:
    """The ways that cut a node's labels into ``tiles``, one row each."""
    match node:
        case EinsumNode(einsum=einsum):
            return _einsum_ways(einsum, tiles)
        case ConcatNode(shape=shape, dtype=dtype, pieces=pieces):
            alike = [(piece.axes, graph.nodes[piece.operand].shape) for piece in pieces]
            reads = {}
            for axes, sizes in dict.fromkeys(alike):
                part = np.minimum(tiles[:, list(axes)], np.maximum(1, np.array(sizes, np.int64)))
                reads[axes, sizes] = tile_counts(sizes, part), part, np.ones(len(sizes), bool)
            moved = np.full(len(tiles), float(math.prod(shape) * dtype.itemsize))
            each = tuple(reads[key] for key in alike)
            return NodeTilings(shape, len(shape), dtype.itemsize, tiles, moved, np.zeros(len(tiles)), each)
        case InputNode(shape=shape, dtype=dtype):
            nothing = np.zeros(len(tiles))
            return NodeTilings(shape, len(shape), dtype.itemsize, tiles, nothing, nothing, ())
        case _:
            assert_never(node)


def tile_counts(bounds: Sequence[int], tiles: Ints) -> Ints:
    """Tiles along each label; 1 for a label of size 0."""
    return np.asarray(np.maximum(1, -(-np.array(bounds, np.int64) // tiles)))


def _einsum_ways(einsum: Space, tiles: Ints) -> NodeTilings:
    counts = tile_counts(einsum.bounds, tiles)
    tiles = np.minimum(tiles, np.maximum(1, np.array(einsum.bounds, np.int64)))
    calls = counts.prod(1)
    groups = counts[:, einsum.n_out :].prod(1)
    reads, join = [], np.zeros(len(tiles))
    once: dict[Hashable, tuple[Ints, Ints, NDArray[np.bool_]]] = {}
    for slot, (access, dtype) in enumerate(zip(einsum.accesses, einsum.dtypes, strict=True)):
        key = access, einsum.operand_shape(slot)
        if key not in once:
            once[key] = _read(einsum, slot, tiles, counts)
        reads.append(once[key])
        join += once[key][1].prod(1, dtype=np.float64) * dtype.itemsize
    made = tiles[:, : einsum.n_out].prod(1, dtype=np.float64) * einsum.dtype.itemsize
    aggregate = calls // groups * (groups - 1) * made
    return NodeTilings(einsum.bounds, einsum.n_out, einsum.dtype.itemsize, tiles, calls * join, aggregate, tuple(reads))


def _read(einsum: Space, slot: int, tiles: Ints, counts: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """How each way wants an operand: counts, tiles and along which axes they are exact."""
    access = einsum.accesses[slot]
    part = np.ones((len(tiles), len(access)), np.int64)
    cut = np.ones((len(tiles), len(access)), np.int64)
    for axis, index in enumerate(access):
        label = index if isinstance(index, int) else _leading(index, einsum.bounds)
        part[:, axis] = tiles[:, index] if isinstance(index, int) else _extent(einsum, slot, axis, index, tiles)
        if label is not None:
            cut[:, axis] = counts[:, label]
    return cut, part, np.array([isinstance(index, int) for index in access], bool)


def _leading(index: Index, bounds: Sequence[int]) -> int | None:
    """The label whose cut cuts an axis: of an index the term that spans most."""
    return max(index.terms, key=lambda t: abs(t[1]) * bounds[t[0]])[0] if index.terms else None


def _extent(einsum: Space, slot: int, axis: int, index: Index, tiles: Ints) -> Ints:
    """Elements along one axis of an operand that each way's tile reads (``operand_extents``, row by row)."""
    span = sum((abs(c) * (tiles[:, p] - 1) for p, c in index.terms), np.zeros(len(tiles), np.int64))
    span = (span + index.divisor - 1) // index.divisor + 1
    if index.modulus:
        span = np.where(span > 1, index.modulus, span)
    return np.asarray(np.minimum(span, einsum.shapes[slot][axis]))
