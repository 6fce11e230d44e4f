"""The extended einsum: one join expression over labelled operands, aggregated over the labels the output lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from einturnip.core.algebra import Aggregation
from einturnip.core.dtypes import DType
from einturnip.core.scalar import Scalar


@dataclass(frozen=True)
class Einsum:
    """``out[labels[:n_out]] = agg[labels[n_out:]] join(operands...)``.

    Labels are known by their position in ``labels``: the output's first, in the order of its axes, then the aggregated
    ones in the order the program binds them (argmax's flat index counts in that order).

    Shapes:
        bounds: size of each label's range, from 0.
        accesses: for each operand, the label position that indexes each of its axes; a repeat takes a diagonal.
        dtypes: for each operand, its element type.
        join: typed scalar expression; its dtype is the aggregation's ``value`` (or the output's, with no aggregation).
        aggregation: None exactly where no label is aggregated *and* none was asked for.
    """

    labels: tuple[str, ...]
    bounds: tuple[int, ...]
    n_out: int
    accesses: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    join: Scalar
    aggregation: Aggregation | None

    @property
    def dtype(self) -> DType:
        """Element type of the output."""
        return self.join.dtype if self.aggregation is None else self.aggregation.result

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return self.bounds[: self.n_out]

    @property
    def aggregated(self) -> range:
        """Positions of the aggregated labels."""
        return range(self.n_out, len(self.labels))

    @property
    def state_dtypes(self) -> tuple[DType, ...]:
        """Element types of the accumulator's components; the output's own where nothing is aggregated."""
        return (self.dtype,) if self.aggregation is None else self.aggregation.state

    @cached_property
    def points(self) -> int:
        """Number of points of the label space, that is of join evaluations."""
        return math.prod(self.bounds)

    def operand_shape(self, slot: int) -> tuple[int, ...]:
        """Shape of operand ``slot`` as the labels imply it."""
        return tuple(self.bounds[p] for p in self.accesses[slot])
