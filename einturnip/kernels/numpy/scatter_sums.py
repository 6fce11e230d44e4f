"""Scatters that add floats, by machine code with a table of partial sums, else by NumPy.

The table is part of the workspace and is used while a block of columns is folded: Begin empties it, ScatterSums folds
one block of rows after the other, Settle adds the table's sums to the state. See ``llvm.scatter`` and ``sorted_sums``
for the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from einturnip.ir.dtypes import I64, U8, DType
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import TileView, view
from einturnip.kernels.fp_status import StatusLog, unit
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.partial_sums import FOLD, NO_TABLE, PROBE, SETTLE, TAKE, PartialSumTable
from einturnip.kernels.llvm.scatter import arguments
from einturnip.kernels.numpy.scatter import RowBlock, Scatter, Scratch, flat, follow, places
from einturnip.kernels.numpy.sorted_sums import VECTORS, Sums, WideSums

# How a block is folded: by machine code; by machine code that first probes for groups with many rows; by NumPy into the
# table; by NumPy without a table.
COMPILED, PROBED, WIDE, SORTED = range(4)
_FEW = 32  # rows of a call that need no table
_ENTRIES = 16  # minimum entries of a table
_EXCLUSIVE, _SHARED = 32, 64  # minimum rows for each entry if each group has its own, and if groups share them


@dataclass(frozen=True)
class ScatterSums(Scatter):
    """Folds a block by addition; if ``tabled``, its arguments end with the table's arrays.

    ``parts``: 2 for complex numbers, which are added as two floats each.
    """

    tabled: bool = False
    parts: int = 1

    def fold(self, block: RowBlock, rest: Iterator[Any], of: Scratch, out: TileView) -> None:
        """Fold the selected rows."""
        block = block._replace(value=block.value.reshape(len(block.rows), len(block.columns)))
        if self.parts > 1:
            self._count(block)
            block = self._as_floats(block, next(rest), of["row"].reshape(-1))
        states, rows, columns, values, _, selected, weight = block
        numbers = states[1] if len(states) == 2 else None
        vectors = tuple(of[name] for name in VECTORS)
        words: Sequence[int] = NO_TABLE
        how = COMPILED
        if self.tabled:
            table, chosen = PartialSumTable(next(rest), next(rest), next(rest)), next(rest)
            how = int(chosen[0])
            step, groups = self.grid(out, table)
            words = table.words(step, groups, PROBE if how == PROBED else FOLD)
            chosen[0] = COMPILED if how == PROBED else how
            if how == WIDE:
                rows = block.widened(of).rows
                WideSums(states[0], numbers, weight, vectors, table, step).add(rows, columns, values, selected)
                return
        if how == SORTED or not self.compiled(block, words):
            rows = block.widened(of).rows
            Sums(states[0], numbers, weight, vectors).add(rows, columns, values, selected)

    def _count(self, block: RowBlock) -> None:
        """Add the number of values to the second component of a mean's state."""
        if len(block.states) == 2:
            counted = block._replace(
                states=block.states[1:], value=np.broadcast_to(np.int64(block.weight), block.value.shape)
            )
            if not replace(self, codes=self.codes[1:], parts=1).compiled(counted):
                rows = block.rows if block.selected is None else block.rows[block.selected]
                np.add.at(block.states[1], np.add(rows.reshape(-1, 1), block.columns), block.weight)

    def _as_floats(self, block: RowBlock, pairs: Array, rows: Array) -> RowBlock:
        """Return a block of complex numbers as one of floats with twice the columns."""
        value, n = block.value, len(block.columns)
        size = value.itemsize // 2
        strides = (value.strides[0], size)
        assert n == 1 or value.strides[1] == value.itemsize
        values = view(value, 0, (len(block.rows), 2 * n), strides, np.dtype(f"f{size}"))
        np.multiply(block.rows, 2, out=rows, dtype=np.int64)
        return block._replace(
            states=[self.components(block.states[0])],
            rows=rows,
            columns=_pairs(block.columns, pairs),
            value=values,
        )

    def components(self, state: Array) -> Array:
        """Return a vector of a state as the floats that are added."""
        return state if self.parts == 1 else state.view(f"f{state.itemsize // 2}")

    def column_places(self, arguments: Sequence[Array], out: TileView) -> Array:
        """Return the places of a block's columns.

        ``arguments``: the indices of each label, two scratch arrays, for complex numbers another one.
        """
        n = len(self.columns)
        found = places(self.columns, arguments[:n], out, *arguments[n : n + 2]).reshape(-1)
        return found if self.parts == 1 else _pairs(found, arguments[n + 2])

    def grid(self, out: TileView, table: PartialSumTable) -> tuple[int, int]:
        """Return the step between neighbouring groups, and their number if each can have an entry.

        The number is 0 if there are more groups than entries, or they are not evenly spaced.
        """
        array = out.array
        long = [(array.shape[p], array.strides[p] // array.itemsize) for p in self.rows if array.shape[p] > 1]
        groups, step = math.prod(n for n, _ in long), max(1, math.gcd(*(step for _, step in long)))
        even = groups * step == step + sum((n - 1) * s for n, s in long)
        return self.parts * step, groups if even and groups <= len(table.tallies) else 0


def _pairs(columns: Array, out: Array) -> Array:
    """Return the places of the floats of complex numbers."""
    np.multiply(columns, 2, out=out[::2])
    np.add(out[::2], 1, out=out[1::2])
    return out


@dataclass(frozen=True)
class Begin:
    """Decides how a ScatterSums folds, and empties its table."""

    scatter: ScatterSums

    def __call__(self, tallies: Array, owners: Array, sums: Array, how: Array, *arguments: Any, out: TileView) -> None:
        """Start a block of columns; for the arguments see ``ScatterSums.column_places``."""
        run, table = self.scatter, PartialSumTable(tallies, owners, sums)
        _, groups = run.grid(out, table)
        tallies.fill(0)
        if all(code_cache.find(code) is not None for code in run.codes):
            how[0] = COMPILED if groups else PROBED
            if groups:
                run_on_table(run, TAKE, run.column_places(arguments, out), table, out)
        elif groups and sums.dtype == np.float32:
            how[0] = WIDE
            sums.fill(0)
        else:
            how[0] = SORTED


@dataclass(frozen=True)
class Settle:
    """Adds the sums of a ScatterSums' table to the state."""

    scatter: ScatterSums

    def __call__(self, tallies: Array, owners: Array, sums: Array, how: Array, *arguments: Any, out: TileView) -> None:
        """Add the sums; for the arguments see Begin."""
        run, table = self.scatter, PartialSumTable(tallies, owners, sums)
        if how[0] == WIDE:
            WideSums(run.components(flat(out.array)), None, 1, (), table, 1).settle(run.column_places(arguments, out))
        elif how[0] != SORTED:
            run_on_table(run, SETTLE, run.column_places(arguments, out), table, out)


def run_on_table(run: ScatterSums, action: int, columns: Array, table: PartialSumTable, out: TileView) -> None:
    """Move sums from the state to the table or back, by machine code."""
    function = code_cache.find(run.codes[0])
    assert function is not None
    state = run.components(flat(out.array))
    words = table.words(*run.grid(out, table), action)
    nothing = np.empty((0, len(columns)), state.dtype)
    call = arguments(state, columns[:0], columns, nothing, follow(run.columns, columns), None, words)
    status = unit()
    status.clear()
    function(call.buffer_info()[0])
    log = np.geterrcall()
    if isinstance(log, StatusLog):
        log.bits |= status.read()


def table_types(dtype: DType, groups: int, n_rows: int, columns: int) -> list[tuple[np.dtype[Any], int]]:
    """Return types and lengths of a table's arrays, the last for how it is used; none for few rows.

    Each group has an entry if there are many times as many rows, else the entries are a share of the number of rows.
    """
    if n_rows <= _FEW:
        return []
    entries = max(_ENTRIES, 1 << (groups - 1).bit_length())
    if entries > max(_ENTRIES, n_rows // _EXCLUSIVE):
        entries = max(_ENTRIES, 1 << max(1, n_rows // _SHARED).bit_length() - 1)
    return [(U8.numpy, entries), (I64.numpy, entries), (dtype.numpy, 2 * entries * columns), (U8.numpy, 1)]
