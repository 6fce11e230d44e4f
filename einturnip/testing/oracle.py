"""Evaluates a drawn program point by point in plain Python; shares no code with the compiler.

``evaluate`` returns an ``Answer`` for each output: values in the dtype that the language prescribes, and for each value
the maximum distance of a correct result, found by a running error analysis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import assert_never

import numpy as np

from einturnip.ir.aggregations import MONOIDS
from einturnip.testing import promotion
from einturnip.testing.agreement import Answer, Array
from einturnip.testing.arithmetic import BoundedValue, convert
from einturnip.testing.kinds import carried_types, parameter_types, statement_type
from einturnip.testing.labels import arguments_of, free_labels, label_map, result_labels, returned_labels, scalar_labels
from einturnip.testing.promotion import Type
from einturnip.testing.ranges import bind, is_static, size_value
from einturnip.testing.spelling import SpelledEquation, parts_of, spelled_out, statements_of, without_rest
from einturnip.testing.terms import (
    AggregateTerm,
    BoundTerm,
    CallTerm,
    DrawnLoop,
    DrawnParameter,
    DrawnProgram,
    DrawnSeveral,
    DrawnStatement,
    JoinedTerm,
    RestTerm,
    Step,
    Term,
)
from einturnip.testing.values import OracleScope, OracleTensor, fold, ranges_of, value

Sizes = Mapping[str, int]


def evaluate(
    program: DrawnProgram, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None
) -> dict[str, Answer]:
    """Evaluate every output of the program.

    Shapes:
        inputs: an array for each input, in its dtype; dims: sizes given from outside.

    Raises:
        IndexError: an index or a key is out of range.
    """
    sizes = bind(program, inputs, dims or {})
    tensors = {i.name: _lift(np.asarray(inputs[i.name]), i.dtype) for i in program.inputs}
    tensors = _run(program.statements, sizes, tensors)
    return {name: _lower(tensors[name]) for name in program.outputs}


# --- statements -------------------------------------------------------------------------------------------------------


def _run(steps: Iterable[Step], sizes: Sizes, tensors: Mapping[str, OracleTensor]) -> dict[str, OracleTensor]:
    """Run some steps; return all tensors after them."""
    held = dict(tensors)
    for step in steps:
        match step:
            case DrawnStatement():
                held[step.name] = _statement(step, sizes, held)
            case DrawnSeveral():
                held |= {s.name: _statement(s, sizes, held) for s in statements_of(step)}
            case DrawnLoop():
                held = _loop(step, sizes, held)
            case _:
                assert_never(step)
    return held


def _loop(loop: DrawnLoop, sizes: Sizes, tensors: Mapping[str, OracleTensor]) -> dict[str, OracleTensor]:
    """Run a loop; return the names from before it with their new tensors, without names defined in it."""
    types = carried_types(loop, {name: tensor.type for name, tensor in tensors.items()})
    held = {name: _as(tensor, types[name]) for name, tensor in tensors.items()}
    for number in range(size_value(loop.start, sizes), size_value(loop.stop, sizes)):
        after = _run(loop.body, {**sizes, loop.variable: number}, held)
        for name in held:
            if after[name].shape != held[name].shape or after[name].type.dtype != types[name].dtype:
                raise TypeError(f"a loop changes {name}")
        held = {name: after[name] for name in held}
    return held


def _as(tensor: OracleTensor, of: Type) -> OracleTensor:
    at = {point: convert(x, tensor.type.dtype, of.dtype) for point, x in tensor.at.items()}
    return OracleTensor(tensor.shape, of, at, tensor.made_by)


def _statement(statement: DrawnStatement, sizes: Sizes, tensors: Mapping[str, OracleTensor]) -> OracleTensor:
    of = statement_type(statement, {name: tensor.type for name, tensor in tensors.items()})
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    parts = [_equation(spelled_out(part, shapes), sizes, tensors) for part in parts_of(statement, shapes)]
    if not statement.others:
        return _as(parts[0], of)
    axes = (x for x in statement.bounds if not isinstance(x, RestTerm))
    axis = next(k for k, x in enumerate(axes) if isinstance(x, JoinedTerm))
    return _joined([_as(part, of) for part in parts], axis)


def _joined(parts: list[OracleTensor], axis: int) -> OracleTensor:
    """Concatenate the parts along an axis."""
    at: dict[tuple[int, ...], BoundedValue] = {}
    offset = 0
    for part in parts:
        at |= {(*p[:axis], p[axis] + offset, *p[axis + 1 :]): x for p, x in part.at.items()}
        offset += part.shape[axis]
    shapes = {(*p.shape[:axis], offset, *p.shape[axis + 1 :]) for p in parts}
    if len(shapes) > 1:
        raise ValueError(f"parts of shapes {[p.shape for p in parts]}")
    return OracleTensor(shapes.pop(), parts[0].type, at, frozenset[str]().union(*(p.made_by for p in parts)))


def _equation(equation: SpelledEquation, sizes: Sizes, tensors: Mapping[str, OracleTensor]) -> OracleTensor:
    scope = OracleScope(sizes, tensors, _Functions())
    if equation.keys:
        shape, at = _scattered(equation, scope)
    else:
        extents = ranges_of(equation.bounds, (equation.body,), scope)
        shape, at = tuple(extents.values()), {p: value(equation.body, scope) for p in scope.points(extents)}
    terms = (equation.body, *(key for _, key in equation.keys))
    made_by = frozenset[str]().union(*(scope.made_by(term) for term in terms))
    return _merged(OracleTensor(shape, scope.type(equation.body), at, made_by), equation.groups)


def _scattered(
    equation: SpelledEquation, scope: OracleScope
) -> tuple[tuple[int, ...], dict[tuple[int, ...], BoundedValue]]:
    """An aggregation by key: each point of the left combines the terms whose keys equal it."""
    term, keys = equation.body, dict(equation.keys)
    if not isinstance(term, AggregateTerm):
        raise ValueError("the right side of a scatter is an aggregation")
    read = (term.body, *keys.values())
    extents = ranges_of(equation.bounds, (term, *keys.values()), scope)
    plain = {label: size for label, size in extents.items() if label not in keys}
    groups: dict[tuple[int, ...], list[tuple[int, BoundedValue]]] = {}
    for _ in scope.points(plain):
        inner = ranges_of(term.bounds, read, scope)
        for position, _ in enumerate(scope.points(inner)):
            scope.point |= {label: _key(key, extents[label], scope) for label, key in keys.items()}
            point = tuple(scope.point[label] for label in extents)
            groups.setdefault(point, []).append((position, value(term.body, scope)))
    at = {}
    for point in itertools.product(*map(range, extents.values())):
        hits = groups.get(point, [])
        x = fold(term, [x for _, x in hits], scope)
        found = MONOIDS[term.op].result == "index" and hits
        at[point] = x._replace(v=hits[x.v][0]) if found else x
    return tuple(extents.values()), at


def _key(term: Term, size: int, scope: OracleScope) -> int:
    key = value(term, scope)
    if not 0 <= key.v < size:
        raise IndexError(f"key {key.v} of {size} groups")
    return int(key.v)


def _merged(tensor: OracleTensor, groups: tuple[int, ...]) -> OracleTensor:
    """The tensor with each group of neighbouring axes merged."""
    if all(n == 1 for n in groups):
        return tensor
    ends = list(itertools.accumulate(groups))
    slices = [slice(end - n, end) for n, end in zip(groups, ends, strict=True)]
    shape = tuple(math.prod(tensor.shape[s]) for s in slices)
    at = {tuple(_flat(p[s], tensor.shape[s]) for s in slices): x for p, x in tensor.at.items()}
    return OracleTensor(shape, tensor.type, at, tensor.made_by)


def _flat(point: tuple[int, ...], shape: tuple[int, ...]) -> int:
    at = 0
    for index, size in zip(point, shape, strict=True):
        at = at * size + index
    return at


# --- functions --------------------------------------------------------------------------------------------------------


class _Functions:
    """Functions as an equation calls them: evaluated for each point of ``...`` and of the scalars' labels."""

    def value(self, call: CallTerm, scope: OracleScope) -> BoundedValue:
        """The value of the call at the scope's point."""
        own, _ = label_map(call)
        made = iter(call.made)
        labels = [own[x] if x in own else next(made) for x in returned_labels(call)]
        return self.result(call, scope).at[tuple(scope.point[x] for x in labels)]

    def result(self, call: CallTerm, scope: OracleScope) -> OracleTensor:
        """The tensor that the function returns at the scope's point."""
        outer = (*label_map(call)[1], *scalar_labels(call))
        key = (id(call), tuple(scope.point[x] for x in outer))
        if key not in scope.results:
            scope.results[key] = _apply(call, scope)
        return scope.results[key]


def _apply(call: CallTerm, scope: OracleScope) -> OracleTensor:
    types = parameter_types(call, {name: tensor.type for name, tensor in scope.tensors.items()})
    given, own = arguments_of(call), label_map(call)[0]
    extents = _argument_extents(call, scope)
    sizes = {mine: extents[callers] for mine, callers in own.items()}
    tensors = {}
    for parameter in call.function.parameters:
        term, axes = given[parameter.name], _axes(parameter, own, extents)
        at = {point: value(term, scope) for point in scope.points(axes)}
        tensors[parameter.name] = OracleTensor(tuple(axes.values()), types[parameter.name], at, scope.made_by(term))
        if parameter.labels is None and is_static(term) and not free_labels(term):
            sizes[parameter.name] = size_value(term, scope.sizes)
    held = _run(call.function.steps, sizes, tensors)
    bounds = tuple(BoundTerm(x) for x in returned_labels(call))
    body = without_rest(call.function.returns[call.result])
    return _equation(SpelledEquation("", bounds, body, (1,) * len(bounds)), sizes, held)


def _axes(parameter: DrawnParameter, own: Mapping[str, str], extents: Sizes) -> dict[str, int]:
    """The caller's labels over which an argument is a tensor, with their sizes."""
    callers = [own[x] for x in parameter.labels or () if isinstance(x, str)]
    return {label: extents[label] for label in callers}


def _argument_extents(call: CallTerm, scope: OracleScope) -> dict[str, int]:
    """The size of each of the caller's labels that corresponds to a parameter's label."""
    given, (own, rest) = arguments_of(call), label_map(call)
    carried = (*result_labels(call), *rest)
    terms = tuple(given[p.name] for p in call.function.parameters if p.labels is not None)
    consumed = [BoundTerm(label) for label in dict.fromkeys(own.values()) if label not in carried]
    return {**scope.extents, **ranges_of(consumed, terms, scope)}


# --- conversion from and to arrays ------------------------------------------------------------------------------------


def _lift(array: Array, dtype: str) -> OracleTensor:
    if array.dtype != promotion.numpy_dtype(dtype):
        raise ValueError(f"declared {dtype}, found {array.dtype}")
    python = {"f": float, "c": complex, "i": int, "u": int, "b": bool}[promotion.kind(dtype)]
    at = {point: BoundedValue(python(array[point])) for point in np.ndindex(array.shape)}
    return OracleTensor(array.shape, Type(dtype), at)


def _lower(tensor: OracleTensor) -> Answer:
    values = np.zeros(tensor.shape, promotion.numpy_dtype(tensor.type.dtype))
    slack = np.zeros(tensor.shape)
    with np.errstate(all="ignore"):
        for point, x in tensor.at.items():
            values[point], slack[point] = x.v, x.slack
    return Answer(values, slack)
