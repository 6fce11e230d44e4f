"""What a drawn program means: each point of each equation in turn, in plain Python, sharing no code with the compiler.

``evaluate`` gives an ``Answer`` for each output: values in the dtype that the language page prescribes, and for each
value how far a correct run may be from it, found by a running error analysis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from einturnip.testing import arithmetic, promotion
from einturnip.testing.aggregation import aggregate_values
from einturnip.testing.agreement import Answer, Array
from einturnip.testing.arithmetic import Value, convert
from einturnip.testing.functions import apply_function
from einturnip.testing.promotion import Type
from einturnip.testing.terms import (
    Access,
    Aggregate,
    Binary,
    Bound,
    Chain,
    Function,
    Index,
    Number,
    Paren,
    Program,
    Size,
    Statement,
    Term,
    Unary,
    children,
    free_accesses,
    free_labels,
    is_product,
)

CASTS = frozenset(
    ("bool", *(k + b for k in "iu" for b in ("8", "16", "32", "64")), *("f16", "bf16", "f32", "f64", "c64", "c128"))
)
"""Every dtype is a function of one argument."""


@dataclass(frozen=True)
class _Tensor:
    """A tensor as the oracle holds it: Python numbers by point."""

    shape: tuple[int, ...]
    type: Type
    at: Mapping[tuple[int, ...], Value]
    made_by: frozenset[str] = frozenset()


@dataclass
class _Scope:
    """What names mean while one statement is evaluated.

    What was found about a term is kept by its identity: ``Number(1)`` and ``Number(1.0)`` are equal and differ.
    """

    sizes: Mapping[str, int]
    tensors: Mapping[str, _Tensor]
    point: dict[str, int] = field(default_factory=dict)
    types: dict[int, Type] = field(default_factory=dict)
    folded: dict[tuple[int, tuple[int, ...]], Value] = field(default_factory=dict)
    operators: dict[int, frozenset[str]] = field(default_factory=dict)


def evaluate(program: Program, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None) -> dict[str, Answer]:
    """Every output of the program.

    Shapes:
        inputs: an array for each input, in its dtype; dims: sizes given from outside.
    """
    sizes = _bind(program, inputs, dims or {})
    tensors = {i.name: _lift(np.asarray(inputs[i.name]), i.dtype) for i in program.inputs}
    for statement in program.statements:
        tensors[statement.name] = _evaluate_statement(statement, sizes, tensors)
    return {name: _lower(tensors[name]) for name in program.outputs}


def types_of(program: Program) -> dict[str, Type]:
    """The type of every name, as last defined."""
    types: dict[str, Type] = {i.name: Type(i.dtype) for i in program.inputs}
    for statement in program.statements:
        types[statement.name] = statement_type(statement, types)
    return types


def statement_type(statement: Statement, names: Mapping[str, Type]) -> Type:
    """The type of a statement's tensor. What is assigned is a value, no longer a Python number."""
    of = type_of(with_implied_sum(statement).body, names)
    return Type(of.dtype, "soft") if of.strength == "python" and statement.bounds else of


def type_of(term: Term, names: Mapping[str, Type]) -> Type:
    """The type of a term, from the types of the names in it.

    Raises:
        TypeError: an operator does not take what it is given.
    """
    match term:
        case Number(value=value):
            dtype = {bool: "bool", int: "i64", float: "f64", complex: "c128"}[type(value)]
            return Type(dtype, "python")
        case Size():
            return promotion.PYTHON_INT
        case Index():
            return promotion.LABEL
        case Access(name=name):
            return names[name]
        case Paren(inner=inner):
            return type_of(inner, names)
        case Unary(op="-", argument=argument):
            return promotion.function("-", type_of(argument, names))
        case Unary(argument=argument):
            return promotion.condition(type_of(argument, names))
        case Chain(arguments=arguments):
            return promotion.condition(*(type_of(a, names) for a in arguments))
        case Binary(op=op, left=left, right=right):
            if op in ("and", "or"):
                return promotion.condition(type_of(left, names), type_of(right, names))
            return promotion.arithmetic(op, type_of(left, names), type_of(right, names))
        case Function(name=name, arguments=arguments):
            return _function_type(name, [type_of(a, names) for a in arguments])
        case Aggregate(op=op, body=body, dtype=dtype):
            return promotion.aggregate(op, type_of(body, names), dtype)
        case _:
            assert_never(term)


def _function_type(name: str, arguments: list[Type]) -> Type:
    if name in CASTS:
        return Type(name)
    if name == "where":
        return promotion.choice(*arguments)
    if name in ("min", "max"):
        return promotion.arithmetic(name, *arguments)
    return promotion.function(name, arguments[0])


def with_implied_sum(statement: Statement) -> Statement:
    """The statement with Einstein's convention spelled out."""
    left = {b.label for b in statement.bounds}
    missing = [label for _, _, label in free_accesses(statement.body) if label not in left]
    if not missing or not is_product(statement.body):
        return statement
    bounds = tuple(Bound(label) for label in dict.fromkeys(missing))
    return Statement(statement.name, statement.bounds, Aggregate("sum", bounds, statement.body))


# --- sizes ------------------------------------------------------------------------------------------------------------


def _bind(program: Program, inputs: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, int]:
    """Every dim: from outside, from the axes it names, from its definition."""
    sizes = dict(given)
    for i in program.inputs:
        for term, size in zip(i.shape, np.asarray(inputs[i.name]).shape, strict=True):
            if isinstance(term, Size) and sizes.setdefault(term.name, size) != size:
                raise ValueError(f"{term.name} is {sizes[term.name]} and {size}")
    for dim in program.dims:
        if dim.size is not None:
            size = size_value(dim.size, sizes)
            if sizes.setdefault(dim.name, size) != size:
                raise ValueError(f"{dim.name} is {sizes[dim.name]} and {size}")
    for i in program.inputs:
        shape = tuple(size_value(term, sizes) for term in i.shape)
        if shape != np.asarray(inputs[i.name]).shape:
            raise ValueError(f"{i.name} is {np.asarray(inputs[i.name]).shape}, declared {shape}")
    return sizes


def size_value(term: Term, sizes: Mapping[str, int]) -> int:
    """The value of a size written in the program."""
    match term:
        case Number(value=int(value)):
            return value
        case Size(name=name):
            return sizes[name]
        case Paren(inner=inner):
            return size_value(inner, sizes)
        case Binary(op=op, left=left, right=right):
            a, b = size_value(left, sizes), size_value(right, sizes)
            return {"+": a + b, "-": a - b, "*": a * b, "//": a // b if b else 0}[op]
        case _:
            raise ValueError(f"not a size: {term}")


def _extents(bounds: tuple[Bound, ...], body: Term, scope: _Scope) -> tuple[int, ...]:
    """The size of each bound label: written there, the dim's of its name, or the axis it stands on."""
    standing: dict[str, set[int]] = {}
    for name, axis, label in free_accesses(body):
        standing.setdefault(label, set()).add(scope.tensors[name].shape[axis])
    extents = []
    for bound in bounds:
        if bound.size is not None:
            extents.append(size_value(bound.size, scope.sizes))
            continue
        sizes = standing.get(bound.label, set()) | ({scope.sizes[bound.label]} if bound.label in scope.sizes else set())
        if len(sizes) != 1:
            raise ValueError(f"label {bound.label} has sizes {sorted(sizes)}")
        extents.extend(sizes)
    return tuple(extents)


# --- values -----------------------------------------------------------------------------------------------------------


def _evaluate_statement(statement: Statement, sizes: Mapping[str, int], tensors: Mapping[str, _Tensor]) -> _Tensor:
    names = {name: tensor.type for name, tensor in tensors.items()}
    type = statement_type(statement, names)
    statement = with_implied_sum(statement)
    scope = _Scope(sizes, tensors)
    labels = tuple(b.label for b in statement.bounds)
    shape = _extents(statement.bounds, statement.body, scope)
    at = {point: _value(statement.body, scope) for point in _points(labels, shape, scope)}
    return _Tensor(shape, type, at, _operators(statement.body, scope))


def _points(labels: tuple[str, ...], shape: tuple[int, ...], scope: _Scope) -> Iterator[tuple[int, ...]]:
    """Each point in row-major order, with the scope's labels set to it; what the labels hide comes back at the end."""
    hidden = dict(scope.point)
    for point in itertools.product(*map(range, shape)):
        scope.point.update(zip(labels, point, strict=True))
        yield point
    scope.point = hidden


def _type(term: Term, scope: _Scope) -> Type:
    found = scope.types.get(id(term))
    if found is None:
        found = type_of(term, {name: tensor.type for name, tensor in scope.tensors.items()})
        scope.types[id(term)] = found
    return found


def _operators(term: Term, scope: _Scope) -> frozenset[str]:
    """Which operators and aggregations went into a term, in this statement or before."""
    found = scope.operators.get(id(term))
    if found is None:
        found = frozenset[str]().union(*(_operators(c, scope) for c in children(term)))
        if isinstance(term, Access):
            found |= scope.tensors[term.name].made_by
        if isinstance(term, Binary | Aggregate):
            found |= {term.op}
        scope.operators[id(term)] = found
    return found


def _regrouped(term: Binary | Aggregate, scope: _Scope) -> bool:
    """True for a sum of products and a product of sums, which may be computed in another grouping.

    A value that is not finite may come out as another one then: 0 * inf is nan, and (0 + 1) * inf is not.
    """
    made_by = _operators(term, scope)
    sums, products = made_by & {"sum", "mean"}, made_by & {"*", "/"}
    return term.op in ("sum", "mean", "*", "/") and bool(sums and products)


def _value(term: Term, scope: _Scope) -> Value:
    match term:
        case Number(value=value):
            return Value(value)
        case Size(name=name):
            return Value(scope.sizes[name])
        case Index(label=label):
            return Value(scope.point[label])
        case Access(name=name, labels=labels):
            return scope.tensors[name].at[tuple(scope.point[x] for x in labels)]
        case Paren(inner=inner):
            return _value(inner, scope)
        case Unary(op="not", argument=argument):
            x = _value(argument, scope)
            return Value(not x.v, x.slack)
        case Unary(argument=argument):
            return apply_function("-", _value(argument, scope), _type(term, scope).dtype)
        case Binary():
            return _binary(term, scope)
        case Chain():
            return _chain(term, scope)
        case Function():
            return _function(term, scope)
        case Aggregate():
            return _aggregate(term, scope)
        case _:
            assert_never(term)


def _both(a: Term, b: Term, scope: _Scope) -> tuple[Value, Value, str]:
    """Two operands converted to their common dtype."""
    left, right = _type(a, scope), _type(b, scope)
    dtype = promotion.common(left, right).dtype
    return convert(_value(a, scope), left.dtype, dtype), convert(_value(b, scope), right.dtype, dtype), dtype


def _binary(term: Binary, scope: _Scope) -> Value:
    if term.op in ("and", "or"):
        both = [_value(term.left, scope), _value(term.right, scope)]
        return aggregate_values("all" if term.op == "and" else "any", both, "bool", "bool")
    a, b, dtype = _both(term.left, term.right, scope)
    x = operate(term.op, a, b, dtype)
    return arithmetic.unknown(x.v) if not arithmetic.finite(x.v) and _regrouped(term, scope) else x


def operate(op: str, a: Value, b: Value, dtype: str) -> Value:
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


def _chain(term: Chain, scope: _Scope) -> Value:
    links = []
    for op, left, right in zip(term.ops, term.arguments, term.arguments[1:], strict=False):
        a, b, _ = _both(left, right, scope)
        links.append(arithmetic.compare(op, a, b))
    return aggregate_values("all", links, "bool", "bool")


def _function(term: Function, scope: _Scope) -> Value:
    arguments, name, type = term.arguments, term.name, _type(term, scope)
    if name in CASTS:
        return convert(_value(arguments[0], scope), _type(arguments[0], scope).dtype, name)
    if name == "where":
        condition = _value(arguments[0], scope)
        branches = [convert(_value(a, scope), _type(a, scope).dtype, type.dtype) for a in arguments[1:]]
        if condition.slack:
            same = branches[0] == branches[1] and branches[0].slack == 0
            return branches[0] if same else arithmetic.unknown(branches[0].v)
        return branches[0] if condition.v else branches[1]
    if name in ("min", "max"):
        a, b, dtype = _both(arguments[0], arguments[1], scope)
        return operate(name, a, b, dtype)
    x, source = _value(arguments[0], scope), _type(arguments[0], scope).dtype
    if promotion.kind(source) in "biu" and promotion.kind(type.dtype) == "f":
        x, source = convert(x, source, type.dtype), type.dtype
    return apply_function(name, x, type.dtype)


def _aggregate(term: Aggregate, scope: _Scope) -> Value:
    key = (id(term), tuple(scope.point[x] for x in sorted(free_labels(term))))
    if key not in scope.folded:
        labels = tuple(b.label for b in term.bounds)
        extents = _extents(term.bounds, term.body, scope)
        outer = scope.point
        inner = _Scope(scope.sizes, scope.tensors, dict(outer), scope.types, scope.folded, scope.operators)
        source, result = _type(term.body, scope).dtype, _type(term, scope).dtype
        values = [_value(term.body, inner) for _ in _points(labels, extents, inner)]
        if term.op in ("sum", "prod", "mean", "logsumexp", "max", "min"):
            values = [convert(x, source, _wide(source, result)) for x in values]
        folded = aggregate_values(term.op, values, source, result)
        tangled = not all(arithmetic.finite(x.v) for x in values) and _regrouped(term, scope)
        scope.folded[key] = arithmetic.unknown(folded.v) if tangled else folded
    return scope.folded[key]


def _wide(source: str, result: str) -> str:
    """The dtype in which terms are added: f16 and bf16 in f32."""
    return source if promotion.kind(source) == "f" and result in ("f16", "bf16") else result


def _lift(array: Array, dtype: str) -> _Tensor:
    if array.dtype != promotion.numpy_dtype(dtype):
        raise ValueError(f"declared {dtype}, found {array.dtype}")
    python = {"f": float, "c": complex, "i": int, "u": int, "b": bool}[promotion.kind(dtype)]
    at = {point: Value(python(array[point])) for point in np.ndindex(array.shape)}
    return _Tensor(array.shape, Type(dtype), at)


def _lower(tensor: _Tensor) -> Answer:
    values = np.zeros(tensor.shape, promotion.numpy_dtype(tensor.type.dtype))
    slack = np.zeros(tensor.shape)
    with np.errstate(all="ignore"):
        for point, x in tensor.at.items():
            values[point], slack[point] = x.v, x.slack
    return Answer(values, slack)
