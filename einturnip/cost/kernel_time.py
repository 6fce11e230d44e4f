"""Predicted seconds of one tile's kernel: the work of the chosen kernel, at a machine's rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from einturnip.cost.kernel_work import (
    KernelWork,
    contraction_work,
    multiplied_work,
    simple_work,
    work_seconds,
)
from einturnip.cost.machine import Machine
from einturnip.cost.machine_code_work import native_work
from einturnip.cost.working_set import splits_aggregation
from einturnip.ir.einsum import Einsum, contraction
from einturnip.ir.region import Region, Space
from einturnip.kernels.blas.matrices import general_ns
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import (
    blas_spec,
    compile_kernel,
    machine_code,
    planned_workspace_nbytes,
    product_code,
    product_spec,
)


def kernel_seconds(
    einsum: Space,
    extents: Sequence[int],
    machine: Machine,
    mode: Mode | None = None,
    origins: Sequence[int] | None = None,
) -> float:
    """Return the predicted seconds of one tile's kernel on one worker while all workers are busy.

    ``mode``: by default accumulate if a state is carried between tiles, else full. ``origins``: the tile's first
    points, for masks that leave out parts of it.
    """
    mode = mode or ("accumulate" if splits_aggregation(einsum, extents) else "full")
    tile = tuple(extents)
    if isinstance(einsum, Region):
        work = _region_work(einsum, tile, machine, mode, origins)
    else:
        work = _einsum_work(einsum, tile, machine, mode)
    return machine.op_latency + work_seconds(work, machine)


def numpy_seconds(einsum: Space, extents: Sequence[int], machine: Machine, mode: Mode) -> float:
    """Return the seconds of the NumPy kernel that replaces machine code, in the same workspace."""
    if isinstance(einsum, Region):
        return kernel_seconds(einsum, extents, replace(machine, compiled=False), mode)
    spec = blas_spec(einsum, tuple(extents), mode)
    if spec is not None:
        return machine.op_latency + work_seconds(contraction_work(spec), machine)
    product = product_spec(einsum, tuple(extents), mode) if not einsum.keys else None
    if product is not None and product.expensive:
        general = 1e-9 * general_ns(math.prod(extents), product.dtype.itemsize)
        return machine.op_latency + machine.turn_seconds("call") + general
    kernel = compile_kernel(einsum, tuple(extents), mode, by_blas=True)
    fallback = getattr(kernel, "fallback", kernel)
    if isinstance(fallback, BlockedKernel):
        nbytes = planned_workspace_nbytes(einsum, tuple(extents), mode, machine.compiled)
        fallback = fallback if nbytes >= fallback.workspace_nbytes else fallback.within(nbytes)
    return machine.op_latency + work_seconds(simple_work(fallback), machine)


def _region_work(
    region: Region, extents: tuple[int, ...], machine: Machine, mode: Mode, origins: Sequence[int] | None
) -> KernelWork:
    from einturnip.cost.region_work import region_work

    return region_work(region, extents, mode, machine.compiled and bool(machine_code(region, mode)), origins)


def _einsum_work(einsum: Einsum, extents: tuple[int, ...], machine: Machine, mode: Mode) -> KernelWork:
    work = _compiled_work(einsum, extents, mode) if machine.compiled and 0 not in extents else None
    if work is not None:
        return work
    spec = blas_spec(einsum, extents, mode)
    if spec is not None:
        return contraction_work(spec)
    share = math.prod(extents[key.label] / max(1, einsum.bounds[key.label]) for key in einsum.keys)
    return simple_work(compile_kernel(einsum, extents, mode), share)


def _compiled_work(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> KernelWork | None:
    """Return the work of a tile in machine code; None if there is none."""
    if contraction(einsum) is None:
        made = kernel_spec(einsum, mode)
        return None if made is None else native_work(made, extents)
    code = product_code(einsum, extents, mode)
    if isinstance(code, PackedSpec):
        product = product_spec(einsum, extents, mode)
        assert product is not None
        return multiplied_work(product, code)
    return None if code is None else native_work(code, extents)
