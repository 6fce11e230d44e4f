"""Contractions by cuBLAS: the calls, and copies of the tiles that it cannot use in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

import numpy as np

from einturnip.devices.cuda.cublas import CublasProduct
from einturnip.devices.protocol import Array, DeviceKernelCall, address
from einturnip.ir.dtypes import DType, from_numpy
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Space
from einturnip.ir.scalar import OperandRef, ScalarCall, ScalarCast
from einturnip.kernels.cuda.gemm import Gemm, gemm
from einturnip.kernels.cuda.types import DeviceTile
from einturnip.kernels.expr.window import window
from einturnip.kernels.protocol import Mode

MIN_PACKED_SIZE = 32
"""Rows, columns and terms of a product below which copies take longer than they save."""


def view(array: Array) -> DeviceTile:
    """Return the strides, the alignment and the span of an array."""
    span = sum((n - 1) * abs(stride) for n, stride in zip(array.shape, array.strides, strict=True))
    return DeviceTile(array.strides, address(array) % 16 == 0, span)


def product_plan(work: DeviceKernelCall, room: int) -> Gemm | None:
    """Return a call as a product of cuBLAS; None if that is impossible.

    ``room``: bytes for copies of tiles that cannot be used in place.
    """
    space = work.space
    if not _is_product(space, work.mode) or len(work.outs) != 1:
        return None
    operands, out = [view(x) for x in work.operands], view(work.outs[0])
    plan = gemm(space, work.extents, operands, out, work.mode == "accumulate")
    if plan is None or from_numpy(work.outs[0].dtype) != plan.result:
        return None
    return plan if not _packs(plan) or (_is_worth_packing(plan) and plan.workspace_nbytes <= room) else None


def packing_nbytes(space: Space, extents: tuple[int, ...], mode: Mode) -> int:
    """Return the bytes for copies of dense tiles of these extents; 0 if there are none."""
    if not _is_product(space, mode):
        return 0
    wide = mode == "accumulate"
    dtypes = [*space.dtypes, space.state_dtypes[0] if wide else space.dtype]
    shapes = [space.operand_extents(s, extents) for s in range(len(space.accesses))] + [extents[: space.n_out]]
    tiles = [_dense(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    plan = gemm(space, extents, tiles[:-1], tiles[-1], wide)
    return plan.workspace_nbytes if plan is not None and _packs(plan) and _is_worth_packing(plan) else 0


def _is_product(space: Space, mode: Mode) -> TypeGuard[Einsum]:
    return isinstance(space, Einsum) and space.aggregation is not None and mode not in ("finalize", "combine")


def _packs(plan: Gemm) -> bool:
    return plan.left.packed or plan.right.packed or plan.out.packed


def _is_worth_packing(plan: Gemm) -> bool:
    return min(plan.m, plan.n, plan.k) >= MIN_PACKED_SIZE


def _dense(shape: Sequence[int], dtype: DType) -> DeviceTile:
    strides = [dtype.itemsize]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return DeviceTile(tuple(reversed(strides[: len(shape)])))


def packed_operands(work: DeviceKernelCall, plan: Gemm) -> list[Array | None]:
    """Return left and right as views with the labels of their copies; None where there is no copy."""
    e = work.space
    assert isinstance(e, Einsum)
    found: list[Array | None] = []
    for slot, side, labels in zip(product_sides(e), (plan.left, plan.right), plan.pack, strict=False):
        found.append(window(work.operands[slot], e.accesses[slot], labels, work.extents) if side.packed else None)
    return found


def packed_result(work: DeviceKernelCall, plan: Gemm) -> Array | None:
    """Return the result as a view with the labels of its copy; None if there is no copy."""
    e = work.space
    if not plan.out.packed:
        return None
    return window(work.outs[0], tuple(range(e.n_out)), plan.pack[2], work.extents)


def copying(target: Array, source: Array, adds: bool = False) -> DeviceKernelCall:
    """Return the call that copies elements, converted to the target's dtype, or adds them to the target."""
    labels = tuple(range(source.ndim))
    into, of = from_numpy(target.dtype), from_numpy(source.dtype)
    value = OperandRef(0, of) if into == of else ScalarCast(OperandRef(0, of), into)
    join = ScalarCall("add", (OperandRef(1, into), value), into) if adds else value
    operands = (source, target) if adds else (source,)
    dtypes = (of, into)[: len(operands)]
    space = Einsum(("",) * source.ndim, source.shape, source.ndim, (labels,) * len(operands), dtypes, join, None)
    zeros = (0,) * source.ndim
    return DeviceKernelCall(space, source.shape, "full", (target,), operands, zeros, True, np.empty(0, np.uint8))


def product_sides(einsum: Einsum) -> tuple[int, int]:
    """Return the slots of a product's left and right operand."""
    found = contraction(einsum)
    assert found is not None
    return found.left, found.right


def cublas_calls(plan: Gemm, places: Sequence[int], beta: float) -> Iterator[CublasProduct]:
    """Yield the calls of a product. ``places``: device addresses of left, right and result."""
    names = plan.product.name, plan.compute.name, plan.result.name
    for steps in _steps(plan):
        a, b, c = (x + step for x, step in zip(places, steps, strict=True))
        rows, columns, out = plan.left, plan.right, plan.out
        yield CublasProduct(
            plan.n,
            plan.m,
            plan.k,
            plan.batch,
            (b, columns.transposed, columns.leading, columns.batch_stride),
            (a, rows.transposed, rows.leading, rows.batch_stride),
            (c, out.leading, out.batch_stride),
            names,
            plan.alpha,
            beta,
        )


def _steps(plan: Gemm) -> list[tuple[int, int, int]]:
    """Return, for each cuBLAS call of a product, the byte offsets of left, right and result."""
    found = [(0, 0, 0)]
    for extent, (a, b, c) in plan.outer:
        found = [(x + i * a, y + i * b, z + i * c) for x, y, z in found for i in range(extent)]
    return found
