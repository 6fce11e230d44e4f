"""Loads of operands with non-affine indices: their blocks are copied so that joins can read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from einturnip.ir.einsum import Access, Index
from einturnip.kernels.expr.pieces import AffinePiece, pieces, splits
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import TileView, terms, view
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.take_rows import RowTakeCode, arguments, fits

BATCH_NBYTES = 64 << 10  # of rows copied at once
TAKER = RowTakeCode()


@dataclass(frozen=True)
class IndexedLoad:
    """An operand that is loaded by index.

    Shapes:
        access, shape: of the operand in the whole tensor.
        order: labels of a block's axes.
        extents: of the tile, by label.
    """

    access: Access
    shape: tuple[int, ...]
    order: tuple[int, ...]
    extents: tuple[int, ...]

    def corner(self, origins: Sequence[int]) -> list[int]:
        """Return the index of the tile's first element in the whole operand."""
        box = [(a, a + n) for a, n in zip(origins, self.extents, strict=True)]
        indexed = zip(self.access, self.shape, strict=True)
        return [box[p][0] if isinstance(p, int) else p.interval(box, n)[0] for p, n in indexed]


@dataclass(frozen=True)
class PiecewiseLoad(IndexedLoad):
    """Loads by strided copies, one for each piece of the block in which every index is affine.

    ``starts``: the block's labels, whose first points a call receives. ``cut``: labels that are divided into pieces,
    each with the axes that divide it. ``fill``: the bytes of the value to write where an index is clamped; None: the
    element at the axis' end.
    """

    starts: tuple[int, ...]
    cut: tuple[tuple[int, tuple[int, ...]], ...]
    fill: bytes | None = None
    scratch: None = None

    def __call__(self, tile: TileView, *first: int, out: Array) -> None:
        """Load the block that begins at ``first``."""
        start = dict(zip(self.starts, first, strict=True))
        size = {p: out.shape[axis] for axis, p in enumerate(self.order)}
        step = {p: out.strides[axis] for axis, p in enumerate(self.order)}
        corner, strides = self.corner(tile.origins), tile.array.strides
        ranges: list[list[AffinePiece]] = []
        for label, axes in self.cut:
            indices = [a for i in axes if isinstance(a := self.access[i], Index)]
            sizes = [self.shape[i] for i in axes]
            ranges.append(list(pieces(indices, sizes, start[label], start[label] + size[label])))
        plain = {p: AffinePiece((size[p],), start[p], (1,), (), ()) for p in self.starts}
        for chosen in product(*ranges):
            of = plain | {label: piece for (label, _), piece in zip(self.cut, chosen, strict=True)}
            source = -sum(c * s for c, s in zip(corner, strides, strict=True))
            moves = {p: [0] * len(piece.sizes) for p, piece in of.items()}
            source += self._linear(of, strides, moves) + self._cut(of, strides, moves)
            target = sum((of[p].first - start[p]) * step[p] for p in self.starts)
            shape = tuple(n for p in self.starts for n in of[p].sizes)
            to = view(out, target, shape, tuple(s * step[p] for p in self.starts for s in of[p].steps))
            if self.fill is not None and not all(piece.inside for piece in chosen):
                np.copyto(to, np.frombuffer(self.fill, out.dtype)[0])
            else:
                np.copyto(to, view(tile.array, source, shape, tuple(s for p in self.starts for s in moves[p])))

    def _linear(self, of: Mapping[int, AffinePiece], strides: Sequence[int], moves: Mapping[int, list[int]]) -> int:
        """Add the strides of the affine axes to ``moves``; return their byte offset."""
        cutting = {axis for _, axes in self.cut for axis in axes}
        begin = 0
        for axis, p in enumerate(self.access):
            if axis in cutting:
                continue
            begin += 0 if isinstance(p, int) else p.offset * strides[axis]
            for label, c in terms(p):
                begin += c * of[label].first * strides[axis]
                for digit, s in enumerate(of[label].steps):
                    moves[label][digit] += c * s * strides[axis]
        return begin

    def _cut(self, of: Mapping[int, AffinePiece], strides: Sequence[int], moves: Mapping[int, list[int]]) -> int:
        """Add the strides of the axes that divide their label to ``moves``; return their byte offset."""
        begin = 0
        for label, axes in self.cut:
            piece = of[label]
            for axis, first, steps in zip(axes, piece.firsts, piece.index_steps, strict=True):
                begin += first * strides[axis]
                for digit, s in enumerate(steps):
                    moves[label][digit] += s * strides[axis]
        return begin


@dataclass(frozen=True)
class RowLoad(IndexedLoad):
    """Loads rows by position: arrays index the first ``n_indexed`` axes, the others are loaded whole.

    The other axes are labels of their own, last in the block's order as in the operand. ``scratch``: labels of the
    indices.
    """

    n_indexed: int
    scratch: tuple[int, ...]
    starts: tuple[int, ...] = ()

    def __call__(self, tile: TileView, *arguments: Any, out: Array) -> None:
        """Load; arguments: the indices of each axis, then two arrays for positions."""
        *indices, at, scratch = arguments
        rows = self.rows(tile, indices, at, scratch, out)
        if rows.take():
            return
        if rows.dense:
            source, target = rows.runs()
            if rows.at.dtype != np.int64:  # else NumPy would allocate the conversion
                np.copyto(at, rows.at.reshape(at.shape))
                rows = replace(rows, at=at.reshape(-1))
            np.take(source, rows.at, out=target, mode="clip")
        else:
            rows.copy(range(rows.at.size))

    def rows(self, tile: TileView, indices: Sequence[Array], at: Array, scratch: Array, out: Array) -> RowCursor:
        """Return the positions of a block's rows in the operand and in the block."""
        array, rest = tile.array, self.access[self.n_indexed :]
        out = out[(*(slice(None) if p in self.scratch or p in rest else 0 for p in self.order), ...)]
        shape, strides = out.shape[out.ndim - len(rest) :], array.strides[self.n_indexed :]
        run = math.prod(shape) * array.itemsize
        whole = all(_is_dense(shape, s, array.itemsize) for s in (strides, out.strides[out.ndim - len(rest) :]))
        unit = math.gcd(run, *array.strides[: self.n_indexed]) if whole else array.itemsize
        dense = whole and out.flags.c_contiguous and unit == run
        steps, corner = [s // unit for s in array.strides[: self.n_indexed]], self.corner(tile.origins)
        places = _places(indices, corner, steps, at, scratch)
        return RowCursor(array, places.reshape(-1), unit, shape, strides, out, dense, whole)


def _places(indices: Sequence[Array], corner: Sequence[int], steps: Sequence[int], at: Array, scratch: Array) -> Array:
    """Return the sums of (index - first) * step, over the shape of ``at``.

    An index that equals them is returned itself.
    """
    index, first, step = indices[0], corner[0], steps[0]
    if len(indices) == 1 and (first, step) == (0, 1) and index.size == at.size and index.flags.c_contiguous:
        return index
    np.subtract(index, first, out=at, dtype=np.int64)
    np.multiply(at, step, out=at)
    for index, first, step in zip(indices[1:], corner[1:], steps[1:], strict=False):
        np.subtract(index, first, out=scratch, dtype=np.int64)
        np.multiply(scratch, step, out=scratch)
        np.add(at, scratch, out=at)
    return at


@dataclass(frozen=True)
class RowCursor:
    """Rows of an operand to copy to a block.

    ``at``: their positions in the tile, in units of ``unit`` bytes. ``whole``: a row is contiguous in the operand and
    in the block. ``dense``: it is one unit, and the block is contiguous. Positions outside the tile are clamped into
    it.
    """

    array: Array
    at: Array
    unit: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    out: Array
    dense: bool
    whole: bool

    def runs(self) -> tuple[Array, Array]:
        """Return tile and block as vectors of rows."""
        kind = self.array.dtype if self.unit == self.array.itemsize else np.dtype((np.void, self.unit))
        n = max(1, self._last(self.array.shape, self.array.strides) // self.unit)
        source = view(self.array, 0, (n,), (self.unit,), kind)
        return source, view(self.out, 0, (self.at.size,), (self.unit,), kind)

    def take(self) -> bool:
        """Copy all rows by machine code if available for this layout; return whether it did."""
        function = code_cache.find(TAKER)
        step = _one_step(self.out.shape, self.out.strides, len(self.shape)) if self.whole else None
        if function is None or step is None or not self.at.size or not fits(self.at):
            return False
        run = self._last(self.shape, self.strides)
        last = max(0, (self._last(self.array.shape, self.array.strides) - run) // self.unit)
        taken = arguments(self.array, self.unit, last, self.at, run, self.out, step)
        function(taken.buffer_info()[0])
        return True

    def copy(self, rows: Sequence[int] | Array) -> None:
        """Copy rows, by their numbers in the block, a few at a time and with any strides."""
        lead: Any = self.out.shape[: self.out.ndim - len(self.shape)]
        spare = self._last(self.array.shape, self.array.strides) - self._last(self.shape, self.strides)
        max_position = spare // self.unit
        source = view(self.array, 0, (max(max_position, 0) + 1, *self.shape), (self.unit, *self.strides))
        batch = max(1, BATCH_NBYTES // (math.prod(self.shape) * self.array.itemsize))
        for begin in range(0, len(rows), batch):
            some = np.asarray(rows[begin : begin + batch])
            place: Any = np.unravel_index(some, lead) if lead else ()
            at = self.at[some].astype(np.int64, copy=False)
            np.clip(at, 0, max_position, out=at)
            if batch == 1 or not lead:  # one row is copied from a view, without a temporary array
                one: Any = tuple(int(p[0]) for p in place)
                np.copyto(self.out[(*one, ...)], source[int(at[0])])
            else:
                self.out[place] = source[at]

    def _last(self, shape: Sequence[int], strides: Sequence[int]) -> int:
        """Return the bytes from the first element to the end of the last."""
        return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + self.array.itemsize


def _is_dense(shape: Sequence[int], strides: Sequence[int], item: int) -> bool:
    """Return True if the axes are contiguous."""
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and s != item:
            return False
        item *= n
    return True


def _one_step(shape: Sequence[int], strides: Sequence[int], n_last: int) -> int | None:
    """Return the bytes between rows over all axes but the last few; None if they are not evenly spaced."""
    step, count = None, 1
    lead = len(shape) - n_last
    for n, s in zip(reversed(shape[:lead]), reversed(strides[:lead]), strict=True):
        if n == 1:
            continue
        if step is None:
            step = s
        elif s != step * count:
            return None
        count *= n
    return step or 0


def non_affine_axes(access: Access) -> dict[int, tuple[int, ...]] | None:
    """Return the non-affine axes by label; None if one of them cannot be divided into pieces."""
    found: dict[int, list[int]] = {}
    for axis, p in enumerate(access):
        if not isinstance(p, int) and not p.affine:
            if len(p.terms) != 1:
                return None
            found.setdefault(p.terms[0][0], []).append(axis)
    for axes in found.values():
        if not splits([i for a in axes if isinstance(i := access[a], Index)]):
            return None
    return {label: tuple(axes) for label, axes in found.items()}
