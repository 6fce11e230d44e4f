"""Lowers one equation with known sizes to node drafts, split at its aggregations, guards and gathers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod
from typing import assert_never

import numpy as np

from einturnip.eingraph.build.ranges import static_index
from einturnip.eingraph.build.sizes import BoundSizes
from einturnip.eingraph.builder import LabelSpace
from einturnip.eingraph.indices import as_index, number, shifted, span
from einturnip.eingraph.products import python_number, widen
from einturnip.eingraph.types import Hints
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, I64, DType
from einturnip.ir.einsum import Access, Index, labels_read
from einturnip.ir.scalar import LabelValue as LabelIndex
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.lang.expressions import (
    AccessExpr,
    AggregateExpr,
    ApplyExpr,
    ConvertExpr,
    Expr,
    GatherIndex,
    GuardedAccess,
    LabelNumber,
    NumberExpr,
    SizeNumber,
    unguarded,
)
from einturnip.lang.program import Equation
from einturnip.lang.sizes import size_text


class OperandRead:
    """Lowers an access to an operand of ``space``, with values of ``dtype``.

    ``at`` holds the static indices by axis, ``data`` the data-dependent ones as i64. A guard supplies the value where
    its index is out of range; with several guards the first one applies. A node over exactly the labels ``out`` orders
    its axes like them.
    """

    def __init__(self, space: LabelSpace, tensor: int, dtype: DType, name: str, out: tuple[int, ...]) -> None:
        self.space, self.tensor, self.dtype, self.name, self.out = space, tensor, dtype, name, out
        self.shape = space.drafts.tensor(tensor)[1]
        self.at: dict[int, int | Index] = {}
        self.data: dict[int, Scalar] = {}
        self._fills: dict[int, Scalar] = {}
        self._otherwise: Scalar | None = None

    def guard(self, axis: int, fill: Scalar) -> None:
        """Guard the index of an axis; a test that is decided statically is not emitted."""
        size = self.shape[axis]
        ends = self._ends(axis)
        if self._otherwise is not None or (ends is not None and ends[0] >= 0 and ends[1] < size):
            return
        if size == 0 or (ends is not None and (ends[0] >= size or ends[1] < 0)):
            self._otherwise = fill
        elif axis in self.data or ends is not None:
            self._fills[axis] = fill

    def value(self) -> Scalar:
        """Return the element that is read, or the fill value where an index is out of range."""
        if self._otherwise is not None:
            return self._guarded(self._otherwise)
        if not self.data and not self._fills:
            return self._converted(self.space.operand(self.tensor, tuple(self.at[a] for a in range(len(self.shape)))))
        packed = self._pack()
        labels = self._labels(range(len(self.shape)))
        if self.data:
            tensor, access = self._gather(labels)
        else:
            tensor, access = self.tensor, tuple(self._clamped(axis) for axis in range(len(self.shape)))
        if self._fills:
            extra = frozenset[int]().union(*map(self.space.labels_in, self._fills.values())) - set(labels)
            value = self._guarded(self._converted(self.space.operand(tensor, access)))
            order = self._ordered((*labels, *sorted(extra)))
            tensor, access = self.space.emit(order, (), value, None), order
        final = tuple(packed.get(p, p) if isinstance(p, int) else p for p in access)
        return self._converted(self.space.operand(tensor, final))

    def _ordered(self, labels: tuple[int, ...]) -> tuple[int, ...]:
        return self.out if sorted(labels) == list(self.out) else labels

    def _converted(self, value: Scalar) -> Scalar:
        return value if value.dtype == self.dtype else ScalarCast(value, self.dtype)

    def _ends(self, axis: int) -> tuple[int, int] | None:
        """Minimum and maximum of a static index; None for a data-dependent one or an empty range."""
        return span(as_index(self.at[axis]), self.space.bounds) if axis in self.at else None

    def _labels(self, axes: Iterable[int]) -> tuple[int, ...]:
        """The labels that the indices of some axes depend on, in axis order."""
        found: list[int] = []
        for axis in axes:
            found += sorted(labels_read((self.at[axis],)) if axis in self.at else self.space.labels_in(self.data[axis]))
        return tuple(dict.fromkeys(found))

    def _pack(self) -> dict[int, Index]:
        """Replace an index over labels, such as ``i + p``, by one new label where that has fewer values.

        Only if nothing else uses those labels. A guarded convolution operand is then padded instead of expanded.
        Returns the index that each new label replaces.
        """
        packed: dict[int, Index] = {}
        fills = frozenset[int]().union(*map(self.space.labels_in, self._fills.values()))
        for axis, index in list(self.at.items()):
            if isinstance(index, int) or len(index.terms) < 2 or (ends := self._ends(axis)) is None:
                continue
            elsewhere = fills | set(self._labels(a for a in range(len(self.shape)) if a != axis))
            own = [p for p, _ in index.terms if p not in elsewhere]
            size, outer = ends[1] - ends[0] + 1, shifted(index, -ends[0])
            if outer is not None and size < prod(self.space.bounds[p] for p in own):
                label = self.space.add_label(self.space.labels[own[0]], size)
                self.at[axis], packed[label] = Index(((label, 1),), ends[0]), outer
        return packed

    def _clamped(self, axis: int) -> int | Index:
        index = self.at[axis]
        if axis not in self._fills:
            return index
        index = as_index(index)
        return Index(index.terms, index.offset, index.divisor, index.modulus, clamped=True)

    def _gather(self, labels: tuple[int, ...]) -> tuple[int, Access]:
        """Emit a gather by data-dependent indices, and the access to it; guarded axes stay whole."""
        space, last = self.space, [n - 1 for n in self.shape]
        access: list[int | Index] = []
        keys: list[tuple[int, Scalar]] = []
        whole: dict[int, int | Index] = {}
        for axis, size in enumerate(self.shape):
            if axis in self.data:
                value = self.data[axis]
                if axis in self._fills:
                    value = ScalarCall("min", (value, ScalarConst(last[axis], I64)), I64)
                    value = ScalarCall("max", (value, ScalarConst(0, I64)), I64)
                keys.append((space.add_label(f"{self.name}.{axis}", size), value))
                access.append(keys[-1][0])
            elif axis in self._fills:
                access.append(space.add_label(f"{self.name}.{axis}", size))
                whole[access[-1]] = self._clamped(axis)  # type: ignore[index]
            else:
                access.append(self.at[axis])
        join = space.operand(self.tensor, tuple(access))
        bound = [label for label, _ in keys]
        kept = space.labels_in(join).union(*(space.labels_in(value) for _, value in keys)) - set(bound)
        order = self._ordered((*(p for p in labels if p in kept), *whole))
        node = space.emit(order, bound, join, aggregation("pick", join.dtype), None, keys)
        return node, tuple(whole.get(p, p) for p in order)

    def _guarded(self, value: Scalar) -> Scalar:
        """``value`` where all guarded indices are in range, else the fill of the first that is not."""
        for axis in sorted(self._fills, reverse=True):
            value = ScalarCall("where", (self._is_inside(axis), value, self._fills[axis]), self.dtype)
        return value

    def _is_inside(self, axis: int) -> Scalar:
        ends = self._ends(axis)
        index = self.data[axis] if axis in self.data else number(self.at[axis])
        tests: list[Scalar] = []
        if ends is None or ends[0] < 0:
            tests.append(ScalarCall("ge", (index, ScalarConst(0, I64)), BOOL))
        if ends is None or ends[1] >= self.shape[axis]:
            tests.append(ScalarCall("lt", (index, ScalarConst(self.shape[axis], I64)), BOOL))
        return tests[0] if len(tests) == 1 else ScalarCall("and", tuple(tests), BOOL)


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
        name, out = self.sizes.name_of(expr.tensor), tuple(range(self.equation.n_out))
        read = OperandRead(space, tensor, expr.dtype, name, out)
        for axis, index in enumerate(expr.indices):
            inner = unguarded(index)
            if isinstance(inner, GatherIndex):
                read.data[axis] = self._scalar(inner.value)
            else:
                found = inner if isinstance(inner, int) else static_index(self.sizes, inner, space.bounds)
                assert found is not None
                read.at[axis] = found
            if isinstance(index, GuardedAccess):
                read.guard(axis, self._scalar(index.fill))
        return read.value()
