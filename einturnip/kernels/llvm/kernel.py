"""Host kernel that calls machine code, and NumPy for tiles that the code does not support."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.einsum import Access
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import first_offset, label_strides
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.parallel_parts import divided, spans
from einturnip.kernels.protocol import CallArguments, HostKernel, KernelCall, MachineCode, address_of

Function = Callable[[int], None]
# Minimum size of a part: register tiles along a label whose points share operands, and bytes along the vector label.
# In smaller parts, operands that each part reads again would count.
_MIN_TILES, _MIN_RUN = 8, 4096


@dataclass(frozen=True)
class MachineCodeKernel(MachineCode):
    """Machine code for tiles that are contiguous along the vector label.

    ``fallback``: the NumPy kernel, for other tiles and for flags that a comparison with NaN may have raised.
    """

    spec: KernelSpec
    extents: tuple[int, ...]
    function: Function
    fallback: HostKernel

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        words, spec, n = self._words(arguments), self.spec, self.spec.n_labels
        if words is None:
            return self.fallback.prepare(arguments)
        tensors = range(2 * n + 1, len(words) - len(spec.guards), n + 1)
        call = KernelCall(self.function, words, tensors, partial(self._compared, arguments) if spec.compares else None)
        if spec.mode == "full" and n:
            call.divide = partial(self._divided, words, tensors)
        return call

    def _divided(self, words: array[int], tensors: range, max_parts: int) -> NDArray[np.int64]:
        """Return the words of at most ``max_parts`` parts."""
        n, (label, parts) = self.spec.n_labels, self._divide(max_parts)
        moved = {n + label: 1} | {at: words[at + 1 + label] for at in tensors}
        return divided(words, parts, {label: 1}, moved)

    def _divide(self, max_parts: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the output label that gives the most parts, the first of equals, and their spans."""
        divisions = [(label, spans(self.extents[label], unit, max_parts)) for label, unit in self._units()]
        return max(divisions, key=lambda division: len(division[1]), default=(0, [(0, self.extents[0])]))

    def _units(self) -> Iterator[tuple[int, int]]:
        """Yield output labels with the minimum points of a part, those that repeat the fewest reads first."""
        spec, tile, outputs = self.spec, dict(self.spec.tile), self.spec.einsum.n_out
        yield from ((label, 1) for label in range(outputs) if label not in tile)
        if spec.vector < outputs:  # walked outermost where the tile has other labels
            run = 2 * _MIN_RUN if spec.swept >= 0 else _MIN_RUN if len(tile) == 1 else 0
            yield spec.vector, max(spec.width * tile[spec.vector], run // spec.out_dtypes[0].itemsize)
        yield from ((label, _MIN_TILES * n) for label, n in tile.items() if label not in (spec.vector, spec.swept))

    def _compared(self, arguments: CallArguments, flags: int) -> int:
        """See ``without_comparisons``."""
        return without_comparisons(self.fallback, arguments, flags, self.spec.repeatable or arguments.first)

    def _words(self, arguments: CallArguments) -> array[int] | None:
        """Return the function's argument; None if an array's strides do not fit."""
        outs, operands, origins, first, _ = arguments
        spec, extents = self.spec, self.extents
        n = spec.n_labels
        found = array("q", extents[:n])
        found.extend(origins[:n])
        found.append(first if spec.mode == "accumulate" else outs[0].nbytes)
        out: Access = tuple(range(spec.einsum.n_out))
        read = [out] * len(operands) if spec.mode == "finalize" else spec.einsum.accesses
        for slot, (tensor, access) in enumerate((*zip(operands, read, strict=True), *((o, out) for o in outs))):
            steps = label_strides(access, tensor.strides)
            inner = self._along(slot)
            free = slot in spec.strided or inner < 0 or extents[inner] == 1
            if not free and steps.get(inner, tensor.itemsize) != tensor.itemsize:
                return None
            found.append(address_of(tensor) + first_offset(access, tensor.strides, extents))
            found.extend([steps.get(p, 0) for p in range(n)])
        if spec.guards:
            self._move_to_origin(found, operands, origins)
        return found

    def _move_to_origin(self, words: array[int], operands: Sequence[Array], origins: Sequence[int]) -> None:
        """Move addresses of guarded operands to the tile's first point, and append sizes of guarded axes.

        The address may be outside the array, which begins where the first index is clamped.
        """
        n, box = self.spec.n_labels, [(a, a + extent) for a, extent in zip(origins, self.extents, strict=True)]
        for slot, axis, index in self.spec.guards:
            size = self.spec.einsum.operand_shape(slot)[axis]
            begin, _ = replace(index, clamped=False).interval(box, size)
            outside = begin - index.interval(box, size)[0]
            words[2 * n + 1 + slot * (n + 1)] += outside * operands[slot].strides[axis]
            words.append(size)

    def _along(self, slot: int) -> int:
        """Return the label along which an array is loaded or stored in vectors."""
        spec = self.spec
        return spec.tile[0][0] if slot in spec.crossed else spec.vector


def without_comparisons(fallback: HostKernel, arguments: CallArguments, flags: int, repeatable: bool) -> int:
    """Return the flags of a call, without an INVALID that a comparison with NaN may have raised.

    ``repeatable``: the call may start again from the beginning.
    """
    if repeatable:  # NumPy computes the tile again and knows
        return fallback.prepare(arguments).run()
    return flags & ~INVALID if any(map(_has_nan, arguments.operands)) else flags


def _has_nan(operand: Array) -> bool:
    """Return whether a float operand contains a NaN; allocates nothing."""
    return operand.dtype.kind == "f" and bool(np.isnan(np.maximum.reduce(operand, axis=None)))
