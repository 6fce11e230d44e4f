"""Decomposition: the tiling of every tensor and einsum of a graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode
from einturnip.ir.einsum import Box


def index(box: Box, outer: Box | None = None) -> tuple[Any, ...]:
    """Return ``box`` as an index of an array of ``outer`` (default: the tensor); it always gives a view."""
    starts = [0] * len(box) if outer is None else [lo for lo, _ in outer]
    return (*(slice(lo - a, hi - a) for (lo, hi), a in zip(box, starts, strict=True)), ...)


@dataclass(frozen=True)
class Partitioning:
    """The tiling of a label space: ``tiles[l]`` is the extent along label l; the last tile may be smaller.

    For an einsum the labels are its own, output labels first; for any other node they are its axes.
    """

    bounds: tuple[int, ...]
    tiles: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each label. A label of size 0 has none."""
        return tuple(-(-b // t) for b, t in zip(self.bounds, self.tiles, strict=True))

    @property
    def ragged(self) -> list[tuple[int, int]]:
        """The labels whose last tile is smaller, each with the number of that tile."""
        axes = zip(self.bounds, self.tiles, self.counts, strict=True)
        return [(p, n - 1) for p, (b, t, n) in enumerate(axes) if b % t and n > 1]

    def box(self, key: tuple[int, ...]) -> Box:
        """Return the (start, stop) of tile ``key`` along each label."""
        return tuple((k * t, min((k + 1) * t, b)) for k, t, b in zip(key, self.tiles, self.bounds, strict=True))

    def each(self) -> Iterator[tuple[int, ...]]:
        """Yield every tile's key in row-major order."""
        return product(*map(range, self.counts))

    def prefix(self, n: int) -> Partitioning:
        """Return the partitioning of the first ``n`` labels, for example of an einsum's output."""
        return Partitioning(self.bounds[:n], self.tiles[:n])

    def covering(self, box: Box) -> list[tuple[int, ...]]:
        """Return the keys of the tiles that overlap ``box``."""
        return list(product(*(range(lo // t, -(-hi // t)) for (lo, hi), t in zip(box, self.tiles, strict=True))))


@dataclass(frozen=True, slots=True)
class IoBlock:
    """Tiles per block along each output label, and the streamed output label.

    ``streamed`` is None if the aggregated labels are streamed. ``turning``: memory suffices to order the tiles so that
    data shared with the next block stays. ``outermost``: the output label that changes slowest in the walk of blocks;
    the others follow in their order.
    """

    tiles: tuple[int, ...]
    streamed: int | None
    turning: bool = False
    outermost: int = 0


def walk_order(n_labels: int, outermost: int) -> list[int]:
    """Return the labels in the order of a walk, outermost first."""
    return [outermost, *(p for p in range(n_labels) if p != outermost)] if n_labels else []


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A partitioning for each node of an EinGraph.

    ``blocks`` is the I/O blocking of the serial order: for each einsum the tiles per block along each *output* label,
    and the streamed label, if any; a block's accumulators stay while panels stream past. ``notes``: hints of the
    program that were not followed.
    """

    graph: EinGraph
    partitionings: tuple[Partitioning, ...]
    blocks: tuple[IoBlock | None, ...]
    notes: tuple[str, ...] = ()

    def output(self, node: int) -> Partitioning:
        """Return the partitioning of the node's tensor, which its consumers read."""
        match self.graph.nodes[node]:
            case InputNode() | ConcatNode():
                return self.partitionings[node]
            case EinsumNode(einsum=einsum):
                return self.partitionings[node].prefix(einsum.n_out)

    @property
    def kernel_calls(self) -> int:
        """The number of tile kernels of the whole graph."""
        return sum(
            math.prod(p.counts)
            for p, n in zip(self.partitionings, self.graph.nodes, strict=True)
            if isinstance(n, EinsumNode)
        )
