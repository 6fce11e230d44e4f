"""Factors sums of products: pulls out free factors, sums single labels, contracts pairwise."""

from __future__ import annotations

from cmath import isfinite
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from einturnip.eingraph.builder import EinsumInterner, GraphBuilder, LabelSpace, NodeDraft
from einturnip.eingraph.products import divided, multiply, python_number, scaled, split_product
from einturnip.eingraph.rewrite.sharing import with_operands
from einturnip.eingraph.types import EinGraph, EinsumNode, Hints
from einturnip.ir.aggregations import Aggregation, aggregation
from einturnip.ir.einsum import Einsum, labels_read
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCast, ScalarConst, labels_of, rewrite, slots_of

Labels = frozenset[int]


def factor_sums(graph: EinGraph, interner: EinsumInterner, memory_nbytes: int | None) -> EinGraph:
    """Split every sum of a product, so that only contractions of two operands remain.

    A sum is linear: factors and divisors without its labels move outside; a label that only one factor has is summed
    within that factor; the rest is contracted pair by pair. Integer arithmetic wraps around, so the same holds for it.
    Intermediates larger than ``memory_nbytes`` are avoided where another contraction order allows it.

    Where a factor is infinite, the new order of summation may give NaN instead of infinity, or the reverse.
    """
    assembly = GraphBuilder(node.name for node in graph.nodes)
    ids: list[int] = []
    for node in graph.nodes:
        moved = with_operands(node, ids)
        drafts = None
        if isinstance(moved, EinsumNode):
            einsum, hints = moved.einsum, moved.hints
            drafts = interner.once(_factor, (id(einsum), hints), einsum, hints, memory_nbytes)
        if drafts is None or not isinstance(moved, EinsumNode):
            ids.append(assembly.add(moved))
        else:
            drafts = [interner.draft(draft) for draft in drafts]
            ids.append(assembly.place(drafts, moved.operands, moved.name, moved.line))
    outputs = tuple((name, ids[node]) for name, node in graph.outputs)
    return replace(graph, nodes=tuple(assembly.nodes), outputs=outputs)


def _factor(einsum: Einsum, hints: Hints, memory_nbytes: int | None) -> list[NodeDraft] | None:
    """The drafts of a split sum over its slots; None where the sum stays unchanged."""
    operator = einsum.aggregation
    if operator is None or not _is_linear(operator) or 0 in einsum.bounds or not einsum.aggregated or einsum.keys:
        return None
    space = LabelSpace.over(einsum)
    space.tiles, space.device = dict(hints.tiles), hints.device
    join = space.substitute(einsum.join, einsum.accesses, range(len(einsum.accesses)))
    work = _Sum(space, join, range(einsum.n_out), einsum.aggregated)
    if operator.is_mean:
        work.alpha = work.alpha / prod(einsum.bounds[einsum.n_out :])
    limit = None if memory_nbytes is None else max(1, memory_nbytes // operator.value.itemsize)
    if not (work.is_worthwhile() and isfinite(work.alpha)):
        return None
    work.emit(operator, limit)
    *others, last = space.drafts.nodes
    return [*others, replace(last, hints=replace(last.hints, keep=hints.keep, recompute=hints.recompute))]


def _is_linear(operator: Aggregation) -> bool:
    """True where a factor may move across the aggregation without a change of dtype."""
    value = operator.value
    if operator.state[0] != value:
        return False
    return (operator.is_sum and value.kind != "b") or (operator.is_mean and value.is_inexact)


def _holders(groups: Iterable[Labels]) -> Counter[int]:
    """Count the groups that contain each label."""
    return Counter(label for labels in groups for label in labels)


class _Sum:
    """``alpha * outside / below * sum[bound] groups``; a group holds the factors with the same labels."""

    def __init__(self, space: LabelSpace, join: Scalar, out: Sequence[int], bound: Sequence[int]) -> None:
        product = split_product(join)
        self.space, self.dtype, self.alpha = space, product.dtype, product.alpha
        # Intermediate sums of narrow integers are as narrow as the program requires for the final sum.
        self.total = aggregation("sum", self.dtype, self.dtype)
        self.out, self.bound = tuple(out), tuple(bound)
        self.outside: list[Scalar] = []
        self.groups: dict[Labels, list[Scalar]] = {}
        inside = [f for f in product.factors if not self._is_free(f)]
        self.below = [d for d in product.divisors if self._is_free(d)]
        self._divide(inside, [d for d in product.divisors if not self._is_free(d)])
        for factor in [f for f in product.factors if self._is_free(f)] + inside:
            self._place(factor)
        unused = [p for p in self.bound if not any(p in labels for labels in self.groups)]
        self.bound = tuple(p for p in self.bound if p not in unused)
        self.alpha *= prod(space.bounds[p] for p in unused)
        self.has_unused = bool(unused)

    def _is_free(self, expr: Scalar) -> bool:
        return not self.space.labels_in(expr) & set(self.bound)

    def _place(self, factor: Scalar) -> None:
        """Move a factor outside where it has no summed label, else add it to the group of its labels."""
        if self._is_free(factor):
            self.outside.append(factor)
        else:
            self.groups.setdefault(self.space.labels_in(factor), []).append(factor)

    def _divide(self, inside: list[Scalar], divisors: list[Scalar]) -> None:
        """Divide a factor that has all of a divisor's labels; without one, the reciprocal becomes a factor."""
        one = ScalarConst(python_number(1, self.dtype), self.dtype)
        for divisor in divisors:
            labels = self.space.labels_in(divisor)
            hosts = [i for i, factor in enumerate(inside) if labels <= self.space.labels_in(factor)]
            if hosts:
                inside[hosts[0]] = divided(inside[hosts[0]], [divisor])
            else:
                inside.append(divided(one, [divisor]))

    def _is_plain(self, group: list[Scalar]) -> bool:
        """True for a single access, possibly converted, with distinct labels and affine indices."""
        expr = group[0]
        while isinstance(expr, ScalarCast):
            expr = expr.argument
        if len(group) > 1 or not isinstance(expr, OperandRef):
            return False
        access = self.space.slots[expr.slot][1]
        return len(set(access)) == len(access) and all(isinstance(index, int) or index.affine for index in access)

    def _stays_fused(self) -> bool:
        """True where a computed factor spans every label: storing it would cost more than contracting saves."""
        whole = Labels().union(*self.groups)
        return len(self.groups) == 1 or any(g == whole and not self._is_plain(f) for g, f in self.groups.items())

    def is_worthwhile(self) -> bool:
        """True where a factor moves outside the sum, or the sum splits into contractions."""
        return bool(self.outside or self.below or self.has_unused or any(self._single())) or not self._stays_fused()

    def emit(self, operator: Aggregation, limit: int | None) -> int:
        """Add the nodes and return the id of the last, which carries the sum's name."""
        self._sum_single_labels()
        inner = tuple(p for p in self.out if any(p in labels for labels in self.groups))
        join, bound = self._inner(inner, limit)
        whole = not (self.outside or self.below) and inner == self.out
        if bound and whole:
            total = replace(self.total, result=operator.result)
            return self.space.emit(inner, bound, scaled(join, self.alpha), total, "")
        alpha = self.alpha
        if bound:
            if len(self.groups) > 1:
                join, alpha = scaled(join, alpha), 1
            sum_node = self.space.emit(inner, bound, join, self.total)
            join = self.space.operand(sum_node, inner)
        factors = [join, *self.outside] if self.groups else self.outside
        value = divided(scaled(multiply(factors, self.dtype), alpha), self.below)
        value = value if value.dtype == operator.result else ScalarCast(value, operator.result)
        return self.space.emit(self.out, (), value, None, "")

    def _single(self) -> Iterator[tuple[Labels, tuple[int, ...]]]:
        """Yield groups with the summed labels that no other group has, where there are other groups."""
        holders, place = _holders(self.groups), self._place_of_bound()
        for labels in self.groups if len(self.groups) > 1 else ():
            if own := tuple(sorted((p for p in labels if p in place and holders[p] == 1), key=place.__getitem__)):
                yield labels, own

    def _place_of_bound(self) -> dict[int, int]:
        """The position of each summed label."""
        return {p: n for n, p in enumerate(self.bound)}

    def _sum_single_labels(self) -> None:
        """Sum each label that only one group has within that group, until none remains."""
        while single := next(self._single(), None):
            labels, own = single
            kept = tuple(sorted(labels - set(own)))
            join = multiply(self.groups.pop(labels), self.dtype)
            node = self.space.emit(kept, own, join, self.total)
            self.bound = tuple(p for p in self.bound if p not in own)
            self._place(self.space.operand(node, kept))

    def _inner(self, out: tuple[int, ...], limit: int | None) -> tuple[Scalar, tuple[int, ...]]:
        """Return the join of the remaining sum over the groups, and its summed labels."""
        if not self.groups or self._stays_fused():
            return multiply([f for group in self.groups.values() for f in group], self.dtype), self.bound
        factors = [(labels, self._stored(labels, group)) for labels, group in self.groups.items()]
        sizes, place = dict(enumerate(self.space.bounds)), self._place_of_bound()
        holders = _holders([frozenset(out), *self.groups])
        order: tuple[tuple[int, int], ...] = ((0, 1),)
        if len(factors) > 2:
            from einturnip.eingraph.rewrite.contraction_order import contraction_order  # most sums have two factors

            order = contraction_order([labels for labels, _ in factors], Labels(out), sizes, limit)
        for i, j in order:
            (b_labels, b), (a_labels, a) = factors.pop(j), factors.pop(i)
            holders.subtract([*a_labels, *b_labels])
            either = a_labels | b_labels
            kept = tuple(sorted(p for p in either if holders[p]))
            holders.update(kept)
            bound = tuple(sorted((p for p in either if p in place and not holders[p]), key=place.__getitem__))
            join = multiply((a, b), self.dtype)
            if not factors:
                return join, bound
            node = self.space.emit(kept, bound, join, self.total if bound else None)
            factors.append((Labels(kept), self.space.operand(node, kept)))
        raise AssertionError("a contraction order ends with one factor")

    def _stored(self, labels: Labels, group: list[Scalar]) -> Scalar:
        """A group as an access: itself if it is one, else an access of a node that is computed before the sum."""
        if self._is_plain(group):
            return group[0]
        if (expr := self._at_source(group)) is not None:
            return expr
        axes = tuple(sorted(labels))
        match group:
            case [ScalarCast(inner, dtype)] if inner.dtype.itemsize < dtype.itemsize:
                return ScalarCast(self.space.operand(self.space.emit(axes, (), inner, None), axes), dtype)
        join = multiply(group, self.dtype)
        return self.space.operand(self.space.emit(axes, (), join, None), axes)

    def _at_source(self, group: list[Scalar]) -> Scalar | None:
        """Compute a function of an operand read at ``i + p`` once for each element; read it at ``i + p``."""
        join, space = multiply(group, self.dtype), self.space
        slots = slots_of(join)
        if len(slots) != 1 or labels_of(join):
            return None
        tensor, access = space.slots[min(slots)]
        shape = space.drafts.tensor(tensor)[1]
        if prod(shape) >= prod(space.bounds[p] for p in labels_read(access)):
            return None
        if isinstance(join, OperandRef):
            return join
        axes = tuple(space.add_label(f"i{axis}", n) for axis, n in enumerate(shape))
        read = space.operand(tensor, axes)
        whole = rewrite(join, lambda e: read if isinstance(e, OperandRef) else e)
        return space.operand(space.emit(axes, (), whole, None), access)
