"""The check that an index given by data is in its label's range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from einturnip.core.errors import OutOfRange
from einturnip.kernels.expr.primitives import Array


@dataclass(frozen=True)
class IndexCheck:
    """Raises an error at a value outside 0 .. size - 1 of label ``label``.

    Shapes:
        names: of the labels; order: labels of a block's axes.
        starts: labels that the value varies over, whose first points a call receives.
    """

    names: tuple[str, ...]
    label: int
    size: int
    order: tuple[int, ...]
    starts: tuple[int, ...]
    scratch: None = None

    def __call__(self, value: Array, *first: int, out: Array) -> None:
        """Check a block that begins at ``first``.

        Raises:
            OutOfRange: with the first wrong value and its point.
        """
        # As unsigned, a negative number is greater than every size that its type has, so one pass finds both kinds of
        # error.
        limit = min(self.size, 1 << (8 * value.itemsize - 1))
        if not value.size or int(np.maximum.reduce(value.view(f"u{value.itemsize}"), axis=None)) < limit:
            return
        wrong = np.logical_or(value < 0, value >= self.size)
        place = np.unravel_index(int(np.argmax(wrong)), value.shape)
        at = zip(self.starts, first, strict=True)
        point = [(self.names[p], start + int(place[self.order.index(p)])) for p, start in at]
        raise OutOfRange(int(value[place]), self.size, self.names[self.label], point)
