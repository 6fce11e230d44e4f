"""A kernel's call on one tile in parts, which threads may run in any order, at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from einturnip.kernels.expr.primitives import Array

FINER = 3


@dataclass(frozen=True, eq=False)
class KernelParts:
    """Calls of one function of machine code that together do what the kernel's call does.

    Shapes:
        words: i64 [part, word], the function's argument for each.
        arrays: of each operand, then each output, the word that its address stands in.
    ``room``: the word that takes the address of ``room_nbytes`` of the thread's own; -1 for none. ``compares``: as in
    a recipe; the tile is then to be done again by the kernel itself.
    """

    function: Callable[[int], None]
    words: NDArray[np.int64]
    arrays: Sequence[int]
    room: int
    room_nbytes: int
    compares: bool


@runtime_checkable
class Divisible(Protocol):
    """A kernel whose calls may be in parts."""

    def parts(
        self, outs: tuple[Array, ...], operands: tuple[Array, ...], origins: tuple[int, ...], most: int
    ) -> KernelParts | None:
        """The call that makes a whole tile (see HostKernel) in at most so many parts; None where it cannot be.

        In FINER times as many where a part costs next to nothing: the last ones then end nearly together.
        """


def spans(extent: int, unit: int, most: int) -> list[tuple[int, int]]:
    """(begin, end) of at most ``most`` parts of nearly one size, in whole units but for the end."""
    units = -(-extent // unit)
    count = max(1, min(most, units))
    ends = [min(extent, unit * (units * (k + 1) // count)) for k in range(count)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def repeated(words: Sequence[int] | Any, count: int) -> NDArray[np.int64]:
    """An argument as many times as there are parts."""
    return np.tile(np.array(words, np.int64), (count, 1))
