"""Elementwise nodes computed where they are used, so that fewer tensors are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from einturnip.core.scalar import COMPARISONS, LOGICAL, Call, Cast, Operand, Scalar, labels_of, rewrite, slots_of, walk
from einturnip.eingraph.assembly import Assembly, Space
from einturnip.eingraph.products import split_product
from einturnip.eingraph.types import EinGraph, EinsumNode, Node

# A join past these bounds would make a kernel that is slow to compile and short of registers.
_LARGEST_JOIN, _MOST_SLOTS = 160, 10
_CHEAP = COMPARISONS | LOGICAL | {"add", "sub", "mul", "div", "min", "max", "neg", "abs", "where", "relu"}

# Reading the operands twice instead of the node is worth it up to this many times the node's bytes: it is not written.
_READ_AGAIN = 1.25

# Whether a node goes into its consumers, which read it so many times in all.
Judge = Callable[[EinsumNode, list[EinsumNode], int], bool]


def inline_copies(graph: EinGraph) -> EinGraph:
    """Nodes that only permute or repeat axes are read at their source."""
    return _inline(graph, lambda node, consumers, reads: _is_copy(node))


def inline_elementwise(graph: EinGraph) -> EinGraph:
    """Elementwise nodes go into a sole consumer, cheap ones into two, where that adds no work and stores less."""
    return _inline(graph, _saves_storage)


def inline_products(graph: EinGraph) -> EinGraph:
    """Products larger than their factors go into the sums over them, which then contract the factors instead."""
    return _inline(graph, lambda node, consumers, reads: _is_large_product(node) and all(map(_is_sum, consumers)))


def _inline(graph: EinGraph, wanted: Judge) -> EinGraph:
    """Substitute each elementwise node that is ``wanted`` there into all its consumers; unused nodes stay behind."""
    nodes = list(graph.nodes)
    outputs = {node for _, node in graph.outputs}
    users = _users(nodes)
    lines = set(graph.merged)
    for i, node in enumerate(nodes):
        if not isinstance(node, EinsumNode) or node.einsum.aggregation is not None or not users[i]:
            continue
        consumers = [user for u in sorted(users[i]) if isinstance(user := nodes[u], EinsumNode)]
        reads = sum(_reads(consumer, i) for consumer in consumers)
        if (i in outputs and not _is_copy(node)) or not wanted(node, consumers, reads):
            continue
        merged = [_substituted(nodes, consumer, i, node) for consumer in consumers]
        if any(_is_too_large(m) for m in merged):
            continue
        for u, consumer in zip(sorted(users[i]), merged, strict=True):
            nodes[u] = consumer
            lines.add((node.line, consumer.line))
            for operand in node.operands:
                users[operand].add(u)
        for operand in node.operands:
            users[operand].discard(i)
        users[i] = set()
    return replace(graph, nodes=tuple(nodes), merged=tuple(sorted(lines)))


def _users(nodes: list[Node]) -> list[set[int]]:
    users: list[set[int]] = [set() for _ in nodes]
    for i, node in enumerate(nodes):
        for operand in node.operands if isinstance(node, EinsumNode) else ():
            users[operand].add(i)
    return users


def _reads(consumer: EinsumNode, number: int) -> int:
    """How many times the consumer's join reads node ``number``."""
    leaves = (e for e in walk(consumer.einsum.join) if isinstance(e, Operand))
    return sum(consumer.operands[e.slot] == number for e in leaves)


def _substituted(nodes: list[Node], consumer: EinsumNode, number: int, node: EinsumNode) -> EinsumNode:
    """``consumer`` with the join of ``node`` wherever it read it."""
    assembly = Assembly()
    assembly.nodes = nodes
    space = Space.around(assembly, consumer)
    outer, inner = consumer.einsum, node.einsum

    def leaf(expr: Scalar) -> Scalar:
        if not isinstance(expr, Operand):
            return expr
        access = outer.accesses[expr.slot]
        if consumer.operands[expr.slot] != number:
            return space.operand(consumer.operands[expr.slot], access)
        accesses = [tuple(access[p] for p in a) for a in inner.accesses]
        return space.substitute(inner.join, accesses, node.operands, access)

    join = rewrite(outer.join, leaf)
    return space.node(range(outer.n_out), outer.aggregated, join, outer.aggregation, consumer.name)


def _is_too_large(node: EinsumNode) -> bool:
    return len(node.operands) > _MOST_SLOTS or sum(1 for _ in walk(node.einsum.join)) > _LARGEST_JOIN


def _is_copy(node: EinsumNode) -> bool:
    """True for ``Z[...] = X[...]`` that takes no diagonal."""
    einsum = node.einsum
    access = einsum.accesses[0] if einsum.accesses else ()
    return isinstance(einsum.join, Operand) and len(set(access)) == len(access)


def _is_cheap(expr: Scalar) -> bool:
    return all(not isinstance(e, Call) or e.op in _CHEAP for e in walk(expr))


def _is_sum(node: EinsumNode) -> bool:
    return node.einsum.aggregation is not None and node.einsum.aggregation.op in ("sum", "mean")


def _is_contraction(node: EinsumNode) -> bool:
    """True for a sum of a product over different labels: its factors are best read from memory, by a matrix product."""
    product = split_product(node.einsum.join)
    return _is_sum(node) and len({_labels(node, f) for f in (*product.factors, *product.divisors)}) > 1


def _labels(node: EinsumNode, expr: Scalar) -> frozenset[int]:
    return labels_of(expr).union(*(node.einsum.accesses[slot] for slot in slots_of(expr)))


def _operand_nbytes(node: EinsumNode) -> int:
    return sum(prod(node.einsum.operand_shape(s)) * d.itemsize for s, d in enumerate(node.einsum.dtypes))


def _nbytes(node: EinsumNode) -> int:
    return prod(node.shape) * node.dtype.itemsize


def _is_large_product(node: EinsumNode) -> bool:
    product = split_product(node.einsum.join)
    factors = (*product.factors, *product.divisors)
    plain = all(isinstance(_uncast(f), Operand) for f in factors)
    return plain and len(factors) > 1 and _operand_nbytes(node) < _nbytes(node)


def _uncast(expr: Scalar) -> Scalar:
    while isinstance(expr, Cast):
        expr = expr.argument
    return expr


def _saves_storage(node: EinsumNode, consumers: list[EinsumNode], reads: int) -> bool:
    """True where every consumer has no more points than the node, and nothing dear is computed twice."""
    if any(_is_contraction(c) or c.einsum.points > max(1, node.einsum.points) for c in consumers):
        return False
    if reads == 1:
        return True
    if not _is_cheap(node.einsum.join):
        return False
    return len(consumers) == 1 or (len(consumers) == 2 and _operand_nbytes(node) <= _READ_AGAIN * _nbytes(node))
