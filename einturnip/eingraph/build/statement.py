"""Lowers one equation with known sizes to node drafts, split at its aggregations, guards and gathers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

import numpy as np

from einturnip.eingraph.build.ranges import static_index
from einturnip.eingraph.build.reads import OperandRead
from einturnip.eingraph.build.sizes import BoundSizes
from einturnip.eingraph.builder import LabelSpace
from einturnip.eingraph.products import python_number, widen
from einturnip.eingraph.types import Hints
from einturnip.ir.aggregations import aggregation
from einturnip.ir.scalar import LabelValue as LabelIndex
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.lang.program import (
    AccessExpr,
    AggregateExpr,
    ApplyExpr,
    ConvertExpr,
    Equation,
    Expr,
    GatherIndex,
    GuardedAccess,
    LabelNumber,
    NumberExpr,
    SizeNumber,
)
from einturnip.lang.sizes import size_text


class StatementBuilder:
    """Lowers one equation. ``space`` begins with its labels; ``tensor`` numbers tensors in ``space``."""

    def __init__(self, sizes: BoundSizes, equation: Equation, space: LabelSpace, tensor: Callable[[int], int]) -> None:
        self.sizes, self.equation, self.space, self.tensor = sizes, equation, space, tensor

    def emit(self) -> None:
        """Emit the drafts of the equation; the last one is its tensor."""
        equation, out = self.equation, tuple(range(self.equation.n_out))
        hints = self._hints()
        value = equation.value
        if equation.keys:
            assert isinstance(value, AggregateExpr)
            self._scatter(value, out)
        elif isinstance(value, AggregateExpr):
            node, free = self._aggregate(value, out)
            if free != out:
                self.space.emit(out, (), self.space.operand(node, free), None, "")
        else:
            self._map(self._scalar(value), out)
        if hints.keep or hints.recompute:
            last = self.space.drafts.nodes[-1]
            kept = replace(last.hints, keep=hints.keep, recompute=hints.recompute)
            self.space.drafts.nodes[-1] = replace(last, hints=kept)

    def _map(self, value: Scalar, out: tuple[int, ...]) -> None:
        """Emit the equation's tensor; reuses the last draft where the value is just that gather or guard."""
        drafts = self.space.drafts.nodes
        if drafts and isinstance(value, OperandRef) and self.space.slots[value.slot] == (~(len(drafts) - 1), out):
            drafts[-1] = replace(drafts[-1], name="")
        else:
            self.space.emit(out, (), value, None, "")

    def _hints(self) -> Hints:
        """Evaluate the hints of the equation's tensor; tiles and a device apply to all its nodes."""
        space, hints = self.space, self.equation.hints
        for hint in hints:
            for label, size, parts in hint.tiles:
                value = self.sizes.integer(size)
                if value is None or value < 1:
                    message = f"a tile hint needs a number from 1 on, not {size_text(size)}"
                    self.sizes.report("E213", message, hint.span, found=str(value))
                else:
                    bound = max(1, space.bounds[label])
                    space.tiles[label] = min(bound, -(-bound // value) if parts else value)
        space.device = next((hint.device for hint in hints if hint.kind == "place"), "")
        kinds = {hint.kind for hint in hints}
        return Hints(keep="keep" in kinds, recompute="recompute" in kinds)

    def _scatter(self, value: AggregateExpr, out: tuple[int, ...]) -> None:
        keys = [(label, self._scalar(key)) for label, key in self.equation.keys]
        join = self._scalar(value.body)
        join, operator = widen(join, aggregation(value.op, join.dtype, value.accumulator, keyed=True))
        self.space.emit(out, value.labels, join, operator, "", keys)

    def _aggregate(self, expr: AggregateExpr, out: tuple[int, ...] | None = None) -> tuple[int, tuple[int, ...]]:
        """Emit an aggregation, named like the equation if its free labels equal ``out``; also return them."""
        join = self._scalar(expr.body)
        free = tuple(sorted(self.space.labels_in(join) - set(expr.labels)))
        join, operator = widen(join, aggregation(expr.op, join.dtype, expr.accumulator))
        return self.space.emit(free, expr.labels, join, operator, "" if free == out else None), free

    def _scalar(self, expr: Expr) -> Scalar:
        match expr:
            case NumberExpr(value=value, dtype=dtype):
                return ScalarConst(python_number(value, dtype), dtype)
            case SizeNumber():
                return self._size(expr)
            case LabelNumber(label=label, dtype=dtype):
                return LabelIndex(label, dtype)
            case AccessExpr():
                return self._access(expr)
            case ConvertExpr(argument=argument, dtype=dtype):
                inner = self._scalar(argument)
                return inner if inner.dtype == dtype else ScalarCast(inner, dtype)
            case ApplyExpr(op=op, arguments=arguments, dtype=dtype):
                return ScalarCall(op, tuple(self._scalar(a) for a in arguments), dtype)
            case AggregateExpr():
                return self.space.operand(*self._aggregate(expr))
            case _:
                assert_never(expr)

    def _size(self, expr: SizeNumber) -> ScalarConst:
        """A size as a constant; reports an error if the integer type cannot hold it, as NumPy does."""
        value, text = self.sizes.integer(expr.size) or 0, size_text(expr.size)
        if expr.dtype.is_integer:
            limits = np.iinfo(expr.dtype.numpy)
            if not limits.min <= value <= limits.max:
                message = f"size {text} = {value} does not fit in {expr.dtype}"
                self.sizes.report("E208", message, expr.span, help=f"convert first: i64(...) * {text}")
        return ScalarConst(python_number(value, expr.dtype), expr.dtype)

    def _access(self, expr: AccessExpr) -> Scalar:
        """Lower an access to an operand; gathers and guards get nodes of their own."""
        space, tensor = self.space, self.tensor(expr.tensor)
        name, out = self.sizes.program.tensors[expr.tensor].name, tuple(range(self.equation.n_out))
        read = OperandRead(space, tensor, expr.dtype, name, out)
        for axis, index in enumerate(expr.indices):
            inner = index.index if isinstance(index, GuardedAccess) else index
            if isinstance(inner, GatherIndex):
                read.data[axis] = self._scalar(inner.value)
            else:
                found = inner if isinstance(inner, int) else static_index(self.sizes, inner, space.bounds)
                assert found is not None
                read.at[axis] = found
            if isinstance(index, GuardedAccess):
                read.guard(axis, self._scalar(index.fill))
        return read.value()
