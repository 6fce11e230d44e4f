"""Combines two states of a region.

Both are corrected to the extrema and means of the two together, then one is added to the other. The law is that of
``combine_spaces`` in ``tests/reference/region.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from einturnip.core.units import whole_lines
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fp_status import StatusLog, recording_numpy_errors
from einturnip.kernels.fused.block_layout import out_shape, state_ranges
from einturnip.kernels.fused.step_einsum import broadcast_axes
from einturnip.kernels.protocol import CallArguments, HostKernel, KernelCall, Mode, PreparableKernel, PythonCall

_CHUNK_POINTS = 4096  # of a rescaled sum that are computed at once


@dataclass(slots=True)
class _Places:
    """Arrays in a workspace, by name and number."""

    arrays: dict[tuple[str, int], tuple[int, tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    nbytes: int = 0

    def reserve(self, names: Sequence[str], number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        for name in names:
            self.arrays[name, number] = self.nbytes, shape, dtype
            self.nbytes += whole_lines(math.prod(shape) * dtype.itemsize)

    def array(self, workspace: Array, name: str, number: int) -> Array:
        offset, shape, dtype = self.arrays[name, number]
        return np.ndarray(shape, dtype, workspace, offset)


class RegionCombiner(PreparableKernel):
    """The kernel that adds one state of a region to another, over a tile of fixed extents."""

    def __init__(
        self,
        region: Region,
        extents: tuple[int, ...],
        compile_step: Callable[[Einsum, tuple[int, ...], Mode], HostKernel],
    ) -> None:
        self.region, self.ranges, self.places = region, state_ranges(region), _Places()
        found = region.components(extents)
        self.components = {k: found[at.start : at.stop] for k, at in self.ranges.items()}
        self.empty = any(0 in shape for shape, _ in found)
        self.extrema, self.means = {r.of for r in region.rescales}, {s.of for s in region.shifts}
        rescaled = {r.step for r in region.rescales}
        self.kernels: dict[int, HostKernel] = {}  # of the steps that are not rescaled
        for k in region.carried if not self.empty else ():
            if k not in rescaled:
                step = region.steps[k]
                self.kernels[k] = compile_step(step.einsum, tuple([extents[p] for p in step.labels]), "combine")
        for k in sorted(self.extrema | self.means):
            names = ["upper", "lower", "after"]
            names += ["count of upper", "count of lower", "gain"] if k in self.means else []
            self.places.reserve(names, k, out_shape(region.steps[k], extents), self._wide(k))
        for n, rescale in enumerate(region.rescales):
            shape = out_shape(region.steps[rescale.of], extents)
            self.places.reserve(("factor of upper", "factor of lower"), n, shape, self._wide(rescale.of))
            self.places.reserve(("zeros of upper", "zeros of lower"), n, shape, np.dtype(np.bool_))
        chunks = [self._chunk_nbytes(k, out_shape(region.steps[k], extents)) for k in rescaled]
        own = [kernel.workspace_nbytes for kernel in self.kernels.values()]
        self.workspace_nbytes = self.places.nbytes + whole_lines(max([0, *chunks, *own]))

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        return PythonCall(lambda: self._combine(arguments))

    def _combine(self, arguments: CallArguments) -> int:
        """Add the state ``operands`` to the state ``outs`` and return the raised floating-point flags."""
        outs, operands, _, first, workspace = arguments
        if first or self.empty:
            for upper, lower in zip(outs, operands, strict=True):
                np.copyto(upper, lower)
            return 0
        log, bits, rest, moving = StatusLog(), 0, workspace[self.places.nbytes :], self.extrema | self.means
        with recording_numpy_errors(log):
            for k, at in self.ranges.items():
                total, part = outs[at.start : at.stop], operands[at.start : at.stop]
                if k in moving:
                    self._save(k, total, part, workspace)
                self._correct_squares(k, total, workspace)
                if k in self.kernels:
                    bits |= self.kernels[k](total, part, (0,) * len(self.region.steps[k].labels), False, rest)
                else:
                    self._add_rescaled(k, total, part, workspace, rest)
                if k in moving:
                    self._value(k, total, self.places.array(workspace, "after", k))
        return bits | log.bits

    def _save(self, k: int, upper: Sequence[Array], lower: Sequence[Array], workspace: Array) -> None:
        """Save the extrema or means of both states before they are combined."""
        for name, state in (("upper", upper), ("lower", lower)):
            self._value(k, state, self.places.array(workspace, name, k))
            if k in self.means:
                np.copyto(self.places.array(workspace, f"count of {name}", k), state[1], casting="unsafe")

    def _value(self, k: int, state: Sequence[Array], out: Array) -> None:
        """Compute the extremum or mean of a state; the mean of nothing is 0."""
        if k in self.extrema:
            np.copyto(out, state[0], casting="unsafe")
        else:
            np.maximum(state[1], 1, out=out, casting="unsafe")
            np.divide(state[0], out, out=out)

    def _correct_squares(self, k: int, upper: Sequence[Array], workspace: Array) -> None:
        """Add to a sum of squares what both states gain when their means become the common one."""
        for shift in (s for s in self.region.shifts if s.step == k):
            gain, after = (self.places.array(workspace, name, shift.of) for name in ("gain", "after"))
            order, index = broadcast_axes(self.region.steps[k], self.region.steps[shift.of])
            for name in ("upper", "lower"):
                np.subtract(after, self.places.array(workspace, name, shift.of), out=gain)
                np.multiply(gain, gain, out=gain)
                np.multiply(gain, self.places.array(workspace, f"count of {name}", shift.of), out=gain)
                np.multiply(gain, shift.coefficient, out=gain)
                np.add(upper[0], gain.transpose(order)[index], out=upper[0])

    def _add_rescaled(
        self, k: int, upper: Sequence[Array], lower: Sequence[Array], workspace: Array, rest: Array
    ) -> None:
        """Add sums that are relative to extrema, each scaled to the extrema of both states."""
        total, part = upper[0], lower[0]
        pairs = [
            [self._factor(n, k, name, total.shape, workspace) for name in ("upper", "lower")]
            for n, rescale in enumerate(self.region.rescales)
            if rescale.step == k
        ]
        for at, shape in _chunks(total.shape):
            scaled = np.ndarray(shape, self._wide(k), rest)
            np.copyto(scaled, part[at], casting="unsafe")
            for (factor, none), (lower_factor, lower_none) in pairs:
                _scale(total[at], factor[at], none[at])
                _scale(scaled, lower_factor[at], lower_none[at])
            np.add(total[at], scaled, out=total[at], casting="unsafe")
        for count, other in zip(upper[1:], lower[1:], strict=True):  # of a mean
            np.add(count, other, out=count)

    def _factor(self, number: int, k: int, name: str, shape: tuple[int, ...], workspace: Array) -> tuple[Array, Array]:
        """Return the factor of a state's sum for a new extremum, and where it is 0.

        The factor is 1 where the extremum is unchanged, also if it is infinite, and 0 where it was infinite.
        """
        rescale = self.region.rescales[number]
        before, after = (self.places.array(workspace, x, rescale.of) for x in (name, "after"))
        factor, none = (self.places.array(workspace, f"{x} of {name}", number) for x in ("factor", "zeros"))
        with np.errstate(all="ignore"):
            np.subtract(after, before, out=factor)
            np.multiply(factor, rescale.coefficient, out=factor)
            np.exp(factor, out=factor)
            np.isinf(before, out=none)
            np.copyto(factor, 0, where=none)
            np.equal(before, after, out=none)
            np.copyto(factor, 1, where=none)
            np.equal(factor, 0, out=none)
        order, index = broadcast_axes(self.region.steps[k], self.region.steps[rescale.of])
        wide = (np.broadcast_to(x.transpose(order)[index], shape) for x in (factor, none))
        return next(wide), next(wide)

    def _wide(self, k: int) -> np.dtype[Any]:
        return self.region.steps[k].einsum.state_dtypes[0].accumulator.numpy

    def _chunk_nbytes(self, k: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of a sum's largest chunk, which do not grow when an extent shrinks."""
        return max(_CHUNK_POINTS, math.prod(shape) // max((1, *shape))) * self._wide(k).itemsize


def _scale(total: Array, factor: Array, none: Array) -> None:
    """Multiply sums by a factor; 0 where it is 0, whatever the sum is."""
    with np.errstate(invalid="ignore"):
        np.multiply(total, factor, out=total, casting="unsafe")
    np.copyto(total, 0, where=none)


def _chunks(shape: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Yield the index and the shape of each chunk of an array, cut along its longest axis."""
    axis = max(range(len(shape)), key=shape.__getitem__, default=None)
    if axis is None:
        yield ..., ()
        return
    step = max(1, _CHUNK_POINTS * shape[axis] // math.prod(shape))
    for begin in range(0, shape[axis], step):
        end = min(begin + step, shape[axis])
        yield (*[slice(None)] * axis, slice(begin, end), ...), (*shape[:axis], end - begin, *shape[axis + 1 :])
