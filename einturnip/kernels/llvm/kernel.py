"""A kernel that runs machine code, and hands to NumPy what it was not made for."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from einturnip.ir.einsum import Access
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import first_offset, label_strides
from einturnip.kernels.fp_status import INVALID, unit
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.llvm.pack_plan import COLUMN_VECTORS
from einturnip.kernels.llvm.thread_scratch import thread_scratch
from einturnip.kernels.parallel_parts import KernelParts, repeated, spans
from einturnip.kernels.protocol import Bound, HostKernel, PreparableKernel

Function = Callable[[int], None]
# Register tiles of a part along a label whose points share what they read, and bytes of a run along the vectors: fewer,
# and what is read for each part anew counts.
_LEAST_TILES, _LEAST_RUN = 8, 4096


@dataclass(frozen=True)
class MachineCodeKernel(PreparableKernel):
    """Machine code for tiles whose vectors lie in one run; ``slow`` does the others, and what met a NaN."""

    recipe: KernelSpec
    extents: tuple[int, ...]
    function: Function
    slow: HostKernel

    @property
    def workspace_nbytes(self) -> int:
        """What the NumPy kernel would need."""
        return self.slow.workspace_nbytes

    @property
    def flops(self) -> int:
        """Scalar operations of a call."""
        return self.slow.flops

    def bound(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> Bound:
        """See Bindable."""
        arguments = self._arguments(outs, operands, origins, first)
        if arguments is None:
            return lambda: self.slow(outs, operands, origins, first, workspace)
        status, function, compares = unit(), self.function, self.recipe.compares
        address, needed = arguments.buffer_info()[0], self.recipe.room_nbytes

        def run(_held: array[int] = arguments) -> int:
            if needed:
                arguments[-1] = thread_scratch(needed)
            status.clear()
            function(address)
            bits = status.read()
            if bits & INVALID and compares:
                return self._compared(bits, outs, operands, origins, first, workspace)
            return bits

        return run

    def parts(
        self, outs: tuple[Array, ...], operands: tuple[Array, ...], origins: tuple[int, ...], most: int
    ) -> KernelParts | None:
        """See Divisible."""
        recipe, n = self.recipe, self.recipe.n_labels
        found = self._arguments(outs, operands, origins, True)
        if found is None or recipe.mode != "whole":
            return None
        arrays = [2 * n + 1 + slot * (n + 1) for slot in range(len(operands) + len(outs))]
        label, cut = self._cut(most)
        words = repeated(found, len(cut))
        begins = np.array([begin for begin, _ in cut])
        words[:, label] = [end - begin for begin, end in cut]
        words[:, n + label] += begins
        for at in arrays:
            words[:, at] += begins * words[:, at + 1 + label]
        room = len(found) - 1 if recipe.room_nbytes else -1
        return KernelParts(self.function, words, arrays, room, recipe.room_nbytes, recipe.compares)

    def _cut(self, most: int) -> tuple[int, list[tuple[int, int]]]:
        """The label of the result that parts are cut along, the first that gives most of them, and their spans."""
        cuts = [(label, spans(self.extents[label], unit, most)) for label, unit in self._units()]
        return max(cuts, key=lambda cut: len(cut[1]), default=(0, [(0, self.extents[0])]))

    def _units(self) -> Iterator[tuple[int, int]]:
        """Labels of the result, and of how many points a part is made at least: those first that read least twice."""
        recipe, tile, outputs = self.recipe, dict(self.recipe.tile), self.recipe.einsum.n_out
        yield from ((label, 1) for label in range(outputs) if label not in tile)
        if recipe.packing is not None:
            yield recipe.vector, COLUMN_VECTORS * recipe.width
        elif recipe.vector < outputs:  # walked outermost where the tile has other labels
            run = 2 * _LEAST_RUN if recipe.swept >= 0 else _LEAST_RUN if len(tile) == 1 else 0
            yield recipe.vector, max(recipe.width * tile[recipe.vector], run // recipe.out_dtypes[0].itemsize)
        yield from (
            (label, _LEAST_TILES * n) for label, n in tile.items() if label not in (recipe.vector, recipe.swept)
        )

    def _compared(
        self,
        bits: int,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> int:
        """The bits where INVALID may be a comparison with NaN, which is not ours to tell."""
        if self.recipe.repeatable or first:  # NumPy can tell, where the tile may be done again
            return self.slow(outs, operands, origins, first, workspace)
        return bits & ~INVALID if any(map(_has_nan, operands)) else bits

    def _arguments(
        self, outs: tuple[Array, ...], operands: tuple[Array, ...], origins: tuple[int, ...], first: bool
    ) -> array[int] | None:
        """The one argument of the function; None where an array is not as it expects."""
        recipe, extents = self.recipe, self.extents
        n = recipe.n_labels
        found = array("q", extents[:n])
        found.extend(origins[:n])
        found.append(first if recipe.mode == "touch" else outs[0].nbytes)
        out: Access = tuple(range(recipe.einsum.n_out))
        read = [out] * len(operands) if recipe.mode == "finish" else recipe.einsum.accesses
        for slot, (tensor, access) in enumerate((*zip(operands, read, strict=True), *((o, out) for o in outs))):
            steps = label_strides(access, tensor.strides)
            inner = self._along(slot)
            if steps.get(inner, tensor.itemsize) != tensor.itemsize and extents[inner] > 1:
                return None
            address = tensor.__array_interface__["data"][0] + first_offset(access, tensor.strides, extents)
            found.append(address)
            found.extend([steps.get(p, 0) for p in range(n)])
        if recipe.packing is not None:
            found.append(0)
        return found

    def _along(self, slot: int) -> int:
        """The label along which vectors of an operand, or past them of an output, are loaded; -1: they are gathered."""
        recipe = self.recipe
        if recipe.packing is not None and slot < len(recipe.packing.along):
            return recipe.packing.along[slot]
        return recipe.tile[0][0] if slot in recipe.crossed else recipe.vector


def _has_nan(operand: Array) -> bool:
    """Whether a float operand holds a NaN; allocates nothing."""
    return operand.dtype.kind == "f" and bool(np.isnan(np.maximum.reduce(operand, axis=None)))
