"""Contractions by BLAS: tiles are multiplied in place, or panel by panel through the workspace."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from einturnip.kernels.blas.cblas import MatrixOperand, MatrixProduct, product
from einturnip.kernels.blas.contraction_spec import ROLES, BoundPlan, ContractionSpec
from einturnip.kernels.expr.primitives import BF16_EDGE, Array
from einturnip.kernels.expr.window import aligned
from einturnip.kernels.fp_status import INVALID, StatusLog, recording_numpy_errors
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel, PythonCall, address_of


@dataclass(frozen=True)
class ContractionKernel(ContractionSpec, PreparableKernel):
    """A contraction of tiles of fixed extents and any strides."""

    product: MatrixProduct = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Choose the BLAS function."""
        object.__setattr__(self, "product", product(self.dtype.numpy, self.alpha))

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        operands, out = arguments.operands, arguments.outs[0]
        arrays = self.view(0, operands[self.slots[0]]), self.view(1, operands[self.slots[1]]), out
        bound, fresh = self.bind((arrays[0].strides, arrays[1].strides, out.strides)), arguments.first or self.whole
        if bound.single is None:
            workspace = arguments.workspace
            return PythonCall(
                lambda: drop_spurious_invalid(_ProductLoops(self, bound, arrays, fresh, workspace).run(), out)
            )
        cleared = fresh and min(bound.single[:2]) == 1
        left, right, made = [MatrixOperand(address_of(a), *s) for a, s in zip(arrays, bound.steps, strict=True)]
        call = self.product.prepare(*bound.single, left, right, int(cleared or not fresh), made)
        call.fallback = lambda flags: drop_spurious_invalid(flags, out)
        if self.slots[0] and call.relocations:
            call.relocations = (*call.relocations[1::-1], call.relocations[2])
        return _cleared_first(call, out) if cleared else call

    def view(self, index: int, array: Array) -> Array:
        """Return an operand with an axis a label."""
        if self.labels[index] == self.accesses[index]:
            return array
        return aligned(array, self.accesses[index], self.labels[index], self.extents)


def _cleared_first(call: KernelCall, out: Array) -> KernelCall:
    """Return the call of a product that is added to a result, changed to clear the result first."""
    multiply, nbytes = call.function, out.nbytes
    if multiply is not None and out.flags.c_contiguous:
        place = call.relocations[2]

        def clear_and_multiply(*words: Any) -> None:
            ctypes.memset(words[place], 0, nbytes)
            multiply(*words)

        call.function = clear_and_multiply
        return call

    def run() -> int:
        out.fill(0)
        return call.run()

    return PythonCall(run)


def drop_spurious_invalid(bits: int, out: Array) -> int:
    """Clear INVALID if the result has no NaN: BLAS multiplies padding at the edges, where inf * 0 occurs."""
    if not bits & INVALID:
        return bits
    with np.errstate(invalid="ignore"):
        made = np.isnan(np.minimum.reduce(out, axis=None))
    return bits if made else bits & ~INVALID


class _ProductLoops:
    """One call with more than one product: loops, and panels copied in and out."""

    def __init__(
        self,
        kernel: ContractionKernel,
        bound: BoundPlan,
        arrays: tuple[Array, Array, Array],
        fresh: bool,
        workspace: Array,
    ) -> None:
        self.kernel, self.bound, self.plan, self.fresh, self.workspace = kernel, bound, bound.plan, fresh, workspace
        self.base = workspace.__array_interface__["data"][0]
        self.addresses = [a.__array_interface__["data"][0] for a in arrays]
        self.views: list[Array] = []
        self.orders: list[tuple[int, ...]] = []
        self.loose: list[tuple[int, ...]] = []
        self.strides: list[dict[int, int]] = []
        for i, array in enumerate(arrays):
            self._prepare(i, array)
        self.packed_keys: list[tuple[int, ...] | None] = [None, None]

    def _prepare(self, index: int, array: Array) -> None:
        """Prepare a view whose last axes are those of the tensor's matrix, in the order of its panel."""
        access = self.kernel.labels[index]
        rows, columns = (self.plan.groups[g] for g in ROLES[index])
        order = (*columns, *rows) if self.bound.flipped[index] else (*rows, *columns)
        loose = tuple(p for p in access if p not in order)
        self.views.append(
            aligned(array, access, (*loose, *order), self.kernel.extents) if self.plan.packed[index] else array
        )
        self.orders.append(order)
        self.loose.append(loose)
        self.strides.append(dict(zip(access, array.strides, strict=True)))

    def run(self) -> int:
        """Run all blocks of all loops."""
        log, plan = StatusLog(), self.plan
        extents, blocks, groups = self.kernel.long, plan.blocks, plan.groups
        vector = min(math.prod(blocks[p] for p in g) for g in groups[:2]) == 1
        with recording_numpy_errors(log):
            if vector and self.fresh and not plan.packed[2]:
                self.views[2][...] = 0
            inside = [n for n, p in enumerate(plan.loops) if p in self.kernel.groups[2]]
            for starts in itertools.product(*(range(0, extents[p], blocks[p]) for p in plan.loops)):
                place = dict(zip(plan.loops, starts, strict=True))
                sizes = {p: min(blocks[p], extents[p] - place.get(p, 0)) for group in groups for p in group}
                begins = not any(starts[i] for i in inside)
                ends = all(starts[i] + blocks[plan.loops[i]] >= extents[plan.loops[i]] for i in inside)
                seen = self._turn(place, sizes, begins, ends, vector)  # its copies also report to the log
                log.bits |= seen
        return log.bits

    def _turn(self, place: Mapping[int, int], sizes: Mapping[int, int], begins: bool, ends: bool, vector: bool) -> int:
        """Run one product, copying panels in and out; return the flags of the multiplication."""
        m, n, k = (math.prod(sizes[p] for p in group) for group in self.plan.groups)
        left, right = (self._operand(i, place, sizes) for i in (0, 1))
        out, beta = self._result(place, sizes, begins, vector)
        seen = self.kernel.product.prepare(m, n, k, left, right, beta, out, self.base + self.plan.offsets[3]).run()
        if ends and self.plan.packed[2]:
            self._flush(place, sizes)
        return seen

    def _operand(self, index: int, place: Mapping[int, int], sizes: Mapping[int, int]) -> MatrixOperand:
        """Return an operand's matrix, in place or copied; an unchanged panel is used again."""
        if not self.plan.packed[index]:
            return self._in_place(index, place)
        key = tuple(place[p] for p in self.plan.loops if p in self.strides[index])
        if self.packed_keys[index] != key:
            np.copyto(self._panel(index, sizes), self._part(index, place, sizes), casting="unsafe")
            self.packed_keys[index] = key
        return self._panel_matrix(index, sizes)

    def _result(
        self, place: Mapping[int, int], sizes: Mapping[int, int], begins: bool, vector: bool
    ) -> tuple[MatrixOperand, int]:
        """Return the matrix that receives the product, and whether to add to it."""
        if not self.plan.packed[2]:
            return self._in_place(2, place), 0 if self.fresh and begins and not vector else 1
        if vector and begins:
            self._panel(2, sizes).fill(0)
        return self._panel_matrix(2, sizes), 0 if begins and not vector else 1

    def _flush(self, place: Mapping[int, int], sizes: Mapping[int, int]) -> None:
        target, panel = self._part(2, place, sizes), self._panel(2, sizes)
        if self.fresh:
            np.copyto(target, panel, casting="unsafe")
            if self.kernel.narrow_bf16:
                np.multiply(panel, BF16_EDGE, out=panel)  # raises the overflow flag of the rounding to bf16
        else:
            np.add(target, panel, out=target)

    def _in_place(self, index: int, place: Mapping[int, int]) -> MatrixOperand:
        strides = self.strides[index]
        offset = sum(start * strides[p] for p, start in place.items() if p in strides)
        return MatrixOperand(self.addresses[index] + offset, *self.bound.steps[index])

    def _part(self, index: int, place: Mapping[int, int], sizes: Mapping[int, int]) -> Array:
        """Return the part of a tile that is this product's matrix, with the panel's axes."""
        corner: list[Any] = [place.get(p, 0) for p in self.loose[index]]
        box: list[Any] = [slice(place.get(p, 0), place.get(p, 0) + sizes[p]) for p in self.orders[index]]
        return self.views[index][(*corner, *box, ...)]

    def _panel(self, index: int, sizes: Mapping[int, int]) -> Array:
        shape = tuple(sizes[p] for p in self.orders[index])
        return np.ndarray(shape, self.kernel.dtype.numpy, self.workspace, self.plan.offsets[index])

    def _panel_matrix(self, index: int, sizes: Mapping[int, int]) -> MatrixOperand:
        rows, columns = (math.prod(sizes[p] for p in self.plan.groups[g]) for g in ROLES[index])
        address = self.base + self.plan.offsets[index]
        return MatrixOperand(address, 1, rows) if self.bound.flipped[index] else MatrixOperand(address, columns, 1)


def contraction_kernel(spec: ContractionSpec) -> ContractionKernel:
    """Return the kernel of a contraction; it shares the spec's plans."""
    return ContractionKernel(**{f.name: getattr(spec, f.name) for f in fields(spec)})
