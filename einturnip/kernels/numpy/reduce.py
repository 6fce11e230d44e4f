"""Kernels that fold a join over the aggregated labels, block by block."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from itertools import pairwise

from einturnip.ir.einsum import Einsum
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.blocked_space import BlockedSpace, cut_all
from einturnip.kernels.expr.fold import (
    combine,
    finalized,
    fold_block,
    halvings,
    has_short_ranks,
    partial_levels,
    value_type,
)
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.primitives import copy
from einturnip.kernels.numpy.blocked import BlockedKernel, BlockedSteps
from einturnip.kernels.numpy.elementwise import store
from einturnip.kernels.numpy.join import JoinBuilder, broadcast, key_labels, keyed_space


def compile_reduce(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> BlockedKernel:
    """Compile the kernel that folds a tile into a state (accumulate), or to the result (full)."""
    return _folding_steps(einsum, whole).kernel(extents)


def compile_combine(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile the kernel that combines a state with another."""
    return _combining_steps(einsum).kernel(extents[: einsum.n_out])


@lru_cache(maxsize=256)
def _combining_steps(einsum: Einsum) -> BlockedSteps:
    labels = tuple(range(einsum.n_out))

    def assemble(assembler: Assembler, extents: tuple[int, ...]) -> None:
        part, state = (
            [assembler.external(kind, i, d.numpy, labels) for i, d in enumerate(einsum.state_dtypes)]
            for kind in ("operand", "out")
        )
        for one, register in zip(part, state, strict=True):
            assembler.step(assembler.fresh, copy, (one,), register)
        combine(assembler, assembler.fresh + 1, einsum, state, part)

    accesses = (labels,) * len(einsum.state_dtypes)
    return BlockedSteps(partial(cut_all, labels), assemble, accesses, accesses, False)


@lru_cache(maxsize=256)
def _folding_steps(einsum: Einsum, whole: bool) -> BlockedSteps:
    aggregation, out = einsum.aggregation, tuple(range(einsum.n_out))
    assert aggregation is not None
    keep, state_dtypes = whole and not aggregation.finalize_is_identity, aggregation.state
    ordered = aggregation.indexed and len(einsum.aggregated) > 1

    def assemble(assembler: Assembler, extents: tuple[int, ...]) -> None:
        value = _join_values(assembler, einsum, extents)
        state = [
            assembler.slot(d.numpy, out, pinned=True) if keep else assembler.external("out", i, d.numpy, out)
            for i, d in enumerate(state_dtypes)
        ]
        counted = range(_partial_levels(einsum, assembler.space))
        levels = [[assembler.slot(d.numpy, out, pinned=True) for d in state_dtypes] for _ in counted]
        levels.append(state)
        _fold(assembler, einsum, value, levels[0])
        for lower, upper in pairwise(levels):
            begin, join = assembler.added_section(), assembler.added_section()
            for part, register in zip(lower, upper, strict=True):
                assembler.step(begin, copy, (part,), register)
            combine(assembler, join, einsum, upper, lower)
        if keep:
            graph = PrimitiveGraph()
            nodes = [graph.input(r, d, out) for r, d in zip(state, state_dtypes, strict=True)]
            store(assembler, graph, finalized(graph, einsum, nodes), out, assembler.fresh + 2)

    def sizes(space: BlockedSpace) -> Hashable:
        halved = halvings(space, einsum.aggregated)
        return _partial_levels(einsum, space), halved, has_short_ranks(einsum, space)

    outs = (out,) * (1 if whole else len(state_dtypes))
    blocks = partial(keyed_space, einsum, program_order=ordered)
    return BlockedSteps(blocks, assemble, einsum.accesses, outs, whole, sizes=sizes)


def _partial_levels(einsum: Einsum, space: BlockedSpace) -> int:
    """Return the levels of partial states between a block's state and the result's; 0 for few blocks."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    inner = space.loops[space.n_out_loops :]
    blocks = math.prod(-(-space.extents[p] // space.blocks[p]) for p in inner)
    return partial_levels(blocks) if aggregation.rounds else 0


def _join_values(assembler: Assembler, einsum: Einsum, extents: tuple[int, ...]) -> int:
    """Return the register of a block of join values over all labels, in the type in which they are folded.

    Where a key's value is outside the tile it holds the identity.
    """
    aggregation = einsum.aggregation
    assert aggregation is not None
    labels = frozenset(range(len(einsum.labels))) - key_labels(einsum)
    join = JoinBuilder(assembler, einsum, extents)
    graph, hit = join.graph, join.hit()
    root = graph.convert(join.value(einsum.join), value_type(aggregation))
    if hit is not None:
        root = graph.select(hit, root, graph.number(aggregation.identity[0], graph[root].dtype))
    made, *_ = assembler.emit(graph, [root, *(join.key(k.label) for k in einsum.keys)])
    return broadcast(assembler, made, labels)


def _fold(assembler: Assembler, einsum: Einsum, value: int, state: Sequence[int]) -> None:
    """Emit the two cases of a block: it is the first of its range, or it adds to a state."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    first, later = assembler.fresh, assembler.fresh + 1
    if value_type(aggregation) == aggregation.state[0]:
        fold_block(assembler, first, einsum, value, state)
    else:
        for made, register in zip(_partial(assembler, first, einsum, value), state, strict=True):
            assembler.step(first, copy, (made,), register)
    combine(assembler, later, einsum, state, _partial(assembler, later, einsum, value))


def _partial(assembler: Assembler, section: int, einsum: Einsum, value: int) -> list[int]:
    """Emit the steps that fold a block into a state of its own."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    out = range(einsum.n_out)
    wide = (value_type(aggregation), *aggregation.state[1:])
    made = [assembler.slot(d.numpy, out, pinned=True) for d in wide]
    fold_block(assembler, section, einsum, value, made)
    if wide[0] != aggregation.state[0]:
        narrow = assembler.slot(aggregation.state[0].numpy, out, pinned=True)
        assembler.step(section, copy, (made[0],), narrow)
        made[0] = narrow
    return made
