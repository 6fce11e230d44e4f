"""Evaluates a program on whole arrays in NumPy, statement by statement; this defines its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import assert_never

import numpy as np

from einturnip.core.errors import BindError
from einturnip.lang.expressions import SizeName
from einturnip.lang.program import (
    Concatenate,
    DimDef,
    Equation,
    FileRef,
    GradStatement,
    InputDef,
    Loop,
    Output,
    Replace,
    Statement,
    TypedProgram,
)
from einturnip.lang.sizes import size_names, size_text, size_value
from tests.reference.equation import Array, equation_value, size_in
from tests.reference.gradient import EvaluationTape


def evaluate(
    program: TypedProgram, inputs: Mapping[str, Array] | None = None, dims: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Return the outputs of a program, by name.

    Raises:
        BindError: an input is missing, or sizes disagree.
        OutOfRange: an index or a key that is data lies outside its axis.
    """
    filled = {t.name for t in program.states if t.rank and t.name not in (inputs or {}) and t.default is not None}
    arrays = {tensor.name: _input(tensor, inputs or {}) for tensor in program.inputs if tensor.name not in filled}
    sizes = bind(program, {name: array.shape for name, array in arrays.items()}, dims or {})
    for state in program.states:
        if state.name in filled:
            arrays[state.name] = _filled(state, sizes)
    values: dict[int, Array] = {tensor.number: arrays[tensor.name] for tensor in program.inputs}
    with np.errstate(all="ignore"):
        _run(program.statements, values, sizes, EvaluationTape(values))
    return {output.name: values[output.tensor] for output in program.outputs}


def _run(
    statements: Sequence[Statement], values: dict[int, Array], sizes: Mapping[str, int], tape: EvaluationTape
) -> None:
    """Run a block; ``values`` are the tensors by number."""
    for statement in statements:
        match statement:
            case DimDef() | InputDef() | Output():
                pass
            case Equation() | Replace() | Concatenate():
                tape.run(values, (statement.number,), partial(_define, statement, sizes))
            case GradStatement(number=number):
                tape.run(values, (number,), statement)
            case Loop():
                _loop(statement, values, sizes, tape)
            case _:
                assert_never(statement)


def _define(statement: Equation | Replace | Concatenate, sizes: Mapping[str, int], values: dict[int, Array]) -> None:
    """Give a tensor its value."""
    match statement:
        case Equation(number=number):
            values[number] = equation_value(statement, values, sizes)
        case Replace(number=number):
            values[number] = _replaced(statement, values, sizes)
        case Concatenate(number=number, axis=axis, parts=parts, dtype=dtype):
            arrays = [values[part] for part in parts]
            shapes = {array.shape[:axis] + array.shape[axis + 1 :] for array in arrays}
            if len(shapes) > 1:
                raise BindError(f"line {statement.span.line}: the parts of {statement.name} differ in other axes")
            values[number] = np.concatenate(arrays, axis).astype(dtype.numpy, copy=False)


def _alias(numbers: Sequence[tuple[int, int]], values: dict[int, Array]) -> None:
    """Alias several tensors at once."""
    values.update([(number, values[source]) for number, source in numbers])


def _replaced(statement: Replace, values: Mapping[int, Array], sizes: Mapping[str, int]) -> Array:
    array = values[statement.base].copy()
    places = tuple(slice(None) if at is None else size_in(at, values, sizes) for at in statement.at)
    for place, extent in zip(places, array.shape, strict=True):
        if isinstance(place, int) and not 0 <= place < extent:
            raise BindError(f"line {statement.span.line}: {place} is outside 0 .. {extent - 1} of {statement.name}")
    piece = values[statement.piece]
    if array[places].shape != piece.shape:
        raise BindError(f"line {statement.span.line}: a slice of {statement.name} has another shape")
    array[places] = piece
    return array


def _loop(statement: Loop, values: dict[int, Array], sizes: Mapping[str, int], tape: EvaluationTape) -> None:
    for carried in statement.carried:
        tape.run(values, (carried.number,), partial(_alias, [(carried.number, carried.initial)]))
    start, stop = (size_in(end, values, sizes) for end in (statement.start, statement.stop))
    moves = [(carried.number, carried.last) for carried in statement.carried]
    for step in range(start, stop):
        if statement.condition is not None and not values[statement.condition]:
            break
        _run(statement.body, values, {**sizes, statement.variable: step}, tape)
        for carried in statement.carried:
            if values[carried.last].shape != values[carried.number].shape:
                raise BindError(f"line {statement.span.line}: the loop changes the shape of {carried.name}")
        tape.run(values, [number for number, _ in moves], partial(_alias, moves))


def _filled(state: InputDef, sizes: Mapping[str, int]) -> Array:
    """A state that starts with one number everywhere."""
    if isinstance(state.default, FileRef):
        raise BindError(f"state {state.name} is missing")
    return np.full([size_value(size, sizes) for size in state.shape], state.default, state.dtype.numpy)


def _input(tensor: InputDef, inputs: Mapping[str, Array]) -> Array:
    if tensor.name in inputs:
        array = np.asarray(inputs[tensor.name])
    elif tensor.default is not None and not isinstance(tensor.default, FileRef):
        array = np.asarray(tensor.default)
    else:
        raise BindError(f"input {tensor.name} is missing")
    if array.ndim != tensor.rank:
        raise BindError(f"input {tensor.name} has {tensor.rank} axes, the array {array.ndim}")
    return array.astype(tensor.dtype.numpy, copy=False)


def bind(program: TypedProgram, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]) -> dict[str, int]:
    """The value of every size, from the inputs' shapes and from ``dims``.

    Raises:
        BindError: two sources disagree, or a size has none.
    """
    values = dict(dims)
    given = [tensor for tensor in program.inputs if tensor.name in shapes]
    for tensor in given:
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
        for tensor in given:
            _check_shape(tensor, shapes[tensor.name], values)
    except KeyError as missing:
        raise BindError(f"size {missing.args[0]} has no value") from None
    return values


def _check_shape(tensor: InputDef, shape: tuple[int, ...], values: Mapping[str, int]) -> None:
    for position, (axis, extent) in enumerate(zip(tensor.shape, shape, strict=True)):
        expected = size_value(axis, values)
        if expected != extent:
            raise BindError(f"axis {position} of {tensor.name} is {size_text(axis)} = {expected}, the array's {extent}")
