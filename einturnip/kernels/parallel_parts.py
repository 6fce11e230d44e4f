"""Divides the words of one kernel call among parts that threads may run at once and in any order."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

FINER = 3
"""Factor on the number of parts where one has next to no fixed cost, so that the last ones end nearly together."""


def spans(extent: int, unit: int, max_parts: int) -> list[tuple[int, int]]:
    """Return (begin, end) of at most ``max_parts`` parts, nearly equal in multiples of ``unit``."""
    units = -(-extent // unit)
    count = max(1, min(max_parts, units))
    ends = [min(extent, unit * (units * (k + 1) // count)) for k in range(count)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def divided(
    words: array[int], parts: Sequence[tuple[int, int]], sizes: Mapping[int, int], moved: Mapping[int, int]
) -> NDArray[np.int64]:
    """Return the words [part, word] of a call divided along a label into ``parts``, given as (begin, end).

    ``sizes``: words that hold the label's extent, and its factor there. ``moved``: words that grow with the begin, and
    their growth a step.
    """
    found = np.tile(np.array(words, np.int64), (len(parts), 1))
    begins, ends = np.array(parts, np.int64).T
    for word, factor in sizes.items():
        found[:, word] = (ends - begins) * factor
    for word, growth in moved.items():
        found[:, word] += begins * growth
    return found
