"""Elementwise nodes computed where they are used, so that fewer tensors are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import is_

from einturnip.eingraph.builder import LabelSpace, StatementDrafts
from einturnip.eingraph.evaluate import operands_of
from einturnip.eingraph.indices import inside_all
from einturnip.eingraph.interning import EinsumInterner, distinct, pattern
from einturnip.eingraph.products import split_product
from einturnip.eingraph.types import NO_HINTS, ConcatNode, EinGraph, EinsumNode, Node, TensorPiece
from einturnip.ir.einsum import Access, Einsum, Index, labels_read
from einturnip.ir.scalar import (
    COMPARISONS,
    LOGICAL,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    labels_of,
    rewrite,
    walk,
)

# A join past these bounds would make a kernel that is slow to compile and short of registers.
_LARGEST_JOIN, _MOST_SLOTS = 160, 10
_CHEAP = COMPARISONS | LOGICAL | {"add", "sub", "mul", "div", "min", "max", "neg", "abs", "where", "relu"}

# Reading the operands twice instead of the node is worth it up to this many times the node's bytes: it is not written.
_READ_AGAIN = 1.25

# How many operators more a point may cost where a node is computed at each place that a consumer reads it at.
_COMPUTE_AGAIN = 8

# Whether a node goes into its consumers, which read it in these slots.
Judge = Callable[[Einsum, list[Einsum], list[tuple[int, ...]]], bool]


def inline_copies(graph: EinGraph, forms: EinsumInterner) -> EinGraph:
    """Nodes that only permute, repeat or pick axes are read at their source."""
    return _inline(graph, forms, _always, copies=True)


def inline_elementwise(graph: EinGraph, forms: EinsumInterner) -> EinGraph:
    """Elementwise nodes go into a sole consumer, cheap ones into two, where that adds no work and stores less."""
    return _inline(graph, forms, _saves_storage)


def inline_products(graph: EinGraph, forms: EinsumInterner) -> EinGraph:
    """Products larger than their factors go into the sums over them, which then contract the factors instead."""
    return _inline(graph, forms, _is_factored)


def inline_scaled(graph: EinGraph, forms: EinsumInterner) -> EinGraph:
    """Tensors with a factor that the sums over them can leave outside, as weights made to sum to 1, go into those."""
    return _inline(graph, forms, _is_scaled)


def _inline(graph: EinGraph, forms: EinsumInterner, wanted: Judge, copies: bool = False) -> EinGraph:
    """Substitute each elementwise node that is ``wanted`` there into all its consumers; unused nodes stay behind."""
    nodes = list(graph.nodes)
    outputs = {node for _, node in graph.outputs}
    users = _users(nodes)
    lines = set(graph.merged)
    for i, node in enumerate(nodes):
        if not isinstance(node, EinsumNode) or not users[i]:
            continue
        einsum = node.einsum
        if not isinstance(einsum, Einsum) or einsum.aggregation is not None:
            continue
        if node.hints != NO_HINTS or forms.once(_is_copy, id(einsum), einsum) != copies:
            continue
        if (i in outputs and not copies) or not _is_wanted(forms, nodes, i, sorted(users[i]), wanted):
            continue
        merged = {u: _merged(forms, nodes[u], i, node) for u in sorted(users[i])}
        found = [(u, fresh) for u, fresh in merged.items() if fresh is not None]
        if not found or len(found) < len(merged):
            continue
        for u, consumer in found:
            nodes[u] = consumer
            lines.add((node.line, consumer.line))
        for operand in node.operands:
            users[operand].discard(i)
            users[operand] |= users[i]
        users[i] = set()
    return (
        graph if all(map(is_, nodes, graph.nodes)) else replace(graph, nodes=tuple(nodes), merged=tuple(sorted(lines)))
    )


def _users(nodes: list[Node]) -> list[set[int]]:
    users: list[set[int]] = [set() for _ in nodes]
    for i, node in enumerate(nodes):
        for operand in operands_of(node):
            users[operand].add(i)
    return users


def _is_wanted(forms: EinsumInterner, nodes: list[Node], number: int, users: list[int], wanted: Judge) -> bool:
    """Ask the judge, whose answer hangs on the einsums alone; a node that is a piece of another must exist."""
    node, consumers = nodes[number], [nodes[u] for u in users]
    assert isinstance(node, EinsumNode) and isinstance(node.einsum, Einsum)
    einsums = [c.einsum for c in consumers if isinstance(c, EinsumNode)]
    if len(einsums) < len(consumers):
        return _is_copy(node.einsum)
    slots = [tuple(s for s, o in enumerate(c.operands) if o == number) for c in consumers if isinstance(c, EinsumNode)]
    key = id(node.einsum), *slots, *map(id, einsums)
    return forms.once(wanted, key, node.einsum, einsums, slots)


def _reads(einsum: Einsum, slots: Sequence[int]) -> int:
    """How many times an einsum's join and keys read some of its slots."""
    scalars = (einsum.join, *(key.value for key in einsum.keys))
    return sum(isinstance(e, OperandRef) and e.slot in slots for scalar in scalars for e in walk(scalar))


def _merged(forms: EinsumInterner, consumer: Node, number: int, node: EinsumNode) -> Node | None:
    """``consumer`` with the join of node ``number`` wherever it read it; None where that cannot be, or is too large."""
    if isinstance(consumer, ConcatNode):
        return _merged_piece(consumer, number, node)
    assert isinstance(consumer, EinsumNode)
    outer, inner = consumer.einsum, node.einsum
    operands = (*consumer.operands, *node.operands)
    same = pattern(operands)
    slots = tuple(s for s, o in enumerate(consumer.operands) if o == number)
    grown = forms.once(_reads, (id(outer), slots), outer, slots) * (forms.once(_size, id(inner), inner) - 1)
    if forms.once(_size, id(outer), outer) + grown > _LARGEST_JOIN:
        return None
    found = forms.once(_substituted, (id(outer), id(inner), slots, same), outer, inner, slots, same)
    if found is None:
        return None
    tensors = distinct(operands)
    left = tuple(tensors[n] for n in found[1])
    return EinsumNode(consumer.name, forms.one(found[0]), left, consumer.line, consumer.hints)


def _merged_piece(consumer: ConcatNode, number: int, node: EinsumNode) -> ConcatNode | None:
    """A tensor put together of what a copy was made of, instead of the copy; pieces are moved, never transposed."""
    if node.einsum.accesses[0] != tuple(range(node.einsum.n_out)):
        return None
    pieces = (TensorPiece(node.operands[0], p.axes, p.offsets) if p.operand == number else p for p in consumer.pieces)
    return replace(consumer, pieces=tuple(pieces))


def _substituted(
    outer: Einsum, inner: Einsum, slots: Sequence[int], operands: Sequence[int]
) -> tuple[Einsum, tuple[int, ...]] | None:
    """``outer`` with the join of ``inner`` in some of its slots, over tensors by number; and the numbers it reads."""
    space = _joint_space(outer, inner, operands)
    outside = operands[len(outer.accesses) :]
    inlined: dict[int, Scalar] = {}
    for slot in slots:
        access = outer.accesses[slot]
        accesses = _composed(inner, access)
        if accesses is None:
            return None
        inlined[slot] = space.substitute(inner.join, accesses, outside, access)

    def leaf(expr: Scalar) -> Scalar:
        if not isinstance(expr, OperandRef):
            return expr
        if expr.slot in inlined:
            return inlined[expr.slot]
        return space.operand(operands[expr.slot], outer.accesses[expr.slot])

    join, keys = rewrite(outer.join, leaf), [(key.label, rewrite(key.value, leaf)) for key in outer.keys]
    found, left = space.einsum(range(outer.n_out), outer.aggregated, join, outer.aggregation, keys)
    if len(left) > _MOST_SLOTS or not _keeps_form(outer, found):
        return None
    return found, left


def _size(einsum: Einsum) -> int:
    """How many nodes an einsum's join has."""
    return sum(1 for _ in walk(einsum.join))


def _joint_space(outer: Einsum, inner: Einsum, operands: Sequence[int]) -> LabelSpace:
    """The label space of ``outer`` over the tensors of both."""
    tensors = {}
    slots = [(e, slot) for e in (outer, inner) for slot in range(len(e.accesses))]
    for number, (einsum, slot) in zip(operands, slots, strict=True):
        tensors[number] = einsum.dtypes[slot], einsum.operand_shape(slot)
    return LabelSpace(StatementDrafts(tensors[n] for n in range(len(tensors))), outer.labels, outer.bounds)


def _composed(inner: Einsum, access: Access) -> list[Access] | None:
    """The accesses of ``inner`` where it is read at ``access``; None where they are none, or its join needs more."""
    if any(isinstance(i := access[p], Index) and i.clamped for p in labels_of(inner.join)):
        return None
    found = [inside_all(a, access) for a in inner.accesses]
    return None if None in found else [a for a in found if a is not None]


def _keeps_form(before: Einsum, after: Einsum) -> bool:
    """True unless a contraction or a gather would lose the plain operands that make it fast."""
    if after.keys:
        indices = tuple(index for access in after.accesses for index in access if isinstance(index, Index))
        if any(index.clamped for index in indices):
            return False
        picks = after.aggregation is not None and after.aggregation.op == "pick"
        alone = {key.label for key in after.keys}.isdisjoint(labels_read(indices))
        return not picks or (isinstance(after.join, OperandRef) and alone)
    if not _is_contraction(after):
        return True
    return sum(1 for _ in _spread(after)) <= sum(1 for _ in _spread(before))


def _spread(einsum: Einsum) -> Iterator[Index]:
    """The indices of an einsum that are neither a number nor a label plus a number."""
    for index in (index for access in einsum.accesses for index in access):
        if isinstance(index, Index) and not (index.affine and [c for _, c in index.terms] in ([], [1])):
            yield index


def _is_copy(einsum: Einsum) -> bool:
    """True for ``Z[...] = X[...]`` that takes no diagonal."""
    if not isinstance(einsum.join, OperandRef) or einsum.aggregation is not None:
        return False
    labels = [p for index in einsum.accesses[0] for p in sorted(labels_read((index,)))]
    return len(set(labels)) == len(labels)


def _is_cheap(expr: Scalar) -> bool:
    return all(not isinstance(e, ScalarCall) or e.op in _CHEAP for e in walk(expr))


def _is_sum(einsum: Einsum) -> bool:
    return einsum.aggregation is not None and einsum.aggregation.op in ("sum", "mean")


def _is_contraction(einsum: Einsum) -> bool:
    """True for a sum of a product over different labels: its factors are best read from memory, by a matrix product."""
    if not _is_sum(einsum):
        return False
    product = split_product(einsum.join)
    return len({einsum.labels_of(f) for f in (*product.factors, *product.divisors)}) > 1


def _operand_nbytes(einsum: Einsum) -> int:
    """The bytes that an einsum reads of its operands."""
    return sum(prod(einsum.operand_extents(s, einsum.bounds)) * d.itemsize for s, d in enumerate(einsum.dtypes))


def _nbytes(einsum: Einsum) -> int:
    return prod(einsum.shape) * einsum.dtype.itemsize


def _points(einsum: Einsum) -> int:
    """The points at which an einsum's join counts: a key leaves one of its label's range."""
    keyed = {key.label for key in einsum.keys}
    return prod(n for p, n in enumerate(einsum.bounds) if p not in keyed)


def _is_large_product(einsum: Einsum) -> bool:
    """True for a product of operands that has more bytes than they."""
    product = split_product(einsum.join)
    factors = (*product.factors, *product.divisors)
    plain = all(isinstance(_uncast(f), OperandRef) for f in factors)
    return plain and len(factors) > 1 and _operand_nbytes(einsum) < _nbytes(einsum)


def _uncast(expr: Scalar) -> Scalar:
    while isinstance(expr, ScalarCast):
        expr = expr.argument
    return expr


def _always(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    return True


def _is_factored(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    """True for a large product that is only summed."""
    return _is_large_product(node) and all(map(_is_sum, consumers))


def _saves_storage(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    """True where every consumer has no more points than the node, and nothing dear is computed twice."""
    if any(_is_contraction(c) or _points(c) > max(1, node.points) for c in consumers):
        return False
    if sum(_reads(consumer, read) for consumer, read in zip(consumers, slots, strict=True)) == 1:
        return True
    operators = sum(isinstance(e, ScalarCall) for e in walk(node.join))
    if not _is_cheap(node.join) or operators * (max(map(len, slots)) - 1) > _COMPUTE_AGAIN:
        return False
    return len(consumers) == 1 or (len(consumers) == 2 and _operand_nbytes(node) <= _READ_AGAIN * _nbytes(node))


def _is_scaled(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    """True for a product of which every consumer, a sum with the node as a factor, can leave the same part outside."""
    product = split_product(node.join)
    parts = [node.labels_of(f) for f in (*product.factors, *product.divisors)]
    if len(parts) < 2:
        return False
    bound: set[int] = set()
    for consumer, (slot, *more) in zip(consumers, slots, strict=True):
        operator = consumer.aggregation
        if more or operator is None or not _is_sum(consumer) or operator.state != (node.dtype,) or consumer.keys:
            return False
        if OperandRef(slot, node.dtype) not in split_product(consumer.join).factors:
            return False
        access = consumer.accesses[slot]
        bound |= {p for p, index in enumerate(access) if not labels_read((index,)).isdisjoint(consumer.aggregated)}
    free = [labels for labels in parts if labels.isdisjoint(bound)]
    return node.dtype.is_inexact and 0 < len(free) < len(parts) and any(free)
