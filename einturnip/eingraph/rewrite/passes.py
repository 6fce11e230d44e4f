"""The rewrites of an EinGraph, in order: each a pure function that leaves every output's value as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from einturnip.eingraph.check import check
from einturnip.eingraph.interning import EinsumInterner
from einturnip.eingraph.rewrite.inline import inline_copies, inline_elementwise, inline_products, inline_scaled
from einturnip.eingraph.rewrite.pieces import flatten_pieces, read_pieces
from einturnip.eingraph.rewrite.reuse import reuse_maps
from einturnip.eingraph.rewrite.sharing import drop_dead, simplify
from einturnip.eingraph.rewrite.sums import factor_sums
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, Node
from einturnip.ir.einsum import Einsum


def rewrite(graph: EinGraph, memory_nbytes: int | None = None) -> EinGraph:
    """The same outputs for less work: shared values, contractions of two operands in order, fewer tensors stored.

    Equal einsums are one object in what comes out.

    Units: ``memory_nbytes`` bounds the intermediates of a contraction of many tensors where an order allows it.
    """
    forms = EinsumInterner()
    graph = simplify(_with_forms(graph, forms), forms)
    graph = _until_settled(graph, forms, inline_copies)
    if any(isinstance(node, ConcatNode) for node in graph.nodes):
        graph = simplify(flatten_pieces(read_pieces(graph, forms)), forms)
        graph = _until_settled(graph, forms, inline_copies)
    graph = _until_settled(graph, forms, inline_elementwise)
    graph = _until_settled(graph, forms, inline_products)
    graph = _until_settled(graph, forms, inline_scaled)
    graph = simplify(factor_sums(graph, forms, memory_nbytes), forms)
    graph = _until_settled(graph, forms, inline_elementwise)
    graph = reuse_maps(graph, forms)
    check(graph)
    return graph


def _with_forms(graph: EinGraph, forms: EinsumInterner) -> EinGraph:
    """The graph with one object for equal einsums."""

    def shared(node: Node) -> Node:
        if isinstance(node, EinsumNode) and isinstance(node.einsum, Einsum):
            return replace(node, einsum=forms.one(node.einsum))
        return node

    return replace(graph, nodes=tuple(map(shared, graph.nodes)))


def _until_settled(
    graph: EinGraph, forms: EinsumInterner, step: Callable[[EinGraph, EinsumInterner], EinGraph]
) -> EinGraph:
    """The step, then what it made superfluous dropped, until that drops nothing more."""
    while True:
        smaller = step(graph, forms)
        if smaller is graph:
            return graph
        smaller = simplify(drop_dead(smaller), forms)
        if len(smaller.nodes) >= len(graph.nodes):
            return smaller
        graph = smaller
