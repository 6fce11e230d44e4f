"""Inlines elementwise nodes into their consumers, so that fewer tensors are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import is_

from einturnip.eingraph.builder import EinsumInterner, LabelSpace, StatementDrafts, distinct, pattern
from einturnip.eingraph.indices import inside_all
from einturnip.eingraph.products import split_product
from einturnip.eingraph.types import NO_HINTS, ConcatNode, EinGraph, EinsumNode, Node, TensorPiece, operands_of
from einturnip.ir.einsum import Access, Einsum, Index, labels_read
from einturnip.ir.functions import ELEMENTWISE
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
from einturnip.tuning.search import MAX_EXTRA_OPERATORS, MAX_JOIN_NODES, MAX_READ_RATIO, MAX_SLOTS

_CHEAP = COMPARISONS | LOGICAL | {"add", "sub", "mul", "div", "min", "max", "neg", "where"}
_CHEAP |= {name for name, function in ELEMENTWISE.items() if function.is_cheap}


# Decides whether to inline a node into its consumers, which read it in these slots.
Judge = Callable[[Einsum, list[Einsum], list[tuple[int, ...]]], bool]


def inline_copies(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Read nodes that only permute, repeat or pick axes at their source."""
    return _inline(graph, interner, _always, copies=True)


def inline_elementwise(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Inline elementwise nodes into one consumer, cheap ones into two, where it saves storage only."""
    return _inline(graph, interner, _saves_storage)


def inline_products(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Inline products larger than their factors into the sums over them, which then contract the factors."""
    return _inline(graph, interner, _is_factored)


def inline_scaled(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Inline nodes with a factor that the sums over them can pull out, such as normalized weights."""
    return _inline(graph, interner, _is_scaled)


def inline_small_sources(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Inline cheap elementwise nodes that are larger than what they read, into any number of points."""
    return _inline(graph, interner, _has_small_sources)


def _inline(graph: EinGraph, interner: EinsumInterner, judge: Judge, copies: bool = False) -> EinGraph:
    """Substitute each elementwise node that ``judge`` accepts into all its consumers; unused nodes remain."""
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
        if node.hints != NO_HINTS or interner.once(_is_copy, id(einsum), einsum) != copies:
            continue
        if (i in outputs and not copies) or not _is_accepted(interner, nodes, i, sorted(users[i]), judge):
            continue
        merged = {u: _merged(interner, nodes[u], i, node) for u in sorted(users[i])}
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


def _is_accepted(interner: EinsumInterner, nodes: list[Node], number: int, users: list[int], judge: Judge) -> bool:
    """Ask the judge, which sees only the einsums; into a concatenation, only copies are inlined."""
    node, consumers = nodes[number], [nodes[u] for u in users]
    assert isinstance(node, EinsumNode) and isinstance(node.einsum, Einsum)
    einsums = [c.einsum for c in consumers if isinstance(c, EinsumNode)]
    if len(einsums) < len(consumers):
        return _is_copy(node.einsum)
    slots = [tuple(s for s, o in enumerate(c.operands) if o == number) for c in consumers if isinstance(c, EinsumNode)]
    key = id(node.einsum), *slots, *map(id, einsums)
    return interner.once(judge, key, node.einsum, einsums, slots)


def _reads(einsum: Einsum, slots: Sequence[int]) -> int:
    """Count the reads of some slots in an einsum's join and keys."""
    scalars = (einsum.join, *(key.value for key in einsum.keys))
    return sum(isinstance(e, OperandRef) and e.slot in slots for scalar in scalars for e in walk(scalar))


def _merged(interner: EinsumInterner, consumer: Node, number: int, node: EinsumNode) -> Node | None:
    """Substitute the join of node ``number`` into ``consumer``; None where impossible or too large."""
    if isinstance(consumer, ConcatNode):
        return _merged_piece(consumer, number, node)
    assert isinstance(consumer, EinsumNode)
    outer, inner = consumer.einsum, node.einsum
    operands = (*consumer.operands, *node.operands)
    same = pattern(operands)
    slots = tuple(s for s, o in enumerate(consumer.operands) if o == number)
    growth = interner.once(_reads, (id(outer), slots), outer, slots) * (interner.once(_size, id(inner), inner) - 1)
    if interner.once(_size, id(outer), outer) + growth > MAX_JOIN_NODES:
        return None
    found = interner.once(_substituted, (id(outer), id(inner), slots, same), outer, inner, slots, same)
    if found is None:
        return None
    tensors = distinct(operands)
    left = tuple(tensors[n] for n in found[1])
    return EinsumNode(consumer.name, interner.one(found[0]), left, consumer.line, consumer.hints)


def _merged_piece(consumer: ConcatNode, number: int, node: EinsumNode) -> ConcatNode | None:
    """Concatenate the source of a copy instead of the copy; None where the copy transposes."""
    if node.einsum.accesses[0] != tuple(range(node.einsum.n_out)):
        return None
    pieces = (TensorPiece(node.operands[0], p.axes, p.offsets) if p.operand == number else p for p in consumer.pieces)
    return replace(consumer, pieces=tuple(pieces))


def _substituted(
    outer: Einsum, inner: Einsum, slots: Sequence[int], operands: Sequence[int]
) -> tuple[Einsum, tuple[int, ...]] | None:
    """Substitute the join of ``inner`` into slots of ``outer``; also return the tensors it reads."""
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
    if len(left) > MAX_SLOTS or not _keeps_form(outer, found):
        return None
    return found, left


def _size(einsum: Einsum) -> int:
    """The number of nodes of an einsum's join."""
    return sum(1 for _ in walk(einsum.join))


def _joint_space(outer: Einsum, inner: Einsum, operands: Sequence[int]) -> LabelSpace:
    """The label space of ``outer`` over the tensors of both einsums."""
    tensors = {}
    slots = [(e, slot) for e in (outer, inner) for slot in range(len(e.accesses))]
    for number, (einsum, slot) in zip(operands, slots, strict=True):
        tensors[number] = einsum.dtypes[slot], einsum.operand_shape(slot)
    return LabelSpace(StatementDrafts(tensors[n] for n in range(len(tensors))), outer.labels, outer.bounds)


def _composed(inner: Einsum, access: Access) -> list[Access] | None:
    """The accesses of ``inner`` when it is read at ``access``; None where they cannot be composed."""
    if any(isinstance(i := access[p], Index) and i.clamped for p in labels_of(inner.join)):
        return None
    found = [inside_all(a, access) for a in inner.accesses]
    return None if None in found else [a for a in found if a is not None]


def _keeps_form(before: Einsum, after: Einsum) -> bool:
    """True unless a contraction or gather would lose the plain operands that its fast kernels need."""
    if after.keys:
        indices = tuple(index for access in after.accesses for index in access if isinstance(index, Index))
        if any(index.clamped for index in indices):
            return False
        picks = after.aggregation is not None and after.aggregation.combine == "pick"
        alone = {key.label for key in after.keys}.isdisjoint(labels_read(indices))
        return not picks or (isinstance(after.join, OperandRef) and alone)
    if not _is_contraction(after):
        return True
    return sum(1 for _ in _spread(after)) <= sum(1 for _ in _spread(before))


def _spread(einsum: Einsum) -> Iterator[Index]:
    """Yield the indices of an einsum other than constants and a label plus a constant."""
    for index in (index for access in einsum.accesses for index in access):
        if isinstance(index, Index) and not (index.affine and [c for _, c in index.terms] in ([], [1])):
            yield index


def _is_copy(einsum: Einsum) -> bool:
    """True for ``Z[...] = X[...]`` that reads no diagonal."""
    if not isinstance(einsum.join, OperandRef) or einsum.aggregation is not None:
        return False
    labels = [p for index in einsum.accesses[0] for p in sorted(labels_read((index,)))]
    return len(set(labels)) == len(labels)


def _is_cheap(expr: Scalar) -> bool:
    return all(not isinstance(e, ScalarCall) or e.op in _CHEAP for e in walk(expr))


def _is_sum(einsum: Einsum) -> bool:
    return einsum.aggregation is not None and einsum.aggregation.is_linear


def _is_contraction(einsum: Einsum) -> bool:
    """True for a sum of a product over different labels, which is fastest as a matrix product."""
    if not _is_sum(einsum):
        return False
    product = split_product(einsum.join)
    return len({einsum.labels_of(f) for f in (*product.factors, *product.divisors)}) > 1


def _operand_nbytes(einsum: Einsum) -> int:
    """The bytes of its operands that an einsum reads."""
    return sum(prod(einsum.operand_extents(s, einsum.bounds)) * d.itemsize for s, d in enumerate(einsum.dtypes))


def _nbytes(einsum: Einsum) -> int:
    return prod(einsum.shape) * einsum.dtype.itemsize


def _points(einsum: Einsum) -> int:
    """The number of points at which an einsum's join is used: a keyed label has one value per point."""
    keyed = {key.label for key in einsum.keys}
    return prod(n for p, n in enumerate(einsum.bounds) if p not in keyed)


def _is_large_product(einsum: Einsum) -> bool:
    """True for a product of operands that is larger than the operands."""
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
    """True for a large product whose consumers are all sums."""
    return _is_large_product(node) and all(map(_is_sum, consumers))


def _saves_storage(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    """True where no consumer has more points than the node, and no expensive value is computed twice."""
    if any(_is_contraction(c) or _points(c) > max(1, node.points) for c in consumers):
        return False
    if sum(_reads(consumer, read) for consumer, read in zip(consumers, slots, strict=True)) == 1:
        return True
    operators = sum(isinstance(e, ScalarCall) for e in walk(node.join))
    if not _is_cheap(node.join) or operators * (max(map(len, slots)) - 1) > MAX_EXTRA_OPERATORS:
        return False
    return len(consumers) == 1 or (len(consumers) == 2 and _operand_nbytes(node) <= MAX_READ_RATIO * _nbytes(node))


def _has_small_sources(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    """True for a cheap node of fewer operand bytes than its own, which no contraction reads."""
    return _is_cheap(node.join) and _operand_nbytes(node) < _nbytes(node) and not any(map(_is_contraction, consumers))


def _is_scaled(node: Einsum, consumers: list[Einsum], slots: list[tuple[int, ...]]) -> bool:
    """True for a product with a factor that every consumer, a sum over the node, can pull out of the sum."""
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
