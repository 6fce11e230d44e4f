"""EinDecomp: the decomposition of a graph into P kernel calls a node that moves the fewest bytes.

Every einsum gets a count d for each label, with a product of P; a join costs P (nX + nY), an aggregation
(P / nagg) (nagg - 1) nZ, a tensor cut by d and wanted cut by d' (|tile d| + |tile d'|) prod max(d, d'), and inputs come
cut as they are wanted. That is a sum of terms of one node and of terms of two, so the best counts of a whole graph are
found by eliminating one node after another: on a tree this is the dynamic programme of the paper, and on a graph with
shared tensors it stays exact as long as the tables stay small; where they do not, the widest node is fixed first, and
the result is improved node by node until no change of one node helps.

Source: EinDecomp (Bourgeois et al., 2024, arXiv 2410.02682), whose counts of elements are bytes here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.einsum import Access
from einturnip.core.region import Region, Space
from einturnip.decomp.elimination import Factor, Problem, minimise
from einturnip.decomp.types import Decomposition, Partitioning
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node

Counts = NDArray[np.int64]
"""One row a candidate, one column a label."""
Costs = NDArray[Any]

# A node with more labels is cut along its largest ones only.
MOST_LABELS = 10


def eindecomp(graph: EinGraph, parts: int) -> Decomposition:
    """The graph with every node cut into ``parts`` kernel calls so that the fewest bytes move between them.

    A node whose labels are too short for ``parts`` is cut into as many as they allow.
    """
    made = [i for i, n in enumerate(graph.nodes) if not isinstance(n, InputNode)]
    spaces = {i: _space(graph.nodes[i], parts) for i in made}
    problem = Problem([spaces[i].unary for i in made])
    variable = {i: v for v, i in enumerate(made)}
    for i in made:
        for slot, operand in enumerate(_operands(graph.nodes[i])):
            if operand in variable:
                problem.factors.append(_edge(problem, variable[operand], spaces[operand], variable[i], spaces[i], slot))
    chosen = minimise(problem)
    cut = {i: spaces[i].partitioning(chosen[variable[i]]) for i in made}
    wanted: dict[int, tuple[int, ...]] = {}
    for i in made:
        for slot, operand in enumerate(_operands(graph.nodes[i])):
            asked = spaces[i].wanted(slot)[chosen[variable[i]]]
            wanted.setdefault(operand, tuple(int(d) for d in asked))
    whole = [wanted.get(i, (1,) * len(n.shape)) for i, n in enumerate(graph.nodes)]
    parts_of = [
        cut[i]
        if i in cut
        else Partitioning(n.shape, tuple(max(1, -(-b // d)) for b, d in zip(n.shape, w, strict=True)))
        for i, (n, w) in enumerate(zip(graph.nodes, whole, strict=True))
    ]
    return Decomposition(graph, tuple(parts_of), (None,) * len(graph.nodes))


@dataclass(frozen=True)
class _Space:
    """The candidates of one node: their counts, tiles and own cost, and how each looks from outside."""

    bounds: tuple[int, ...]
    counts: Counts
    unary: Costs
    itemsize: int
    n_out: int
    shape: tuple[int, ...]
    accesses: tuple[Access, ...]

    def partitioning(self, row: int) -> Partitioning:
        """Candidate ``row`` as a partitioning."""
        tiles = tuple(max(1, -(-b // int(d))) for b, d in zip(self.bounds, self.counts[row], strict=True))
        return Partitioning(self.bounds, tiles)

    def wanted(self, slot: int) -> Counts:
        """How each candidate wants operand ``slot`` cut."""
        columns = [self._leading(p) for p in self.accesses[slot]]
        return (
            np.stack([np.ones(len(self.counts), np.int64) if c is None else self.counts[:, c] for c in columns], 1)
            if columns
            else np.ones((len(self.counts), 0), np.int64)
        )

    def _leading(self, index: Any) -> int | None:
        """The label whose cut cuts an axis: itself, or of an index the term that spans most."""
        if isinstance(index, int):
            return index
        return max(index.terms, key=lambda t: abs(t[1]) * self.bounds[t[0]])[0] if index.terms else None


def _operands(node: Node) -> tuple[int, ...]:
    return () if isinstance(node, InputNode) else node.operands


@lru_cache(maxsize=4096)
def _einsum_space(einsum: Space, parts: int) -> _Space:
    whole = einsum.whole if isinstance(einsum, Region) else ()
    counts = candidates(tuple(1 if p in whole else n for p, n in enumerate(einsum.bounds)), parts)
    tiles = -(-np.array(einsum.bounds, np.int64)[None, :] // counts)
    calls = counts.prod(1)
    taken = np.zeros(len(counts))
    for slot, dtype in enumerate(einsum.dtypes):
        extents = [_extent(einsum, slot, axis, tiles) for axis in range(len(einsum.accesses[slot]))]
        taken += math.prod(extents, start=np.ones(len(counts))) * dtype.itemsize
    groups = counts[:, einsum.n_out :].prod(1)
    made = tiles[:, : einsum.n_out].prod(1) * einsum.dtype.itemsize
    unary = calls * taken + calls // groups * (groups - 1) * made
    return _Space(einsum.bounds, counts, unary, einsum.dtype.itemsize, einsum.n_out, einsum.shape, einsum.accesses)


def _extent(einsum: Space, slot: int, axis: int, tiles: Counts) -> Costs:
    """Elements along one axis of an operand that each candidate's tile reads."""
    index = einsum.accesses[slot][axis]
    if isinstance(index, int):
        return tiles[:, index].astype(np.float64)
    span = sum((abs(c) * (tiles[:, p] - 1) for p, c in index.terms), np.zeros(len(tiles), np.int64))
    return np.minimum(span // index.divisor + 1, einsum.shapes[slot][axis]).astype(np.float64)


def _space(node: Node, parts: int) -> _Space:
    match node:
        case EinsumNode(einsum=einsum):
            return _einsum_space(einsum, parts)
        case ConcatNode(shape=shape, dtype=dtype, pieces=pieces):
            counts = candidates(shape, parts)
            accesses: tuple[Access, ...] = tuple(piece.axes for piece in pieces)
            moved = np.full(len(counts), float(math.prod(shape) * dtype.itemsize))
            return _Space(shape, counts, moved, dtype.itemsize, len(shape), shape, accesses)
        case InputNode():
            raise AssertionError("an input has no kernel calls")


def _edge(problem: Problem, u: int, source: _Space, v: int, user: _Space, slot: int) -> Factor:
    """The cost of cutting node u's tensor anew for one operand of node v."""
    given, of_u = np.unique(source.counts[:, : source.n_out], axis=0, return_inverse=True)
    asked, of_v = np.unique(user.wanted(slot), axis=0, return_inverse=True)
    before, after = given[:, None, :], asked[None, :, :]
    shape = np.array(source.shape, np.int64)
    cells = np.maximum(before, after).prod(2)
    sizes = (-(-shape // before)).prod(2) + (-(-shape // after)).prod(2)
    table = np.where((before == after).all(2), 0.0, sizes * cells * source.itemsize)
    return Factor((problem.view(u, of_u.reshape(-1)), problem.view(v, of_v.reshape(-1))), table)


@lru_cache(maxsize=1024)
def candidates(bounds: tuple[int, ...], parts: int) -> Counts:
    """Every way to cut labels of these sizes into ``parts`` tiles in all, or the most below that which there is."""
    longest = sorted(range(len(bounds)), key=lambda p: -bounds[p])[:MOST_LABELS]
    for total in range(parts, 0, -1):
        rows = list(_factorisations([bounds[p] if p in longest else 1 for p in range(len(bounds))], total))
        if rows:
            return np.array(rows, np.int64).reshape(len(rows), len(bounds))
    raise AssertionError("one tile is always possible")


def _factorisations(bounds: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Counts whose product is ``total`` and which tiles of one extent can give."""
    if not bounds:
        if total == 1:
            yield ()
        return
    bound = max(1, bounds[0])
    for d in range(1, min(bound, total) + 1):
        if total % d == 0 and -(-bound // -(-bound // d)) == d:
            for rest in _factorisations(bounds[1:], total // d):
                yield (d, *rest)
