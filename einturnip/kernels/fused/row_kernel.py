"""Kernels of row regions: one function of machine code reads a row, folds it, maps it and stores it.

If there is no such function, or the strides do not fit it, NumPy computes the steps in blocks of a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.region import Region
from einturnip.kernels.fused.build import BlockProgramBuilder, Compile
from einturnip.kernels.fused.program import BlockContext, StepRead
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.row_function import OpenRowFunction, RowFunctionCall
from einturnip.kernels.fused.space import lay_out
from einturnip.kernels.fused.step_einsum import sum_of_mean
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import label_mask
from einturnip.kernels.protocol import CallArguments, KernelCall, MachineCode, Mode


@dataclass(frozen=True)
class RowsKernel(MachineCode):
    """Computes all rows of a tile in one call.

    ``fallback`` provides the workspace, and computes tiles that do not fit the function. ``tensors``: the function's
    tensor for each operand, then for the result; empty if there is not one for each.
    """

    run: RowFunctionCall
    fallback: RegionKernel
    tensors: tuple[int, ...]

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        outs, operands, origins, _, workspace = arguments
        steps, extents = len(self.fallback.region.steps), self.run.extents
        context = BlockContext(
            operands=operands,
            corners=(),
            workspace=workspace,
            scratch=workspace,
            values=[workspace] * steps,
            states=[()] * steps,
            out=outs[0],
            box=tuple([(o, o + n) for o, n in zip(origins, extents, strict=True)]),
            cuts=tuple([slice(0, n) for n in extents]),
        )
        call = self.run.prepare(context)
        if call is None:
            return self.fallback.prepare(arguments)
        call.relocations = [call.relocations[k] for k in self.tensors]
        return call


def compile_rows(
    region: Region, extents: tuple[int, ...], mode: Mode, compile_step: Compile, native: bool = False
) -> RowsKernel | RegionKernel:
    """Return the kernel of a row region over a tile; ``native``: for machine code even if there is none."""
    fallback = RegionKernel(region, extents, mode, compile_step)
    if (not native and not code_cache.ready()) or 0 in extents:
        return fallback
    run = _run(region, extents, compile_step)
    return (
        fallback if run is None or (run.function is None and not native) else RowsKernel(run, fallback, _tensors(run))
    )


def _tensors(run: RowFunctionCall) -> tuple[int, ...]:
    """Return the function's tensor for each operand of the region, then for the result."""
    slots = [place.source if isinstance(place, StepRead) else len(run.places) - 1 for place in run.places]
    return tuple(map(slots.index, range(len(slots)))) if sorted(slots) == [*range(len(slots))] else ()


def row_region_code(region: Region, compile_step: Compile) -> tuple[FusedRowSpec, ...]:
    """Return the machine code that a region of rows calls."""
    run = _run(region, region.bounds, compile_step)
    return () if run is None else (run.row_spec,)


def _run(region: Region, extents: Sequence[int], compile_step: Compile) -> RowFunctionCall | None:
    """Return the call of one function for every step; None if a step has to stay with NumPy."""
    mask, last = label_mask(region), len(region.steps) - 1
    variant = mask.variant((None,) * len(mask.conditions), False)
    builder = BlockProgramBuilder(region, lay_out(region, extents, 1), tuple(extents), compile_step)
    opened = OpenRowFunction(region)
    for k, step in enumerate(region.steps):
        einsum, reads = builder.einsum_of(k, step, variant)
        opened.add(k, sum_of_mean(einsum), reads, ())
    result = builder.value_place(last, region.steps[last], False)
    found = opened.close(frozenset({last}), {last: result}, False)
    if found is None:
        return None
    row_spec, places, values, state_steps = found
    return RowFunctionCall(row_spec, code_cache.find(row_spec), (), places, values, state_steps, tuple(extents))
