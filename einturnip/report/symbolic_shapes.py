"""Shapes of all tensors in terms of the program's sizes, as far as they are known without numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from einturnip.core.diagnostics import Span
from einturnip.core.errors import SourceError
from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AxisSize,
    Index,
    SizeExpr,
    SizeLiteral,
    SizeName,
    SizeOp,
    SplitIndex,
    index_labels,
    walk,
)
from einturnip.lang.program import (
    Carried,
    Concatenate,
    Equation,
    GradStatement,
    InputDef,
    Replace,
    Tensor,
    TypedProgram,
)
from einturnip.lang.sizes import size_value

Shape = tuple[SizeExpr | None, ...]


@dataclass(frozen=True, slots=True)
class LabelSize:
    """A label's size, if the program determines it, and its origin in words."""

    size: SizeExpr | None
    origin: str


def shapes(program: TypedProgram, sizes: Mapping[str, int]) -> tuple[Shape, ...]:
    """The shape of every tensor by number; an unknown axis is None.

    Shapes:
        sizes: known dims; an axis computed from these alone is a literal.
    """
    return _Shapes(program, sizes).found


def bounds(program: TypedProgram, equation: Equation, sizes: Mapping[str, int]) -> tuple[LabelSize, ...]:
    """The size of every label of an equation, and its origin."""
    return _Shapes(program, sizes).bounds(equation)


@dataclass(frozen=True, slots=True)
class _Use:
    """An index of an access, and the axis that it reads."""

    index: Index
    axis: SizeExpr | None
    origin: str


class _Shapes:
    """Computes the shapes of a program, in the order of its tensors."""

    def __init__(self, program: TypedProgram, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, dict(sizes)
        for name, dim in program.dims.items():
            if isinstance(size := self._folded(dim.definition), SizeLiteral):
                self.sizes.setdefault(name, size.value)
        self.found: tuple[Shape, ...] = ()
        known: list[Shape] = []
        for tensor in program.tensors:
            self.found = known  # type: ignore[assignment]  # read only, and grows
            known.append(tuple(map(self._folded, self._shape(tensor))))
        self.found = tuple(known)

    def _shape(self, tensor: Tensor) -> Shape:
        match tensor:
            case InputDef(shape=shape):
                return shape
            case Equation(n_out=n_out):
                return tuple(bound.size for bound in self.bounds(tensor)[:n_out])
            case Replace(base=number) | Carried(initial=number) | GradStatement(by=number):
                return self.found[number]
            case Concatenate(axis=axis, parts=parts):
                lengths = [self.found[part][axis] for part in parts]
                total = None if None in lengths else linear([(1, size) for size in lengths if size is not None])
                first = self.found[parts[0]]
                return (*first[:axis], total, *first[axis + 1 :])
            case _:
                assert_never(tensor)

    def bounds(self, equation: Equation) -> tuple[LabelSize, ...]:
        """The size of every label of an equation, and what fixes it.

        See ``eingraph.build.ranges``, which has the numbers."""
        found = [self._written(equation, number) for number in range(len(equation.labels))]
        expressions = [equation.value, *(key for _, key in equation.keys)]
        accesses = [e for expression in expressions for e in walk(expression) if isinstance(e, AccessExpr)]
        uses = [
            _Use(index, self.found[access.tensor][axis], f"axis {axis} of {self.program.tensors[access.tensor].name}")
            for access in accesses
            for axis, index in enumerate(access.indices)
        ]
        for use in uses:
            if isinstance(use.index, int) and found[use.index].size is None:
                found[use.index] = LabelSize(use.axis, use.origin)
        while self._split(found, uses) or self._limit(found, uses):
            pass
        return tuple(replace(bound, size=self._folded(bound.size)) for bound in found)

    def _written(self, equation: Equation, number: int) -> LabelSize:
        """The size written with a label, or the dim of its name."""
        label = equation.labels[number]
        if label.size is not None:
            return LabelSize(self._resolved(label.size), "the size written with it")
        if isinstance(label.dim, str):
            return LabelSize(SizeName(label.dim, label.span), f"dim {label.dim}")
        if label.dim is not None:
            return LabelSize(self._resolved(label.dim), f"the size {label.name} of the function")
        return LabelSize(None, "")

    def _split(self, found: list[LabelSize], uses: Sequence[_Use]) -> bool:
        """Infer the one unknown label of a split from the axis and the other labels."""
        for use in uses:
            if isinstance(use.index, SplitIndex) and use.axis is not None:
                unknown = [label for label in use.index.labels if found[label].size is None]
                if len(unknown) == 1:
                    size = use.axis
                    for label in use.index.labels:
                        if (other := found[label].size) is not None:
                            size = SizeOp("div", (size, other), size.span)
                    found[unknown[0]] = LabelSize(size, use.origin)
                    return True
        return False

    def _limit(self, found: list[LabelSize], uses: Sequence[_Use]) -> bool:
        """Give a label the largest size for which every index that contains it stays in bounds."""
        for label, bound in enumerate(found):
            mine = [u for u in uses if isinstance(u.index, AffineIndex) and label in index_labels(u.index)]
            if bound.size is None and mine:
                limits = [self._largest(found, use.index, label, use.axis) for use in mine]
                known = tuple(dict.fromkeys(limit for limit in limits if limit is not None))
                if len(known) and None not in limits:
                    size = known[0] if len(known) == 1 else SizeOp("min", known, known[0].span)
                    found[label] = LabelSize(size, mine[0].origin)
                    return True
        return False

    def _largest(self, found: Sequence[LabelSize], index: Index, label: int, axis: SizeExpr | None) -> SizeExpr | None:
        """The largest size of a label for which one index stays in bounds."""
        if not isinstance(index, AffineIndex) or index.modulus is not None or axis is None:
            return None
        steps = [(other, self._number(c)) for other, c in index.terms]
        step = next((c for other, c in steps if other == label), None)
        offset = self._resolved(index.offset)
        if not step or offset is None:
            return None
        # The other labels move the index in the same direction, up to their maximum.
        offset_of_others: list[tuple[int, SizeExpr]] = []
        constant = 0
        for other, c in steps:
            size = found[other].size
            if c is None or other != label and size is None:
                return None
            if other != label and size is not None and c * step > 0:
                offset_of_others.append((-abs(c), size))
                constant += abs(c)
        if step > 0:
            divisor = SizeLiteral(1, axis.span) if index.divisor is None else index.divisor
            whole = axis if index.divisor is None else SizeOp("mul", (axis, divisor), axis.span)
            return _steps([(1, whole), (-1, offset), *offset_of_others], constant - 1, step)
        return _steps([(1, offset), *offset_of_others], constant, -step)

    def _number(self, expr: SizeExpr) -> int | None:
        folded = self._folded(self._resolved(expr))
        return folded.value if isinstance(folded, SizeLiteral) else None

    def _resolved(self, expr: SizeExpr) -> SizeExpr | None:
        """Replace references to axes in an expression by their sizes."""
        match expr:
            case AxisSize(tensor=tensor, axis=axis):
                return self.found[tensor][axis]
            case SizeOp(op=op, arguments=arguments):
                inside = [self._resolved(argument) for argument in arguments]
                known = tuple(argument for argument in inside if argument is not None)
                return SizeOp(op, known, expr.span) if len(known) == len(inside) else None
            case _:
                return expr

    def _folded(self, expr: SizeExpr | None) -> SizeExpr | None:
        """A literal if the known sizes suffice."""
        expr = None if expr is None else self._resolved(expr)
        if expr is None or isinstance(expr, SizeLiteral):
            return expr
        try:
            return SizeLiteral(size_value(expr, self.sizes), expr.span)
        except (KeyError, SourceError):
            return expr


def linear(terms: Iterable[tuple[int, SizeExpr]], constant: int = 0) -> SizeExpr:
    """The sum of multiples of sizes and a number, simplified: n - 2 instead of n - 1 - 1."""
    factors: dict[SizeExpr, int] = {}
    span: Span | None = None
    stack = list(reversed(list(terms)))
    while stack:
        factor, expr = stack.pop()
        span = span or expr.span
        match expr:
            case SizeLiteral(value=value):
                constant += factor * value
            case SizeOp(op="add", arguments=(a, b)):
                stack += [(factor, b), (factor, a)]
            case SizeOp(op="sub", arguments=(a, b)):
                stack += [(-factor, b), (factor, a)]
            case SizeOp(op="neg", arguments=(a,)):
                stack.append((-factor, a))
            case _:
                factors[expr] = factors.get(expr, 0) + factor
    assert span is not None
    pieces = [(factor, _times(abs(factor), expr)) for expr, factor in factors.items() if factor]
    number = (constant, SizeLiteral(abs(constant), span))
    # Positive terms precede negative ones, and the number comes last, unless it is the only positive term.
    pieces.sort(key=lambda piece: piece[0] < 0)
    pieces.insert(len(pieces) if pieces and pieces[0][0] > 0 else 0, number)
    total: SizeExpr | None = None
    for sign, expr in pieces:
        if expr != SizeLiteral(0, span):
            total = _joined(total, sign, expr)
    return total or SizeLiteral(0, span)


def _joined(total: SizeExpr | None, sign: int, expr: SizeExpr) -> SizeExpr:
    if total is None:
        return expr if sign > 0 else SizeOp("neg", (expr,), expr.span)
    return SizeOp("add" if sign > 0 else "sub", (total, expr), expr.span)


def _times(factor: int, expr: SizeExpr) -> SizeExpr:
    return expr if factor == 1 else SizeOp("mul", (SizeLiteral(factor, expr.span), expr), expr.span)


def _steps(available: Iterable[tuple[int, SizeExpr]], constant: int, step: int) -> SizeExpr:
    """``available // step + 1``: the number of steps of that length from 0 to ``available``."""
    if step == 1:
        return linear(available, constant + 1)
    last = linear(available, constant)
    return linear([(1, SizeOp("floordiv", (last, SizeLiteral(step, last.span)), last.span))], 1)
