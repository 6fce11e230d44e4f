"""Scatters: blocks of values folded into a state at positions given by data.

A block is rows by columns: rows are points of the labels that the keys' values vary over, columns those of the others.
Machine code folds it if available, else NumPy: sums of floats after a sort by place, all else by ``ufunc.at``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.fold import FOLDS
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import TileView, view
from einturnip.kernels.fp_status import StatusLog, unit
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.partial_sums import NO_TABLE, ScatterCode
from einturnip.kernels.llvm.scatter import arguments, fits, scatterer
from einturnip.kernels.numpy.sorted_sums import VECTORS, Sums

_HITS = 1024  # rows whose hits are computed at once
_AT_FIRST = np.zeros(1, np.int64)
_NO_INDEX = np.uint64(2**64 - 1)  # no index: -1, which is greater than all others as unsigned
_COMPARING = frozenset({"max", "min"})  # the processor flags a NaN there as invalid, NumPy does not
_FOLDS: dict[str, np.ufunc] = {**FOLDS, "or": np.maximum, "and": np.minimum}


class RowBlock(NamedTuple):
    """One block of values to fold into a state.

    Element (r, c) of ``value`` is folded into element ``rows[r] + columns[c]`` of each of the ``states``. ``indices``:
    flat indices of the values, for argmax. ``selected``: the mask of rows to fold, None for all. ``weight``: the number
    of values that each value is the sum of.
    """

    states: list[Array]
    rows: Array
    columns: Array
    value: Array
    indices: Array | None
    selected: Array | None
    weight: int

    def widened(self, of: Scratch) -> RowBlock:
        """Return the block with rows as i64, in scratch, so that NumPy computes places without overflow."""
        if self.rows.dtype == np.int64:
            return self
        rows = of["rows"].reshape(-1)
        np.copyto(rows, self.rows)
        return self._replace(rows=rows)


@dataclass(frozen=True)
class Scatter:
    """Folds a block into the tiles of a state's components.

    ``rows`` and ``columns``: the output's labels that determine the place of a row, and of a column. ``masked``: a mask
    selects rows. ``indexed``: flat indices are given, for argmax. ``scratch``: names of arrays. ``codes``: the machine
    code for each component of the state, if there can be any. ``loose``: the number of labels each value is already a
    sum over.
    """

    op: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    states: int
    masked: bool
    indexed: bool
    scratch: tuple[str, ...]
    codes: tuple[ScatterCode, ...] = ()
    loose: int = 0

    def __call__(self, value: Array, *arguments: Any, out: TileView) -> None:
        """Fold a block.

        Arguments after the values: places of ``rows`` and ``columns``, mask, flat indices, the state's other
        components, sizes of the loose labels, scratch, and the arguments of ``fold``.
        """
        rest = iter(arguments)
        by_row, by_column = [next(rest) for _ in self.rows], [next(rest) for _ in self.columns]
        mask = next(rest) if self.masked else None
        index = next(rest) if self.indexed else None
        tiles = [out, *(next(rest) for _ in range(self.states - 1))]
        weight = math.prod(next(rest) for _ in range(self.loose))
        of = {name: next(rest) for name in self.scratch}
        rows = places(self.rows, by_row, out, of["rows"], of["row"]).reshape(-1)
        columns = places(self.columns, by_column, out, of["columns"], of["column"]).reshape(-1)
        states = [flat(tile.array) for tile in tiles]
        if mask is not None:
            np.copyto(of["mask"], mask)
        selected = None if mask is None else of["mask"].reshape(-1)
        self.fold(RowBlock(states, rows, columns, value, index, selected, weight), rest, of, out)

    def fold(self, block: RowBlock, rest: Iterator[Any], of: Scratch, out: TileView) -> None:
        """Fold the selected rows."""
        if not self.codes:
            self._at_once(block.widened(of), of)
            return
        block = block._replace(value=block.value.reshape(block.rows.size, block.columns.size))
        if not self.compiled(block):
            self._in_pieces(block.widened(of), of)

    def compiled(self, block: RowBlock, table: Sequence[int] = NO_TABLE) -> bool:
        """Fold by machine code without the interpreter lock, if it is loaded; return whether it did."""
        states, rows, columns, values, _, selected, weight = block
        functions = [f for f in map(code_cache.find, self.codes[: len(states)]) if f is not None]
        if len(functions) < len(states) or not values.size or not (fits(rows) and fits(columns)):
            return False
        adjacent = follow(self.columns, columns)
        dense = adjacent and values.strides[1] == values.itemsize
        calls = [arguments(states[0], rows, columns, values, dense, selected, table)]
        if len(states) == 2:
            ones = np.broadcast_to(_ones(len(columns) if adjacent else 1, weight), values.shape)
            calls.append(arguments(states[1], rows, columns, ones, adjacent, selected))
        status = unit()
        status.clear()
        for function, call in zip(functions, calls, strict=True):
            function(call.buffer_info()[0])
        log = np.geterrcall()
        if self.op not in _COMPARING and isinstance(log, StatusLog):
            log.bits |= status.read()
        return True

    def _in_pieces(self, block: RowBlock, of: Scratch) -> None:
        """Fold by NumPy, as many values at a time as the scratch holds."""
        states, rows, columns, values, _, selected, weight = block
        place_buffer, value_buffer = of["place"].reshape(-1), of["values"].reshape(-1)
        width = min(len(columns), place_buffer.size)
        height = min(max(1, place_buffer.size // max(1, width)), _HITS)
        for at in range(0, len(rows), height):
            some = slice(at, at + height)
            hits = None if selected is None else np.flatnonzero(selected[some])
            for begin in range(0, len(columns), width):
                some_columns = columns[begin : begin + width]
                of_rows, part = rows[some], values[some, begin : begin + width]
                if hits is not None:
                    of_rows, part = of_rows[hits], part[hits]
                shape = len(of_rows), len(some_columns)
                n = len(of_rows) * len(some_columns)
                np.add(of_rows.reshape(-1, 1), some_columns, out=place_buffer[:n].reshape(shape))
                np.copyto(value_buffer[:n].reshape(shape), part)
                _fold(self.op, states, place_buffer[:n], value_buffer[:n], None, weight, of)

    def _at_once(self, block: RowBlock, of: Scratch) -> None:
        """Fold by NumPy a block whose places all fit the scratch."""
        states, rows, columns, value, index, selected, weight = block
        shape = len(rows), len(columns)
        at_row, at_column = rows.reshape(-1, 1), columns.reshape(1, -1)
        values = _dense(value, of["values"]).reshape(shape)
        indices = None if index is None else _dense(index, of["indices"]).reshape(shape)
        fold = _STATE_FOLDS.get(self.op, _fold)
        if selected is None:
            alone = at_column.size == 1 and not self.columns  # the one column begins where its row does
            place = at_row if alone else np.add(at_row, at_column, out=of["place"].reshape(shape))
            fold(self.op, states, place.reshape(-1), values.reshape(-1), indices, weight, of)
            return
        for start in range(0, shape[0], _HITS):
            hits = np.flatnonzero(selected[start : start + _HITS])
            n = len(hits) * shape[1]
            if n:
                hits += start
                place = of["place"].reshape(-1)[:n]
                np.add(at_row[hits], at_column, out=place.reshape(-1, shape[1]))
                taken = _take_rows(values, hits, of["taken"])
                argued = None if indices is None else _take_rows(indices, hits, of["argued"])
                fold(self.op, states, place, taken, argued, weight, of)


@lru_cache(maxsize=4)
def _ones(n: int, weight: int) -> Array:
    """Return the selected that the values of a row add."""
    return np.full(n, weight, np.int64)


def follow(labels: Sequence[int], columns: Array) -> bool:
    """Return whether columns are adjacent."""
    return len(labels) <= 1 and bool(columns[-1] - columns[0] == len(columns) - 1)


def flat(array: Array) -> Array:
    """Return the memory from an array's first element to its last as one vector."""
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    return view(array, 0, (last + 1,), (array.itemsize,))


def places(labels: Sequence[int], indices: Sequence[Array], out: TileView, at: Array, scratch: Array) -> Array:
    """Return elements from the tile's first one, for indices over the whole tensor; ``at`` is scratch.

    They are i64, or an index that equals them.
    """
    if not labels:
        at.fill(0)
    if len(labels) == 1 and not out.origins[labels[0]] and out.array.strides[labels[0]] == out.array.itemsize:
        index = indices[0]
        if index.size == at.size and index.flags.c_contiguous:
            return index
    for number, (label, index) in enumerate(zip(labels, indices, strict=True)):
        own, step = scratch if number else at, out.array.strides[label] // out.array.itemsize
        np.subtract(index, out.origins[label], out=own, dtype=np.int64)
        if step != 1:
            np.multiply(own, step, out=own)
        if number:
            np.add(at, own, out=at)
    return at


def _dense(array: Array, scratch: Array) -> Array:
    """Return the array itself if it is contiguous and of the scratch's size, else a copy."""
    if array.size == scratch.size and array.flags.c_contiguous:
        return array
    np.copyto(scratch, array)
    return scratch


def _take_rows(array: Array, rows: Array, scratch: Array) -> Array:
    """Return rows of a matrix as a vector."""
    n = len(rows) * array.shape[1]
    out = scratch.reshape(-1)[:n]
    np.take(array, rows, axis=0, out=out.reshape(-1, array.shape[1]), mode="clip")
    return out


Scratch = Mapping[str, Array]


def _fold(
    op: str, states: list[Array], place: Array, value: Array, index: Array | None, weight: int, of: Scratch
) -> None:
    state = states[0]
    if state.dtype == np.bool_:  # no fast loop of its own
        state, value = state.view(np.uint8), value.view(np.uint8)
    _FOLDS[op].at(state, place, value)
    if len(states) == 2:
        np.add.at(states[1], place, weight)


def _fold_logsumexp(
    op: str, states: list[Array], place: Array, value: Array, index: Array | None, weight: int, of: Scratch
) -> None:
    """Fold into (max, sum of exp(x - max)): existing sums are scaled to the new maximum."""
    (top, total), n = states, len(place)
    old, new = (of[name].reshape(-1)[:n] for name in ("old", "new"))
    limit = np.finfo(top.dtype).max
    np.take(top, place, out=old, mode="clip")
    np.maximum.at(top, place, value)
    np.take(top, place, out=new, mode="clip")
    for x in (old, new):  # no inf - inf; differences of a quarter cannot overflow
        np.clip(x, -limit / 4, limit / 4, out=x)
    np.subtract(old, new, out=old)
    np.exp(old, out=old)
    np.take(total, place, out=new, mode="clip")
    np.multiply(new, old, out=new)
    total[place] = new  # several values at one place all write the same number
    np.take(top, place, out=new, mode="clip")
    np.clip(new, -limit, limit, out=new)
    np.subtract(value, new, out=new)
    np.exp(new, out=new)
    vectors = tuple(of[name] for name in VECTORS)
    Sums(total, None, 1, vectors).add(place, _AT_FIRST, new.reshape(-1, 1), None)


def _fold_index(
    op: str, states: list[Array], place: Array, value: Array, index: Array | None, weight: int, of: Scratch
) -> None:
    """Fold into the best value and its smallest flat index: a better value replaces the index."""
    assert index is not None
    index = index.reshape(-1).view(np.uint64)
    (best, where), n = states, len(place)
    old, new, test = (of[name].reshape(-1)[:n] for name in ("old", "new", "test"))
    least = of["least"].reshape(-1)[:n].view(np.uint64)
    nearest = where.view(np.uint64)
    np.take(best, place, out=old, mode="clip")
    (np.maximum if op == "first_max" else np.minimum).at(best, place, value)
    np.take(best, place, out=new, mode="clip")
    np.take(nearest, place, out=least, mode="clip")
    _differ(old, new, of, out=test)
    np.copyto(least, _NO_INDEX, where=test)
    nearest[place] = least
    _differ(value, new, of, out=test)
    np.copyto(least, index)
    np.copyto(least, _NO_INDEX, where=test)
    np.minimum.at(nearest, place, least)


def _differ(x: Array, y: Array, of: Scratch, *, out: Array) -> None:
    """Write where two values differ; NaN equals NaN."""
    other = of["other"].reshape(-1)[: len(x)]
    np.equal(x, x, out=out)
    np.equal(y, y, out=other)
    np.logical_or(out, other, out=other)
    np.not_equal(x, y, out=out)
    np.logical_and(out, other, out=out)


Fold = Callable[[str, list[Array], Array, Array, "Array | None", int, Scratch], None]
_STATE_FOLDS: dict[str, Fold] = {"log_add": _fold_logsumexp, "first_max": _fold_index, "first_min": _fold_index}


def scratch_names(op: str, sums: bool, masked: bool, indexed: bool, pieces: bool) -> tuple[str, ...]:
    """Return the names of a Scatter's scratch arrays.

    ROWS are over the rows' labels; "columns" and "column" over the columns'; VECTORS are vectors; all others are over
    both. ``sums``: it adds floats. ``pieces``: it folds part of a block at a time.
    """
    names = ["rows", "row", "columns", "column", *(["mask"] if masked else [])]
    if sums:
        return (*names, *VECTORS)
    names += ["place", "values"]
    names += ["taken"] if masked and not pieces else []
    names += ["old", "new"] if op in _STATE_FOLDS else []
    names += ["indices", "least", "test", "other"] if indexed else []
    names += VECTORS if op in _STATE_FOLDS and not indexed else []
    return (*names, "argued") if masked and indexed else tuple(names)


ROWS = frozenset({"rows", "row", "mask"})
BOOLEAN = frozenset({"mask", "test", "other"})
VALUED = frozenset({"values", "taken", "old", "new"})


def scatter_codes(op: str, dtypes: Sequence[DType]) -> tuple[ScatterCode, ...]:
    """Return the machine code of a state's components, for a mean sum and count; () if NumPy folds it."""
    first = scatterer(op, dtypes[0])
    if first is None or len(dtypes) > 1 + (op == "add"):
        return ()
    return first, *(ScatterCode("add", d) for d in dtypes[1:])
