"""Folds of a matrix of values along its rows or columns by NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from einturnip.core.units import whole_lines
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import view
from einturnip.kernels.fp_status import unit
from einturnip.kernels.fused.program import BlockContext, StepRead


@dataclass(frozen=True, slots=True)
class FoldMatrix:
    """Folds a matrix along an axis: sums by products with ``ones``, other folds by a ufunc.

    BLAS adds all terms of a product one after the other, so long sums are products of at most ``len(ones)`` terms each,
    and their results are added in pairs.
    """

    step: int
    read: StepRead
    shape: tuple[int, int]
    axis: int
    ufunc: np.ufunc
    ones: Array | None
    offset: int

    def __call__(self, context: BlockContext) -> int:
        state = context.states[self.step][0]
        made = context.place(self.offset, (self.shape[1 - self.axis],), state.dtype)
        matrix = self.read(context).reshape(self.shape)
        bits = 0
        if self.ones is None:
            self.ufunc.reduce(matrix, axis=self.axis, out=made)
        else:
            flags = unit()
            flags.clear()
            self._sum(context, matrix, self.ones, made)
            bits = flags.read()
        self.ufunc(state, made.reshape(state.shape), out=state)
        return bits

    def _sum(self, context: BlockContext, matrix: Array, ones: Array, out: Array) -> None:
        """Add up the rows or the columns of a matrix."""
        terms, m = len(ones), len(out)
        count, rest = divmod(matrix.shape[self.axis], terms)
        if rest or count == 1:
            last = matrix[:, -(rest or terms) :] if self.axis else matrix[-(rest or terms) :].T
            np.dot(last, ones[: last.shape[1]], out=out)
        else:
            out.fill(0)
        if count == 1 and not rest:
            return
        sums = context.place(
            self.offset + whole_lines(out.nbytes), (m, count) if self.axis else (count, 1, m), out.dtype
        )
        if self.axis:
            step = matrix.strides[1]
            np.matmul(view(matrix, 0, (m, count, terms), (matrix.strides[0], terms * step, step)), ones, out=sums)
            sums = sums.T
        else:
            np.matmul(ones[None], matrix[: count * terms].reshape(count, terms, m), out=sums)
            sums = sums[:, 0]
        while count > 1:
            half = count // 2
            np.add(sums[:half], sums[count - half : count], out=sums[:half])
            count -= half
        np.add(out, sums[0], out=out)
