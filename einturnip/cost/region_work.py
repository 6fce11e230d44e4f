"""Work of a fused region's kernel: that of its blocks, without the blocks that a mask leaves idle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from einturnip.cost.kernel_work import ArrayPass, KernelWork, ProductWork, multiplied_work, shapes_of, simple_work
from einturnip.cost.machine_code_work import fused_row_work
from einturnip.ir.region import Region
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.contraction_choice import region_product
from einturnip.kernels.fused.block_iterator import extents_of
from einturnip.kernels.fused.combine import RegionCombiner
from einturnip.kernels.fused.matrix_fold import FoldMatrix
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
from einturnip.kernels.fused.region_spec import RegionSpec
from einturnip.kernels.fused.row_function import RowFunctionCall
from einturnip.kernels.mask import ConditionValues
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import priced_region, region_combiner, row_function
from einturnip.tuning.search import RESCALED_PASSES

Shape: TypeAlias = tuple[int, ...]


def region_work(
    region: Region, extents: tuple[int, ...], mode: Mode, native: bool, origins: Sequence[int] | None = None
) -> KernelWork:
    """Return the work of a region over one tile; ``native``: by machine code.

    ``origins``: the tile's first points, for masks; without them nothing is masked.
    """
    if mode == "combine":
        work, nbytes = combiner_work(region_combiner(region, extents)), region.state_nbytes(extents)
        work.passes.append(ArrayPass("traffic", 0, 0, 0, read=nbytes, written=nbytes))
        return work
    run = row_function(region, extents) if native and region.of_rows else None
    if run is not None:
        return _rows_work(region, run)
    return spec_work(priced_region(region, extents, mode, native and not region.of_rows), origins)


def _rows_work(region: Region, run: RowFunctionCall) -> KernelWork:
    """Return the work of a kernel that reads and writes whole rows once."""
    slots = range(len(region.accesses))
    read = sum(math.prod(region.operand_extents(s, run.extents)) * region.dtypes[s].itemsize for s in slots)
    written = math.prod(run.extents[: region.n_out]) * region.dtype.itemsize
    (computed,) = fused_row_work(run.row_spec, run.extents).passes
    return KernelWork([replace(computed, read=read, written=written)], turns={"call": 1})


def combiner_work(combiner: RegionCombiner) -> KernelWork:
    """Return the work of adding one state of a region to another."""
    work, region = KernelWork(turns={"call": 1}), combiner.region
    for kernel in combiner.kernels.values():
        work.add(simple_work(kernel))
    if combiner.empty:
        return work
    moving, rescaled = combiner.extrema | combiner.means, {r.step for r in region.rescales}
    for k, components in combiner.components.items():
        points, name = math.prod(components[0][0]), components[0][1].accumulator.numpy.name
        if k in moving:  # the values of both states and of the result
            work.passes.append(ArrayPass(f"copy.{name}", 3, 3 * points))
        if k in rescaled:
            work.passes.append(ArrayPass(f"add.{name}", len(components), len(components) * points))
        for rescale in region.rescales:
            if rescale.step == k:  # factors of both states, of each of which three passes find the zeros
                factors = math.prod(combiner.components[rescale.of][0][0])
                work.passes.append(ArrayPass(f"exp.{name}", 2, 2 * factors))
                work.passes.append(ArrayPass(f"copy.{name}", 6, 6 * factors))
                work.passes.append(ArrayPass(f"multiply.{name}", 2, 2 * points))
        for shift in region.shifts:
            if shift.step == k:
                means = math.prod(combiner.components[shift.of][0][0])
                work.passes.append(ArrayPass(f"multiply.{name}", 8, 8 * means))
                work.passes.append(ArrayPass(f"add.{name}", 2, 2 * points))
    return work


def spec_work(spec: RegionSpec, origins: Sequence[int] | None = None) -> KernelWork:
    """Return the work of a region over one tile, block by block; ``origins``: as in ``region_work``."""
    work, region = KernelWork(turns={"call": 1}), spec.region
    if 0 in spec.extents[: region.n_out]:
        return work
    if spec.mode != "finalize":
        blocks, combinations = counted_blocks(spec, origins)
        for (shape, conditions), times in blocks.items():
            program = spec.program(shape, conditions)
            if program is not None:
                work.add(_program(program, spec), times)
        for shape, times in combinations.items():
            work.add(combiner_work(spec.combiner(shape)), times)
    if spec.mode != "accumulate":
        for shape, times in _rows(spec):
            work.add(_program(spec.finalizer(shape), spec), times)
    for slot in range(len(region.accesses)) if spec.mode != "finalize" else ():
        nbytes = math.prod(region.operand_extents(slot, spec.extents)) * region.dtypes[slot].itemsize
        work.passes.append(ArrayPass("traffic", 0, 0, 0, read=nbytes))
    return work


def counted_blocks(
    spec: RegionSpec, origins: Sequence[int] | None
) -> tuple[Counter[tuple[Shape, ConditionValues]], Counter[Shape]]:
    """Count a tile's blocks, and the combinations of their partial states.

    Blocks: by shape and by the known values of their mask's conditions. Combinations: by the block of the output.
    """
    region, conditions = spec.region, spec.mask.conditions
    blocks: Counter[tuple[Shape, ConditionValues]] = Counter()
    combinations: Counter[Shape] = Counter()
    if conditions and origins is not None:
        for out in spec.iterator.rows(tuple([(o, o + n) for o, n in zip(origins, spec.extents, strict=True)])):
            streamed = spec.iterator.streamed(out)
            blocks.update((extents_of(box), decided) for box, decided in streamed)
            combinations[extents_of(out)] += spec.levels.combinations(len(streamed))
        return blocks, +combinations
    sides = enumerate(zip(spec.blocks, spec.extents, strict=True))
    cut = [b if p < region.n_out or p in region.aggregated else n for p, (b, n) in sides]
    for shape, times in shapes_of(spec.extents, cut):
        if 0 not in shape:
            blocks[shape, (None,) * len(conditions)] += times
    per_row = math.prod(-(-spec.extents[p] // max(1, spec.blocks[p])) for p in region.aggregated)
    for shape, times in _rows(spec):
        combinations[shape] += times * spec.levels.combinations(per_row)
    return blocks, +combinations


def _rows(spec: RegionSpec) -> Iterator[tuple[Shape, int]]:
    """Yield the shapes of the output's blocks, full along other labels, with the number of each."""
    n_out = spec.region.n_out
    for shape, times in shapes_of(spec.extents[:n_out], spec.blocks[:n_out]):
        yield (*shape, *spec.extents[n_out:]), times


def _program(program: BlockProgram, spec: RegionSpec) -> KernelWork:
    recorded = spec.records
    work = KernelWork() if recorded else KernelWork(turns={"block": 1})
    for action in program.actions:
        if not recorded:
            work.turn("action")
        _add_action(work, action, spec, recorded)
    if recorded:  # Python records a block once; a command list repeats its kernels without Python
        work.turn("turn", work.turns.pop("call", 0))
    return work


def _add_action(work: KernelWork, action: Action, spec: RegionSpec, recorded: bool) -> None:
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
            work.add(simple_work(action.kernel))
        case MaskedFill():
            work.add(simple_work(action.kernel))
            points = _points(spec, action.step)
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
                work.passes.append(ArrayPass(f"multiply.{action.wide.name}", 1, _points(spec, step)))
        case FoldMatrix():
            _matrix_fold(work, action, spec)


def _needs_many_calls(product: ContractionKernel) -> bool:
    """Return whether BLAS would be called many times, or on packed copies."""
    return bool(product.contiguous_plan.loops) or any(product.contiguous_plan.packed)


def _matrix_fold(work: KernelWork, action: FoldMatrix, spec: RegionSpec) -> None:
    """Add the reduction of a matrix: a product with ones, or a ufunc."""
    step = spec.region.steps[action.step]
    dtype, points = step.einsum.dtype.numpy.name, _points(spec, ~action.read.source)
    rows = math.prod(spec.blocks[p] for p in step.labels[: step.einsum.n_out])
    if action.ones is not None:
        work.products.append(ProductWork(dtype, rows, 1, max(1, points // max(1, rows)), 1))
    else:
        direction = "inner" if action.axis else "outer"
        work.passes.append(ArrayPass(f"reduce.{action.ufunc.__name__}.{direction}.{dtype}", 1, points, rows))


def _points(spec: RegionSpec, step: int) -> int:
    """Return the points of a tiled value in one block."""
    found = spec.region.steps[step]
    return math.prod(spec.blocks[p] for p in found.labels[: found.einsum.n_out])
