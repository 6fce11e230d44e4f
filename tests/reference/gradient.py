"""Reference gradients by finite differences: reruns the program for each perturbed element.

Central differences with two step sizes are extrapolated: in f64 about nine digits where the loss is smooth and of order
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from einturnip.lang.program import GradStatement
from tests.reference.equation import Array

Step = Callable[[dict[int, Array]], None]
"""A statement that runs on the tensors, given by number."""

FixedTensors = Mapping[tuple[int, int], Array]
"""Tensors with fixed values, by the position on the tape that creates them (-1 for inputs), and their number."""

_STEP = 1e-3
_DIRECTIONS = {"c": (1, 1j)}


class _Watched(dict[int, Array]):
    """Tensors that record which of them were read."""

    def __init__(self, tensors: Mapping[int, Array]) -> None:
        super().__init__(tensors)
        self.read: set[int] = set()

    def __getitem__(self, number: int) -> Array:
        self.read.add(number)
        return super().__getitem__(number)


class EvaluationTape:
    """The statements run so far, with the tensors that each creates and reads.

    Gradients are recomputed in each run.
    """

    def __init__(self, values: Mapping[int, Array]) -> None:
        self._inputs = dict(values)
        self._steps: list[tuple[frozenset[int], Step | GradStatement]] = []
        self._reads: list[frozenset[int]] = []

    def run(self, values: dict[int, Array], numbers: Iterable[int], step: Step | GradStatement) -> None:
        """Run a step that creates tensors."""
        end, watched = len(self._steps), _Watched(values)
        self._steps.append((frozenset(numbers), step))
        self._carry_out(watched, end, {})
        reads = {step.loss, step.by} if isinstance(step, GradStatement) else watched.read
        self._reads.append(frozenset(reads))
        values.update((number, watched[number]) for number in self._steps[end][0])

    def _carry_out(self, values: dict[int, Array], place: int, fixed_tensors: FixedTensors) -> None:
        numbers, step = self._steps[place]
        if isinstance(step, GradStatement):
            values[step.number] = self._gradient(step, values[step.by], place, fixed_tensors)
        else:
            step(values)
        for number in numbers:
            if (place, number) in fixed_tensors:
                values[number] = fixed_tensors[place, number]

    def _gradient(self, statement: GradStatement, at: Array, end: int, fixed_tensors: FixedTensors) -> Array:
        """The derivative of a loss by a tensor, with their values at a position on the tape."""
        by = statement.by
        made = max((k for k in range(end) if by in self._steps[k][0]), default=-1)
        needed = self._needed(statement.loss, end)

        def loss(tensor: Array) -> float:
            fixed = {**fixed_tensors, (made, by): tensor}
            values = {number: fixed.get((-1, number), array) for number, array in self._inputs.items()}
            for place in needed:
                self._carry_out(values, place, fixed)
            return float(np.sum(values[statement.loss]))

        return _differences(loss, at)

    def _needed(self, number: int, end: int) -> list[int]:
        """The positions of steps before ``end`` on which a tensor depends, in order."""
        needed, found = {number}, []
        for place in reversed(range(end)):
            if made := self._steps[place][0] & needed:
                needed -= made
                needed |= self._reads[place]
                found.append(place)
        return found[::-1]


def _differences(loss: Callable[[Array], float], at: Array) -> Array:
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        for direction in _DIRECTIONS.get(at.dtype.kind, (1,)):
            coarse, fine = (_slope(loss, at, place, direction, h) for h in (_STEP, _STEP / 2))
            found[place] += direction * (4 * fine - coarse) / 3
    return found


def _slope(loss: Callable[[Array], float], at: Array, place: tuple[int, ...], direction: complex, h: float) -> float:
    sides = []
    for sign in (1, -1):
        moved = at.copy()
        moved[place] += sign * h * direction
        sides.append(loss(moved))
    return (sides[0] - sides[1]) / (2 * h)
