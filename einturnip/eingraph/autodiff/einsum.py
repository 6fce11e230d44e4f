"""The adjoint of one einsum by one of its operands: an einsum over the operand's axes.

``out[o] = agg[b] join(X[access], ...)`` gives to the adjoint of X at an element a the sum, over the points (o, b) that
read a, of the adjoint of out, what the aggregation passes to the point, and the derivative of the join by X there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from einturnip.eingraph.autodiff.access import InvertedAccess, ReadPosition, invert_access
from einturnip.eingraph.autodiff.weights import FLAT, PointWeights
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
    """A part of an adjoint: a number at every element, or the last of some drafts, which holds part of the elements.

    ``places``: where along each axis of the tensor its elements stand.
    """

    drafts: tuple[NodeDraft, ...]
    value: ScalarConst | None
    axes: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()


def is_flat(einsum: Einsum) -> bool:
    """True for an einsum whose value says nothing of small changes: a whole number, a truth value."""
    operator = einsum.aggregation
    return not einsum.dtype.is_inexact or (operator is not None and operator.op in FLAT)


def contribution(
    einsum: Einsum, operands: Sequence[int], tensors: Sequence[Tensor], slot: int, g: int | ScalarConst, value: int
) -> AdjointTerm | None:
    """What an einsum's slot gives to the adjoint of its operand; None for nothing.

    ``operands``, ``g`` and ``value`` are numbers in ``tensors``: of the slots, of the adjoint and of the result itself.
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
            return None  # it is read by a key alone
        seed = weights.at_points(g, value)
        whole = space.operand(value, weights.out) if einsum.aggregation is None else None
        term = derivative(self.join, target, seed, whole)
        if term is None or is_number(term, 0):
            return None
        shape = einsum.operand_shape(slot)
        if weights.is_pick:
            return self._turned(access, shape, self._scattered(access, term, dtype), dtype, set())
        rest = set(range(len(einsum.labels))) - labels_read(access) - {label for label, _ in self.keys}
        return self._turned(access, shape, term, dtype, rest)

    def _scattered(self, access: Access, term: Scalar, dtype: DType) -> Scalar:
        """A gather's adjoint by the labels of its access, with what has the same keys added up."""
        space = self.space
        kept = tuple(dict.fromkeys(p for index in access for p in sorted(labels_read((index,)))))
        read = space.labels_in(term).union(*(space.labels_in(v) for _, v in self.keys)) - {p for p, _ in self.keys}
        bound = tuple(sorted((read | set(range(self.einsum.n_out))) - set(kept)))
        if bound:
            node = space.emit(kept, bound, term, aggregation("sum", term.dtype), "scatter", self.keys)
            return space.operand(node, kept)
        tests = [ScalarCall("eq", (LabelValue(p), value), BOOL) for p, value in self.keys]
        return selected(_all(tests), term, constant(0, dtype))

    def _turned(
        self, access: Access, shape: tuple[int, ...], term: Scalar, dtype: DType, rest: set[int]
    ) -> AdjointTerm:
        """The term added up for each element of the operand, and over the labels ``rest`` that its access lacks."""
        turn = invert_access(self.space, access, shape)
        moved = None if turn is None else self._moved(term, turn, rest)
        if turn is None or moved is None:
            return self._by_keys(access, shape, term, rest, dtype)
        term, rest = moved
        return self._emit(shape, turn.places, term, {*rest, *turn.summed}, dtype)

    def _moved(self, term: Scalar, turn: InvertedAccess, rest: set[int]) -> tuple[Scalar, set[int]] | None:
        """The term at the points that the turned access says, with what is left to be summed."""
        if not turn.at and not turn.tests:
            return term, rest
        if not turn.summed and rest:  # each point reads an element of its own: what is summed is summed before
            term, rest = self._summed(term, rest), set()
        if turn.summed and (padded := self._padded(term, turn)) is not None:
            return padded, rest
        found = _substituted(self.space, term, turn.at)
        if found is None:
            return None
        found = specialized(found, lambda c: truth(c, [(0, n) for n in self.space.bounds]), {})
        tests = [test.condition() for test in turn.tests]
        return (selected(_all(tests), found, constant(0, found.dtype)) if tests else found), rest

    def _summed(self, term: Scalar, rest: set[int]) -> Scalar:
        """The term summed over labels, as a node over the others that it stands on."""
        space = self.space
        kept = tuple(sorted(space.labels_in(term) - rest))
        inner, bound, operator = self._sum(term, rest, term.dtype)
        if not bound:
            return inner
        return space.operand(space.emit(kept, bound, inner, operator), kept)

    def _sum(self, term: Scalar, rest: set[int], dtype: DType) -> tuple[Scalar, tuple[int, ...], Aggregation | None]:
        """A sum's join, labels and operator: labels that the term lacks are a factor."""
        space = self.space
        stands = space.labels_in(term)
        count = prod(space.bounds[p] for p in rest - stands)
        bound = tuple(sorted(rest & stands))
        term = _wide(term) if bound else term
        operator = replace(aggregation("sum", term.dtype), result=dtype) if bound else None
        return times(term, constant(count, term.dtype)), bound, operator

    def _padded(self, term: Scalar, turn: InvertedAccess) -> Scalar | None:
        """The term where only one factor hangs on what was solved for with tests: it is read from a padded copy.

        So the adjoint of a convolution is a sum of products. None where anything else hangs on it too.
        """
        space = self.space
        tested = {_plain(test.index) for test in turn.tests}
        solved = {p: as_index(index) for p, index in turn.at.items() if _plain(index) in tested}
        found = _substituted(space, term, {p: index for p, index in turn.at.items() if p not in solved})
        readers = [] if found is None else [s for s in slots_of(found) if labels_read(space.slots[s][1]) & set(solved)]
        if found is None or len(readers) != 1 or not _is_factor(found, readers[0]):
            return None
        if any(isinstance(e, LabelValue) and e.position in solved for e in walk(found)):
            return None
        access = space.slots[readers[0]][1]
        plain = {index: p for p, index in ((p, _plain(index)) for p, index in solved.items())}
        if not set(solved) <= set(access) or set(plain) != tested or any(i.modulus for i in solved.values()):
            return None
        copy = self._padding(readers[0], solved, plain, turn)
        return copy and rewrite(found, lambda e: copy if isinstance(e, OperandRef) and e.slot == readers[0] else e)

    def _padding(
        self, slot: int, solved: Mapping[int, Index], plain: Mapping[Index, int], turn: InvertedAccess
    ) -> OperandRef | None:
        """A slot as it is read from a copy that is 0 where a test fails: one label for each index that is tested."""
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
        for test in turn.tests:
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
        """The term scattered by its indices as keys, where no formula tells the points that read an element."""
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
            stood = tuple(sorted(space.labels_in(term)))
            term = space.operand(space.emit(stood, (), term, None), stood)
        inner = _wide(term)
        operator = replace(aggregation("sum", inner.dtype), result=dtype)
        space.emit(out, bound, inner, operator, "", keys)
        return AdjointTerm(tuple(space.drafts.nodes), None, tuple(range(len(shape))), (0,) * len(shape))

    def _emit(
        self, shape: tuple[int, ...], places: Sequence[ReadPosition], term: Scalar, rest: set[int], dtype: DType
    ) -> AdjointTerm:
        """The last draft: the term summed, over the labels of the axes."""
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
    """The adjoint of slot ``target`` by that of the join, ``seed``; ``value``: the join's value, if it is stored."""
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
    """A term before it is rounded to a narrower type, as a sum takes it."""
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
    """What is divided in an index."""
    return replace(as_index(index), divisor=1, modulus=0)


def _is_factor(term: Scalar, slot: int) -> bool:
    """True where a term is a product with just one factor that reads a slot, and that factor is the slot itself."""
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
    """A term with labels given by other indices; what those take outside an axis is read at its end."""
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
