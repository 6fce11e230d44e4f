"""Contractions by BLAS: tiles are multiplied in place, or panel by panel through the workspace."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from einturnip.ir.contraction import ContractionRoles, contraction
from einturnip.ir.dtypes import BF16, DType, promote
from einturnip.ir.einsum import Access, Einsum, labels_read
from einturnip.ir.scalar import ScalarCast, walk
from einturnip.kernels.blas.cblas import MatrixOperand, MatrixProduct, product
from einturnip.kernels.blas.matrices import ContractionTensor, MatrixPlan, by_columns, plan, stride
from einturnip.kernels.blas.small_products import general_ns
from einturnip.kernels.expr.graph import number
from einturnip.kernels.expr.primitives import BF16_EDGE, Array
from einturnip.kernels.expr.window import aligned, label_strides, terms
from einturnip.kernels.fp_status import INVALID, StatusLog, recording_numpy_errors
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel, PythonCall, address_of

WORKSPACE_NBYTES = 8 << 20
# Maximum terms of an inner product by BLAS. Longer ones are summed in blocks, as other long sums are: their rounding
# errors grow with the logarithm of the length, BLAS's with the length.
MAX_TERMS = 8192
_SPARE_NBYTES = 32 << 10  # minimum workspace, for tiles that are not contiguous and need panels
_ROLES = ((0, 2), (2, 1), (0, 1))  # rows and columns of left, right and out among the groups m, n, k

StrideKey = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _BoundPlan:
    """A plan for tiles of certain strides; ``steps``: (row, column) strides of the three matrices."""

    plan: MatrixPlan
    steps: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    flipped: tuple[bool, bool, bool]  # panels stored by columns, as the tile is
    single: tuple[int, int, int] | None  # m, n, k if one product computes the whole tile


@dataclass(frozen=True)
class ContractionKernel(PreparableKernel):
    """A contraction of tiles of fixed extents and any strides.

    Shapes:
        accesses, labels: of left, right and out: the accesses of their axes, and the labels of their views.
        extents: by label; ``long`` are those of more than one point.
    """

    accesses: tuple[Access, Access, Access]
    labels: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    slots: tuple[int, int]
    itemsizes: tuple[int, int, int]
    converts: tuple[bool, bool, bool]
    groups: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    batch: tuple[int, ...]
    extents: tuple[int, ...]
    long: Mapping[int, int]
    dtype: DType
    product: MatrixProduct
    whole: bool
    flops: int
    narrow_bf16: bool
    workspace_nbytes: int = 0
    expensive: bool = False  # the general kernels are faster, because of many products or large copies
    _bounds: dict[StrideKey, _BoundPlan] = field(default_factory=dict, init=False, compare=False)

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

    @property
    def sides(self) -> tuple[int, int, int]:
        """Rows, columns and terms."""
        m, n, k = (math.prod(self.long[p] for p in group) for group in self.groups)
        return m, n, k

    @property
    def is_vector(self) -> bool:
        """Whether one side of the matrices has size 1, so that each element of the other is used once."""
        return min(self.sides[:2]) == 1

    @property
    def rounds(self) -> bool:
        """Whether it is a matrix-vector or inner product too long for BLAS's running sum."""
        return self.is_vector and self.sides[2] > MAX_TERMS

    @property
    def contiguous_plan(self) -> MatrixPlan:
        """The plan for contiguous tiles."""
        return next(iter(self._bounds.values())).plan

    def bind(self, strides: StrideKey) -> _BoundPlan:
        """Return the cached plan for tiles of these strides (bytes by axis)."""
        found = self._bounds.get(strides)
        if found is None:
            found = self._bounds[strides] = self.plan(strides, self.workspace_nbytes)
        return found

    def plan(self, strides: StrideKey, limit_nbytes: int) -> _BoundPlan:
        """Return the plan for tiles of these strides within a workspace."""
        tensors = tuple(self._tensor(i, s) for i, s in enumerate(strides))
        made = plan(
            self.groups,
            self.batch,
            self.long,
            (tensors[0], tensors[1], tensors[2]),
            self.dtype.itemsize,
            self.product.scratch,
            limit_nbytes,
        )
        steps = [[stride(made.groups[g], t.strides) for g in (t.rows, t.columns)] for t in tensors]
        flipped = [by_columns(t, made, self.long) for t in tensors]
        m, n, k = (math.prod(self.long[p] for p in group) for group in made.groups)
        alone = not made.loops and not any(made.packed) and not self.product.scratch
        return _BoundPlan(
            made,
            ((steps[0][0], steps[0][1]), (steps[1][0], steps[1][1]), (steps[2][0], steps[2][1])),
            (flipped[0], flipped[1], flipped[2]),
            (m, n, k) if alone else None,
        )

    def _tensor(self, index: int, strides: tuple[int, ...]) -> ContractionTensor:
        size = self.itemsizes[index]
        elements = {p: s // size for p, s in zip(self.labels[index], strides, strict=True) if p in self.long}
        odd = any(s % size for s in strides)
        return ContractionTensor(*_ROLES[index], elements, self.converts[index] or odd)


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
        bound: _BoundPlan,
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
        rows, columns = (self.plan.groups[g] for g in _ROLES[index])
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
        rows, columns = (math.prod(sizes[p] for p in self.plan.groups[g]) for g in _ROLES[index])
        address = self.base + self.plan.offsets[index]
        return MatrixOperand(address, 1, rows) if self.bound.flipped[index] else MatrixOperand(address, columns, 1)


def compile_contraction(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> ContractionKernel | None:
    """Compile a contraction; None if BLAS cannot compute it."""
    found = contraction(einsum)
    if found is None or not _by_blas(einsum, found) or 0 in extents:
        return None
    dtype, aggregation = found.accumulator, einsum.aggregation
    assert aggregation is not None
    alpha = 1.0 if found.alpha is None else number(found.alpha.value, found.product).item()
    result = aggregation.result if whole else dtype
    types = einsum.dtypes[found.left], einsum.dtypes[found.right], result
    out = tuple(range(einsum.n_out))
    accesses: tuple[Access, Access, Access] = (einsum.accesses[found.left], einsum.accesses[found.right], out)
    long = {p: n for p, n in enumerate(extents) if n > 1}
    kernel = ContractionKernel(
        accesses=accesses,
        labels=(_labels(accesses[0]), _labels(accesses[1]), out),
        slots=(found.left, found.right),
        itemsizes=(types[0].itemsize, types[1].itemsize, types[2].itemsize),
        converts=(types[0] != dtype, types[1] != dtype, types[2] != dtype),
        groups=(_kept(found.m, long), _kept(found.n, long), _kept(found.k, long)),
        batch=_kept(found.batch, long),
        extents=extents,
        long=long,
        dtype=dtype,
        product=product(dtype.numpy, alpha),
        whole=whole,
        flops=2 * math.prod(extents),
        narrow_bf16=result == BF16,
    )
    return _sized(kernel, types)


def _kept(labels: tuple[int, ...], long: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(p for p in labels if p in long)


def _by_blas(einsum: Einsum, found: ContractionRoles) -> bool:
    """Return True if BLAS computes exactly the program: floats, and conversions without loss."""
    if not found.accumulator.is_inexact or not found.product.is_inexact:
        return False
    if promote(found.product, found.accumulator) != found.accumulator:
        return False
    return all(promote(e.argument.dtype, e.dtype) == e.dtype for e in walk(einsum.join) if isinstance(e, ScalarCast))


def _labels(access: Access) -> tuple[int, ...]:
    """Return the labels of an operand's view: the access itself if its axes are distinct labels."""
    plain = tuple(p for p in access if isinstance(p, int))
    return plain if plain == access and len(set(plain)) == len(plain) else tuple(sorted(labels_read(access)))


def _sized(kernel: ContractionKernel, types: tuple[DType, DType, DType]) -> ContractionKernel:
    """Return the kernel with its workspace sized for contiguous tiles, and some spare for others."""
    strides, nbytes = [], 0
    for access, labels, dtype in zip(kernel.accesses, kernel.labels, types, strict=True):
        shape = [1 + sum(abs(c) * (kernel.extents[p] - 1) for p, c in terms(axis)) for axis in access]
        steps = itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=dtype.itemsize) if shape else ()
        by_label = label_strides(access, tuple(reversed(tuple(steps))))
        strides.append(tuple(by_label[p] for p in labels))
        nbytes += -(-math.prod(shape) * kernel.dtype.itemsize // 64) * 64
    key = strides[0], strides[1], strides[2]
    bound = kernel.plan(key, WORKSPACE_NBYTES)
    needed = max(bound.plan.workspace_nbytes, min(2 * nbytes + 256, _SPARE_NBYTES))
    expensive = bound.plan.cost_ns > general_ns(math.prod(kernel.extents), kernel.dtype.itemsize)
    sized = replace(kernel, workspace_nbytes=needed, expensive=expensive)
    sized.bind(key)
    return sized
