"""What a region does with one block of a tile, as a list of kernel calls over views of operands, states and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from einturnip.ir.einsum import Access
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import unit
from einturnip.kernels.protocol import HostKernel


@dataclass(slots=True)
class BlockContext:
    """One call of a region's kernel, and the block that it stands on.

    ``corners``: where each operand's part starts. ``box``: (start, stop) of the block by label; ``cuts``: the same
    within the tile. ``states``: of the block, by step. ``fresh``: the block is the first of its range.
    """

    operands: tuple[Array, ...]
    corners: tuple[tuple[int, ...], ...]
    workspace: Array
    scratch: Array
    values: list[Array]
    states: list[tuple[Array, ...]]
    out: Array
    box: tuple[tuple[int, int], ...] = ()
    cuts: tuple[slice, ...] = ()
    fresh: bool = True

    def place(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A value in the workspace."""
        return np.ndarray(shape, dtype, self.workspace, offset)


@dataclass(frozen=True, slots=True)
class StepRead:
    """What a step reads: operand ``source`` of the region, or the value of step ``~source``.

    ``access`` is over the region's labels; ``shape``: the operand's, for indices that are no labels.
    """

    source: int
    access: Access
    shape: tuple[int, ...]
    plain: bool

    def __call__(self, frame: BlockContext) -> Array:
        """The part of the block."""
        if self.source < 0:
            return frame.values[~self.source]
        if self.plain:
            cuts = frame.cuts
            return _cut(frame.operands[self.source], [cuts[p] for p in self.access])  # type: ignore[index]
        corner = frame.corners[self.source]
        found: list[slice] = []
        for p, size, start in zip(self.access, self.shape, corner, strict=True):
            lo, hi = frame.box[p] if isinstance(p, int) else p.interval(frame.box, size)
            found.append(slice(lo - start, hi - start))
        return _cut(frame.operands[self.source], found)


def _cut(array: Any, cuts: Sequence[slice]) -> Array:
    """A part of an array; a view even of a scalar."""
    found: Array = array[(*cuts, ...)]
    return found


class Action(Protocol):
    """One thing that a program does."""

    def __call__(self, frame: BlockContext) -> int:
        """Do it; gives what the floating-point unit saw."""


@dataclass(frozen=True, slots=True)
class ComputeStep:
    """A step's value: over the value of step ``over``, in a place of its own, or the result itself."""

    step: int
    kernel: HostKernel
    reads: tuple[StepRead, ...]
    labels: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    over: int | None = None
    once: bool = False
    result: bool = False

    def __call__(self, frame: BlockContext) -> int:
        if self.once and not frame.fresh:
            return 0
        operands, out = self.arrays(frame)
        box = frame.box
        bits = self.kernel((out,), operands, tuple([box[p][0] for p in self.labels]), True, frame.scratch)
        frame.values[self.step] = out
        return bits

    def arrays(self, frame: BlockContext) -> tuple[tuple[Array, ...], Array]:
        """What it reads, and where its value goes."""
        operands = tuple([read(frame) for read in self.reads])
        if self.result:
            return operands, frame.out
        if self.over is not None:
            return operands, frame.values[self.over]
        return operands, frame.place(self.offset, self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class MaskedFill:
    """Writes a number over a value wherever a condition on labels fails.

    ``kernel`` gives where, over ``labels``; ``axes`` index that to go with the value.
    """

    step: int
    kernel: HostKernel
    labels: tuple[int, ...]
    shape: tuple[int, ...]
    axes: tuple[Any, ...]
    number: Array
    offset: int

    def __call__(self, frame: BlockContext) -> int:
        box = frame.box
        where = frame.place(self.offset, self.shape, np.dtype(np.bool_))
        self.kernel((where,), (), tuple([box[p][0] for p in self.labels]), True, frame.scratch)
        np.copyto(frame.values[self.step], self.number, where=where[self.axes])
        return 0


@dataclass(frozen=True, slots=True)
class FoldStep:
    """Adds the block to a carried step's state, or to the first components of it."""

    step: int
    kernel: HostKernel
    reads: tuple[StepRead, ...]
    labels: tuple[int, ...]
    components: int

    def __call__(self, frame: BlockContext) -> int:
        operands = tuple([read(frame) for read in self.reads])
        box = frame.box
        origins = tuple([box[p][0] for p in self.labels])
        states = frame.states[self.step][: self.components]
        return self.kernel(states, operands, origins, False, frame.scratch)


@dataclass(frozen=True, slots=True)
class FoldMatrix:
    """Folds a value along an axis of the matrix that it is: by a ufunc, or for sums a product with ``ones``."""

    step: int
    read: StepRead
    shape: tuple[int, int]
    axis: int
    ufunc: np.ufunc
    ones: Array | None
    offset: int

    def __call__(self, frame: BlockContext) -> int:
        state = frame.states[self.step][0]
        made = frame.place(self.offset, (self.shape[1 - self.axis],), state.dtype)
        matrix = self.read(frame).reshape(self.shape)
        bits = 0
        if self.ones is None:
            self.ufunc.reduce(matrix, axis=self.axis, out=made)
        else:
            flags = unit()
            flags.clear()
            left, right = (matrix, self.ones) if self.axis else (self.ones, matrix)
            np.dot(left, right, out=made)
            bits = flags.read()
        self.ufunc(state, made.reshape(state.shape), out=state)
        return bits


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One operation of a chain: of what the last one made (None, in ``arguments``), numbers, and reads as spread."""

    ufunc: np.ufunc
    arguments: tuple[Array | tuple[StepRead, tuple[Any, ...]] | None, ...]


@dataclass(frozen=True, slots=True)
class OperationChain:
    """A step's value as operations one after the other, each over the last one's result.

    As ``ComputeStep``; ``links`` begin with what ``read`` reads.
    """

    step: int
    read: StepRead
    links: tuple[ChainLink, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    over: int | None
    result: bool

    def __call__(self, frame: BlockContext) -> int:
        last = self.read(frame)
        if self.result:
            out = frame.out
        elif self.over is not None:
            out = frame.values[self.over]
        else:
            out = frame.place(self.offset, self.shape, self.dtype)
        for link in self.links:
            arguments = [
                last if a is None else a[0](frame).transpose(a[1][0])[a[1][1]] if isinstance(a, tuple) else a
                for a in link.arguments
            ]
            link.ufunc(*arguments, out=out)
            last = out
        frame.values[self.step] = out
        return 0


@dataclass(frozen=True, slots=True)
class TrackExtremum:
    """What a maximum (minimum) was before the block is folded."""

    step: int
    shape: tuple[int, ...]
    wide: np.dtype[Any]
    offset: int

    def __call__(self, frame: BlockContext) -> int:
        np.copyto(frame.place(self.offset, self.shape, self.wide), frame.states[self.step][0], casting="unsafe")
        return 0


@dataclass(frozen=True, slots=True)
class RescaleSums:
    """The maximum has moved: the sums so far are multiplied, and steps see it, with 0 where there is no term yet.

    ``offsets``: of what it was, where there is no term, what steps see, and the factors.

    ``sums``: step, coefficient and the axes that its state has beside those of the maximum, as an index.
    """

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    wide: np.dtype[Any]
    offsets: tuple[int, ...]
    nothing: Array
    sums: tuple[tuple[int, float, tuple[Any, ...]], ...]
    moves: bool

    def __call__(self, frame: BlockContext) -> int:
        state = frame.states[self.step][0]
        none = frame.place(self.offsets[1], self.shape, np.dtype(np.bool_))
        seen = frame.place(self.offsets[2], self.shape, self.dtype)
        np.equal(state, self.nothing, out=none)
        np.copyto(seen, state)
        np.copyto(seen, 0, where=none)
        frame.values[self.step] = seen
        if self.moves:  # from what an infinity was, which stands for no terms, the factor is exp(-inf)
            old = frame.place(self.offsets[0], self.shape, self.wide)
            np.subtract(old, seen, out=old)
            for step, coefficient, axes in self.sums:
                factor = frame.place(self.offsets[3], self.shape, self.wide)
                np.exp(old if coefficient == -1 else np.multiply(old, -coefficient, out=factor), out=factor)
                sums = frame.states[step][0]
                np.multiply(sums, factor.transpose(axes[0])[axes[1]], out=sums)
        return 0


@dataclass(frozen=True, slots=True)
class ReloadMean:
    """What a mean was before the block is folded, and of how many values."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: tuple[int, ...]

    def __call__(self, frame: BlockContext) -> int:
        total, count = frame.states[self.step]
        mean, n = (frame.place(self.offsets[i], self.shape, self.dtype) for i in (0, 4))
        np.copyto(n, count, casting="unsafe")
        np.maximum(n, 1, out=mean)
        np.divide(total, mean, out=mean)
        return 0


@dataclass(frozen=True, slots=True)
class UpdateMean:
    """A mean as it is with the block; what it was becomes how much a sum of squares about it gains."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: tuple[int, ...]
    points: Array

    def __call__(self, frame: BlockContext) -> int:
        total, count = frame.states[self.step]
        gain, seen, n = (frame.place(self.offsets[i], self.shape, self.dtype) for i in (0, 2, 4))
        np.add(count, self.points, out=count)
        np.copyto(seen, count, casting="unsafe")
        np.divide(total, seen, out=seen)
        np.subtract(seen, gain, out=gain)
        np.multiply(gain, gain, out=gain)
        np.multiply(gain, n, out=gain)
        frame.values[self.step] = seen
        return 0


@dataclass(frozen=True, slots=True)
class CorrectSquares:
    """What a sum of squares gains as its mean has moved; ``axes`` are as those of ``RescaleSums.sums``."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: tuple[int, ...]
    coefficient: float
    axes: tuple[Any, ...]

    def __call__(self, frame: BlockContext) -> int:
        gain, own = (frame.place(self.offsets[i], self.shape, self.dtype) for i in (0, 3))
        np.multiply(gain, self.coefficient, out=own)
        sums = frame.states[self.step][0]
        np.add(sums, own.transpose(self.axes[0])[self.axes[1]], out=sums)
        return 0


@dataclass(frozen=True, slots=True)
class TakeState:
    """A state that is its value already."""

    step: int

    def __call__(self, frame: BlockContext) -> int:
        frame.values[self.step] = frame.states[self.step][0]
        return 0


@dataclass(frozen=True, slots=True)
class FinalizeStep:
    """A carried step's value from its state."""

    step: int
    kernel: HostKernel
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    result: bool

    def __call__(self, frame: BlockContext) -> int:
        out = frame.out if self.result else frame.place(self.offset, self.shape, self.dtype)
        frame.values[self.step] = out
        states = frame.states[self.step]
        return self.kernel((out,), states, (0,) * len(self.shape), True, frame.scratch)


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """Actions in order, and the bytes of scratch that the largest needs."""

    actions: tuple[Action, ...]
    scratch_nbytes: int

    def __call__(self, frame: BlockContext) -> int:
        bits = 0
        for action in self.actions:
            bits |= action(frame)
        return bits
