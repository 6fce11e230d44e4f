"""Positions that depend on a loop's variable: linear functions of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from einturnip.lang.expressions import SizeExpr, SizeName, SizeOp
from einturnip.lang.sizes import size_names


@dataclass(frozen=True, slots=True)
class Position:
    """The index ``factor * variable + offset`` into an axis."""

    factor: int
    offset: int

    def at(self, value: int) -> int:
        """The index in the iteration in which the variable has this value."""
        return self.factor * value + self.offset


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
    """Format a position: ``t``, ``2 * t + 1``, ``3``."""
    if position.factor == 0:
        return str(position.offset)
    text = {1: variable, -1: f"-{variable}"}.get(position.factor, f"{position.factor} * {variable}")
    if position.offset == 0:
        return text
    return f"{text} {'+' if position.offset > 0 else '-'} {abs(position.offset)}"
