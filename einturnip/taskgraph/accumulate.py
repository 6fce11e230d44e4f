"""States that tiles are accumulated into: one for each tile of the output, or several where rounding adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Space
from einturnip.kernels.expr.fold import rounds_off

IN_A_ROW = 64  # tiles, or partial states, that one state takes where each is rounded
Key: TypeAlias = tuple[int, ...]


def splits_accumulation(space: Space) -> bool:
    """Whether long accumulations are split into partial states.

    Not those of matrix products: a second set of accumulators would take the memory that makes them fast, and a library
    that computes such a product at once adds just as many partial sums in a row. Regions keep one state too: that of a
    running maximum and what is scaled by it joins as a whole.
    """
    if not isinstance(space, Einsum) or space.aggregation is None or not rounds_off(space.aggregation):
        return False
    product = contraction(space)
    return product is None or not (product.m and product.n)


class Accumulators:
    """The states of a block of output tiles while its tasks are made.

    Each key has levels of states: touches go to the lowest one; when that is full, it joins the one above it and the
    next touch begins another. So a plan with few tiles has one state a key, and rounding errors grow with the logarithm
    of the number of tiles.

    ``new``: makes a state for a tile of the output; ``join``: the task that adds one state to another.
    """

    def __init__(self, split: bool, new: Callable[[Key], int], join: Callable[[Key, int, int], None]) -> None:
        self._split, self._new, self._join = split, new, join
        self._levels: dict[Key, list[tuple[int, int]]] = {}  # by key, lowest first: a state, and how much it took

    def to_touch(self, key: Key) -> int:
        """The state that the next tile of a key is accumulated into."""
        levels = self._levels.setdefault(key, [])
        self._make_room(key, levels, 0)
        state, count = levels[0]
        levels[0] = state, count + 1
        return state

    def finish(self, key: Key) -> int:
        """The state that holds all that a key's tiles came to."""
        levels = self._levels.pop(key)
        for level in range(len(levels) - 1):
            if levels[level][1]:
                self._move_up(key, levels, level)
        return levels[-1][0]

    def _make_room(self, key: Key, levels: list[tuple[int, int]], level: int) -> None:
        """See to it that a level has a state that can take one thing more."""
        if level == len(levels):
            levels.append((self._new(key), 0))
        elif self._split and levels[level][1] == IN_A_ROW:
            self._move_up(key, levels, level)
        if not levels[level][1] and levels[level][0] < 0:
            levels[level] = self._new(key), 0

    def _move_up(self, key: Key, levels: list[tuple[int, int]], level: int) -> None:
        """A state joins the one above it; another begins in its place when it is wanted."""
        self._make_room(key, levels, level + 1)
        upper, count = levels[level + 1]
        self._join(key, upper, levels[level][0])
        levels[level + 1] = upper, count + 1
        levels[level] = -1, 0
