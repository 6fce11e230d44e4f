"""Kernels that fold a join over the aggregated labels, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from einturnip.ir.einsum import Einsum
from einturnip.kernels.expr.assemble import Assembler
from einturnip.kernels.expr.fold import combine, finalized, fold_block, value_type
from einturnip.kernels.expr.graph import PrimitiveGraph
from einturnip.kernels.expr.primitives import copy
from einturnip.kernels.expr.space import cut
from einturnip.kernels.numpy.blocked import BLOCKS_IN_SEQUENCE, BlockedKernel, blocked
from einturnip.kernels.numpy.elementwise import limit_to_cache, store
from einturnip.kernels.numpy.join import JoinBuilder, key_labels, keyed_space


def compile_reduce(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> BlockedKernel:
    """Compile the kernel that folds a tile into a state (accumulate), or to the result (full)."""
    return limit_to_cache(lambda points: _build(einsum, extents, whole, points), math.prod(extents))


def compile_combine(einsum: Einsum, extents: tuple[int, ...]) -> BlockedKernel:
    """Compile the kernel that combines a state with another."""
    labels, shape = tuple(range(einsum.n_out)), extents[: einsum.n_out]

    def build(points: int) -> BlockedKernel:
        assembler = Assembler(cut(labels, shape, einsum.n_out, points))
        part, state = (
            [assembler.external(kind, i, d.numpy, labels) for i, d in enumerate(einsum.state_dtypes)]
            for kind in ("operand", "out")
        )
        for one, register in zip(part, state, strict=True):
            assembler.step(assembler.fresh, copy, (one,), register)
        combine(assembler, assembler.fresh + 1, einsum, state, part)
        accesses = (labels,) * len(state)
        return blocked(assembler, accesses, accesses, False)

    return limit_to_cache(build, math.prod(shape))


def _build(einsum: Einsum, extents: tuple[int, ...], whole: bool, points: int) -> BlockedKernel:
    aggregation = einsum.aggregation
    assert aggregation is not None
    indexed = aggregation.indexed
    assembler = Assembler(keyed_space(einsum, extents, points, program_order=indexed and len(einsum.aggregated) > 1))
    value = _join_values(assembler, einsum, extents)
    out = tuple(range(einsum.n_out))
    keep = whole and not aggregation.finalize_is_identity
    state = [
        assembler.slot(d.numpy, out, pinned=True) if keep else assembler.external("out", i, d.numpy, out)
        for i, d in enumerate(aggregation.state)
    ]
    levels = [*_partial_states(assembler, einsum), state]
    _fold(assembler, einsum, value, levels[0])
    for lower, upper in pairwise(levels):
        begin, join = assembler.added_section(), assembler.added_section()
        for part, register in zip(lower, upper, strict=True):
            assembler.step(begin, copy, (part,), register)
        combine(assembler, join, einsum, upper, lower)
    if keep:
        graph = PrimitiveGraph()
        nodes = [graph.input(r, d, out) for r, d in zip(state, aggregation.state, strict=True)]
        store(assembler, graph, finalized(graph, einsum, nodes), out, assembler.fresh + 2)
    outs = (out,) * (1 if whole else len(state))
    return blocked(assembler, einsum.accesses, outs, whole)


def _partial_states(assembler: Assembler, einsum: Einsum) -> list[list[int]]:
    """Return partial states between a block's state and the result's, lowest first; none for few blocks.

    Each is the sum of at most ``BLOCKS_IN_SEQUENCE`` of the states below it.
    """
    aggregation, space, found = einsum.aggregation, assembler.space, list[list[int]]()
    assert aggregation is not None
    inner = space.loops[space.n_out_loops :]
    count = math.prod(-(-space.extents[p] // space.blocks[p]) for p in inner) if aggregation.rounds else 1
    while count > BLOCKS_IN_SEQUENCE:
        found.append([assembler.slot(d.numpy, range(einsum.n_out), pinned=True) for d in aggregation.state])
        count = -(-count // BLOCKS_IN_SEQUENCE)
    return found


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
    register = assembler.registers[made]
    if register.labels == labels:
        return made
    broadcast = assembler.slot(register.dtype, labels)
    assembler.step(len(assembler.space.loops), copy, (made,), broadcast)
    return broadcast


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
