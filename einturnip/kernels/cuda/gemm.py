"""Plans contractions as cuBLAS calls: transposes, batches, outer loops, copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import ContractionRoles, Einsum, contraction
from einturnip.kernels.cuda.types import DeviceTile
from einturnip.kernels.expr.window import is_affine, label_strides

MAX_SIZE = (1 << 31) - 1  # cuBLAS counts in 32 bits
# Types that cuBLAS multiplies; generated kernels multiply the others (integers, bool).
_MULTIPLIED = frozenset({"f16", "bf16", "f32", "f64", "c64", "c128"})


@dataclass(frozen=True, slots=True)
class GemmOperand:
    """One operand of a product as cuBLAS sees it. ``leading``, ``batch_stride``: in elements.

    ``transposed``: memory holds the transpose of the matrix, row by row. ``packed``: the operand is not a strided
    matrix or has another type, so it is first copied to the workspace at byte ``offset``; ``batch_stride`` is then that
    of the copy. For a packed result, the copy is written back afterwards.
    """

    transposed: bool
    leading: int
    batch_stride: int
    packed: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """A batch of products ``out[b] = alpha left[b] right[b] + beta out[b]``, row-major.

    The sizes are (m, k) by (k, n).

    ``outer``: loops around the batch, with one call per point: extent, and the bytes by which a step advances left,
    right and result. ``product``, ``compute``, ``result``: dtypes of the matrices, the sums, and the result. ``pack``:
    labels of a packed copy of left, right and result, slowest first. cuBLAS is column-major, so call it for the
    transposed product, with right before left.
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
        """Floating-point operations: two per point."""
        calls = math.prod(extent for extent, _ in self.outer)
        return 2 * self.m * self.n * self.k * self.batch * calls


def gemm(
    einsum: Einsum, extents: Sequence[int], operands: Sequence[DeviceTile], out: DeviceTile, wide: bool
) -> Gemm | None:
    """Return the plan of a contraction's tile; None if a generated kernel has to compute it.

    ``wide``: the result has the accumulator's type, else the einsum's.
    """
    c = contraction(einsum)
    if c is None or c.product.name not in _MULTIPLIED or not all(map(is_affine, einsum.accesses)):
        return None
    if 0 in extents or not c.m + c.n:
        return None
    left, right = (label_strides(einsum.accesses[s], operands[s].strides) for s in (c.left, c.right))
    target = dict(zip(range(einsum.n_out), out.strides, strict=True))
    groups = _groups(c, extents)
    plan = _GemmPlanner(einsum, c, tuple(extents), groups, left, right, target, wide).plan()
    sizes = (plan.m, plan.n, plan.k, plan.batch, *(side.leading for side in (plan.left, plan.right, plan.out)))
    return plan if max(sizes) <= MAX_SIZE else None


def _groups(c: ContractionRoles, extents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the labels of m, n, k and batch, without labels of extent 1."""
    return tuple(tuple(p for p in group if extents[p] > 1) for group in (c.m, c.n, c.k, c.batch))


def stride_of(labels: Sequence[int], extents: Sequence[int], strides: Mapping[int, int]) -> int | None:
    """Return the stride of labels that can be merged into one, the last fastest.

    None if they cannot be merged; 0 for no label.
    """
    for outer, inner in itertools.pairwise(labels):
        if strides.get(outer, 0) != strides.get(inner, 0) * extents[inner]:
            return None
    return strides.get(labels[-1], 0) if labels else 0


@dataclass(frozen=True)
class _GemmPlanner:
    """Plans one product.

    ``left``, ``right``, ``target``: byte strides by label. ``groups``: labels of m, n, k and batch.
    """

    einsum: Einsum
    c: ContractionRoles
    extents: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    left: Mapping[int, int]
    right: Mapping[int, int]
    target: Mapping[int, int]
    wide: bool

    def plan(self) -> Gemm:
        """Determine which matrices cuBLAS can use as they are, and plan copies of the others."""
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
            strides_of = (self.left, self.right, self.target)
            steps = [dense[i] if made[i].packed else strides_of[i].get(p, 0) for i in range(3)]
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
        required: DType,
        written: bool = False,
    ) -> tuple[bool, int] | None:
        """Return (transposed, leading dimension) of a matrix that cuBLAS can use as it is; None for any other.

        ``written``: the matrix is the result, which cannot be transposed.
        """
        if stored != required or any(step < 0 for step in strides.values()):
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
        """Divide the batch labels into those of one strided batch and those of outer loops.

        The batch gets as many of the fastest labels as can be merged into one in every operand.
        """
        unpacked = [s for s, f in zip((self.left, self.right, self.target), found, strict=True) if f is not None]
        for start in range(len(batch)):
            inner = batch[start:]
            if all(stride_of(inner, self.extents, strides) is not None for strides in unpacked):
                return inner, batch[:start]
        return (), batch
