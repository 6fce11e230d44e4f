"""The type of every term and name, inferred from the inputs' types, without values or sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import assert_never

from einturnip.testing import promotion
from einturnip.testing.labels import arguments_of
from einturnip.testing.promotion import Type
from einturnip.testing.spelling import parts_of, statements_of, with_implied_sum, written_labels
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    CallTerm,
    ComparisonTerm,
    DrawnLoop,
    DrawnSeveral,
    DrawnStatement,
    FixedTerm,
    FunctionTerm,
    GuardedTerm,
    IndexTerm,
    KeyedTerm,
    NumberTerm,
    ParenTerm,
    SizeTerm,
    Step,
    Term,
    UnaryTerm,
)

Types = Mapping[str, Type]

CASTS = frozenset(
    ("bool", *(k + b for k in "iu" for b in ("8", "16", "32", "64")), *("f16", "bf16", "f32", "f64", "c64", "c128"))
)
"""Every dtype is a function of one argument."""


def types_after(steps: Iterable[Step], names: Types) -> dict[str, Type]:
    """The types of all names after some steps."""
    types = dict(names)
    for step in steps:
        match step:
            case DrawnStatement():
                types[step.name] = statement_type(step, types)
            case DrawnSeveral():
                types |= {s.name: statement_type(s, types) for s in statements_of(step)}
            case DrawnLoop():
                types |= carried_types(step, types)
            case _:
                assert_never(step)
    return types


def carried_types(loop: DrawnLoop, names: Types) -> dict[str, Type]:
    """The types that names from before a loop have in it and after it.

    Types stay the same, except that a dtype from literals alone becomes that of the loop's result.

    Raises:
        TypeError: a loop changes a dtype.
    """
    types = dict(names)
    for _ in range(4):
        after = types_after(loop.body, types)
        changed = {name for name in names if after[name] != types[name]}
        if not changed:
            return types
        for name in changed:
            if types[name].strength == "strong":
                raise TypeError(f"a loop makes {name} {after[name]}, it was {types[name]}")
            types[name] = promotion.common(types[name], after[name])
    raise TypeError("a loop changes a dtype each time")


def statement_type(statement: DrawnStatement, names: Types) -> Type:
    """The type of a statement's tensor, which is an array and no longer a Python number."""
    of = reduce(promotion.common, (_part_type(part, names) for part in parts_of(statement, {})))
    if any(isinstance(x, FixedTerm) for x in statement.bounds):
        of = promotion.choice(Type("bool", "soft"), of, names[statement.name])
    return of


def _part_type(part: DrawnStatement, names: Types) -> Type:
    left = [label for x in part.bounds for label in written_labels(x)]
    keyed = any(isinstance(x, KeyedTerm) for x in part.bounds)
    of = type_of(part.body if keyed else with_implied_sum(part.body, left), names)
    replaces = any(isinstance(x, FixedTerm) for x in part.bounds)
    return Type(of.dtype, "soft") if of.strength == "python" and part.bounds and not replaces else of


def type_of(term: Term, names: Types) -> Type:
    """The type of a term, from the types of its names.

    Raises:
        TypeError: an operator does not accept its operands' types.
    """
    match term:
        case NumberTerm(value=value):
            dtype = {bool: "bool", int: "i64", float: "f64", complex: "c128"}[type(value)]
            return Type(dtype, "python")
        case SizeTerm():
            return promotion.PYTHON_INT
        case IndexTerm():
            return promotion.LABEL
        case AccessTerm(name=name, indices=indices):
            fills = [type_of(x.fill, names) for x in indices if isinstance(x, GuardedTerm)]
            return reduce(promotion.common, fills, names[name])
        case ParenTerm(inner=inner):
            return type_of(inner, names)
        case UnaryTerm(op="-", argument=argument):
            return promotion.function("-", type_of(argument, names))
        case UnaryTerm(argument=argument):
            return promotion.condition(type_of(argument, names))
        case ComparisonTerm(arguments=arguments):
            return promotion.condition(*(type_of(a, names) for a in arguments))
        case BinaryTerm(op=op, left=left, right=right):
            if op in ("and", "or"):
                return promotion.condition(type_of(left, names), type_of(right, names))
            return promotion.arithmetic(op, type_of(left, names), type_of(right, names))
        case FunctionTerm(name=name, arguments=arguments):
            return _function_type(name, [type_of(a, names) for a in arguments])
        case AggregateTerm(op=op, body=body, dtype=dtype):
            return promotion.aggregate(op, type_of(body, names), dtype)
        case CallTerm(function=function, result=result):
            return type_of(function.returns[result], types_after(function.steps, parameter_types(term, names)))
        case _:
            assert_never(term)


def parameter_types(call: CallTerm, names: Types) -> dict[str, Type]:
    """The types of a function's parameters in one call; a number given for a tensor is an array."""
    types = {}
    given = arguments_of(call)
    for parameter in call.function.parameters:
        of = type_of(given[parameter.name], names)
        number = of.strength == "python" and parameter.labels is not None
        types[parameter.name] = Type(of.dtype, "soft") if number else of
    return types


def _function_type(name: str, arguments: list[Type]) -> Type:
    if name in CASTS:
        return Type(name)
    if name == "where":
        return promotion.choice(*arguments)
    if name in ("min", "max"):
        return promotion.arithmetic(name, *arguments)
    return promotion.function(name, arguments[0])
