"""Kernels that fold a join over the aggregated labels, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.codegen.assemble import Assembler
from einturnip.codegen.blocked import Blocked, blocked
from einturnip.codegen.elementwise import join, join_flops, store, within_cache
from einturnip.codegen.fold import combine, finished, fold_block, value_type
from einturnip.codegen.graph import Graph
from einturnip.codegen.primitives import copy
from einturnip.codegen.space import choose_order, cut
from einturnip.core.einsum import Einsum


def compile_reduce(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> Blocked:
    """The kernel that folds a tile into a state (touch), or all the way to the result (whole)."""
    return within_cache(lambda points: _build(einsum, extents, whole, points), math.prod(extents))


def _build(einsum: Einsum, extents: tuple[int, ...], whole: bool, points: int) -> Blocked:
    aggregation = einsum.aggregation
    assert aggregation is not None
    indexed = aggregation.op in ("argmax", "argmin")
    order, crossing = choose_order(extents, einsum.n_out, einsum.accesses, program_order=indexed)
    assembler = Assembler(cut(order, extents, einsum.n_out, points, crossing))
    value = _join_values(assembler, einsum)
    out = tuple(range(einsum.n_out))
    keep = whole and not aggregation.finish_is_identity
    state = [
        assembler.slot(d.numpy, out, pinned=True) if keep else assembler.external("out", i, d.numpy, out)
        for i, d in enumerate(aggregation.state)
    ]
    _fold(assembler, einsum, value, state)
    if keep:
        graph = Graph()
        nodes = [graph.input(r, d, out) for r, d in zip(state, aggregation.state, strict=True)]
        store(assembler, graph, finished(graph, einsum, nodes), out, assembler.fresh + 2)
    outs = (out,) * (1 if whole else len(state))
    return blocked(assembler, einsum.accesses, outs, whole, join_flops(einsum, extents))


def _join_values(assembler: Assembler, einsum: Einsum) -> int:
    """The register that holds a block of join values over all labels, in the type they are folded in."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    labels = frozenset(range(len(einsum.labels)))
    graph, root = join(assembler, einsum)
    root = graph.convert(root, value_type(aggregation))
    (made,) = assembler.emit(graph, [root])
    register = assembler.registers[made]
    if register.labels == labels:
        return made
    spread = assembler.slot(register.dtype, labels)
    assembler.step(len(assembler.space.loops), copy, (made,), spread)
    return spread


def _fold(assembler: Assembler, einsum: Einsum, value: int, state: Sequence[int]) -> None:
    """The two ways to meet a block: it is the first of its range, or it adds to a state."""
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
    """Steps that fold a block into a state of its own."""
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
