"""Sizes, indices and scalar expressions of a Program. See ``lang.program``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

from einturnip.core.diagnostics import Span
from einturnip.ir.dtypes import I64, DType

# -- sizes -------------------------------------------------------------------------------------------------------------

SizeOperator = Literal["add", "sub", "mul", "div", "floordiv", "mod", "pow", "min", "max", "neg"]


@dataclass(frozen=True, slots=True)
class SizeLiteral:
    """A size written as a number."""

    value: int
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeName:
    """A ``dim`` or a loop's variable, by name."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeOp:
    """Integer arithmetic on sizes; ``div`` must be exact. See ``lang.sizes.size_value``."""

    op: SizeOperator
    arguments: tuple[SizeExpr, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class AxisSize:
    """The size of an axis of tensor number ``tensor``, denoted by the label ``name`` of a parameter."""

    tensor: int
    axis: int
    name: str = field(compare=False)
    span: Span = field(compare=False)


SizeExpr: TypeAlias = SizeLiteral | SizeName | SizeOp | AxisSize

# -- scalar expressions ------------------------------------------------------------------------------------------------

Strength = Literal["strong", "weak", "number"]
"""How a value takes part in promotion.

``number``: a Python number (literals, sizes, and results of only these), which takes the other operand's dtype unless
its kind is higher. ``weak``: an i64, f64, c128 or bool computed only from literals, sizes and labels, which never
widens a float. ``strong``: all others. Back ends can ignore the strength, because conversions are explicit."""


@dataclass(frozen=True, slots=True)
class NumberExpr:
    """A literal or constant, to be interpreted as ``dtype``.

    ``value`` is a Python bool, int, float or complex.
    """

    value: bool | int | float | complex
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeNumber:
    """A size used as a number, to be interpreted as ``dtype``."""

    size: SizeExpr
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class LabelNumber:
    """Label ``label`` of the equation used as a number: its index, from 0."""

    label: int
    span: Span = field(compare=False)
    dtype: DType = I64
    strength: Strength = "weak"


@dataclass(frozen=True, slots=True)
class AffineIndex:
    """``(offset + sum of coefficient * label) // divisor % modulus`` as an index.

    ``terms`` are (label, coefficient). ``divisor`` and ``modulus`` are None where there is none.
    """

    terms: tuple[tuple[int, SizeExpr], ...]
    offset: SizeExpr
    divisor: SizeExpr | None
    modulus: SizeExpr | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SplitIndex:
    """``(h e)`` as an index: the row-major index of several labels, whose sizes multiply to the axis."""

    labels: tuple[int, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class GatherIndex:
    """A data-dependent index; ``value`` is i64. An index out of bounds is a run-time error."""

    value: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class GuardedAccess:
    """``index ? fill``: out of bounds, the access has the value ``fill``, of the access' dtype."""

    index: int | AffineIndex | GatherIndex
    fill: Expr
    span: Span = field(compare=False)


Index: TypeAlias = int | AffineIndex | SplitIndex | GatherIndex | GuardedAccess
"""How an access indexes an axis; an int is a plain label."""


@dataclass(frozen=True, slots=True)
class AccessExpr:
    """The element of tensor number ``tensor`` at ``indices``, one for each axis; () for a scalar.

    A repeated label takes a diagonal. Labels that the tensor lacks broadcast. ``dtype`` is the tensor's, or a wider one
    if a fill value requires it.
    """

    tensor: int
    indices: tuple[Index, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class ConvertExpr:
    """``argument`` as ``dtype``; ``explicit`` if written (``f16(x)``), else required by promotion."""

    argument: Expr
    dtype: DType
    strength: Strength
    explicit: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class ApplyExpr:
    """An operator or function of numbers applied to arguments."""

    op: str
    arguments: tuple[Expr, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class AggregateExpr:
    """``op[labels : accumulator] body``, with op one of ``ir.aggregations.AGGREGATIONS``.

    It binds ``labels``.

    Its ``dtype`` is ``ir.aggregations.aggregation(op, body.dtype, accumulator).result``. ``implied`` marks the sum of
    Einstein's convention, which is not in the text.
    """

    op: str
    labels: tuple[int, ...]
    body: Expr
    accumulator: DType | None
    dtype: DType
    strength: Strength
    implied: bool
    span: Span = field(compare=False)


Expr: TypeAlias = NumberExpr | SizeNumber | LabelNumber | AccessExpr | ConvertExpr | ApplyExpr | AggregateExpr


def unguarded(index: Index) -> int | AffineIndex | SplitIndex | GatherIndex:
    """The index without its guard."""
    return index.index if isinstance(index, GuardedAccess) else index


def index_labels(index: Index) -> tuple[int, ...]:
    """The labels in an index, except inside a gather's or a fill's expression."""
    match index:
        case int():
            return (index,)
        case AffineIndex(terms=terms):
            return tuple(label for label, _ in terms)
        case SplitIndex(labels=labels):
            return labels
        case GatherIndex():
            return ()
        case GuardedAccess(index=inner):
            return index_labels(inner)
        case _:
            assert_never(index)


def index_sizes(index: Index) -> tuple[SizeExpr, ...]:
    """The sizes in an index, except inside a gather's or a fill's expression."""
    match index:
        case AffineIndex(terms=terms, offset=offset, divisor=divisor, modulus=modulus):
            ends = (size for size in (divisor, modulus) if size is not None)
            return (*(coefficient for _, coefficient in terms), offset, *ends)
        case GuardedAccess(index=inner):
            return index_sizes(inner)
        case _:
            return ()


def index_expressions(index: Index) -> tuple[Expr, ...]:
    """The expressions inside an index: of gathers and fills."""
    match index:
        case GatherIndex(value=value):
            return (value,)
        case GuardedAccess(index=inner, fill=fill):
            return (*index_expressions(inner), fill)
        case _:
            return ()


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    match expr:
        case NumberExpr() | SizeNumber() | LabelNumber():
            return ()
        case AccessExpr(indices=indices):
            return tuple(e for index in indices if not isinstance(index, int) for e in index_expressions(index))
        case ConvertExpr(argument=argument):
            return (argument,)
        case ApplyExpr(arguments=arguments):
            return arguments
        case AggregateExpr(body=body):
            return (body,)
        case _:
            assert_never(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every subexpression, the expression itself first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))
