"""Work of a fused region's kernel: its blocks, without those that a mask leaves out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from einturnip.cost.kernel_work import ArrayPass, KernelWork, ProductWork, multiplied_work, shapes_of, simple_work
from einturnip.cost.machine_code_work import fused_row_work
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import region_product
from einturnip.kernels.fused.program import (
    Action,
    BlockProgram,
    ComputeStep,
    FinalizeStep,
    FoldStep,
    MaskedFill,
    OperationChain,
    RescaleSums,
    TrackExtremum,
)
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.row_function import RowFunctionCall
from einturnip.kernels.fused.row_kernel import RowsKernel
from einturnip.kernels.mask import ConditionValues
from einturnip.kernels.select import HostKernel
from einturnip.tuning.search import RESCALED_PASSES


def kernel_work(kernel: HostKernel, origins: Sequence[int] | None = None, share: float = 1.0) -> KernelWork:
    """Return the work of a kernel.

    ``origins``: the tile's first points, for masks; without them nothing is masked. ``share``: share of the
    data-dependent points that fall into the tile.
    """
    if isinstance(kernel, RowsKernel):
        return _rows_work(kernel)
    return region_work(kernel, origins) if isinstance(kernel, RegionKernel) else simple_work(kernel, share)


def _rows_work(kernel: RowsKernel) -> KernelWork:
    """Return the work of a kernel that reads and writes whole rows once."""
    region, extents = kernel.fallback.region, kernel.run.extents
    slots = range(len(region.accesses))
    read = sum(math.prod(region.operand_extents(s, extents)) * region.dtypes[s].itemsize for s in slots)
    written = math.prod(extents[: region.n_out]) * region.dtype.itemsize
    (computed,) = fused_row_work(kernel.run.row_spec, extents).passes
    return KernelWork([replace(computed, read=read, written=written)], turns={"call": 1})


def region_work(kernel: RegionKernel, origins: Sequence[int] | None = None) -> KernelWork:
    """Return the work of a region over one tile."""
    work, region = KernelWork(turns={"call": 1}), kernel.region
    if 0 in kernel.extents[: region.n_out]:
        return work
    own = [n if p in region.aggregated else kernel.blocks[p] for p, n in enumerate(kernel.extents)]
    rows = list(shapes_of(kernel.extents[: region.n_out], own[: region.n_out]))
    if kernel.mode != "finalize":
        for (shape, conditions), times in _blocks(kernel, origins).items():
            program = kernel._program(shape, conditions)
            if program is not None:
                work.add(_program(program, kernel), times)
    if kernel.mode != "accumulate":
        for shape, times in rows:
            whole = (*shape, *kernel.extents[region.n_out :])
            work.add(_program(kernel.finalizer(whole), kernel), times)
    for slot in range(len(region.accesses)) if kernel.mode != "finalize" else ():
        nbytes = math.prod(region.operand_extents(slot, kernel.extents)) * region.dtypes[slot].itemsize
        work.passes.append(ArrayPass("traffic", 0, 0, 0, read=nbytes))
    return work


def _blocks(kernel: RegionKernel, origins: Sequence[int] | None) -> Counter[tuple[tuple[int, ...], ConditionValues]]:
    """Count the blocks by shape and by the known values of their mask's conditions."""
    region, mask = kernel.region, kernel.mask
    found: Counter[tuple[tuple[int, ...], ConditionValues]] = Counter()
    blocks = [b if p < region.n_out or p in region.aggregated else n for p, (b, n) in _paired(kernel)]
    if not mask.conditions or origins is None:
        for shape, times in shapes_of(kernel.extents, blocks):
            if 0 not in shape:
                found[shape, (None,) * len(mask.conditions)] += times
        return found
    tile = tuple([(o, o + n) for o, n in zip(origins, kernel.extents, strict=True)])
    for out in kernel.iterator.rows(tile):
        for box, conditions in kernel.iterator.streamed(out):
            found[tuple([hi - lo for lo, hi in box]), conditions] += 1
    return found


def _paired(kernel: RegionKernel) -> Iterator[tuple[int, tuple[int, int]]]:
    return enumerate(zip(kernel.blocks, kernel.extents, strict=True))


def _program(program: BlockProgram, kernel: RegionKernel) -> KernelWork:
    recorded = kernel.command_lists is not None and kernel.command_lists.accesses is not None
    work = KernelWork() if recorded else KernelWork(turns={"block": 1})
    for action in program.actions:
        if not recorded:
            work.turn("action")
        _add_action(work, action, kernel, recorded)
    return work


def _add_action(work: KernelWork, action: Action, kernel: RegionKernel, recorded: bool) -> None:
    match action:
        case RowFunctionCall():
            work.add(fused_row_work(action.row_spec, action.extents))
        case ComputeStep(once=True):
            pass  # computed once for all blocks along the streamed labels
        case ComputeStep(kernel=ContractionKernel() as product) | FoldStep(kernel=ContractionKernel() as product) if (
            recorded and _needs_many_calls(product) and (code := region_product(product)) is not None
        ):
            work.add(multiplied_work(product, code))
        case ComputeStep() | FoldStep() | FinalizeStep():
            work.add(kernel_work(action.kernel))
        case MaskedFill():
            work.add(kernel_work(action.kernel))
            points = _points(kernel, action.step)
            work.passes.append(ArrayPass("select_runs.float32", 1, points, points / 256))
        case OperationChain():
            points = math.prod(action.shape)
            inner = action.shape[-1] if action.shape else 1
            for link in action.links:
                spread = any(isinstance(a, tuple) for a in link.arguments)
                loops = points / max(1, inner) if spread else 1
                work.passes.append(ArrayPass(f"{link.ufunc.__name__}.{action.dtype.name}", 1, points, loops))
        case TrackExtremum():
            work.passes.append(ArrayPass(f"copy.{action.wide.name}", 1, math.prod(action.shape)))
        case RescaleSums():
            points = math.prod(action.shape)
            work.passes.append(ArrayPass(f"copy.{action.wide.name}", RESCALED_PASSES, RESCALED_PASSES * points))
            work.passes.append(ArrayPass(f"exp.{action.wide.name}", len(action.sums), len(action.sums) * points))
            for step, _, _ in action.sums:
                work.passes.append(ArrayPass(f"multiply.{action.wide.name}", 1, _points(kernel, step)))
        case _ if hasattr(action, "ones"):
            _matrix_fold(work, action, kernel)


def _needs_many_calls(product: ContractionKernel) -> bool:
    """Return whether BLAS would be called many times, or on packed copies."""
    return bool(product.contiguous_plan.loops) or any(product.contiguous_plan.packed)


def _matrix_fold(work: KernelWork, action: Any, kernel: RegionKernel) -> None:
    """Add the reduction of a matrix: a product with ones, or a ufunc."""
    step = kernel.region.steps[action.step]
    dtype, points = step.einsum.dtype.numpy.name, _points(kernel, ~action.read.source)
    rows = math.prod(kernel.blocks[p] for p in step.labels[: step.einsum.n_out])
    if action.ones is not None:
        work.products.append(ProductWork(dtype, rows, 1, max(1, points // max(1, rows)), 1))
    else:
        direction = "outer" if getattr(action, "axis", 1) == 0 else "inner"
        work.passes.append(ArrayPass(f"reduce.{action.ufunc.__name__}.{direction}.{dtype}", 1, points, rows))


def _points(kernel: RegionKernel, step: int) -> int:
    """Return the points of a tiled value in one block."""
    found = kernel.region.steps[step]
    return math.prod(kernel.blocks[p] for p in found.labels[: found.einsum.n_out])
