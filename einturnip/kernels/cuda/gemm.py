"""Contractions as calls of cuBLAS: which operand is transposed, what is batched, and what must be copied first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.ir.contraction import ContractionRoles, contraction
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.kernels.cuda.types import DeviceTile
from einturnip.kernels.expr.window import is_affine, label_strides

# Types that cuBLAS multiplies: a sum of others (integers, bool) is a generated kernel's.
_MULTIPLIED = frozenset({"f16", "bf16", "f32", "f64", "c64", "c128"})


@dataclass(frozen=True, slots=True)
class GemmOperand:
    """One operand of a product as the library sees it. ``leading`` is in elements.

    ``transposed``: its rows, as the product means them, are the columns of what lies in memory row by row.
    ``packed``: it is not of that form, or of another type, and is first copied densely into the workspace, at byte
    ``offset``; strides of the batch are then those of the copy. For the result, the copy is written back afterwards.
    """

    transposed: bool
    leading: int
    batch_stride: int
    packed: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """``out[b] = alpha left[b] right[b] + beta out[b]`` in row-major terms, (m, k) by (k, n), for ``batch`` of them.

    ``outer`` are loops about it, a call for each point: extent, and bytes that a step moves left, right and the result
    by (none of those that are packed). ``product`` is the type of the matrices, ``compute`` that of the sums;
    ``result`` that of what is written. cuBLAS counts columns first: call it for the transposed product, right before
    left. ``pack`` gives the labels of a packed copy of left, right and the result, slowest first.
    """

    m: int
    n: int
    k: int
    batch: int
    left: GemmOperand
    right: GemmOperand
    out: GemmOperand
    product: DType
    compute: DType
    result: DType
    alpha: complex
    outer: tuple[tuple[int, tuple[int, int, int]], ...]
    pack: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    workspace_nbytes: int

    @property
    def flops(self) -> int:
        """Two a point."""
        calls = math.prod(extent for extent, _ in self.outer)
        return 2 * self.m * self.n * self.k * self.batch * calls


def gemm(
    einsum: Einsum, extents: Sequence[int], operands: Sequence[DeviceTile], out: DeviceTile, wide: bool
) -> Gemm | None:
    """How a tile of a contraction is multiplied; None where a generated kernel has to do it.

    ``wide``: the result is the accumulator, else the einsum's own type. With a beta of 1 the product is added to it.
    """
    c = contraction(einsum)
    if c is None or c.product.name not in _MULTIPLIED or not all(map(is_affine, einsum.accesses)):
        return None
    if 0 in extents or not c.m + c.n:
        return None
    left, right = (label_strides(einsum.accesses[s], operands[s].strides) for s in (c.left, c.right))
    target = dict(zip(range(einsum.n_out), out.strides, strict=True))
    groups = _groups(c, extents)
    return _Copy(einsum, c, tuple(extents), groups, left, right, target, wide).plan()


def _groups(c: ContractionRoles, extents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """m, n, k and batch, without labels of one point."""
    return tuple(tuple(p for p in group if extents[p] > 1) for group in (c.m, c.n, c.k, c.batch))


def stride_of(labels: Sequence[int], extents: Sequence[int], strides: Mapping[int, int]) -> int | None:
    """The one stride of labels that run through as one, the last fastest; None where they do not. 0 for no label."""
    for outer, inner in itertools.pairwise(labels):
        if strides.get(outer, 0) != strides.get(inner, 0) * extents[inner]:
            return None
    return strides.get(labels[-1], 0) if labels else 0


@dataclass(frozen=True)
class _Copy:
    einsum: Einsum
    c: ContractionRoles
    extents: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    left: Mapping[int, int]
    right: Mapping[int, int]
    target: Mapping[int, int]
    wide: bool

    def plan(self) -> Gemm:
        """Which matrices can be taken where they lie, and the rest."""
        c, (m, n, k, batch) = self.c, self.groups
        result = c.accumulator if self.wide else self.einsum.dtype
        sizes = self._size(m), self._size(n), self._size(k)
        of_left = self._matrix(self.left, m, k, self.einsum.dtypes[c.left], c.product)
        of_right = self._matrix(self.right, k, n, self.einsum.dtypes[c.right], c.product)
        of_out = self._matrix(self.target, m, n, result, result, written=True)
        inner, outer = self._batches(batch, (of_left, of_right, of_out))
        count, offset, made = self._size(inner), 0, []
        shapes = ((m, k, c.product), (k, n, c.product), (m, n, result))
        for found, strides, (rows, columns, dtype) in zip(
            (of_left, of_right, of_out), (self.left, self.right, self.target), shapes, strict=True
        ):
            points = self._size(rows) * self._size(columns)
            if found is None:
                made.append(GemmOperand(False, self._size(columns), points if inner else 0, True, offset))
                offset += -(-points * self._size(batch) * dtype.itemsize // 256) * 256
            else:
                step = stride_of(inner, self.extents, strides) or 0
                made.append(GemmOperand(found[0], found[1], step // dtype.itemsize, False, 0))
        moves = []
        for p in outer:
            inside = self._size(inner + tuple(q for q in outer if q > p))
            dense = [self._size(r) * self._size(cols) * d.itemsize * inside for r, cols, d in shapes]
            lies = (self.left, self.right, self.target)
            steps = [dense[i] if made[i].packed else lies[i].get(p, 0) for i in range(3)]
            moves.append((self.extents[p], (steps[0], steps[1], steps[2])))
        order = outer + inner
        alpha = 1 if c.alpha is None else complex(c.alpha.value)
        pack = (order + m + k, order + k + n, order + m + n)
        return Gemm(
            *sizes,
            count,
            made[0],
            made[1],
            made[2],
            c.product,
            c.accumulator,
            result,
            alpha,
            tuple(moves),
            pack,
            offset,
        )

    def _size(self, labels: Sequence[int]) -> int:
        return math.prod(self.extents[p] for p in labels)

    def _matrix(
        self,
        strides: Mapping[int, int],
        rows: tuple[int, ...],
        columns: tuple[int, ...],
        stored: DType,
        wanted: DType,
        written: bool = False,
    ) -> tuple[bool, int] | None:
        """(transposed, leading dimension) of a matrix that can be taken where it lies."""
        if stored != wanted or any(step < 0 for step in strides.values()):  # it would begin at its far end
            return None
        down, across = (stride_of(labels, self.extents, strides) for labels in (rows, columns))
        if down is None or across is None:
            return None
        item, n_rows, n_columns = stored.itemsize, self._size(rows), self._size(columns)
        if (not columns or across == item) and (not rows or (down % item == 0 and down >= n_columns * item)):
            return False, max(n_columns, down // item if rows else 0)
        if not written and (not rows or down == item) and across % item == 0 and across >= n_rows * item:
            return True, across // item
        return None

    def _batches(
        self, batch: tuple[int, ...], found: Sequence[tuple[bool, int] | None]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The labels that one strided batch takes, of the fastest as many as run through everywhere, and the others."""
        lies = [s for s, f in zip((self.left, self.right, self.target), found, strict=True) if f is not None]
        for start in range(len(batch)):
            inner = batch[start:]
            if all(stride_of(inner, self.extents, strides) is not None for strides in lies):
                return inner, batch[:start]
        return (), batch
