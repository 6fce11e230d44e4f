"""Reference semantics of regions in plain NumPy, and functions that accept einsums and regions.

A region's state is the concatenation of its carried steps' states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, assert_never

import numpy as np

from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import State, finalize_state, identity_state
from einturnip.ir.operators import Array
from einturnip.ir.region import Region, RegionStep, Rescale, Shift
from tests.reference.einsum import combine_states, evaluate_einsum

Space: TypeAlias = Einsum | Region


def evaluate_space(
    space: Space,
    operands: Sequence[Array],
    origins: Sequence[int] | None = None,
    extents: Sequence[int] | None = None,
    mode: Literal["result", "state"] = "result",
) -> State:
    """``evaluate_einsum`` for einsums and regions."""
    match space:
        case Einsum():
            return evaluate_einsum(space, operands, origins, extents, mode)
        case Region():
            return evaluate_region(space, operands, origins, extents, mode)
        case _:
            assert_never(space)


def evaluate_region(
    region: Region,
    operands: Sequence[Array],
    origins: Sequence[int] | None = None,
    extents: Sequence[int] | None = None,
    mode: Literal["result", "state"] = "result",
) -> State:
    """Evaluate the region over a box of its label space: the result as a 1-tuple, or the state.

    Shapes:
        as in ``evaluate_einsum``; a state concatenates the states of the carried steps.
    """
    if origins is None or extents is None:
        origins, extents = (0,) * len(region.labels), region.bounds
        box = [(0, n) for n in extents]
        boxes = (region.operand_box(slot, box) for slot in range(len(operands)))
        operands = [array[tuple(slice(*ends) for ends in b)] for array, b in zip(operands, boxes, strict=True)]
    tiled, carried = set(region.tiled), set(region.carried)
    values: dict[int, Array] = {}
    state: State = ()
    for k, step in enumerate(region.steps):
        if k not in tiled and k not in carried and not region.of_rows:
            continue
        read = [operands[o] if o >= 0 else values[~o] for o in step.operands]
        start, size = [origins[p] for p in step.labels], [extents[p] for p in step.labels]
        if k not in carried:
            (values[k],) = evaluate_einsum(step.einsum, read, start, size)
        else:
            own = evaluate_einsum(step.einsum, read, start, size, "state")
            values[k] = finalize_state(step.einsum, own)
            state += own
    if region.of_rows:
        return (values[len(region.steps) - 1],)
    return state if mode == "state" else (_finalize(region, values),)


def combine_spaces(space: Space, a: State, b: State) -> State:
    """Combine the states of two disjoint ranges of the aggregated labels."""
    match space:
        case Einsum():
            return combine_states(space, a, b)
        case Region():
            before, after = _by_step(space, a), _by_step(space, b)
            together: dict[int, State] = {}
            for k in space.carried:
                einsum = space.steps[k].einsum
                parts = (_rescaled(space, k, own, together) for own in (before, after))
                together[k] = combine_states(einsum, *parts)
            return tuple(component for state in together.values() for component in state)
        case _:
            assert_never(space)


def finalize_space(space: Space, state: State) -> Array:
    """The result of a state over the whole range."""
    match space:
        case Einsum():
            return finalize_state(space, state)
        case Region():
            states = _by_step(space, state)
            return _finalize(space, {k: finalize_state(space.steps[k].einsum, own) for k, own in states.items()})
        case _:
            assert_never(space)


def identity_space(space: Space, shape: Sequence[int]) -> State:
    """The state of an empty range; ``shape`` is that of the output's tile."""
    match space:
        case Einsum():
            return identity_state(space, tuple(shape))
        case Region():
            steps = (space.steps[k] for k in space.carried)
            own = (identity_state(s.einsum, tuple(shape[p] for p in s.labels[: s.einsum.n_out])) for s in steps)
            return tuple(component for state in own for component in state)
        case _:
            assert_never(space)


def _by_step(region: Region, state: State) -> dict[int, State]:
    """Split a state into the states of the carried steps."""
    parts: dict[int, State] = {}
    for k in region.carried:
        n = len(region.steps[k].einsum.state_dtypes)
        parts[k], state = state[:n], state[n:]
    return parts


def _rescaled(region: Region, k: int, states: dict[int, State], together: dict[int, State]) -> State:
    """Correct a step's state for the extrema and means of both ranges together."""
    state = states[k]
    for rescale in region.rescales:
        if rescale.step == k:
            factor = _factor(rescale, states[rescale.of][0], together[rescale.of][0], state[0])
            factor = _aligned(factor, region.steps[rescale.of], region.steps[k])
            # Before any term was added, the factor (exp(-inf - -inf)) is NaN and must not be used.
            with np.errstate(all="ignore"):
                state = (np.where(factor == 0, factor, state[0] * factor).astype(state[0].dtype), *state[1:])
    for shift in region.shifts:
        if shift.step == k:
            gain = _gain(shift, states[shift.of], together[shift.of], state[0])
            state = (state[0] + _aligned(gain, region.steps[shift.of], region.steps[k]), *state[1:])
    return state


def _gain(shift: Shift, before: State, after: State, total: Array) -> Array:
    """The increase of a sum of squared deviations when the mean changes; 0 before the first term."""
    a, b = (sums / np.maximum(count, 1).astype(sums.dtype) for sums, count in (before, after))
    return np.asarray(shift.coefficient * before[1].astype(a.dtype) * (b - a) ** 2, total.dtype)


def _factor(rescale: Rescale, before: Array, after: Array, total: Array) -> Array:
    """The factor of a partial sum: 1 where the extremum is unchanged, 0 where it was infinite."""
    one = np.ones((), total.dtype)
    with np.errstate(all="ignore"):
        moved = np.exp(rescale.coefficient * (after - before).astype(total.dtype))
    return np.where(before == after, one, np.where(np.isinf(before), 0 * one, moved))


def _aligned(array: Array, of: RegionStep, to: RegionStep) -> Array:
    """Align a step's value with the output labels of another step, with size 1 where it lacks a label."""
    present, target_labels = of.labels[: of.einsum.n_out], to.labels[: to.einsum.n_out]
    order = [present.index(p) for p in target_labels if p in present]
    return array.transpose(order).reshape([array.shape[present.index(p)] if p in present else 1 for p in target_labels])


def _finalize(region: Region, values: dict[int, Array]) -> Array:
    """Compute the output from the values of the carried steps over the whole range; tiled values are gone."""
    extents: dict[int, int] = {}
    for k in region.carried:
        step = region.steps[k]
        extents |= zip(step.labels[: step.einsum.n_out], values[k].shape, strict=True)
    for k, step in enumerate(region.steps):
        if k in region.carried or k in region.tiled:
            continue
        read = [values[~o] for o in step.operands]
        size = [extents[p] for p in step.labels]
        (values[k],) = evaluate_einsum(step.einsum, read, [0] * len(size), size)
    return values[len(region.steps) - 1]
