"""Kernels without a fold: a join written directly to the result, and finalizing a state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from einturnip.ir.einsum import Einsum
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.fold import finalized
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.primitives import copy
from einturnip.kernels.expr.space import BLOCK_POINTS, cut
from einturnip.kernels.numpy.blocked import BlockedKernel, blocked
from einturnip.kernels.numpy.join import JoinBuilder, keyed_space

_WORKSPACE_NBYTES = 1 << 20  # about a core's second-level cache
_MIN_POINTS, _TINY_POINTS = 1024, 8192
_STREAM_BLOCKS, _STREAM_NBYTES = 32, 64 << 10  # with few temporary values, long blocks save calls
_LONG_BLOCKS_NBYTES = 256 << 10  # maximum temporary bytes for which blocks are lengthened


def compile_elementwise(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile an einsum without aggregation."""
    return limit_to_cache(lambda points: _build(einsum, extents, points), math.prod(extents))


def _build(einsum: Einsum, extents: tuple[int, ...], points: int) -> BlockedKernel:
    assembler = Assembler(keyed_space(einsum, extents, points))
    join = JoinBuilder(assembler, einsum, extents)
    store(assembler, join.graph, join.value(einsum.join), tuple(range(einsum.n_out)), None)
    outs = (tuple(range(einsum.n_out)),)
    return blocked(assembler, einsum.accesses, outs, True)


def compile_finalize(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile the kernel that computes the result from a state."""
    labels, shape = tuple(range(einsum.n_out)), extents[: einsum.n_out]

    def build(points: int) -> BlockedKernel:
        assembler = Assembler(cut(labels, shape, einsum.n_out, points))
        graph = PrimitiveGraph()
        state = [
            graph.input(assembler.external("operand", i, dtype.numpy, labels), dtype, labels)
            for i, dtype in enumerate(einsum.state_dtypes)
        ]
        store(assembler, graph, finalized(graph, einsum, state), labels, None)
        return blocked(assembler, (labels,) * len(state), (labels,), True)

    return limit_to_cache(build, math.prod(shape))


def limit_to_cache(build: Callable[[int], BlockedKernel], tile_points: int) -> BlockedKernel:
    """Return the kernel with the largest blocks whose workspace fits the cache, and is small for its tile."""

    def within(nbytes: int) -> BlockedKernel:
        points = min(BLOCK_POINTS, max(_TINY_POINTS, tile_points // 4))
        while _blocks_nbytes(kernel := build(points)) > nbytes and points > _MIN_POINTS:
            points //= 2
        return kernel

    points = _STREAM_BLOCKS * BLOCK_POINTS
    kernel = build(points)
    if _blocks_nbytes(kernel) > max(_STREAM_NBYTES, min(points, tile_points) // 4):
        kernel = within(_WORKSPACE_NBYTES)
        limit, points = min(_LONG_BLOCKS_NBYTES, tile_points // 4), 2 * BLOCK_POINTS
        while kernel.space.loops and _blocks_nbytes(longer := build(points)) <= limit:
            kernel, points = longer, 2 * points
    return replace(kernel, within=lru_cache(maxsize=2)(within))


def _blocks_nbytes(kernel: BlockedKernel) -> int:
    """Return the bytes of workspace that depend on the blocks' size."""
    return kernel.workspace_nbytes - kernel.tables_nbytes


def store(assembler: Assembler, graph: PrimitiveGraph, root: int, labels: tuple[int, ...], section: int | None) -> None:
    """Emit steps that compute ``root`` into the one output, without a copy if possible."""
    dtype = graph[root].dtype
    (made,) = assembler.emit(graph, [root], section)
    out = assembler.external("out", 0, dtype.numpy, labels)
    if graph[root].labels == frozenset(labels) and assembler.redirect(made, out):
        return
    assembler.step(assembler.registers[out].level if section is None else section, copy, (made,), out)
