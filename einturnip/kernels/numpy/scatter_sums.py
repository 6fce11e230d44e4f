"""Scatters that add floats, by machine code with a table of partial sums, else by NumPy.

The table is part of the workspace and is used while a block of columns is folded: Begin empties it, ScatterSums folds
one block of rows after the other, Settle adds the table's sums to the state. See ``llvm.scatter`` and ``sorted_sums``
for the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.ir.dtypes import I64, U8, DType
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import TileView
from einturnip.kernels.fp_status import StatusLog, unit
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.partial_sums import FOLD, NO_TABLE, PROBE, SETTLE, TAKE, PartialSumTable
from einturnip.kernels.llvm.scatter import arguments
from einturnip.kernels.numpy.scatter import RowBlock, Scatter, Scratch, flat, follow, places
from einturnip.kernels.numpy.sorted_sums import VECTORS, Sums, WideSums

COMPILED, PROBED, WIDE, SORTED = range(4)  # machine code, also with probing; NumPy with the table, and without
_FEW = 32  # rows of a call that need no table
_ENTRIES = 16  # minimum entries of a table
_EXCLUSIVE, _SHARED = 32, 64  # minimum rows for each entry if each group has its own, and if groups share them


@dataclass(frozen=True)
class ScatterSums(Scatter):
    """Folds a block by addition; if ``tabled``, its arguments end with the table's arrays."""

    tabled: bool = False

    def fold(self, block: RowBlock, rest: Iterator[Any], of: Scratch, out: TileView) -> None:
        """Fold the selected rows."""
        states, rows, columns, value, _, counts, weight = block
        values = value.reshape(len(rows), len(columns))
        numbers = states[1] if len(states) == 2 else None
        vectors = tuple(of[name] for name in VECTORS)
        words: Sequence[int] = NO_TABLE
        how = COMPILED
        if self.tabled:
            table, chosen = PartialSumTable(next(rest), next(rest), next(rest)), next(rest)
            how = int(chosen[0])
            step, groups = grid(out, self.rows, table)
            words = table.words(step, groups, PROBE if how == PROBED else FOLD)
            chosen[0] = COMPILED if how == PROBED else how
            if how == WIDE:
                WideSums(states[0], numbers, weight, vectors, table, step).add(rows, columns, values, counts)
                return
        if how == SORTED or not self.compiled(block._replace(value=values), words):
            Sums(states[0], numbers, weight, vectors).add(rows, columns, values, counts)


@dataclass(frozen=True)
class Begin:
    """Decides how a ScatterSums folds, and empties its table."""

    scatter: ScatterSums

    def __call__(self, tallies: Array, owners: Array, sums: Array, how: Array, *arguments: Any, out: TileView) -> None:
        """Start a block of columns; the arguments end with the columns' places and two scratch arrays."""
        run, table = self.scatter, PartialSumTable(tallies, owners, sums)
        _, groups = grid(out, run.rows, table)
        *by_column, at, scratch = arguments
        tallies.fill(0)
        if all(code_cache.find(code) is not None for code in run.codes):
            how[0] = COMPILED if groups else PROBED
            if groups:
                run_on_table(run, TAKE, by_column, at, scratch, table, out)
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
        *by_column, at, scratch = arguments
        if how[0] == WIDE:
            columns = places(run.columns, by_column, out, at, scratch).reshape(-1)
            WideSums(flat(out.array), None, 1, (), table, 1).settle(columns)
        elif how[0] != SORTED:
            run_on_table(run, SETTLE, by_column, at, scratch, table, out)


def run_on_table(
    run: ScatterSums,
    action: int,
    by_column: list[Array],
    at: Array,
    scratch: Array,
    table: PartialSumTable,
    out: TileView,
) -> None:
    """Move sums from the state to the table or back, by machine code."""
    function = code_cache.find(run.codes[0])
    assert function is not None
    columns, state = places(run.columns, by_column, out, at, scratch).reshape(-1), flat(out.array)
    words = table.words(*grid(out, run.rows, table), action)
    nothing = np.empty((0, len(columns)), state.dtype)
    call = arguments(state, columns[:0], columns, nothing, follow(run.columns, columns), None, words)
    status = unit()
    status.clear()
    function(call.buffer_info()[0])
    log = np.geterrcall()
    if isinstance(log, StatusLog):
        log.bits |= status.read()


def grid(out: TileView, rows: tuple[int, ...], table: PartialSumTable) -> tuple[int, int]:
    """Return the step between neighbouring groups, and their number if each can have an entry.

    The number is 0 if there are more groups than entries, or they are not evenly spaced.
    """
    array = out.array
    long = [(array.shape[p], array.strides[p] // array.itemsize) for p in rows if array.shape[p] > 1]
    groups, step = math.prod(n for n, _ in long), max(1, math.gcd(*(step for _, step in long)))
    even = groups * step == step + sum((n - 1) * s for n, s in long)
    return step, groups if even and groups <= len(table.tallies) else 0


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
