"""Scalar expressions: the value of a join at one point of an einsum's label space.

They are fully typed: every node has a dtype and every conversion is a Cast, so that a back end never infers types.
Both arguments of an arithmetic op or comparison have one dtype; ``where`` is (bool, t, t) -> t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from einturnip.ir.dtypes import I64, DType


@dataclass(frozen=True, slots=True)
class ScalarConst:
    """A constant of the plan; a Python value, to be interpreted as ``dtype``."""

    value: bool | int | float | complex
    dtype: DType


@dataclass(frozen=True, slots=True)
class OperandRef:
    """The element of operand ``slot`` at the point's labels."""

    slot: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class LabelValue:
    """The index of label ``position`` at the point, from 0, relative to the whole tensor (not the tile)."""

    position: int
    dtype: DType = I64


@dataclass(frozen=True, slots=True)
class ScalarCast:
    """``argument`` converted as NumPy's ``astype`` does."""

    argument: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True)
class ScalarCall:
    """A scalar function or operator applied to arguments of the stated dtypes."""

    op: str
    arguments: tuple[Scalar, ...]
    dtype: DType


Scalar: TypeAlias = ScalarConst | OperandRef | LabelValue | ScalarCast | ScalarCall

ARITHMETIC = frozenset({"add", "sub", "mul", "div", "floordiv", "mod", "pow", "min", "max"})
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGICAL = frozenset({"and", "or", "not"})


def children(expr: Scalar) -> tuple[Scalar, ...]:
    """The direct subexpressions."""
    match expr:
        case ScalarConst() | OperandRef() | LabelValue():
            return ()
        case ScalarCast(argument=argument):
            return (argument,)
        case ScalarCall(arguments=arguments):
            return arguments
        case _:
            assert_never(expr)


def walk(expr: Scalar) -> Iterator[Scalar]:
    """Every subexpression, the expression itself first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def rewrite(expr: Scalar, leaf: Callable[[Scalar], Scalar]) -> Scalar:
    """Apply ``leaf`` to each ScalarConst, OperandRef and LabelValue of an expression."""
    match expr:
        case ScalarConst() | OperandRef() | LabelValue():
            return leaf(expr)
        case ScalarCast(argument=argument):
            return replace(expr, argument=rewrite(argument, leaf))
        case ScalarCall(arguments=arguments):
            return replace(expr, arguments=tuple(rewrite(a, leaf) for a in arguments))
        case _:
            assert_never(expr)


def labels_of(expr: Scalar) -> frozenset[int]:
    """Positions of the labels used as numbers."""
    return frozenset(e.position for e in walk(expr) if isinstance(e, LabelValue))


def slots_of(expr: Scalar) -> frozenset[int]:
    """Operand slots that the expression reads."""
    return frozenset(e.slot for e in walk(expr) if isinstance(e, OperandRef))
