"""One call of a kernel divided into parts that threads may run at once and in any order."""

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
    """Calls of one machine code function that together compute what one call of the kernel does.

    Shapes:
        words: i64 [part, word], the function's argument for each part.
        arrays: the word of the address of each operand, then of each output.

    ``scratch``: the word that takes the address of ``scratch_nbytes`` bytes of the thread's own scratch; -1 for none.
    ``compares``: as in a kernel spec; if a part raises INVALID, the kernel itself has to compute the tile again.
    """

    function: Callable[[int], None]
    words: NDArray[np.int64]
    arrays: Sequence[int]
    scratch: int
    scratch_nbytes: int
    compares: bool


@runtime_checkable
class Divisible(Protocol):
    """A kernel whose calls can be divided into parts."""

    def parts(
        self, outs: tuple[Array, ...], operands: tuple[Array, ...], origins: tuple[int, ...], max_parts: int
    ) -> KernelParts | None:
        """Divide the call that computes a full tile into at most ``max_parts`` parts; None if not possible.

        If a part has next to no fixed cost, there are up to FINER times as many, so that the last ones end nearly
        together.
        """


def spans(extent: int, unit: int, max_parts: int) -> list[tuple[int, int]]:
    """Return (begin, end) of at most ``max_parts`` parts, nearly equal in multiples of ``unit``."""
    units = -(-extent // unit)
    count = max(1, min(max_parts, units))
    ends = [min(extent, unit * (units * (k + 1) // count)) for k in range(count)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def repeated(words: Sequence[int] | Any, count: int) -> NDArray[np.int64]:
    """Repeat an argument for each part."""
    return np.tile(np.array(words, np.int64), (count, 1))
