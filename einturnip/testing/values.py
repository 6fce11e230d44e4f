"""The value of a drawn term at one point, in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from einturnip.ir.aggregations import MONOIDS
from einturnip.testing import arithmetic, promotion
from einturnip.testing.aggregation import ADDING, aggregate_values
from einturnip.testing.arithmetic import BoundedValue, convert
from einturnip.testing.functions import apply_function
from einturnip.testing.kinds import CASTS, type_of
from einturnip.testing.labels import (
    calls,
    children,
    free_labels,
    label_map,
    made_labels,
    returned_labels,
    scalar_labels,
)
from einturnip.testing.promotion import Type
from einturnip.testing.ranges import RangeContext, is_static, ranges, size_value
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    CallTerm,
    ComparisonTerm,
    FunctionTerm,
    GroupTerm,
    GuardedTerm,
    IndexTerm,
    NumberTerm,
    ParenTerm,
    Position,
    RestTerm,
    SizeTerm,
    SliceTerm,
    Term,
    UnaryTerm,
)


@dataclass(frozen=True)
class OracleTensor:
    """A tensor of the oracle: Python numbers by point. ``made_by``: the operators used to compute it."""

    shape: tuple[int, ...]
    type: Type
    at: Mapping[tuple[int, ...], BoundedValue]
    made_by: frozenset[str] = frozenset()


class OracleFunctions(Protocol):
    """Evaluates calls of the program's functions."""

    def value(self, call: CallTerm, scope: OracleScope) -> BoundedValue:
        """The value of a call at the scope's point."""

    def result(self, call: CallTerm, scope: OracleScope) -> OracleTensor:
        """The tensor that the function returns there, over its own labels."""


@dataclass
class OracleScope:
    """The meaning of names while one equation is evaluated.

    Results for a term are cached by its identity, because ``NumberTerm(1)`` and ``NumberTerm(1.0)`` are equal but
    differ in type.
    """

    sizes: Mapping[str, int]
    tensors: Mapping[str, OracleTensor]
    functions: OracleFunctions
    point: dict[str, int] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    types: dict[int, Type] = field(default_factory=dict)
    folded: dict[tuple[int, tuple[int, ...]], BoundedValue] = field(default_factory=dict)
    operators: dict[int, frozenset[str]] = field(default_factory=dict)
    results: dict[tuple[int, tuple[int, ...]], OracleTensor] = field(default_factory=dict)

    def context(self) -> RangeContext:
        """The context for the sizes of labels bound inside."""
        return RangeContext(self.sizes, {name: tensor.shape for name, tensor in self.tensors.items()}, self.extents)

    def type(self, term: Term) -> Type:
        """The type of a term."""
        found = self.types.get(id(term))
        if found is None:
            found = type_of(term, {name: tensor.type for name, tensor in self.tensors.items()})
            self.types[id(term)] = found
        return found

    def points(self, extents: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
        """Each point in row-major order, with the labels bound to it; hidden labels are restored at the end."""
        hidden = self.point, self.extents
        self.extents = {**self.extents, **extents}
        for point in itertools.product(*map(range, extents.values())):
            self.point = {**hidden[0], **dict(zip(extents, point, strict=True))}
            yield point
        self.point, self.extents = hidden

    def made_by(self, term: Term) -> frozenset[str]:
        """The operators and aggregations used to compute a term, in this equation or before."""
        found = self.operators.get(id(term))
        if found is None:
            found = frozenset[str]().union(*(self.made_by(c) for c in children(term)))
            match term:
                case AccessTerm(name=name):
                    found |= self.tensors[name].made_by
                case BinaryTerm(op=op) | AggregateTerm(op=op):
                    found |= {op}
                case CallTerm():
                    found |= {"sum", "*"}  # possibly used in the function
            self.operators[id(term)] = found
        return found


def value(term: Term, scope: OracleScope) -> BoundedValue:
    """The value of a term at the scope's labels.

    Raises:
        IndexError: an index is out of bounds.
    """
    match term:
        case NumberTerm(value=number):
            return BoundedValue(number)
        case SizeTerm(name=name):
            return BoundedValue(scope.sizes[name])
        case IndexTerm(label=label):
            return BoundedValue(scope.point[label])
        case AccessTerm():
            return _access(term, scope)
        case ParenTerm(inner=inner):
            return value(inner, scope)
        case UnaryTerm(op="not", argument=argument):
            x = value(argument, scope)
            return BoundedValue(not x.v, x.slack)
        case UnaryTerm(argument=argument):
            return apply_function("-", value(argument, scope), scope.type(term).dtype)
        case BinaryTerm():
            return _binary(term, scope)
        case ComparisonTerm():
            return _chain(term, scope)
        case FunctionTerm():
            return _function(term, scope)
        case AggregateTerm():
            return _aggregate(term, scope)
        case CallTerm():
            return scope.functions.value(term, scope)
        case _:
            assert_never(term)


# --- accesses ---------------------------------------------------------------------------------------------------------


def _access(term: AccessTerm, scope: OracleScope) -> BoundedValue:
    """The tensor's value, or the guard's value if the index is out of bounds."""
    tensor, of = scope.tensors[term.name], scope.type(term).dtype
    point, unsure = [], False
    for position, size in zip(term.indices, tensor.shape, strict=True):
        guard = position if isinstance(position, GuardedTerm) else None
        at = _index(guard.index if guard else position, scope)
        unsure |= at.slack > 0
        if not 0 <= at.v < size:
            if guard is None:
                raise IndexError(f"{position} of {term.name} is {at.v}, the axis {size}")
            return convert(value(guard.fill, scope), scope.type(guard.fill).dtype, of)
        point.append(at.v)
    x = convert(tensor.at[tuple(point)], tensor.type.dtype, of)
    return arithmetic.unknown(x.v) if unsure else x


def _index(position: Position, scope: OracleScope) -> BoundedValue:
    """The position on its axis that an access reads."""
    match position:
        case str():
            return BoundedValue(scope.point[position])
        case GroupTerm(labels=labels):
            at = 0
            for label in labels:
                at = at * scope.extents[label] + scope.point[label]
            return BoundedValue(at)
        case SliceTerm() | RestTerm() | GuardedTerm():
            raise ValueError(f"{position} in an equation spelled out")
        case _ if is_static(position):
            return BoundedValue(size_value(position, {**scope.sizes, **scope.point}))
        case _:
            return value(position, scope)


# --- operators and functions ------------------------------------------------------------------------------------------


def _both(a: Term, b: Term, scope: OracleScope) -> tuple[BoundedValue, BoundedValue, str]:
    """Two operands converted to their common dtype."""
    left, right = scope.type(a), scope.type(b)
    dtype = promotion.common(left, right).dtype
    return convert(value(a, scope), left.dtype, dtype), convert(value(b, scope), right.dtype, dtype), dtype


def _binary(term: BinaryTerm, scope: OracleScope) -> BoundedValue:
    if term.op in ("and", "or"):
        both = [value(term.left, scope), value(term.right, scope)]
        return aggregate_values("all" if term.op == "and" else "any", both, "bool", "bool")
    a, b, dtype = _both(term.left, term.right, scope)
    x = operate(term.op, a, b, dtype)
    return arithmetic.unknown(x.v) if not arithmetic.finite(x.v) and _is_regrouped(term, scope) else x


def operate(op: str, a: BoundedValue, b: BoundedValue, dtype: str) -> BoundedValue:
    """An arithmetic operator on two values of one dtype."""
    match op:
        case "+" | "-":
            return arithmetic.add(a, b, dtype, 1 if op == "+" else -1)
        case "*":
            return arithmetic.multiply(a, b, dtype)
        case "/":
            integers = promotion.kind(dtype) in "iu"
            return arithmetic.divide(a, b, "f64" if integers else dtype, integers)
        case "//" | "%":
            return arithmetic.floor_divide(a, b, dtype, remainder=op == "%")
        case "^":
            return arithmetic.power(a, b, dtype)
        case "min" | "max":
            return arithmetic.extreme(a, b, largest=op == "max")
        case _:
            raise KeyError(op)


def _chain(term: ComparisonTerm, scope: OracleScope) -> BoundedValue:
    links = []
    for op, left, right in zip(term.ops, term.arguments, term.arguments[1:], strict=False):
        a, b, _ = _both(left, right, scope)
        links.append(arithmetic.compare(op, a, b))
    return aggregate_values("all", links, "bool", "bool")


def _function(term: FunctionTerm, scope: OracleScope) -> BoundedValue:
    arguments, name, type = term.arguments, term.name, scope.type(term)
    if name in CASTS:
        return convert(value(arguments[0], scope), scope.type(arguments[0]).dtype, name)
    if name == "where":
        condition = value(arguments[0], scope)
        branches = [convert(value(a, scope), scope.type(a).dtype, type.dtype) for a in arguments[1:]]
        if condition.slack:
            same = branches[0] == branches[1] and branches[0].slack == 0
            return branches[0] if same else arithmetic.unknown(branches[0].v)
        return branches[0] if condition.v else branches[1]
    if name in ("min", "max"):
        a, b, dtype = _both(arguments[0], arguments[1], scope)
        return operate(name, a, b, dtype)
    x, source = value(arguments[0], scope), scope.type(arguments[0]).dtype
    if promotion.kind(source) in "biu" and promotion.kind(type.dtype) == "f":
        x, source = convert(x, source, type.dtype), type.dtype
    return apply_function(name, x, type.dtype)


# --- aggregations -----------------------------------------------------------------------------------------------------


def _aggregate(term: AggregateTerm, scope: OracleScope) -> BoundedValue:
    key = (id(term), tuple(scope.point[x] for x in sorted(free_labels(term))))
    if key not in scope.folded:
        extents = ranges_of(term.bounds, (term.body,), scope)
        scope.folded[key] = fold(term, [value(term.body, scope) for _ in scope.points(extents)], scope)
    return scope.folded[key]


def ranges_of(bounds: Iterable[BoundTerm], terms: tuple[Term, ...], scope: OracleScope) -> dict[str, int]:
    """The range of each bound label, in the order written; labels of a call have the size of its result."""
    bounds = tuple(bounds)
    found = ranges(bounds, terms, scope.context())
    return {b.label: found[b.label] if b.label in found else _made(b.label, terms, found, scope) for b in bounds}


def _made(label: str, terms: tuple[Term, ...], found: Mapping[str, int], scope: OracleScope) -> int:
    """The size of a label that a call introduces, from the first of its results."""
    call = next(c for term in terms for c in calls(term) if label in c.made)
    axis = returned_labels(call).index(made_labels(call)[call.made.index(label)])
    outer = {*label_map(call)[1], *scalar_labels(call)}
    around, scope.extents = scope.extents, {**scope.extents, **found}
    for _ in scope.points({x: size for x, size in found.items() if x in outer}):
        size = scope.functions.result(call, scope).shape[axis]
        scope.extents = around
        return size
    raise ValueError(f"nothing sizes label {label}")


def fold(term: AggregateTerm, values: list[BoundedValue], scope: OracleScope) -> BoundedValue:
    """The term's aggregation of the values of its body."""
    source, result = scope.type(term.body).dtype, scope.type(term).dtype
    if MONOIDS[term.op].values != "bool" and MONOIDS[term.op].result != "index":
        values = [convert(x, source, _wide(source, result)) for x in values]
    folded = aggregate_values(term.op, values, source, result)
    tangled = not all(arithmetic.finite(x.v) for x in values) and _is_regrouped(term, scope)
    return arithmetic.unknown(folded.v) if tangled else folded


def _wide(source: str, result: str) -> str:
    """The dtype that terms are rounded to: their own for results in f16 or bf16, else the result's."""
    return source if promotion.kind(source) == "f" and result in ("f16", "bf16") else result


def _is_regrouped(term: BinaryTerm | AggregateTerm, scope: OracleScope) -> bool:
    """True for a sum of products and a product of sums, which may be computed in another grouping.

    A non-finite value may then differ: 0 * inf is nan, and (0 + 1) * inf is not.
    """
    made_by = scope.made_by(term)
    sums, products = made_by & ADDING, made_by & {"*", "/"}
    return (term.op in ADDING or term.op in ("*", "/")) and bool(sums and products)
