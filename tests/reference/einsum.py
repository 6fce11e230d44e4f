"""Reference semantics of einsums in plain NumPy; every IR and kernel is tested against it.

It favours clarity over speed: the whole box of the label space is materialized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from einturnip.core.errors import OutOfRange
from einturnip.ir.einsum import Box, Einsum, Index, Key
from einturnip.ir.evaluate import State, evaluate_scalar, finalize_state, identity_state
from einturnip.ir.operators import Array, convert
from einturnip.ir.scalar import LabelValue


def evaluate_einsum(
    einsum: Einsum,
    operands: Sequence[Array],
    origins: Sequence[int] | None = None,
    extents: Sequence[int] | None = None,
    mode: Literal["result", "state"] = "result",
) -> State:
    """Evaluate the einsum over a box of its label space: the result as a 1-tuple, or the state.

    Shapes:
        operands: one array a slot, sliced to ``einsum.operand_box`` of the box; whole arrays where no box is given.
        origins, extents: the box's first point and size, for each label; the whole space by default.
        Each array returned has the extents of the output's labels.

    Raises:
        OutOfRange: a key's value is outside its label's whole range.
    """
    if origins is None or extents is None:
        origins, extents = (0,) * len(einsum.labels), einsum.bounds
        box = [(0, n) for n in extents]
        operands = [array[_slices(einsum.operand_box(s, box))] for s, array in enumerate(operands)]
    with np.errstate(all="ignore"):
        aligned = [_aligned(einsum, slot, array, origins, extents) for slot, array in enumerate(operands)]
        counts = np.broadcast_to(_counting(einsum, aligned, origins, extents), extents)
        values = np.broadcast_to(evaluate_scalar(einsum.join, aligned, origins, extents), extents)
        if einsum.aggregation is None:
            return (np.array(values),)
        state = _aggregate(einsum, values, counts, origins)
        return state if mode == "state" else (finalize_state(einsum, state),)


def _slices(box: Box) -> Any:
    return (*(slice(start, stop) for start, stop in box), ...)


def _counting(einsum: Einsum, operands: Sequence[Array], origins: Sequence[int], extents: Sequence[int]) -> Array:
    """True where every key holds."""
    counts = np.ones((), np.bool_)
    for key in einsum.keys:
        value = evaluate_scalar(key.value, operands, origins, extents)
        _check_range(einsum, key, value, origins)
        counts = counts & (value == evaluate_scalar(LabelValue(key.label), operands, origins, extents))
    return counts


def _check_range(einsum: Einsum, key: Key, value: Array, origins: Sequence[int]) -> None:
    """Raise OutOfRange for the first value outside the range of the key's label."""
    size = einsum.bounds[key.label]
    wrong = (value < 0) | (value >= size)
    if wrong.any():
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        point = [(einsum.labels[p], int(place[p]) + origins[p]) for p in sorted(einsum.labels_of(key.value))]
        raise OutOfRange(int(value[place]), size, einsum.labels[key.label], point)


def _aligned(einsum: Einsum, slot: int, array: Array, origins: Sequence[int], extents: Sequence[int]) -> Array:
    """Give an operand one axis for each label in order, of size 1 where it lacks the label."""
    access, labels = einsum.accesses[slot], len(extents)
    if not access:
        return array.reshape((1,) * labels)
    box = tuple((start, start + n) for start, n in zip(origins, extents, strict=True))
    corner = [start for start, _ in einsum.operand_box(slot, box)]
    at = [
        _index_values(Index(((p, 1),)) if isinstance(p, int) else p, size, origins, extents) - start
        for p, size, start in zip(access, einsum.operand_shape(slot), corner, strict=True)
    ]
    return np.asarray(array[tuple(at)])


def _index_values(index: Index, size: int, origins: Sequence[int], extents: Sequence[int]) -> Array:
    """An index into an axis of ``size`` at every point of a box."""
    value = np.full((1,) * len(extents), index.offset)
    for position, coefficient in index.terms:
        value = value + coefficient * evaluate_scalar(LabelValue(position), (), origins, extents)
    value = value // index.divisor
    value = value % index.modulus if index.modulus else value
    return np.clip(value, 0, size - 1) if index.clamped else value


# --- aggregations -----------------------------------------------------------------------------------------------------


_FOLDS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "or": np.logical_or,
    "and": np.logical_and,
}


def _aggregate(einsum: Einsum, values: Array, counts: Array, origins: Sequence[int]) -> State:
    """Aggregate the join's values, where they contribute, over the aggregated labels' axes."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    axes = tuple(einsum.aggregated)
    if aggregation.indexed:
        return _aggregate_index(einsum, values, counts, origins)
    start = np.asarray(aggregation.identity[0]).astype(aggregation.state[0].numpy)
    values = np.where(counts, convert(values, aggregation.state[0]), start)
    if aggregation.combine == "pick":
        return (_aggregate_pick(einsum, values, counts),)
    if aggregation.combine == "log_add":
        top = np.maximum.reduce(values, axis=axes, initial=-np.inf, dtype=values.dtype)
        terms = np.where(counts, _scale(values, np.expand_dims(top, axes)), 0)
        return np.asarray(top), np.asarray(np.add.reduce(terms, axis=axes, dtype=values.dtype))
    folded = _FOLDS[aggregation.combine].reduce(values, axis=axes, initial=start[()])
    state = np.asarray(folded).astype(values.dtype, copy=False)
    if len(aggregation.state) == 2:
        return state, np.asarray(np.add.reduce(counts, axis=axes, dtype=np.int64))
    return (state,)


def _aggregate_pick(einsum: Einsum, values: Array, counts: Array) -> Array:
    """The value at the single contributing point; 0 if there is none."""
    shape = (*values.shape[: einsum.n_out], math.prod(values.shape[einsum.n_out :]))
    if shape[-1] == 0:
        return np.zeros(shape[:-1], values.dtype)
    values, counts = values.reshape(shape), counts.reshape(shape)
    where = np.argmax(counts, axis=-1)[..., None]
    picked = np.take_along_axis(values, where, axis=-1)[..., 0]
    return np.where(counts.any(axis=-1), picked, np.zeros((), values.dtype))


def _scale(x: Array, top: Array) -> Array:
    """exp(x - top), and 1 where both are the same infinity."""
    return np.where(x == top, np.ones((), top.dtype), np.exp(x - top))


def _aggregate_index(einsum: Einsum, values: Array, counts: Array, origins: Sequence[int]) -> State:
    """Aggregate argmax and argmin: the best value and its flat index over all aggregated labels."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    n_out, kept = einsum.n_out, values.shape[: einsum.n_out]
    box, whole = values.shape[n_out:], einsum.bounds[n_out:]
    nobody = identity_state(einsum, kept)
    if math.prod(box) == 0:
        return nobody
    values = np.where(counts, values, nobody[0][(...,) + (None,) * len(box)])
    flat, counts = (array.reshape((*kept, math.prod(box))) for array in (values, counts))
    fold = np.maximum if aggregation.combine == "first_max" else np.minimum
    value = np.asarray(fold.reduce(flat, axis=-1))
    best = np.argmax(counts & _same(flat, value[..., None]), axis=-1)
    index = np.zeros(kept, np.int64)
    digits = np.unravel_index(best, box) if box else ()
    for digit, origin, bound in zip(digits, origins[n_out:], whole, strict=True):
        index = index * bound + digit + origin
    return value, np.where(counts.any(axis=-1), index, nobody[1])


def _same(x: Array, y: Array) -> Array:
    return np.asarray((x == y) | (_is_nan(x) & _is_nan(y)))


def combine_states(einsum: Einsum, a: State, b: State) -> State:
    """Combine the states of two disjoint ranges."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    with np.errstate(all="ignore"):
        match aggregation.combine:
            case "first_max" | "first_min" as op:
                take = _prefer(op, a, b)
                return tuple(np.where(take, y, x) for x, y in zip(a, b, strict=True))
            case "log_add":
                top = np.maximum(a[0], b[0])
                return top, a[1] * _scale(a[0], top) + b[1] * _scale(b[0], top)
            case "pick":
                return (_union(a[0], b[0]),)
            case op:
                more = tuple(x + y for x, y in zip(a[1:], b[1:], strict=True))
                return (np.asarray(_FOLDS[op](a[0], b[0])), *more)


def _union(a: Array, b: Array) -> Array:
    """The bitwise or of the bytes of two arrays of one type."""
    x, y = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (a, b))
    return np.asarray((x | y).view(a.dtype).reshape(a.shape))


def _prefer(op: str, a: State, b: State) -> Array:
    """Where candidate ``b`` beats ``a``: better value, NaN first, ties to the lower index; -1 is none."""
    (x, i), (y, j) = a, b
    x_nan, y_nan = _is_nan(x), _is_nan(y)
    better = (y > x if op == "first_max" else y < x) & ~x_nan | (y_nan & ~x_nan)
    equal = _same(x, y)
    return np.asarray((j >= 0) & ((i < 0) | better | (equal & (j < i))))


def _is_nan(x: Array) -> Array:
    return np.asarray(np.isnan(x)) if x.dtype.kind not in "biu" else np.zeros(x.shape, np.bool_)
