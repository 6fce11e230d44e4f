"""The rewrites of an EinGraph, in order: each a pure function that leaves every output's value as it is."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.eingraph.check import check
from einturnip.eingraph.rewrite_inline import inline_copies, inline_elementwise, inline_products
from einturnip.eingraph.rewrite_sharing import simplify
from einturnip.eingraph.rewrite_sums import factor_sums
from einturnip.eingraph.types import EinGraph


def rewrite(graph: EinGraph, memory_nbytes: int | None = None) -> EinGraph:
    """The same outputs for less work: shared values, contractions of two operands in order, fewer tensors stored.

    Units: ``memory_nbytes`` bounds the intermediates of a contraction of many tensors where an order allows it.
    """
    graph = _until_settled(graph, inline_copies)
    graph = _until_settled(graph, inline_elementwise)
    graph = _until_settled(graph, inline_products)
    graph = simplify(factor_sums(graph, memory_nbytes))
    graph = _until_settled(graph, inline_elementwise)
    check(graph)
    return graph


def _until_settled(graph: EinGraph, step: Callable[[EinGraph], EinGraph]) -> EinGraph:
    """The step, then what it made superfluous dropped, until that drops nothing more."""
    graph = simplify(graph)
    while True:
        smaller = simplify(step(graph))
        if len(smaller.nodes) >= len(graph.nodes):
            return smaller
        graph = smaller
