"""Adjoint of one einsum with respect to one operand, as einsums over the operand's axes.

For ``out[o] = agg[b] join(X[access], ...)`` the adjoint of X at an element a is the sum, over the points (o, b) that
read a, of the adjoint of out, times the weight that the aggregation gives to the point, times the derivative of the
join with respect to X.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from einturnip.eingraph.autodiff.access import InvertedAccess, ReadPosition, invert_access
from einturnip.eingraph.autodiff.weights import PointWeights
from einturnip.eingraph.builder import LabelSpace, NodeDraft, StatementDrafts, Tensor
from einturnip.eingraph.indices import as_index, inside, number, span
from einturnip.ir.aggregations import Aggregation, aggregation
from einturnip.ir.derivatives import adjoint_of, recast
from einturnip.ir.dtypes import BOOL, I64, DType
from einturnip.ir.einsum import Access, Einsum, Index, labels_read
from einturnip.ir.predicates import specialized, truth
from einturnip.ir.scalar import (
    LabelValue,
    OperandRef,
    Scalar,
    ScalarCall,
    ScalarCast,
    ScalarConst,
    rewrite,
    slots_of,
    walk,
)
from einturnip.ir.simplify import added, constant, converted, is_number, selected, times


@dataclass(frozen=True, slots=True)
class AdjointTerm:
    """One term of an adjoint: the same number at every element, or the result of the last draft.

    The result may cover only a part of the tensor; ``axes`` and ``offsets`` say where.
    """

    drafts: tuple[NodeDraft, ...]
    value: ScalarConst | None
    axes: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()


def is_flat(einsum: Einsum) -> bool:
    """True for an einsum with derivative 0 everywhere: an integer or Boolean, or a flat aggregation."""
    operator = einsum.aggregation
    return not einsum.dtype.is_inexact or (operator is not None and operator.row.derivative is None)


def contribution(
    einsum: Einsum, operands: Sequence[int], tensors: Sequence[Tensor], slot: int, g: int | ScalarConst, value: int
) -> AdjointTerm | None:
    """Return the contribution of an einsum's slot to the adjoint of its operand; None for zero.

    ``operands``, ``g`` and ``value`` are numbers in ``tensors``: of the slots, of the adjoint and of the result.
    """
    if 0 in einsum.bounds:
        return None
    made = _Adjoint(einsum, operands, StatementDrafts(tensors))
    return made.by(slot, g, value)


class _Adjoint:
    def __init__(self, einsum: Einsum, operands: Sequence[int], drafts: StatementDrafts) -> None:
        self.einsum, self.operands = einsum, operands
        self.space = LabelSpace(drafts, einsum.labels, einsum.bounds)
        self.join = self.space.substitute(einsum.join, einsum.accesses, operands)
        self.keys = [(k.label, self.space.substitute(k.value, einsum.accesses, operands)) for k in einsum.keys]

    def by(self, slot: int, g: int | ScalarConst, value: int) -> AdjointTerm | None:
        space, einsum = self.space, self.einsum
        access, dtype = einsum.accesses[slot], einsum.dtypes[slot]
        target = space.operand(self.operands[slot], access).slot
        weights = PointWeights(space, einsum, self.join, self.keys)
        if target not in slots_of(self.join):
            return None  # only a key reads the slot
        seed = weights.at_points(g, value)
        whole = space.operand(value, weights.out) if einsum.aggregation is None else None
        term = derivative(self.join, target, seed, whole)
        if term is None or is_number(term, 0):
            return None
        shape = einsum.operand_shape(slot)
        if weights.is_pick:
            return self._over_operand_axes(access, shape, self._scattered(access, term, dtype), dtype, set())
        rest = set(range(len(einsum.labels))) - labels_read(access) - {label for label, _ in self.keys}
        return self._over_operand_axes(access, shape, term, dtype, rest)

    def _scattered(self, access: Access, term: Scalar, dtype: DType) -> Scalar:
        """The adjoint of a gather over the labels of its access: contributions with equal keys are summed."""
        space = self.space
        kept = tuple(dict.fromkeys(p for index in access for p in sorted(labels_read((index,)))))
        read = space.labels_in(term).union(*(space.labels_in(v) for _, v in self.keys)) - {p for p, _ in self.keys}
        bound = tuple(sorted((read | set(range(self.einsum.n_out))) - set(kept)))
        if bound:
            node = space.emit(kept, bound, term, aggregation("sum", term.dtype), "scatter", self.keys)
            return space.operand(node, kept)
        tests = [ScalarCall("eq", (LabelValue(p), value), BOOL) for p, value in self.keys]
        return selected(_all(tests), term, constant(0, dtype))

    def _over_operand_axes(
        self, access: Access, shape: tuple[int, ...], term: Scalar, dtype: DType, rest: set[int]
    ) -> AdjointTerm:
        """Sum the term for each element of the operand, and over the labels ``rest`` that its access lacks."""
        inverted = invert_access(self.space, access, shape)
        moved = None if inverted is None else self._at_inverted_points(term, inverted, rest)
        if inverted is None or moved is None:
            return self._by_keys(access, shape, term, rest, dtype)
        term, rest = moved
        return self._emit(shape, inverted.places, term, {*rest, *inverted.summed}, dtype)

    def _at_inverted_points(
        self, term: Scalar, inverted: InvertedAccess, rest: set[int]
    ) -> tuple[Scalar, set[int]] | None:
        """Evaluate the term at the points of the inverted access; also return the labels still to be summed."""
        if not inverted.at and not inverted.tests:
            return term, rest
        if not inverted.summed and rest:  # each point reads a different element: sum first, then place
            term, rest = self._summed(term, rest), set()
        if inverted.summed and (padded := self._padded(term, inverted)) is not None:
            return padded, rest
        found = _substituted(self.space, term, inverted.at)
        if found is None:
            return None
        found = specialized(found, lambda c: truth(c, [(0, n) for n in self.space.bounds]), {})
        tests = [test.condition() for test in inverted.tests]
        return (selected(_all(tests), found, constant(0, found.dtype)) if tests else found), rest

    def _summed(self, term: Scalar, rest: set[int]) -> Scalar:
        """Sum the term over some labels, as a node over the other labels that it depends on."""
        space = self.space
        kept = tuple(sorted(space.labels_in(term) - rest))
        inner, bound, operator = self._sum(term, rest, term.dtype)
        if not bound:
            return inner
        return space.operand(space.emit(kept, bound, inner, operator), kept)

    def _sum(self, term: Scalar, rest: set[int], dtype: DType) -> tuple[Scalar, tuple[int, ...], Aggregation | None]:
        """Return join, labels and aggregation of a sum; labels that the term lacks become a factor."""
        space = self.space
        labels = space.labels_in(term)
        count = prod(space.bounds[p] for p in rest - labels)
        bound = tuple(sorted(rest & labels))
        term = _wide(term) if bound else term
        operator = replace(aggregation("sum", term.dtype), result=dtype) if bound else None
        return times(term, constant(count, term.dtype)), bound, operator

    def _padded(self, term: Scalar, inverted: InvertedAccess) -> Scalar | None:
        """Read the one factor that depends on tested labels from a zero-padded copy.

        The adjoint of a convolution thereby stays a contraction. None where anything else depends on these labels.
        """
        space = self.space
        tested = {_plain(test.index) for test in inverted.tests}
        solved = {p: as_index(index) for p, index in inverted.at.items() if _plain(index) in tested}
        found = _substituted(space, term, {p: index for p, index in inverted.at.items() if p not in solved})
        readers = [] if found is None else [s for s in slots_of(found) if labels_read(space.slots[s][1]) & set(solved)]
        if found is None or len(readers) != 1 or not _is_factor(found, readers[0]):
            return None
        if any(isinstance(e, LabelValue) and e.position in solved for e in walk(found)):
            return None
        access = space.slots[readers[0]][1]
        plain = {index: p for p, index in ((p, _plain(index)) for p, index in solved.items())}
        if not set(solved) <= set(access) or set(plain) != tested or any(i.modulus for i in solved.values()):
            return None
        copy = self._padding(readers[0], solved, plain, inverted)
        return copy and rewrite(found, lambda e: copy if isinstance(e, OperandRef) and e.slot == readers[0] else e)

    def _padding(
        self, slot: int, solved: Mapping[int, Index], plain: Mapping[Index, int], inverted: InvertedAccess
    ) -> OperandRef | None:
        """Read a slot from a copy that is 0 where a test fails; the copy has one label for each tested index."""
        space = self.space
        tensor, access = space.slots[slot]
        shift: dict[int, Index] = {}
        inner: dict[Index, Index] = {}
        for index, label in plain.items():
            ends = span(index, space.bounds)
            assert ends is not None
            pad = space.add_label(space.labels[label], ends[1] - ends[0] + 1)
            inner[index] = Index(((pad, 1),), ends[0])
            shift[pad] = replace(index, offset=index.offset - ends[0])
        at = {p: replace(inner[_plain(index)], divisor=index.divisor) for p, index in solved.items()}
        value = _substituted(space, space.operand(tensor, access), at)
        if not isinstance(value, OperandRef):
            return None
        tests = []
        for test in inverted.tests:
            own = as_index(test.index)
            moved = replace(inner[_plain(own)], divisor=own.divisor, modulus=own.modulus)
            tests.append(replace(test, index=moved).condition())
        order = tuple(dict.fromkeys(q for i in space.slots[value.slot][1] for q in sorted(labels_read((i,)))))
        masked = selected(_all(tests), value, constant(0, value.dtype))
        node = space.emit(order, (), masked, None, "padded")
        return space.operand(node, tuple(shift.get(p, p) for p in order))

    def _by_keys(
        self, access: Access, shape: tuple[int, ...], term: Scalar, rest: set[int], dtype: DType
    ) -> AdjointTerm:
        """Scatter the term with its indices as keys, where index arithmetic cannot express the points."""
        space = self.space
        term = self._summed(term, rest)
        own = labels_read(access)
        out: list[int] = []
        keys: list[tuple[int, Scalar]] = []
        for axis, (index, size) in enumerate(zip(access, shape, strict=True)):
            if isinstance(index, int) and index not in out:
                out.append(index)
                continue
            label = space.add_label(f"a{axis}", size)
            out.append(label)
            value = number(index)
            if isinstance(index, Index) and index.clamped:
                value = ScalarCall(
                    "max", (ScalarCall("min", (value, ScalarConst(size - 1, I64)), I64), ScalarConst(0, I64)), I64
                )
            keys.append((label, value))
        bound = tuple(sorted(own - set(out)))
        if any(isinstance(i, Index) and i.clamped for slot in slots_of(term) for i in space.slots[slot][1]):
            labels = tuple(sorted(space.labels_in(term)))
            term = space.operand(space.emit(labels, (), term, None), labels)
        inner = _wide(term)
        operator = replace(aggregation("sum", inner.dtype), result=dtype)
        space.emit(out, bound, inner, operator, "", keys)
        return AdjointTerm(tuple(space.drafts.nodes), None, tuple(range(len(shape))), (0,) * len(shape))

    def _emit(
        self, shape: tuple[int, ...], places: Sequence[ReadPosition], term: Scalar, rest: set[int], dtype: DType
    ) -> AdjointTerm:
        """Emit the last draft: the summed term over the labels of the axes."""
        space = self.space
        inner, bound, operator = self._sum(term, rest, dtype)
        axes = tuple(axis for axis, place in enumerate(places) if place.label is not None)
        offsets = tuple(place.start for place in places)
        out = [place.label for place in places if place.label is not None]
        whole = len(axes) == len(shape) and all(space.bounds[p] == n for p, n in zip(out, shape, strict=True))
        if isinstance(inner, ScalarConst) and whole and not bound:
            return AdjointTerm((), constant(inner.value, dtype))
        if not bound:
            inner = converted(inner, dtype)
        space.emit(out, bound, inner, operator, "")
        return AdjointTerm(tuple(space.drafts.nodes), None, axes, offsets)


def derivative(join: Scalar, target: int, seed: Scalar, value: Scalar | None) -> Scalar | None:
    """The adjoint of slot ``target``, given the join's adjoint ``seed`` and stored ``value``, if any."""
    total: Scalar | None = None
    stack = [(join, seed, value)]
    while stack:
        expr, g, known = stack.pop()
        if is_number(g, 0) or not expr.dtype.is_inexact or target not in slots_of(expr):
            continue
        match expr:
            case OperandRef():
                total = g if total is None else added(total, g)
            case ScalarCast(argument=argument):
                if argument.dtype.is_inexact:
                    stack.append((argument, recast(g, argument.dtype), None))
            case ScalarCall(arguments=arguments):
                parts = adjoint_of(expr, expr if known is None else known, g)
                found = [(a, p, None) for a, p in zip(arguments, parts, strict=True) if p is not None]
                stack += reversed(found)
            case _:
                pass
    return total


def _wide(term: Scalar) -> Scalar:
    """Drop a final rounding to a narrower type: sums accumulate in the wider one."""
    if isinstance(term, ScalarCast):
        inner = term.argument.dtype
        if inner.is_inexact and inner.kind == term.dtype.kind and inner.itemsize > term.dtype.itemsize:
            return term.argument
    return term


def _all(conditions: Sequence[Scalar]) -> Scalar:
    found = conditions[0]
    for condition in conditions[1:]:
        found = ScalarCall("and", (found, condition), BOOL)
    return found


def _plain(index: int | Index) -> Index:
    """The index before division and modulus."""
    return replace(as_index(index), divisor=1, modulus=0)


def _is_factor(term: Scalar, slot: int) -> bool:
    """True for a product in which one factor is the slot itself and no other factor reads it."""
    match term:
        case OperandRef():
            return term.slot == slot
        case ScalarCall("mul", (a, b), _):
            sides = [slot in slots_of(a), slot in slots_of(b)]
            return (sides == [True, False] and _is_factor(a, slot)) or (sides == [False, True] and _is_factor(b, slot))
        case ScalarCall("div", (a, b), _):
            return slot not in slots_of(b) and _is_factor(a, slot)
        case ScalarCall("neg" | "conj", (a,), _) | ScalarCast(argument=a):
            return _is_factor(a, slot)
        case _:
            return False


def _substituted(space: LabelSpace, term: Scalar, at: Mapping[int, int | Index]) -> Scalar | None:
    """Replace labels by indices in a term; an index that leaves its axis is clamped to the end."""
    labels: list[int | Index] = [at.get(p, p) for p in range(len(space.labels))]
    found: dict[int, Scalar] = {}
    for slot in slots_of(term):
        tensor, access = space.slots[slot]
        dtype, shape = space.drafts.tensor(tensor)
        moved = []
        for index, size in zip(access, shape, strict=True):
            new = inside(index, labels)  # type: ignore[arg-type]
            if new is None:
                return None
            moved.append(_clamped(new, size, space))
        found[slot] = space.operand(tensor, tuple(moved))

    def leaf(expr: Scalar) -> Scalar:
        match expr:
            case OperandRef(slot, _):
                return found[slot]
            case LabelValue(position, dtype) if position in at:
                return converted(number(at[position]), dtype)
        return expr

    return rewrite(term, leaf)


def _clamped(index: int | Index, size: int, space: LabelSpace) -> int | Index:
    if isinstance(index, int) or index.clamped:
        return index
    ends = span(index, space.bounds)
    assert ends is not None
    return index if ends[0] >= 0 and ends[1] < size else replace(index, clamped=True)
