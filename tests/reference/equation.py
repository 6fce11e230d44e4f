"""Evaluates one equation on whole arrays in NumPy.

It favours clarity over speed: every expression is an array over all labels of its statement, of size 1 along those that
it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

import numpy as np

from einturnip.core.errors import BindError, OutOfRange
from einturnip.ir.aggregations import Lift, aggregation
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import apply, evaluate_scalar
from einturnip.ir.scalar import OperandRef
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
    SizeExpr,
    SizeNumber,
    SplitIndex,
    walk,
)
from einturnip.lang.program import Equation
from einturnip.lang.sizes import size_text, size_value
from tests.reference.einsum import evaluate_einsum

Array = np.ndarray[Any, np.dtype[Any]]


def size_in(size: SizeExpr, values: Mapping[int, Array], sizes: Mapping[str, int]) -> int:
    """The value of a size, given tensors and sizes."""
    return size_value(size, sizes, lambda tensor, axis: values[tensor].shape[axis])


def equation_value(equation: Equation, values: Mapping[int, Array], sizes: Mapping[str, int]) -> Array:
    """Return the tensor of an equation.

    Raises:
        BindError: a label has two sizes or none, or an access leaves its axis.
        OutOfRange: an index or a key that is data lies outside its axis.
    """
    return _Statement(equation, values, sizes).result()


class _Statement:
    """One equation, with its labels' sizes."""

    def __init__(self, equation: Equation, tensors: Mapping[int, Array], sizes: Mapping[str, int]) -> None:
        self.equation, self.tensors, self.sizes = equation, tensors, sizes
        self.rank = len(equation.labels)
        self.extents = _extents(equation, tensors, sizes)

    def _size(self, size: SizeExpr) -> int:
        return size_in(size, self.tensors, self.sizes)

    def result(self) -> Array:
        """The equation's tensor."""
        n_out = self.equation.n_out
        out = self._scattered() if self.equation.keys else self.value(self.equation.value)
        shape = self.extents[:n_out] + [1] * (self.rank - n_out)
        return np.broadcast_to(out, shape).reshape(self.extents[:n_out]).copy()

    def value(self, expr: Expr) -> Array:
        """Evaluate an expression at every point of the label space."""
        match expr:
            case NumberExpr(value=value, dtype=dtype):
                return self._scalar(value, dtype)
            case SizeNumber(size=size, dtype=dtype):
                return self._scalar(self._size(size), dtype)
            case LabelNumber(label=label, dtype=dtype):
                return self._label(label).astype(dtype.numpy)
            case AccessExpr():
                return self._access(expr)
            case ConvertExpr(argument=argument, dtype=dtype):
                return _convert(self.value(argument), dtype)
            case ApplyExpr(op=op, arguments=arguments, dtype=dtype):
                return apply(op, [self.value(argument) for argument in arguments], dtype)
            case AggregateExpr():
                return self._aggregate(expr)
            case _:
                assert_never(expr)

    def _scalar(self, value: bool | int | float | complex, dtype: DType) -> Array:
        return _convert(np.asarray(value), dtype).reshape((1,) * self.rank)

    def _label(self, label: int) -> Array:
        return np.arange(self.extents[label]).reshape([-1 if k == label else 1 for k in range(self.rank)])

    # -- accesses

    def _access(self, expr: AccessExpr) -> Array:
        tensor = self.tensors[expr.tensor]
        if not expr.indices:
            return tensor.reshape((1,) * self.rank)
        places, masks = [], []
        for axis, index in enumerate(expr.indices):
            at, size = self._index(index), tensor.shape[axis]
            good = (at >= 0) & (at < size)
            if isinstance(index, GuardedAccess):
                masks.append((good, self.value(index.fill)))
            elif not good.all():
                self._outside(expr, axis, index, at, good)
            places.append(np.clip(at, 0, max(size - 1, 0)))
        if masks and 0 in tensor.shape:
            tensor = np.zeros([max(n, 1) for n in tensor.shape], tensor.dtype)
        array = _convert(np.asarray(tensor[tuple(np.broadcast_arrays(*places))]), expr.dtype)
        for good, fill in reversed(masks):
            array = np.where(good, array, fill)
        return array

    def _index(self, index: Index) -> Array:
        """Evaluate an index at every point of the label space."""
        match index:
            case int():
                return self._label(index)
            case AffineIndex(terms=terms, offset=offset, divisor=divisor, modulus=modulus):
                at = np.full((1,) * self.rank, self._size(offset), np.int64)
                for label, coefficient in terms:
                    at = at + self._size(coefficient) * self._label(label)
                at = at if divisor is None else at // self._positive(divisor)
                return at if modulus is None else at % self._positive(modulus)
            case SplitIndex(labels=labels):
                at = np.zeros((1,) * self.rank, np.int64)
                for label in labels:
                    at = at * self.extents[label] + self._label(label)
                return at
            case GatherIndex(value=value):
                return self.value(value)
            case GuardedAccess(index=inner):
                return self._index(inner)
            case _:
                assert_never(index)

    def _positive(self, size: SizeExpr) -> int:
        value = self._size(size)
        if value < 1:
            raise BindError(f"line {size.span.line}: an index is divided by {size_text(size)} = {value}")
        return value

    def _outside(self, expr: AccessExpr, axis: int, index: Index, at: Array, good: Array) -> None:
        value, size = int(at[~good].flat[0]), self.tensors[expr.tensor].shape[axis]
        if isinstance(index, GatherIndex):
            point = np.argwhere(~good)[0]
            names = [(self.equation.labels[k].name, int(p)) for k, p in enumerate(point) if good.shape[k] > 1]
            raise OutOfRange(value, size, f"axis {axis}", names)
        raise BindError(f"line {expr.span.line}: index {value} is outside 0 .. {size - 1}")

    # -- aggregations

    def _aggregate(self, expr: AggregateExpr) -> Array:
        operator = aggregation(expr.op, expr.body.dtype, expr.accumulator)
        wide = operator.state[0]
        array = self._terms(expr)
        if array.dtype != expr.body.dtype.numpy:
            operator = aggregation(expr.op, wide, operator.result)
        gone = list(expr.labels)
        kept = [k for k in range(self.rank) if k not in gone]
        shape = [self.extents[k] if k in gone else array.shape[k] for k in range(self.rank)]
        order = tuple(kept + gone)
        array = np.broadcast_to(array, shape).transpose(order)
        names = tuple(self.equation.labels[k].name for k in order)
        value = operator.value
        slots = (tuple(range(self.rank)),)
        einsum = Einsum(names, array.shape, len(kept), slots, (value,), OperandRef(0, value), operator)
        (result,) = evaluate_einsum(einsum, [array])
        return result.reshape([1 if k in gone else array.shape[order.index(k)] for k in range(self.rank)])

    def _terms(self, expr: AggregateExpr) -> Array:
        """The values to aggregate, in the dtype in which they are multiplied and summed."""
        operator = aggregation(expr.op, expr.body.dtype, expr.accumulator)
        wide, lift = operator.state[0], operator.row.lift
        if lift is not None or operator.is_linear:
            products = wide.is_inexact and expr.body.dtype.is_inexact
            terms = self._wide_product(expr.body, wide) if products else self.value(expr.body)
            return terms if lift is None else self._lifted(lift, _convert(terms, wide), wide)
        return self.value(expr.body)

    @staticmethod
    def _lifted(lift: Lift, terms: Array, dtype: DType) -> Array:
        return evaluate_scalar(lift(OperandRef(0, dtype)), [terms], (), ())

    def _wide_product(self, expr: Expr, wide: DType) -> Array:
        """Multiply in the dtype of the sum: f16 contractions multiply and add in f32."""
        if isinstance(expr, ApplyExpr) and expr.op in ("mul", "div", "neg"):
            return apply(expr.op, [self._wide_product(argument, wide) for argument in expr.arguments], wide)
        return _convert(self.value(expr), wide)

    def _scattered(self) -> Array:
        """Aggregate by key: at each point of the left, the values whose keys equal its labels."""
        expr, n_out = self.equation.value, self.equation.n_out
        assert isinstance(expr, AggregateExpr)
        kept = {*range(n_out), *expr.labels} - {label for label, _ in self.equation.keys}
        space = [extent if k in kept else 1 for k, extent in enumerate(self.extents)]
        terms = np.broadcast_to(self._terms(expr), space)
        picked = np.ones(self.extents[:n_out] + space[n_out:], np.bool_)
        for label, key in self.equation.keys:
            at = np.broadcast_to(self.value(key), space)
            good = (at >= 0) & (at < self.extents[label])
            if not good.all():
                value = int(at[~good].flat[0])
                raise OutOfRange(value, self.extents[label], self.equation.labels[label].name)
            picked &= at == self._label(label)
        terms = np.broadcast_to(terms, picked.shape)
        out = np.empty(self.extents[:n_out], expr.dtype.numpy)
        for point in np.ndindex(*out.shape):
            out[point] = self._fold(expr, terms[point], picked[point])
        return out.reshape(self.extents[:n_out] + [1] * (self.rank - n_out))

    def _fold(self, expr: AggregateExpr, terms: Array, picked: Array) -> Any:
        """Aggregate the selected values; argmax and argmin number all of them."""
        order = [k - self.equation.n_out for k in expr.labels]
        order += [axis for axis in range(picked.ndim) if axis not in order]  # of inner aggregations: length 1
        mask = picked.transpose(order).reshape(-1)
        values = terms.transpose(order).reshape(-1)[mask]
        operator = aggregation(expr.op, expr.body.dtype, expr.accumulator)
        if values.dtype != expr.body.dtype.numpy:
            operator = aggregation(expr.op, operator.state[0], operator.result)
        value = operator.value
        einsum = Einsum(("k",), values.shape, 0, ((0,),), (value,), OperandRef(0, value), operator)
        (result,) = evaluate_einsum(einsum, [values])
        if operator.indexed and len(values):
            return np.flatnonzero(mask)[int(result)]
        return result


def _convert(array: Array, dtype: DType) -> Array:
    """``astype``; a number too large for an integer type wraps around, as in arrays."""
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    if array.dtype.kind == "O":
        return np.asarray(float(array.item())).astype(dtype.numpy) if math.isfinite(array.item()) else array
    return array.astype(dtype.numpy, copy=False)


# -- the sizes of labels -----------------------------------------------------------------------------------------------


def _extents(equation: Equation, tensors: Mapping[int, Array], sizes: Mapping[str, int]) -> list[int]:
    """The size of each label: written, its dim's, an axis it indexes alone, or the rest of a split axis.

    A label with none of these has the largest size for which every access is in bounds.
    """
    known: dict[int, int] = {}
    uses = [
        (index, tensors[expr.tensor].shape[axis])
        for root in (equation.value, *(key for _, key in equation.keys))
        for expr in walk(root)
        if isinstance(expr, AccessExpr)
        for axis, index in enumerate(expr.indices)
    ]
    for number, label in enumerate(equation.labels):
        written = None if label.size is None else size_in(label.size, tensors, sizes)
        found = {} if written is None else {written: "as written"}
        if label.dim is not None:
            dim = sizes[label.dim] if isinstance(label.dim, str) else size_in(label.dim, tensors, sizes)
            found.setdefault(dim, "the size of its name")
        for index, extent in uses:
            # A written size may be shorter than the axis.
            if index == number and isinstance(index, int) and (written is None or extent < written):
                found.setdefault(extent, "a tensor's axis")
        if len(found) > 1 or min(found, default=0) < 0:
            _disagree(equation, number, found)
        known.update((number, size) for size in found)
    _split(equation, uses, known)
    for number in range(len(equation.labels)):
        if number not in known:
            limits = [n for index, extent in uses for n in _limits(index, extent, number, known, tensors, sizes)]
            if not limits:
                _disagree(equation, number, {})
            known[number] = min(limits)
    return [known[number] for number in range(len(equation.labels))]


def _disagree(equation: Equation, number: int, found: Mapping[int, str]) -> None:
    label = equation.labels[number]
    sources = " and ".join(f"{size} ({source})" for size, source in found.items())
    raise BindError(f"line {label.span.line}: label {label.name} has sizes {sources or 'from nowhere'}")


def _split(equation: Equation, uses: list[tuple[Index, int]], known: dict[int, int]) -> None:
    for index, extent in uses:
        if not isinstance(index, SplitIndex):
            continue
        unknown = [label for label in index.labels if label not in known]
        rest = math.prod(known[label] for label in index.labels if label in known)
        if len(unknown) == 1 and rest and extent % rest == 0:
            known[unknown[0]] = extent // rest
        elif unknown or rest != extent:
            names = ", ".join(equation.labels[label].name for label in index.labels)
            raise BindError(f"line {index.span.line}: an axis of {extent} does not split into {names}")


def _limits(
    index: Index,
    extent: int,
    number: int,
    known: Mapping[int, int],
    tensors: Mapping[int, Array],
    sizes: Mapping[str, int],
) -> Iterator[int]:
    """Yield the maximum ranges of a label that keep an affine index in its axis, given other labels."""
    if not isinstance(index, AffineIndex) or index.modulus is not None:
        return
    mine, low = 0, size_in(index.offset, tensors, sizes)
    high = low
    for label, expr in index.terms:
        coefficient = size_in(expr, tensors, sizes)
        if label == number:
            mine = coefficient
        elif label not in known:
            return
        elif known[label]:
            ends = (0, coefficient * (known[label] - 1))
            low, high = low + min(ends), high + max(ends)
    top = extent * (1 if index.divisor is None else size_in(index.divisor, tensors, sizes)) - 1
    if mine > 0:
        yield max(0, (top - high) // mine + 1) if low >= 0 else 0
    elif mine < 0:
        yield max(0, low // -mine + 1) if high <= top else 0
