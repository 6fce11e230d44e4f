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
    """The size of an axis of tensor number ``tensor``: what the label ``name`` of a function's parameter stands for."""

    tensor: int
    axis: int
    name: str = field(compare=False)
    span: Span = field(compare=False)


SizeExpr: TypeAlias = SizeLiteral | SizeName | SizeOp | AxisSize

# -- scalar expressions ------------------------------------------------------------------------------------------------

Strength = Literal["strong", "weak", "number"]
"""How a value takes part in promotion. ``number``: a Python number (literals, sizes and what is computed from them
alone), which takes the other side's dtype unless its kind is higher. ``weak``: an i64, f64 or c128 (or bool) that comes
from literals, sizes and labels alone, which never widens a float. ``strong``: everything else. Back ends need not look:
conversions are explicit."""


@dataclass(frozen=True, slots=True)
class NumberExpr:
    """A literal or constant, to be taken as ``dtype``; ``value`` is a Python bool, int, float or complex."""

    value: bool | int | float | complex
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeNumber:
    """A size used as a number, to be taken as ``dtype``."""

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
    """``(offset + sum of coefficient * label) // divisor % modulus`` as an index; ``terms`` are (label, coefficient).

    No divisor and no modulus: None.
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
    """An integer that is data as an index; ``value`` is i64. Out of bounds is a run-time error."""

    value: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class GuardedAccess:
    """``index ? fill``: where it is out of bounds the access is ``fill``, which has the access' dtype."""

    index: int | AffineIndex | GatherIndex
    fill: Expr
    span: Span = field(compare=False)


Index: TypeAlias = int | AffineIndex | SplitIndex | GatherIndex | GuardedAccess
"""How an access indexes an axis; an int is a label alone."""


@dataclass(frozen=True, slots=True)
class AccessExpr:
    """The element of tensor number ``tensor`` at ``indices`` (one an axis; a repeat takes a diagonal; () for a scalar).

    A label that the tensor does not carry broadcasts. ``dtype`` is the tensor's, but for a wider one where a fill asks.
    """

    tensor: int
    indices: tuple[Index, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class ConvertExpr:
    """``argument`` as ``dtype``. ``explicit`` where the program says so (``f16(x)``), else promotion asked for it."""

    argument: Expr
    dtype: DType
    strength: Strength
    explicit: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class ApplyExpr:
    """An operator or function of ``ir.scalar.OPS`` applied to arguments."""

    op: str
    arguments: tuple[Expr, ...]
    dtype: DType
    strength: Strength
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class AggregateExpr:
    """``op[labels : accumulator] body``, with op one of ``ir.aggregations.AGGREGATIONS``; ``labels`` are bound here.

    Body and result: ``dtype`` is ``ir.aggregations.aggregation(op, body.dtype, accumulator).result``. ``implied`` marks
    the sum of Einstein's convention, which stands nowhere in the text.
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


def index_labels(index: Index) -> tuple[int, ...]:
    """The labels that an index is made of, but those inside a gather's or a fill's expression."""
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
    """The sizes in an index, but those inside a gather's or a fill's expression."""
    match index:
        case AffineIndex(terms=terms, offset=offset, divisor=divisor, modulus=modulus):
            ends = (size for size in (divisor, modulus) if size is not None)
            return (*(coefficient for _, coefficient in terms), offset, *ends)
        case GuardedAccess(index=inner):
            return index_sizes(inner)
        case _:
            return ()


def index_expressions(index: Index) -> tuple[Expr, ...]:
    """The expressions inside an index: what a gather reads, and fills."""
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
