"""Positions that depend on a loop's variable: linear functions of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from einturnip.lang.expressions import SizeExpr, SizeName, SizeOp
from einturnip.lang.sizes import size_names


@dataclass(frozen=True, slots=True)
class Position:
    """The index ``(factor * variable + offset) // divisor % modulus`` into an axis.

    ``modulus`` 0 means none. Positions in the program's tensors have neither divisor nor modulus.
    """

    factor: int
    offset: int
    divisor: int = 1
    modulus: int = 0

    def at(self, value: int) -> int:
        """The index in the iteration in which the variable has this value."""
        found = (self.factor * value + self.offset) // self.divisor
        return found % self.modulus if self.modulus else found


def linear_steps(position: Position, extent: int, values: range) -> tuple[int, int]:
    """How an index changes from one iteration to the next, and for how many iterations in the same way.

    ``extent``: of the axis; an index outside of it is clamped. ``values``: those of the loop's variable, at least one.
    """
    n, at = len(values), position.factor * np.arange(values.start, values.stop, values.step) + position.offset
    at //= position.divisor
    if position.modulus:
        at %= position.modulus
    steps = np.diff(np.clip(at, 0, extent - 1))
    if not len(steps):
        return 0, n
    others = np.flatnonzero(steps != steps[0])
    return int(steps[0]), int(others[0]) + 1 if len(others) else n


Place = tuple[tuple[int, Position], ...]
"""A slice of a tensor: an index for each of these axes, in order."""


def linear(size: SizeExpr, variable: str, integer: Callable[[SizeExpr], int | None]) -> Position | None:
    """A size as a linear function of the variable; None if it is not one.

    ``integer``: the value of a size without the variable; None where it is unknown.
    """
    if variable not in size_names(size):
        value = integer(size)
        return None if value is None else Position(0, value)
    match size:
        case SizeName():
            return Position(1, 0)
        case SizeOp(op="add" | "sub" | "mul" | "neg" as op, arguments=arguments):
            parts = [linear(argument, variable, integer) for argument in arguments]
            a, b = parts[0], parts[-1]
            if a is None or b is None:
                return None
            if op == "neg":
                return Position(-a.factor, -a.offset)
            if op == "mul":
                a, b = (a, b) if a.factor else (b, a)
                return None if b.factor else Position(a.factor * b.offset, a.offset * b.offset)
            sign = 1 if op == "add" else -1
            return Position(a.factor + sign * b.factor, a.offset + sign * b.offset)
    return None


def position_text(position: Position, variable: str) -> str:
    """Format a position: ``t``, ``2 * t + 1``, ``3``; ``k`` counts iterations without a variable."""
    name = variable or "k"
    if position.factor == 0:
        return str(position.offset)
    text = {1: name, -1: f"-{name}"}.get(position.factor, f"{position.factor} * {name}")
    if position.offset:
        text = f"{text} {'+' if position.offset > 0 else '-'} {abs(position.offset)}"
    for op, number in (("//", position.divisor), ("%", position.modulus)):
        if number > 1:
            text = f"({text}) {op} {number}" if " " in text else f"{text} {op} {number}"
    return text
