"""Finds the sizes and tensors that a statement refers to, and so depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from einturnip.core.diagnostics import Span
from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AxisSize,
    Expr,
    Index,
    SizeExpr,
    SizeLiteral,
    SizeName,
    SizeNumber,
    SizeOp,
    unguarded,
    walk,
)
from einturnip.lang.program import (
    Carried,
    Concatenate,
    DimDef,
    Equation,
    GradStatement,
    InputDef,
    Loop,
    Output,
    Replace,
    Statement,
    Tensor,
)

Leaf: TypeAlias = SizeName | AxisSize


def size_dependencies(expr: SizeExpr) -> Iterator[Leaf]:
    """Yield the names and axes that a size depends on."""
    match expr:
        case SizeLiteral():
            return
        case SizeName() | AxisSize():
            yield expr
        case SizeOp(arguments=arguments):
            for argument in arguments:
                yield from size_dependencies(argument)
        case _:
            assert_never(expr)


def tensors_read(tensor: Tensor) -> tuple[int, ...]:
    """The tensors from which the value of a tensor is computed, by number."""
    match tensor:
        case InputDef():
            return ()
        case Equation():
            return equation_dependencies(tensor).tensors
        case Replace(base=base, piece=piece):
            return base, piece
        case Concatenate(parts=parts):
            return parts
        case GradStatement(loss=loss, by=by):
            return loss, by
        case Carried(initial=initial, last=last):
            return initial, last
        case _:
            assert_never(tensor)


def dependents(tensors: Sequence[Tensor], sources: Iterable[int]) -> set[int]:
    """The sources and all tensors that are computed from them, in any iteration of loops."""
    readers = dict[int, list[int]]()
    for number, tensor in enumerate(tensors):
        for read in tensors_read(tensor):
            readers.setdefault(read, []).append(number)
    found, stack = set[int](), list(sources)
    while stack:
        number = stack.pop()
        if number not in found:
            found.add(number)
            stack += readers.get(number, ())
    return found


def expressions(equation: Equation) -> Iterator[Expr]:
    """Yield every expression of an equation in source order: those of its value, then those of its keys."""
    yield from walk(equation.value)
    for _, key in equation.keys:
        yield from walk(key)


def sizes_in(statement: Statement) -> Iterator[tuple[Leaf, Span]]:
    """Yield every size that a statement mentions, with its place (a loop: in its head; an input: none)."""
    match statement:
        case Equation():
            yield from _equation_sizes(statement)
        case Replace(at=at):
            yield from ((leaf, size.span) for size in at if size is not None for leaf in size_dependencies(size))
        case Loop(start=start, stop=stop):
            yield from ((leaf, size.span) for size in (start, stop) for leaf in size_dependencies(size))
        case DimDef() | InputDef() | Concatenate() | GradStatement() | Output():
            return
        case _:
            assert_never(statement)


def _equation_sizes(equation: Equation) -> Iterator[tuple[Leaf, Span]]:
    for label in equation.labels:
        if label.size is not None:
            yield from ((leaf, label.span) for leaf in size_dependencies(label.size))
        if isinstance(label.dim, str):
            yield SizeName(label.dim, label.span), label.span
        elif label.dim is not None:
            yield from ((leaf, label.span) for leaf in size_dependencies(label.dim))
    for hint in equation.hints:
        yield from ((leaf, hint.span) for _, size, _ in hint.tiles for leaf in size_dependencies(size))
    for expr in expressions(equation):
        match expr:
            case SizeNumber(size=size, span=span):
                yield from ((leaf, span) for leaf in size_dependencies(size))
            case AccessExpr(indices=indices):
                for index in indices:
                    if not isinstance(index, int):
                        yield from _index_sizes(index)


def _index_sizes(index: Index) -> Iterator[tuple[Leaf, Span]]:
    index = unguarded(index)
    if isinstance(index, AffineIndex):
        parts = [*(c for _, c in index.terms), index.offset, index.divisor, index.modulus]
        yield from ((leaf, index.span) for part in parts if part is not None for leaf in size_dependencies(part))


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The tensors (by number) and the sizes (by name) that the lowered equation depends on."""

    tensors: tuple[int, ...]
    names: tuple[str, ...]


def equation_dependencies(equation: Equation) -> Dependencies:
    """Return the tensors and sizes that an equation refers to."""
    tensors = {e.tensor: None for e in expressions(equation) if isinstance(e, AccessExpr)}
    names: dict[str, None] = {}
    for leaf, _ in sizes_in(equation):
        if isinstance(leaf, AxisSize):
            tensors[leaf.tensor] = None
        else:
            names[leaf.name] = None
    return Dependencies(tuple(tensors), tuple(names))
