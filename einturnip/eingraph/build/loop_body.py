"""Rewrites the body of a loop so that its equations are the same in every iteration.

The loop's variable becomes a scalar input, and so does a slice of a tensor at a position that depends on the variable,
such as ``X[t-1, j]``. A tensor of which each iteration replaces one slice, ``H[t, d] = h[d]``, is no longer a value of
the body: the slice is an output with its position in the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from einturnip.core.diagnostics import Span
from einturnip.eingraph.build.dependencies import expressions, sizes_in
from einturnip.eingraph.build.positions import Place, Position, linear, position_text
from einturnip.eingraph.build.sizes import BoundSize, BoundSizes
from einturnip.ir.dtypes import BOOL, I64, DType
from einturnip.lang.expressions import (
    AccessExpr,
    AffineIndex,
    AggregateExpr,
    ApplyExpr,
    AxisSize,
    ConvertExpr,
    Expr,
    GatherIndex,
    GuardedAccess,
    Index,
    LabelNumber,
    NumberExpr,
    SizeExpr,
    SizeName,
    SizeNumber,
    SizeOp,
    Strength,
    unguarded,
)
from einturnip.lang.program import (
    Concatenate,
    Equation,
    EquationLabel,
    GradStatement,
    Loop,
    Replace,
    Statement,
    tensors_of,
)
from einturnip.lang.sizes import size_names


class Unrolled(Exception):
    """The loop must be unrolled; the message says why."""


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A slice of tensor number ``tensor``; ``piece`` is the number of the tensor that replaces it."""

    tensor: int
    place: Place
    piece: int = -1


class LoopBody:
    """The rewritten body of a loop.

    ``values`` are those of the loop's variable, ``first`` is the number of the first new input. ``variable_input``: the
    number of the input that holds the variable, None if no equation uses it. ``reads``: the slices that are inputs, by
    number. ``written``: the slice of a tensor that an iteration writes, by the tensor's number.
    """

    def __init__(self, sizes: BoundSizes, loop: Loop, values: range, first: int) -> None:
        self.variable_input: int | None = None
        self.reads: dict[int, TensorSlice] = {}
        self.written: dict[int, TensorSlice] = {}
        self.loop, self.values = loop, values
        self._sizes, self._next = sizes, first
        self._known: dict[TensorSlice, int] = {}
        self._replaced: dict[int, int] = {}  # the tensor's number by that of the statement that writes the slice
        self._find_written()
        carried = {c.number for c in loop.carried} - self.written.keys()
        self._changed = {tensor.number for tensor in tensors_of(loop.body)} | carried
        self.statements = tuple(self._rewritten(loop.body))

    # -- slices that are written

    def _find_written(self) -> None:
        last = {c.last: c.number for c in self.loop.carried}
        for statement in self.loop.body:
            if not isinstance(statement, Replace) or last.get(statement.number) != statement.base:
                continue
            place = tuple((axis, self.position(at)) for axis, at in enumerate(statement.at) if at is not None)
            found = tuple((axis, position) for axis, position in place if position is not None)
            if len(found) < len(place) or not any(position.factor for _, position in found):
                continue
            written = TensorSlice(statement.base, found, statement.piece)
            if all(self._is_apart(use, statement, written) for use in self.loop.body if use is not statement):
                self._require_inside(statement.base, found, statement.span)
                self.written[statement.base] = written
                self._replaced[statement.number] = statement.base
                self._sizes.axes[statement.number] = self._sizes.axes[statement.base]

    def _is_apart(self, use: Statement, write: Replace, written: TensorSlice) -> bool:
        """True if a statement reads only slices that the iteration does not write, or has written."""
        numbers = {write.number, write.base}
        match use:
            case Equation():
                accesses = (e for e in expressions(use) if isinstance(e, AccessExpr) and e.tensor in numbers)
                return all(self._reads_apart(access, write, written) for access in accesses)
            case Replace(base=base, piece=piece):
                return numbers.isdisjoint((base, piece))
            case Concatenate(parts=parts):
                return numbers.isdisjoint(parts)
            case GradStatement(loss=loss, by=by):
                return numbers.isdisjoint((loss, by))
            case Loop(body=body, carried=carried):
                starts = (c.initial for c in carried)
                return numbers.isdisjoint(starts) and all(self._is_apart(s, write, written) for s in body)
        return True

    def _reads_apart(self, access: AccessExpr, write: Replace, written: TensorSlice) -> bool:
        """True if an access reads another slice in every iteration, or the slice that has just been written."""
        indices = [access.indices[axis] for axis, _ in written.place]
        inner = list(map(unguarded, indices))
        read, positions = list(map(self._plain, inner)), [position for _, position in written.place]
        if None in read:
            return False
        pairs = [(a, b) for a, b in zip(read, positions, strict=True) if a is not None]
        if any(a.factor == b.factor and a.offset != b.offset for a, b in pairs):
            return True
        return access.tensor == write.number and read == positions and inner == indices

    def has_fitting_slices(self) -> bool:
        """True if each tensor that replaces a slice has the slice's shape; called when the body is lowered."""
        return all(
            [size.value for size in self._sizes.axes[written.piece]] == [size.value for size in self._axes_of(written)]
            for written in self.written.values()
        )

    def _axes_of(self, part: TensorSlice) -> tuple[BoundSize, ...]:
        """The axes of a slice: those of its tensor without an index."""
        indexed = dict(part.place)
        return tuple(size for axis, size in enumerate(self._sizes.axes[part.tensor]) if axis not in indexed)

    # -- statements

    def _rewritten(self, statements: Iterable[Statement]) -> Iterator[Statement]:
        for statement in statements:
            match statement:
                case Equation():
                    yield self._checked(self._equation(statement))
                case Replace() if statement.number in self._replaced:
                    pass
                case Replace() if any(at is not None and self._varies(at) for at in statement.at):
                    yield self._checked(self._equation(_with_slice(statement)))
                case Loop(body=body):
                    yield self._checked(replace(statement, body=tuple(self._rewritten(body))))
                case _:
                    yield self._checked(statement)

    def _checked(self, statement: Statement) -> Statement:
        for leaf, _ in sizes_in(statement):
            if isinstance(leaf, SizeName) and leaf.name == self.loop.variable:
                raise Unrolled(f"a size depends on '{self.loop.variable}'")
        return statement

    def _equation(self, equation: Equation) -> Equation:
        keys = tuple((label, self._expr(key)) for label, key in equation.keys)
        return replace(equation, value=self._expr(equation.value), keys=keys)

    def _expr(self, expr: Expr) -> Expr:
        match expr:
            case NumberExpr() | LabelNumber():
                return expr
            case SizeNumber(size=size, dtype=dtype, strength=strength, span=span):
                return self._number(size, dtype, strength, span) if self._varies(size) else expr
            case AccessExpr():
                return self._access(expr)
            case ConvertExpr(argument=argument):
                return replace(expr, argument=self._expr(argument))
            case ApplyExpr(arguments=arguments):
                return replace(expr, arguments=tuple(map(self._expr, arguments)))
            case AggregateExpr(body=body):
                return replace(expr, body=self._expr(body))

    # -- the loop's variable as a number

    def _varies(self, size: SizeExpr) -> bool:
        return self.loop.variable in size_names(size)

    def _number(self, size: SizeExpr, dtype: DType, strength: Strength, span: Span) -> Expr:
        """A size that depends on the variable, as a scalar expression of ``dtype``."""
        position = self.position(size)
        if dtype.is_integer and not (position is None and dtype == I64):
            limits = np.iinfo(dtype.numpy)
            if position is None or not self._is_within(position, int(limits.min), int(limits.max)):
                raise Unrolled(f"a number of {dtype} depends on '{self.loop.variable}'")
        value = self._integer(size, span)
        return value if dtype == I64 else ConvertExpr(value, dtype, strength, False, span)

    def _integer(self, size: SizeExpr, span: Span) -> Expr:
        if not self._varies(size):
            return SizeNumber(size, I64, "weak", span)
        match size:
            case SizeName():
                return AccessExpr(self._variable(), (), I64, "weak", span)
            case SizeOp(op=op, arguments=arguments) if op not in ("div", "pow"):
                if op in ("floordiv", "mod"):
                    self._require_divisor(arguments[1])
                return ApplyExpr(op, tuple(self._integer(a, span) for a in arguments), I64, "weak", span)
        raise Unrolled(f"'{self.loop.variable}' is part of a quotient or a power")

    def _require_divisor(self, size: SizeExpr) -> None:
        """Unroll a loop with a divisor that is no positive number, so that an error is reported."""
        if self._varies(size) or (self._sizes.integer_quietly(size) or 0) < 1:
            raise Unrolled(f"a divisor depends on '{self.loop.variable}', or is not positive")

    def _is_within(self, position: Position, low: int, high: int) -> bool:
        """True if a position is from ``low`` to ``high`` in every iteration."""
        return all(low <= position.at(value) <= high for value in (self.values[0], self.values[-1]))

    def _variable(self) -> int:
        if self.variable_input is None:
            self.variable_input = self._new()
            self._sizes.axes[self.variable_input] = ()
            self._sizes.names[self.variable_input] = self.loop.variable
        return self.variable_input

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def position(self, size: SizeExpr) -> Position | None:
        """A size as a linear function of the variable; None if it is not one."""
        return linear(size, self.loop.variable, self._sizes.integer)

    # -- accesses

    def _access(self, access: AccessExpr) -> Expr:
        """Rewrite an access: read slices of unchanged tensors as inputs, other varying indices as data."""
        tensor = self._replaced.get(access.tensor, access.tensor)
        written = self.written.get(tensor)
        if written is not None and access.tensor != tensor and self._is_written(access, written):
            indices = (i for axis, i in enumerate(access.indices) if axis not in dict(written.place))
            return replace(access, tensor=written.piece, indices=tuple(map(self._index, indices)))
        guards: list[tuple[Expr, Expr]] = []
        place: list[tuple[int, Position]] = []
        rest: list[Index] = []
        for axis, index in enumerate(access.indices):
            inner = unguarded(index)
            position = None if tensor in self._changed else self._plain(inner)
            fixed = written is not None and axis in dict(written.place)
            if position is None or not (position.factor or fixed):
                rest.append(self._index(index))
                continue
            assert isinstance(inner, AffineIndex)
            place.append((axis, position))
            if isinstance(index, GuardedAccess):
                guards += self._guard(index, inner, tensor, axis)
        if not place:
            return replace(access, tensor=tensor, indices=tuple(rest))
        guarded = {axis for axis, _ in place if isinstance(access.indices[axis], GuardedAccess)}
        self._require_inside(tensor, tuple(p for p in place if p[0] not in guarded), access.span)
        read = self._slice(TensorSlice(tensor, tuple(place)))
        value: Expr = replace(access, tensor=read, indices=tuple(rest))
        for inside, fill in reversed(guards):
            value = ApplyExpr("where", (inside, value, fill), access.dtype, access.strength, access.span)
        return value

    def _is_written(self, access: AccessExpr, written: TensorSlice) -> bool:
        return all(self._plain(access.indices[axis]) == position for axis, position in written.place)

    def _slice(self, read: TensorSlice) -> int:
        if read not in self._known:
            self._known[read] = number = self._new()
            self.reads[number] = read
            self._sizes.axes[number] = self._axes_of(read)
            self._sizes.names[number] = slice_text(self._sizes, read, self.loop.variable)
        return self._known[read]

    def _guard(self, index: GuardedAccess, inner: AffineIndex, tensor: int, axis: int) -> Iterator[tuple[Expr, Expr]]:
        """Yield the test that an index is inside, and the value outside; nothing if it always is."""
        position, size = self.position(inner.offset), self._sizes.axes[tensor][axis].value
        assert position is not None
        if size == 0:
            raise Unrolled("a guarded axis is empty")
        if self._is_within(position, 0, size - 1):
            return
        at, span = self._integer(inner.offset, inner.span), inner.span
        tests = [
            ApplyExpr(op, (at, NumberExpr(end, I64, "weak", span)), BOOL, "weak", span)
            for op, end in (("ge", 0), ("lt", size))
        ]
        yield ApplyExpr("and", tuple(tests), BOOL, "weak", span), self._expr(index.fill)

    def _plain(self, index: Index) -> Position | None:
        """The position of an index without labels, ``//`` and ``%``; None for others."""
        if isinstance(index, AffineIndex) and not index.terms and index.divisor is None and index.modulus is None:
            return self.position(index.offset)
        return None

    def _index(self, index: Index) -> Index:
        """An index whose varying part is data."""
        match index:
            case AffineIndex(terms=terms, offset=offset, divisor=divisor, modulus=modulus, span=span):
                ends = [size for size in (divisor, modulus) if size is not None]
                if not any(map(self._varies, (*(c for _, c in terms), offset, *ends))):
                    return index
                value = self._integer(offset, span)
                for label, factor in terms:
                    product = (LabelNumber(label, span), self._integer(factor, span))
                    term = ApplyExpr("mul", product, I64, "weak", span)
                    value = ApplyExpr("add", (value, term), I64, "weak", span)
                for op, size in (("floordiv", divisor), ("mod", modulus)):
                    if size is not None:
                        self._require_divisor(size)
                        value = ApplyExpr(op, (value, self._integer(size, span)), I64, "weak", span)
                return GatherIndex(value, span)
            case GatherIndex(value=value):
                return replace(index, value=self._expr(value))
            case GuardedAccess(index=inner, fill=fill):
                found = self._index(inner)
                assert isinstance(found, int | AffineIndex | GatherIndex)
                return replace(index, index=found, fill=self._expr(fill))
        return index

    def _require_inside(self, tensor: int, place: Place, span: Span) -> None:
        """Unroll a loop in which a slice leaves its tensor, so that the iteration is reported."""
        for axis, position in place:
            if not self._is_within(position, 0, self._sizes.axes[tensor][axis].value - 1):
                raise Unrolled(f"an index on line {span.line} leaves its axis")


def slice_text(sizes: BoundSizes, part: TensorSlice, variable: str) -> str:
    """A slice as text: ``X[t - 1, :]``."""
    positions = dict(part.place)
    indices = [
        position_text(positions[axis], variable) if axis in positions else ":"
        for axis in range(len(sizes.axes[part.tensor]))
    ]
    return f"{sizes.name_of(part.tensor)}[{', '.join(indices)}]"


def _with_slice(statement: Replace) -> Equation:
    """The equation that replaces a slice element by element: ``where(i == t, piece, base)``."""
    span, dtype = statement.span, statement.dtype
    labels = tuple(
        EquationLabel(f"i{axis}", AxisSize(statement.base, axis, f"i{axis}", span), None, span)
        for axis in range(statement.rank)
    )
    axes = [axis for axis, at in enumerate(statement.at) if at is None]
    value: Expr = AccessExpr(statement.piece, tuple(axes), dtype, statement.strength, span)
    base = AccessExpr(statement.base, tuple(range(statement.rank)), dtype, statement.strength, span)
    tests = [
        ApplyExpr("eq", (LabelNumber(axis, span), SizeNumber(at, I64, "weak", span)), BOOL, "weak", span)
        for axis, at in enumerate(statement.at)
        if at is not None
    ]
    test: Expr = tests[0]
    for other in tests[1:]:
        test = ApplyExpr("and", (test, other), BOOL, "weak", span)
    value = ApplyExpr("where", (test, value, base), dtype, statement.strength, span)
    return Equation(statement.name, statement.number, labels, statement.rank, value, span)
