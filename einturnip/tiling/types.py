"""Decomposition: each tensor and each einsum cut into tiles along its labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode

Box: TypeAlias = tuple[tuple[int, int], ...]


def index(box: Box, outer: Box | None = None) -> tuple[Any, ...]:
    """``box`` as an index into an array that holds ``outer`` (by default the tensor); a view even of a scalar."""
    starts = [0] * len(box) if outer is None else [lo for lo, _ in outer]
    return (*(slice(lo - a, hi - a) for (lo, hi), a in zip(box, starts, strict=True)), ...)


@dataclass(frozen=True)
class Partitioning:
    """How a label space is cut: ``tiles[l]`` is the tile's extent along label l; the last tile may be smaller.

    For an einsum the labels are its own, output's first; for any other node they are its axes.
    """

    bounds: tuple[int, ...]
    tiles: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each label. A label of size 0 has none."""
        return tuple(-(-b // t) for b, t in zip(self.bounds, self.tiles, strict=True))

    @property
    def ragged(self) -> list[tuple[int, int]]:
        """The labels whose last tile is smaller than the others, and which tile that is."""
        cut = zip(self.bounds, self.tiles, self.counts, strict=True)
        return [(p, n - 1) for p, (b, t, n) in enumerate(cut) if b % t and n > 1]

    def box(self, key: tuple[int, ...]) -> Box:
        """The (start, stop) of tile ``key`` along each label."""
        return tuple((k * t, min((k + 1) * t, b)) for k, t, b in zip(key, self.tiles, self.bounds, strict=True))

    def each(self) -> Iterator[tuple[int, ...]]:
        """Every tile's key, in row-major order."""
        return product(*map(range, self.counts))

    def prefix(self, n: int) -> Partitioning:
        """The partitioning of the first ``n`` labels: that of an einsum's output."""
        return Partitioning(self.bounds[:n], self.tiles[:n])

    def covering(self, box: Box) -> list[tuple[int, ...]]:
        """Keys of the tiles that meet ``box``."""
        return list(product(*(range(lo // t, -(-hi // t)) for (lo, hi), t in zip(box, self.tiles, strict=True))))


@dataclass(frozen=True, slots=True)
class IoBlock:
    """Tiles per block along each output label, and the output label that streams (None: the aggregated ones do).

    ``turning``: there is room to walk the tiles so that what this block and the next both read stays.
    ``outermost``: the output label along which the walk of blocks goes on last, the others following in their order.
    """

    tiles: tuple[int, ...]
    streamed: int | None
    turning: bool = False
    outermost: int = 0


def walk_order(n_labels: int, outermost: int) -> list[int]:
    """Labels in the order of a walk, outermost first."""
    return [outermost, *(p for p in range(n_labels) if p != outermost)] if n_labels else []


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A partitioning for each node of an EinGraph.

    ``blocks`` is the serial order's I/O blocking: for each einsum the tiles per block along each *output* label, and
    the label that the walk inside a block runs over last, if any; a block's accumulators stay while panels stream past.
    ``notes``: what the program asked for and did not get.
    """

    graph: EinGraph
    partitionings: tuple[Partitioning, ...]
    blocks: tuple[IoBlock | None, ...]
    notes: tuple[str, ...] = ()

    def output(self, node: int) -> Partitioning:
        """The partitioning of the node's tensor: what its consumers read."""
        match self.graph.nodes[node]:
            case InputNode() | ConcatNode():
                return self.partitionings[node]
            case EinsumNode(einsum=einsum):
                return self.partitionings[node].prefix(einsum.n_out)

    @property
    def kernel_calls(self) -> int:
        """Number of tile kernels over the whole graph."""
        return sum(
            math.prod(p.counts)
            for p, n in zip(self.partitionings, self.graph.nodes, strict=True)
            if isinstance(n, EinsumNode)
        )
