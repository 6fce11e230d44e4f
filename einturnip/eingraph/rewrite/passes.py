"""The rewrites of an EinGraph in order; each is a pure function that preserves every output's value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.check import check
from einturnip.eingraph.rewrite.sharing import drop_dead, simplify
from einturnip.eingraph.rewrite.sums import factor_sums
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node, operands_of
from einturnip.ir.einsum import Einsum


def rewrite(graph: EinGraph, memory_nbytes: int | None = None) -> EinGraph:
    """Return a graph with equal outputs and less work.

    Values are shared, contractions are pairwise and ordered, and fewer tensors are stored. In the result, equal einsums
    are the same object.

    Units: ``memory_nbytes`` bounds the intermediates of a contraction of many tensors where an order allows it.
    """
    interner = EinsumInterner()
    graph = simplify(_with_forms(graph, interner), interner)
    if _is_chained(graph):  # programs of one statement do not load the modules of these passes
        from einturnip.eingraph.rewrite.inline import inline_copies, inline_elementwise, inline_products, inline_scaled

        graph = _until_fixpoint(graph, interner, inline_copies)
        if any(isinstance(node, ConcatNode) for node in graph.nodes):
            from einturnip.eingraph.rewrite.pieces import flatten_pieces, read_pieces

            graph = simplify(flatten_pieces(read_pieces(graph, interner)), interner)
            graph = _until_fixpoint(graph, interner, inline_copies)
        for step in (inline_elementwise, inline_products, inline_scaled):
            graph = _until_fixpoint(graph, interner, step)
    graph = simplify(factor_sums(graph, interner, memory_nbytes), interner)
    if _is_chained(graph):
        from einturnip.eingraph.rewrite.inline import inline_elementwise

        graph = _until_fixpoint(graph, interner, inline_elementwise)
    if sum(isinstance(node, EinsumNode) for node in graph.nodes) > 1:
        from einturnip.eingraph.rewrite.reuse import reuse_maps

        graph = reuse_maps(graph, interner)
    check(graph)
    return graph


def recompute_small(graph: EinGraph) -> EinGraph:
    """Return a graph in which readers compute cheap values with smaller operands themselves.

    For several devices: each then reads the operands instead of receiving the values.
    """
    if not _is_chained(graph):
        return graph
    from einturnip.eingraph.rewrite.inline import inline_small_sources

    interner = EinsumInterner()
    found = _until_fixpoint(_with_forms(graph, interner), interner, inline_small_sources)
    check(found)
    return found


def _is_chained(graph: EinGraph) -> bool:
    """True if a node reads what another one computes; else there is nothing to inline."""
    computed = {i for i, node in enumerate(graph.nodes) if not isinstance(node, InputNode)}
    return any(not computed.isdisjoint(operands_of(node)) for node in graph.nodes)


def _with_forms(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Replace equal einsums by one object."""

    def shared(node: Node) -> Node:
        if isinstance(node, EinsumNode) and isinstance(node.einsum, Einsum):
            return replace(node, einsum=interner.one(node.einsum))
        return node

    return replace(graph, nodes=tuple(map(shared, graph.nodes)))


def _until_fixpoint(
    graph: EinGraph, interner: EinsumInterner, step: Callable[[EinGraph, EinsumInterner], EinGraph]
) -> EinGraph:
    """Repeat the step, dropping nodes that became unused, until the graph gets no smaller."""
    while True:
        smaller = step(graph, interner)
        if smaller is graph:
            return graph
        smaller = simplify(drop_dead(smaller), interner)
        if len(smaller.nodes) >= len(graph.nodes):
            return smaller
        graph = smaller
