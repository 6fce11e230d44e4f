"""Kernels without a fold: a join written directly to the result, and finalizing a state."""

from __future__ import annotations

from functools import lru_cache, partial

from einturnip.ir.einsum import Einsum
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.blocked_space import cut_all
from einturnip.kernels.expr.fold import finalized
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.primitives import copy
from einturnip.kernels.numpy.blocked import BlockedKernel, BlockedSteps
from einturnip.kernels.numpy.join import JoinBuilder, keyed_space


def compile_elementwise(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile an einsum without aggregation."""
    return _elementwise_steps(einsum).kernel(extents)


@lru_cache(maxsize=256)
def _elementwise_steps(einsum: Einsum) -> BlockedSteps:
    out = tuple(range(einsum.n_out))

    def assemble(assembler: Assembler, extents: tuple[int, ...]) -> None:
        join = JoinBuilder(assembler, einsum, extents)
        store(assembler, join.graph, join.value(einsum.join), out, None)

    return BlockedSteps(partial(keyed_space, einsum), assemble, einsum.accesses, (out,), True)


def compile_finalize(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile the kernel that computes the result from a state."""
    return _finalizing_steps(einsum).kernel(extents[: einsum.n_out])


@lru_cache(maxsize=256)
def _finalizing_steps(einsum: Einsum) -> BlockedSteps:
    labels = tuple(range(einsum.n_out))

    def assemble(assembler: Assembler, extents: tuple[int, ...]) -> None:
        graph = PrimitiveGraph()
        state = [
            graph.input(assembler.external("operand", i, dtype.numpy, labels), dtype, labels)
            for i, dtype in enumerate(einsum.state_dtypes)
        ]
        store(assembler, graph, finalized(graph, einsum, state), labels, None)

    blocks = partial(cut_all, labels)
    return BlockedSteps(blocks, assemble, (labels,) * len(einsum.state_dtypes), (labels,), True)


def store(assembler: Assembler, graph: PrimitiveGraph, root: int, labels: tuple[int, ...], section: int | None) -> None:
    """Emit steps that compute ``root`` into the one output, without a copy if possible."""
    dtype = graph[root].dtype
    (made,) = assembler.emit(graph, [root], section)
    out = assembler.external("out", 0, dtype.numpy, labels)
    if graph[root].labels == frozenset(labels) and assembler.redirect(made, out):
        return
    assembler.step(assembler.registers[out].level if section is None else section, copy, (made,), out)
