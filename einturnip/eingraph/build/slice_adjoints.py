"""Adjoints of tensors of which the iterations of a loop read or write slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from einturnip.eingraph.build.loop_body import Unrolled
from einturnip.eingraph.build.positions import Place, Position
from einturnip.eingraph.builder import GraphBuilder, LabelSpace, StatementDrafts
from einturnip.eingraph.indices import number
from einturnip.ir.dtypes import BOOL, I64
from einturnip.ir.einsum import Index
from einturnip.ir.scalar import LabelValue, Scalar, ScalarCall, ScalarConst
from einturnip.ir.simplify import added, constant, selected, times


def iterations_between(write: Place, read: Place) -> int | None:
    """How many iterations after one has written a slice another one reads it; None if none does.

    Raises:
        Unrolled: it depends on the iteration.
    """
    positions, found, is_irregular = dict(read), set[int](), False
    for axis, at in write:
        other = positions[axis]
        if at.factor != other.factor:
            is_irregular = True
        elif at.factor == 0 or (at.offset - other.offset) % at.factor:
            if at.offset != other.offset:
                return None
        else:
            found.add((at.offset - other.offset) // at.factor)
    if len(found) > 1:
        return None
    if is_irregular or not found:
        raise Unrolled("a slice that is read was written a different number of iterations before")
    return min(found)


def filled(builder: GraphBuilder, value: ScalarConst, shape: Sequence[int], name: str, line: int) -> int:
    """Add a node with the same number at every element."""
    space = _space(builder, (), shape)
    return _place(builder, space, value, (), name, line)


def placed(
    builder: GraphBuilder,
    node: int,
    place: Place,
    values: range,
    first: int,
    shape: Sequence[int],
    name: str,
    line: int,
) -> int:
    """Add a tensor that has the elements of a tape at the slices of the iterations, and zeros elsewhere.

    ``values``: those of the loop's variable in the iterations that count; the tape begins with that of ``first``. A
    slice at the same place in every iteration has no tape: ``node`` is the slice.
    """
    made = builder.nodes[node]
    if 0 in shape or not values:
        return filled(builder, constant(0, made.dtype), shape, name, line)
    space = _space(builder, (node,), shape)
    own = tuple(axis for axis in range(len(shape)) if axis not in dict(place))
    moving = _moving(place)
    at = () if moving is None else (_value(*moving, first, is_clamped=True),)
    read = space.operand(0, (*at, *own))
    value = selected(_all(_tests(place, values, shape)), read, constant(0, made.dtype))
    return _place(builder, space, value, (node,), name, line)


def unwritten(
    builder: GraphBuilder, node: int, place: Place, values: range, shape: Sequence[int], name: str, line: int
) -> int:
    """Add a tensor with zeros where iterations write a slice."""
    zero = constant(0, builder.nodes[node].dtype)
    if 0 in shape:
        return node
    space = _space(builder, (node,), shape)
    value = space.operand(0, tuple(range(len(shape))))
    return _place(builder, space, selected(_all(_tests(place, values, shape)), zero, value), (node,), name, line)


def until(builder: GraphBuilder, node: int, variable: int, last: int, name: str, line: int) -> int:
    """Add a tensor that is zero once the loop's variable is larger than ``last``."""
    made = builder.nodes[node]
    space = _space(builder, (node, variable), made.shape)
    test = ScalarCall("le", (space.operand(1, ()), ScalarConst(last, I64)), BOOL)
    value = selected(test, space.operand(0, tuple(range(len(made.shape)))), constant(0, made.dtype))
    return _place(builder, space, value, (node, variable), name, line)


def _moving(place: Place) -> tuple[int, Position] | None:
    """An axis whose position depends on the iteration."""
    return next(((axis, position) for axis, position in place if position.factor), None)


def _value(axis: int, position: Position, first: int, is_clamped: bool = False) -> Index:
    """The value of the loop's variable, minus ``first``, for which a position is the index along its axis."""
    step = abs(position.factor)
    sign = position.factor // step
    return Index(((axis, sign),), -sign * position.offset - step * first, step, clamped=is_clamped)


def _tests(place: Place, values: range, shape: Sequence[int]) -> Iterator[Scalar]:
    """Yield the conditions under which an element is in the slice of one of the iterations."""
    moving = _moving(place)
    for axis, position in place:
        label = LabelValue(axis, I64)
        if moving is None or axis != moving[0]:
            at: Scalar = ScalarConst(position.offset, I64)
            if moving is not None and position.factor:
                value = number(_value(*moving, 0))
                at = added(times(value, ScalarConst(position.factor, I64)), at)
            yield ScalarCall("eq", (label, at), BOOL)
            continue
        low, high = sorted((position.at(values[0]), position.at(values[-1])))
        step = abs(position.factor)
        if low > 0:
            yield ScalarCall("ge", (label, ScalarConst(low, I64)), BOOL)
        if high < shape[axis] - 1:
            yield ScalarCall("le", (label, ScalarConst(high, I64)), BOOL)
        if step > 1:
            rest = ScalarCall("mod", (label, ScalarConst(step, I64)), I64)
            yield ScalarCall("eq", (rest, ScalarConst(low % step, I64)), BOOL)


def _all(tests: Iterator[Scalar]) -> Scalar:
    found: Scalar = constant(True, BOOL)
    for test in tests:
        found = test if isinstance(found, ScalarConst) else ScalarCall("and", (found, test), BOOL)
    return found


def _space(builder: GraphBuilder, nodes: Sequence[int], shape: Sequence[int]) -> LabelSpace:
    tensors = [(builder.nodes[n].dtype, builder.nodes[n].shape) for n in nodes]
    return LabelSpace(StatementDrafts(tensors), [f"i{axis}" for axis in range(len(shape))], shape)


def _place(builder: GraphBuilder, space: LabelSpace, value: Scalar, nodes: Sequence[int], name: str, line: int) -> int:
    rank = len(space.bounds)
    space.emit(range(rank), (), value, None, "")
    read = {tensor for tensor, _ in space.slots}
    assert read <= set(range(len(nodes)))
    return builder.place(space.drafts.nodes, nodes, builder.fresh(name), line)
