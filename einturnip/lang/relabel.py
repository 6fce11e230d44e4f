"""Renumbers labels in expressions, and finds the order in which an expression shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AggregateExpr,
    ApplyExpr,
    ConvertExpr,
    Expr,
    GatherIndex,
    GuardedAccess,
    Index,
    LabelNumber,
    NumberExpr,
    SizeNumber,
    SplitIndex,
    children,
    index_labels,
)


def relabel(expr: Expr, numbers: Mapping[int, int]) -> Expr:
    """The same expression where each label has a new number."""
    match expr:
        case NumberExpr() | SizeNumber():
            return expr
        case LabelNumber(label=label):
            return replace(expr, label=numbers[label])
        case AccessExpr(indices=indices):
            return replace(expr, indices=tuple(_relabel_index(index, numbers) for index in indices))
        case ConvertExpr(argument=argument):
            return replace(expr, argument=relabel(argument, numbers))
        case ApplyExpr(arguments=arguments):
            return replace(expr, arguments=tuple(relabel(argument, numbers) for argument in arguments))
        case AggregateExpr(labels=labels, body=body):
            return replace(expr, labels=tuple(numbers[label] for label in labels), body=relabel(body, numbers))
        case _:
            assert_never(expr)


def _relabel_index(index: Index, numbers: Mapping[int, int]) -> Index:
    match index:
        case int():
            return numbers[index]
        case AffineIndex(terms=terms):
            return replace(index, terms=tuple(sorted((numbers[label], c) for label, c in terms)))
        case SplitIndex(labels=labels):
            return replace(index, labels=tuple(numbers[label] for label in labels))
        case GatherIndex(value=value):
            return replace(index, value=relabel(value, numbers))
        case GuardedAccess(index=inner, fill=fill):
            found = _relabel_index(inner, numbers)
            assert not isinstance(found, SplitIndex | GuardedAccess)
            return replace(index, index=found, fill=relabel(fill, numbers))
        case _:
            assert_never(index)


def shown_labels(expr: Expr) -> tuple[int, ...]:
    """The labels of an expression: those of accesses in source order, then those used only as numbers."""
    numbers = (number for place, number in _labels(expr) if place == "number")
    indices = (number for place, number in _labels(expr) if place == "index")
    return tuple(dict.fromkeys((*indices, *numbers)))


def _labels(expr: Expr) -> Iterator[tuple[str, int]]:
    match expr:
        case LabelNumber(label=label):
            yield "number", label
        case AccessExpr(indices=indices):
            for index in indices:
                yield from _index_labels(index)
        case _:
            for child in children(expr):
                yield from _labels(child)


def _index_labels(index: Index) -> Iterator[tuple[str, int]]:
    match index:
        case GatherIndex(value=value):
            yield from _labels(value)
        case GuardedAccess(index=inner, fill=fill):
            yield from _index_labels(inner)
            yield from _labels(fill)
        case _:
            yield from (("index", label) for label in index_labels(index))
