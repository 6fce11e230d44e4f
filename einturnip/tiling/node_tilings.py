"""Tiling candidates of one node with their costs in bytes, and the costs of repartitioning tensors.

A join of P kernel calls takes P (nX + nY) elements, an aggregation in groups of nagg (P / nagg) (nagg - 1) nZ, and a
tensor tiled by d but needed in tiles d' (|tile d| + |tile d'|) prod max(d, d'). If a tile is read with a halo, as by a
convolution, and both tilings agree, only the halo is moved. Any part of an input can be read, so its tiling costs
nothing.

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
"""One row per candidate, one column per label or axis."""
Costs = NDArray[Any]


@dataclass(frozen=True)
class TensorTilings:
    """The candidates as seen from one tensor: distinct (counts, tiles) rows, and the row ``of`` each.

    ``exact``: axes along which tiles are read without a halo. ``times``: number of nodes.
    """

    counts: Ints
    tiles: Ints
    of: Ints
    exact: NDArray[np.bool_]
    times: int = 1


@dataclass(frozen=True)
class NodeTilings:
    """Tiling candidates of a node: tiles along each label, and the bytes that the calls take and pass on.

    They may describe ``times`` nodes with equal tilings.
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
        """Return the number of tilings."""
        return len(self.tiles)

    @cached_property
    def counts(self) -> Ints:
        """Tiles along each label; 1 for a label of size 0."""
        return tile_counts(self.bounds, self.tiles)

    @cached_property
    def own(self) -> Costs:
        """Bytes of each candidate that depend on this node alone."""
        return (self.join + self.aggregate) * self.times

    @cached_property
    def made(self) -> TensorTilings:
        """The candidates as a reader of the node's tensor sees them."""
        n = self.n_out
        return distinct_rows(self.counts[:, :n], self.tiles[:, :n], np.ones(n, bool))

    @cached_property
    def required(self) -> tuple[TensorTilings, ...]:
        """The tiling that each candidate requires of each operand; operands read in the same way share it."""
        once = {key: distinct_rows(*read, self.times) for key, read in {id(read): read for read in self.reads}.items()}
        return tuple(once[id(read)] for read in self.reads)

    @cached_property
    def equal_slots(self) -> Ints:
        """For each operand the first operand that is read in the same way."""
        first: dict[int, int] = {}
        return np.array([first.setdefault(id(read), slot) for slot, read in enumerate(self.reads)], np.int64)


def distinct_rows(counts: Ints, tiles: Ints, exact: NDArray[np.bool_], times: int = 1) -> TensorTilings:
    """Return distinct rows in the order of their first appearance."""
    rows: dict[tuple[int, ...], int] = {}
    of = [rows.setdefault(tuple(row), len(rows)) for row in np.concatenate((counts, tiles), 1).tolist()]
    table = np.array(list(rows), np.int64).reshape(len(rows), -1)
    return TensorTilings(table[:, : counts.shape[1]], table[:, counts.shape[1] :], np.array(of, np.int64), exact, times)


def repartition(made: TensorTilings, required: TensorTilings, itemsize: int) -> Costs:
    """Return the bytes of repartitioning a tensor: one row per tiling made, one column per tiling needed."""
    before, after = made.counts[:, None, :], required.counts[None, :, :]
    cells = np.maximum(before, after).prod(2) * (itemsize * required.times)
    given, taken = made.tiles.prod(1)[:, None], required.tiles.prod(1)[None, :]
    same = made.tiles[:, None, :] == required.tiles[None, :, :]
    equal = ((before == after) & (same | ~required.exact)).all(2)
    costs: Costs = np.where(equal, np.maximum(0, taken - given), given + taken) * cells.astype(np.float64)
    return costs


def node_tilings(node: Node, graph: EinGraph, tiles: Ints) -> NodeTilings:
    """Return the candidates that tile a node's labels by ``tiles``, one row each."""
    match node:
        case EinsumNode(einsum=einsum):
            return _einsum_tilings(einsum, tiles)
        case ConcatNode(shape=shape, dtype=dtype, pieces=pieces):
            equal = [(piece.axes, graph.nodes[piece.operand].shape) for piece in pieces]
            reads = {}
            for axes, sizes in dict.fromkeys(equal):
                part = np.minimum(tiles[:, list(axes)], np.maximum(1, np.array(sizes, np.int64)))
                reads[axes, sizes] = tile_counts(sizes, part), part, np.ones(len(sizes), bool)
            moved = np.full(len(tiles), float(math.prod(shape) * dtype.itemsize))
            each = tuple(reads[key] for key in equal)
            return NodeTilings(shape, len(shape), dtype.itemsize, tiles, moved, np.zeros(len(tiles)), each)
        case InputNode(shape=shape, dtype=dtype):
            nothing = np.zeros(len(tiles))
            return NodeTilings(shape, len(shape), dtype.itemsize, tiles, nothing, nothing, ())
        case _:
            assert_never(node)


def tile_counts(bounds: Sequence[int], tiles: Ints) -> Ints:
    """Return the tiles along each label; 1 for a label of size 0."""
    return np.asarray(np.maximum(1, -(-np.array(bounds, np.int64) // tiles)))


def _einsum_tilings(einsum: Space, tiles: Ints) -> NodeTilings:
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
    """Return the tiling that each candidate requires of an operand: counts, tiles, and exact axes."""
    access = einsum.accesses[slot]
    part = np.ones((len(tiles), len(access)), np.int64)
    split = np.ones((len(tiles), len(access)), np.int64)
    for axis, index in enumerate(access):
        label = index if isinstance(index, int) else _leading(index, einsum.bounds)
        part[:, axis] = tiles[:, index] if isinstance(index, int) else _extent(einsum, slot, axis, index, tiles)
        if label is not None:
            split[:, axis] = counts[:, label]
    return split, part, np.array([isinstance(index, int) for index in access], bool)


def _leading(index: Index, bounds: Sequence[int]) -> int | None:
    """Return the label that determines the tiling of an axis: the term of the index that spans most."""
    return max(index.terms, key=lambda t: abs(t[1]) * bounds[t[0]])[0] if index.terms else None


def _extent(einsum: Space, slot: int, axis: int, index: Index, tiles: Ints) -> Ints:
    """Return the elements along one operand axis that a tile of each candidate reads."""
    span = sum((abs(c) * (tiles[:, p] - 1) for p, c in index.terms), np.zeros(len(tiles), np.int64))
    span = (span + index.divisor - 1) // index.divisor + 1
    if index.modulus:
        span = np.where(span > 1, index.modulus, span)
    return np.asarray(np.minimum(span, einsum.shapes[slot][axis]))
