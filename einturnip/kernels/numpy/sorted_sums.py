"""Accurate sums of floats by place in NumPy.

``np.add.at`` adds one value after the other, so that a sum of n terms may be off by n roundings and an f32 stops
growing at 2**24. So sums of f32 are computed in f64 if a call's table has one for each group (WideSums). All others are
computed a few rows at a time: the rows are sorted by place, and ``np.add.reduceat`` adds each group's pairwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.llvm.partial_sums import OWNED, PartialSumTable
from einturnip.kernels.numpy.blocked import count_up

_FEW = 32  # rows that are added without sorting
CHUNK = 1024  # rows that are sorted, or values that are widened, at a time
_PLACES = ("order", "found", "starts", "groups", "places", "lengths")  # scratch vectors of i64
_VALUES = ("line", "ordered", "sums")  # of the values' type
VECTORS = (*_PLACES, *_VALUES, "same")


def vector_type(name: str, value: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of one of VECTORS, each of at most CHUNK elements."""
    return np.dtype(np.int64) if name in _PLACES else value if name in _VALUES else np.dtype(np.bool_)


@dataclass(frozen=True)
class Sums:
    """Adds values to a state by place, and their number to the state's second component, if it has one.

    Shapes:
        scratch: VECTORS, of one length.
    """

    state: Array
    numbers: Array | None
    weight: int
    scratch: tuple[Array, ...]

    def add(self, rows: Array, columns: Array, values: Array, hits: Array | None) -> None:
        """Add value (r, c) to element ``rows[r] + columns[c]``, for the rows that ``hits`` selects."""
        size = len(self.scratch[0])
        for at in range(0, len(rows), size):
            some = slice(at, at + size)
            self._sorted(rows[some], columns, values[some], None if hits is None else hits[some])

    def _sorted(self, rows: Array, columns: Array, values: Array, hits: Array | None) -> None:
        order, found, starts, groups, place, lengths, line, ordered, sums, same = (x[: len(rows)] for x in self.scratch)
        if len(rows) <= _FEW:
            self._directly(rows, columns, values, hits, place)
            return
        bits, n = len(rows).bit_length(), len(rows)
        count_up(order)
        np.left_shift(rows, bits, out=found)
        np.bitwise_or(found, order, out=found)
        if hits is not None:
            np.logical_not(hits, out=same)
            np.copyto(found, -1, where=same)
            n = int(np.count_nonzero(hits))
        if not n:
            return
        found.sort()
        found, order, starts, same = found[len(rows) - n :], order[:n], starts[:n], same[:n]
        np.bitwise_and(found, (1 << bits) - 1, out=order)
        np.right_shift(found, bits, out=found)
        # Another sort finds where each group starts: all other positions are moved behind the last.
        same[0] = False
        np.equal(found[1:], found[:-1], out=same[1:])
        count_up(starts)
        np.copyto(starts, n, where=same)
        starts.sort()
        starts = starts[: n - int(np.count_nonzero(same))]
        groups, place, lengths, sums = (x[: len(starts)] for x in (groups, place, lengths, sums))
        np.take(found, starts, out=groups, mode="clip")
        np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
        lengths[-1] = n - starts[-1]
        np.multiply(lengths, self.weight, out=lengths)
        for c in range(len(columns)):
            np.copyto(line, values[:, c])
            np.take(line, order, out=ordered[:n], mode="clip")
            np.add.reduceat(ordered[:n], starts, out=sums)
            np.add(groups, columns[c], out=place)
            np.add.at(self.state, place, sums)
            if self.numbers is not None:
                np.add.at(self.numbers, place, lengths)

    def _directly(self, rows: Array, columns: Array, values: Array, hits: Array | None, place: Array) -> None:
        if hits is not None:
            rows, values = rows[hits], values[hits]
        for c in range(len(columns)):
            np.add(rows, columns[c], out=place[: len(rows)])
            np.add.at(self.state, place[: len(rows)], values[:, c])
            if self.numbers is not None:
                np.add.at(self.numbers, place[: len(rows)], self.weight)


@dataclass(frozen=True)
class WideSums(Sums):
    """Computes sums of f32 in f64: the table has an entry for each group, with one f64 a column."""

    table: PartialSumTable
    unit: int

    def _sorted(self, rows: Array, columns: Array, values: Array, hits: Array | None) -> None:
        chosen = None if hits is None else np.flatnonzero(hits)
        if chosen is not None:
            rows = rows[chosen]
        places, entries = self.scratch[0], self.scratch[1][: len(rows)]
        wide: Array = self.scratch[2].view(np.float64)
        table, sums = self.table, self.table.wide_sums
        table.entries_of(rows, self.unit, out=entries)
        table.owners[entries] = rows
        table.tallies[entries] = OWNED
        width = min(len(columns), len(places))
        height = max(1, len(places) // width)
        for begin in range(0, len(rows), height):
            some = slice(begin, begin + height)
            for c in range(0, len(columns), width):
                # Values are selected part by part, since a copy of all of them would be large.
                part = values[some if chosen is None else chosen[some], c : c + width]
                place, value = places[: part.size].reshape(part.shape), wide[: part.size].reshape(part.shape)
                np.copyto(value, part)
                np.multiply(entries[some].reshape(-1, 1), sums.shape[1], out=place)
                np.add(place, np.arange(c, c + part.shape[1]), out=place)
                np.add.at(sums.reshape(-1), place.reshape(-1), value.reshape(-1))
                if self.numbers is not None:
                    np.add(rows[some].reshape(-1, 1), columns[c : c + width], out=place)
                    np.add.at(self.numbers, place.reshape(-1), self.weight)

    def settle(self, columns: Array) -> None:
        """Add the table's sums to the state."""
        table, sums = self.table, self.table.wide_sums
        # A quarter of CHUNK, because NumPy allocates four temporary arrays of a part.
        height = max(1, CHUNK // 4 // len(columns))
        for begin in range(0, len(table.tallies), height):
            owned = np.flatnonzero(table.tallies[begin : begin + height] & OWNED) + begin
            if len(owned):
                place = table.owners[owned].reshape(-1, 1) + columns
                total = self.state[place] + sums[owned, : len(columns)]
                self.state[place] = total
