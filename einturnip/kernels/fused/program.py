"""The actions of a block program: kernel calls over views of operands, states and values of a region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from einturnip.ir.einsum import Access
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fused.block_layout import RunningValueOffsets
from einturnip.kernels.protocol import HostKernel


@dataclass(slots=True)
class BlockContext:
    """The arrays of one call of a region's kernel, and the current block.

    ``corners``: the first point of each operand's part. ``box``: (start, stop) of the block by label; ``cuts``: the
    same within the tile. ``states``: the block's, by step. ``fresh``: the block is the first of its range.
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
        """Return the array at an offset of the workspace."""
        return np.ndarray(shape, dtype, self.workspace, offset)


@dataclass(frozen=True, slots=True)
class StepRead:
    """An operand of a step: operand ``source`` of the region, or the value of step ``~source``.

    ``access``: over the region's labels. ``shape``: the operand's, needed for indices that are not labels.
    """

    source: int
    access: Access
    shape: tuple[int, ...]
    plain: bool

    def __call__(self, context: BlockContext) -> Array:
        """Return the block's part of the operand."""
        if self.source < 0:
            return context.values[~self.source]
        if self.plain:
            cuts = context.cuts
            return _cut(context.operands[self.source], [cuts[p] for p in self.access])  # type: ignore[index]
        corner = context.corners[self.source]
        found: list[slice] = []
        for p, size, start in zip(self.access, self.shape, corner, strict=True):
            lo, hi = context.box[p] if isinstance(p, int) else p.interval(context.box, size)
            found.append(slice(lo - start, hi - start))
        return _cut(context.operands[self.source], found)


def _cut(array: Any, cuts: Sequence[slice]) -> Array:
    """Return a slice of an array as a view, even if it is a scalar."""
    found: Array = array[(*cuts, ...)]
    return found


class Action(Protocol):
    """One action of a block program."""

    def __call__(self, context: BlockContext) -> int:
        """Run it on the current block and return the raised floating-point flags."""


@dataclass(frozen=True, slots=True)
class ComputeStep:
    """Computes a step's value into the result, over the value of step ``over``, or into the workspace."""

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

    def __call__(self, context: BlockContext) -> int:
        if self.once and not context.fresh:
            return 0
        operands, out = self.arrays(context)
        box = context.box
        bits = self.kernel((out,), operands, tuple([box[p][0] for p in self.labels]), True, context.scratch)
        context.values[self.step] = out
        return bits

    def arrays(self, context: BlockContext) -> tuple[tuple[Array, ...], Array]:
        """Return the operands and the array that receives the value."""
        operands = tuple([read(context) for read in self.reads])
        if self.result:
            return operands, context.out
        if self.over is not None:
            return operands, context.values[self.over]
        return operands, context.place(self.offset, self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class MaskedFill:
    """Overwrites a value with a number wherever a condition on labels fails.

    ``kernel`` computes where, over ``labels``; ``axes`` is the index that broadcasts that to the value.
    """

    step: int
    kernel: HostKernel
    labels: tuple[int, ...]
    shape: tuple[int, ...]
    axes: tuple[Any, ...]
    number: Array
    offset: int

    def __call__(self, context: BlockContext) -> int:
        box = context.box
        where = context.place(self.offset, self.shape, np.dtype(np.bool_))
        self.kernel((where,), (), tuple([box[p][0] for p in self.labels]), True, context.scratch)
        np.copyto(context.values[self.step], self.number, where=where[self.axes])
        return 0


@dataclass(frozen=True, slots=True)
class FoldStep:
    """Adds the block to a carried step's state, or to the state's first components."""

    step: int
    kernel: HostKernel
    reads: tuple[StepRead, ...]
    labels: tuple[int, ...]
    components: int

    def __call__(self, context: BlockContext) -> int:
        operands = tuple([read(context) for read in self.reads])
        box = context.box
        origins = tuple([box[p][0] for p in self.labels])
        states = context.states[self.step][: self.components]
        return self.kernel(states, operands, origins, False, context.scratch)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One operation of a chain; an argument is the previous result (None), a number, or a broadcast read."""

    ufunc: np.ufunc
    arguments: tuple[Array | tuple[StepRead, tuple[Any, ...]] | None, ...]


@dataclass(frozen=True, slots=True)
class OperationChain:
    """Computes a step's value by a chain of operations, each over the previous result.

    The fields are those of ``ComputeStep``; ``links`` start from ``read``.
    """

    step: int
    read: StepRead
    links: tuple[ChainLink, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    over: int | None
    result: bool

    def __call__(self, context: BlockContext) -> int:
        last = self.read(context)
        if self.result:
            out = context.out
        elif self.over is not None:
            out = context.values[self.over]
        else:
            out = context.place(self.offset, self.shape, self.dtype)
        for link in self.links:
            arguments = [
                last if a is None else a[0](context).transpose(a[1][0])[a[1][1]] if isinstance(a, tuple) else a
                for a in link.arguments
            ]
            link.ufunc(*arguments, out=out)
            last = out
        context.values[self.step] = out
        return 0


@dataclass(frozen=True, slots=True)
class TrackExtremum:
    """Saves a running maximum (minimum) before the block is folded into it."""

    step: int
    shape: tuple[int, ...]
    wide: np.dtype[Any]
    offset: int

    def __call__(self, context: BlockContext) -> int:
        np.copyto(context.place(self.offset, self.shape, self.wide), context.states[self.step][0], casting="unsafe")
        return 0


@dataclass(frozen=True, slots=True)
class RescaleSums:
    """Publishes a running maximum's new value, and rescales the sums that are relative to it.

    Steps read 0 where there is no term yet. ``sums``: step, coefficient, and the index that broadcasts the factor to
    its state.
    """

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    wide: np.dtype[Any]
    offsets: RunningValueOffsets
    nothing: Array
    sums: tuple[tuple[int, float, tuple[Any, ...]], ...]
    moves: bool

    def __call__(self, context: BlockContext) -> int:
        state = context.states[self.step][0]
        none = context.place(self.offsets.empty, self.shape, np.dtype(np.bool_))
        seen = context.place(self.offsets.published, self.shape, self.dtype)
        np.equal(state, self.nothing, out=none)
        np.copyto(seen, state)
        np.copyto(seen, 0, where=none)
        context.values[self.step] = seen
        if self.moves:  # where the old maximum was an infinity, there was no term, and the factor is exp(-inf) = 0
            old = context.place(self.offsets.old, self.shape, self.wide)
            np.subtract(old, seen, out=old)
            for step, coefficient, axes in self.sums:
                factor = context.place(self.offsets.factor, self.shape, self.wide)
                np.exp(old if coefficient == -1 else np.multiply(old, -coefficient, out=factor), out=factor)
                sums = context.states[step][0]
                np.multiply(sums, factor.transpose(axes[0])[axes[1]], out=sums)
        return 0


@dataclass(frozen=True, slots=True)
class ReloadMean:
    """Saves a running mean and its count before the block is folded into it."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: RunningValueOffsets

    def __call__(self, context: BlockContext) -> int:
        total, count = context.states[self.step]
        mean, n = (context.place(at, self.shape, self.dtype) for at in (self.offsets.old, self.offsets.terms))
        np.copyto(n, count, casting="unsafe")
        np.maximum(n, 1, out=mean)
        np.divide(total, mean, out=mean)
        return 0


@dataclass(frozen=True, slots=True)
class UpdateMean:
    """Publishes a running mean's new value, and computes the gain of a sum of squares about it.

    The gain is count (new - old)^2, with the count before the block.
    """

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: RunningValueOffsets
    points: Array

    def __call__(self, context: BlockContext) -> int:
        total, count = context.states[self.step]
        at = self.offsets
        gain, seen, n = (context.place(k, self.shape, self.dtype) for k in (at.old, at.published, at.terms))
        np.add(count, self.points, out=count)
        np.copyto(seen, count, casting="unsafe")
        np.divide(total, seen, out=seen)
        np.subtract(seen, gain, out=gain)
        np.multiply(gain, gain, out=gain)
        np.multiply(gain, n, out=gain)
        context.values[self.step] = seen
        return 0


@dataclass(frozen=True, slots=True)
class CorrectSquares:
    """Adds the gain to a sum of squares whose mean has changed; ``axes``: as in ``RescaleSums.sums``."""

    step: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: RunningValueOffsets
    coefficient: float
    axes: tuple[Any, ...]

    def __call__(self, context: BlockContext) -> int:
        gain, own = (context.place(at, self.shape, self.dtype) for at in (self.offsets.old, self.offsets.factor))
        np.multiply(gain, self.coefficient, out=own)
        sums = context.states[self.step][0]
        np.add(sums, own.transpose(self.axes[0])[self.axes[1]], out=sums)
        return 0


@dataclass(frozen=True, slots=True)
class TakeState:
    """Uses a state as its step's value, where finalizing is the identity."""

    step: int

    def __call__(self, context: BlockContext) -> int:
        context.values[self.step] = context.states[self.step][0]
        return 0


@dataclass(frozen=True, slots=True)
class FinalizeStep:
    """Computes a carried step's value from its state."""

    step: int
    kernel: HostKernel
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    result: bool

    def __call__(self, context: BlockContext) -> int:
        out = context.out if self.result else context.place(self.offset, self.shape, self.dtype)
        context.values[self.step] = out
        states = context.states[self.step]
        return self.kernel((out,), states, (0,) * len(self.shape), True, context.scratch)


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """Actions in order, and the bytes of scratch that the largest of them needs."""

    actions: tuple[Action, ...]
    scratch_nbytes: int

    def __call__(self, context: BlockContext) -> int:
        bits = 0
        for action in self.actions:
            bits |= action(context)
        return bits
