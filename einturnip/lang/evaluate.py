"""A program on whole arrays in NumPy: what its text means, statement by statement.

Clear before fast: every expression is an array over all labels of its statement, of size 1 along those it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any, assert_never

import numpy as np

from einturnip.core.algebra import aggregation
from einturnip.core.dtypes import DType
from einturnip.core.einsum import Einsum
from einturnip.core.errors import BindError
from einturnip.core.reference import apply, evaluate_einsum
from einturnip.core.scalar import Operand
from einturnip.lang.sizes import size_names, size_text, size_value
from einturnip.lang.types import (
    Access,
    Aggregate,
    Apply,
    Convert,
    Equation,
    Expr,
    FileRef,
    Input,
    LabelNumber,
    Number,
    Program,
    SizeName,
    SizeNumber,
    walk,
)

Array = np.ndarray[Any, np.dtype[Any]]


def evaluate(
    program: Program, inputs: Mapping[str, Array] | None = None, dims: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """The outputs of a program, by name.

    Raises:
        BindError: an input is missing, or sizes disagree.
    """
    arrays = {tensor.name: _input(tensor, inputs or {}) for tensor in program.inputs}
    sizes = bind(program, {name: array.shape for name, array in arrays.items()}, dims or {})
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for tensor in program.tensors:
            match tensor:
                case Input(name=name):
                    values.append(arrays[name])
                case Equation():
                    values.append(_Statement(tensor, values, sizes).result())
                case _:
                    assert_never(tensor)
    return {output.name: values[output.tensor] for output in program.outputs}


def _input(tensor: Input, inputs: Mapping[str, Array]) -> Array:
    if tensor.name in inputs:
        array = np.asarray(inputs[tensor.name])
    elif tensor.default is not None and not isinstance(tensor.default, FileRef):
        array = np.asarray(tensor.default)
    else:
        raise BindError(f"input {tensor.name} is missing")
    if array.ndim != tensor.rank:
        raise BindError(f"input {tensor.name} has {tensor.rank} axes, the array {array.ndim}")
    return array.astype(tensor.dtype.numpy, copy=False)


def bind(program: Program, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]) -> dict[str, int]:
    """The value of every size, from the inputs' shapes and from ``dims``.

    Raises:
        BindError: two sources disagree, or a size has none.
    """
    values = dict(dims)
    for tensor in program.inputs:
        for axis, extent in zip(tensor.shape, shapes[tensor.name], strict=True):
            if isinstance(axis, SizeName) and program.dims[axis.name].definition is None:
                values.setdefault(axis.name, extent)
    definitions = {name: dim.definition for name, dim in program.dims.items() if dim.definition is not None}
    order = TopologicalSorter({name: size_names(size) for name, size in definitions.items()}).static_order()
    try:
        for name in order:
            if name in definitions:
                value = size_value(definitions[name], values)
                if values.setdefault(name, value) != value:
                    raise BindError(f"size {name} is {value} in the program, but given as {values[name]}")
        for tensor in program.inputs:
            _check_shape(tensor, shapes[tensor.name], values)
    except KeyError as missing:
        raise BindError(f"size {missing.args[0]} has no value") from None
    return values


def _check_shape(tensor: Input, shape: tuple[int, ...], values: Mapping[str, int]) -> None:
    for position, (axis, extent) in enumerate(zip(tensor.shape, shape, strict=True)):
        expected = size_value(axis, values)
        if expected != extent:
            raise BindError(f"axis {position} of {tensor.name} is {size_text(axis)} = {expected}, the array's {extent}")


class _Statement:
    """One equation, with its labels' sizes."""

    def __init__(self, equation: Equation, tensors: list[Array], sizes: Mapping[str, int]) -> None:
        self.equation, self.tensors, self.sizes = equation, tensors, sizes
        self.extents = [self._extent(number) for number in range(len(equation.labels))]
        self.rank = len(self.extents)

    def _extent(self, number: int) -> int:
        label = self.equation.labels[number]
        found: dict[int, str] = {}
        written = None if label.size is None else size_value(label.size, self.sizes)
        if label.size is not None and written is not None:
            found[written] = size_text(label.size)
        if label.dim is not None:
            found.setdefault(self.sizes[label.dim], f"dim {label.dim}")
        for expr in walk(self.equation.value):
            if isinstance(expr, Access) and number in expr.indices:
                for axis, at in enumerate(expr.indices):
                    extent = self.tensors[expr.tensor].shape[axis]
                    # A size that is written may be shorter than the axis.
                    if at == number and (written is None or extent < written):
                        found.setdefault(extent, "a tensor's axis")
        if len(found) != 1 or min(found) < 0:
            sources = " and ".join(f"{size} ({source})" for size, source in found.items())
            raise BindError(f"line {label.span.line}: label {label.name} has sizes {sources or 'from nowhere'}")
        return next(iter(found))

    def result(self) -> Array:
        """The equation's tensor."""
        n_out = self.equation.n_out
        array = self.value(self.equation.value)
        kept = array.reshape(array.shape[:n_out])
        return np.array(np.broadcast_to(kept, self.extents[:n_out]))

    def value(self, expr: Expr) -> Array:
        """An expression's array, one axis a label."""
        match expr:
            case Number(value=value, dtype=dtype):
                return self._scalar(value, dtype)
            case SizeNumber(size=size, dtype=dtype):
                return self._scalar(size_value(size, self.sizes), dtype)
            case LabelNumber(label=label, dtype=dtype):
                index = np.arange(self.extents[label]).astype(dtype.numpy)
                return index.reshape([-1 if k == label else 1 for k in range(self.rank)])
            case Access():
                return self._access(expr)
            case Convert(argument=argument, dtype=dtype):
                return _convert(self.value(argument), dtype)
            case Apply(op=op, arguments=arguments, dtype=dtype):
                return apply(op, [self.value(argument) for argument in arguments], dtype)
            case Aggregate():
                return self._aggregate(expr)
            case _:
                assert_never(expr)

    def _scalar(self, value: bool | int | float | complex, dtype: DType) -> Array:
        return _convert(np.asarray(value), dtype).reshape((1,) * self.rank)

    def _access(self, expr: Access) -> Array:
        present = sorted(set(expr.indices))
        array = self.tensors[expr.tensor][tuple(slice(self.extents[label]) for label in expr.indices)]
        names = tuple(self.equation.labels[k].name for k in present)
        bounds = tuple(self.extents[k] for k in present)
        slots = (tuple(present.index(label) for label in expr.indices),)
        einsum = Einsum(names, bounds, len(present), slots, (expr.dtype,), Operand(0, expr.dtype), None)
        (array,) = evaluate_einsum(einsum, [array])
        return array.reshape([self.extents[k] if k in present else 1 for k in range(self.rank)])

    def _aggregate(self, expr: Aggregate) -> Array:
        operator = aggregation(expr.op, expr.body.dtype, expr.accumulator)
        wide = operator.state[0]
        if expr.op in ("sum", "mean") and wide.is_inexact and expr.body.dtype.is_inexact:
            array = self._wide_product(expr.body, wide)
            operator = aggregation(expr.op, wide, operator.result)
        else:
            array = self.value(expr.body)
        gone = list(expr.labels)
        kept = [k for k in range(self.rank) if k not in gone]
        shape = [self.extents[k] if k in gone else array.shape[k] for k in range(self.rank)]
        order = tuple(kept + gone)
        array = np.broadcast_to(array, shape).transpose(order)
        names = tuple(self.equation.labels[k].name for k in order)
        value = operator.value
        slots = (tuple(range(self.rank)),)
        einsum = Einsum(names, array.shape, len(kept), slots, (value,), Operand(0, value), operator)
        (result,) = evaluate_einsum(einsum, [array])
        return result.reshape([1 if k in gone else array.shape[order.index(k)] for k in range(self.rank)])

    def _wide_product(self, expr: Expr, wide: DType) -> Array:
        """A product multiplied in the dtype it is summed in: f16 contractions multiply and add in f32."""
        if isinstance(expr, Apply) and expr.op in ("mul", "div", "neg"):
            return apply(expr.op, [self._wide_product(argument, wide) for argument in expr.arguments], wide)
        return _convert(self.value(expr), wide)


def _convert(array: Array, dtype: DType) -> Array:
    """``astype``; a number too large for an integer type wraps round as arrays do."""
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    if array.dtype.kind == "O":
        return np.asarray(float(array.item())).astype(dtype.numpy) if math.isfinite(array.item()) else array
    return array.astype(dtype.numpy, copy=False)
