"""Kernels of row regions: one function of machine code reads a row, folds it, maps it and stores it.

If there is no such function, or the strides do not fit it, NumPy computes the steps in blocks of a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from einturnip.ir.region import Region
from einturnip.kernels.fused.block_layout import lay_out
from einturnip.kernels.fused.build import BlockProgramBuilder, Compile
from einturnip.kernels.fused.program import BlockContext, StepRead
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.row_function import OpenRowFunction, RowFunctionCall
from einturnip.kernels.fused.step_einsum import sum_of_mean
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.mask import label_mask
from einturnip.kernels.protocol import CallArguments, KernelCall, MachineCode


@dataclass(frozen=True)
class RowsKernel(MachineCode):
    """Computes all rows of a tile in one call.

    ``fallback`` provides the workspace, and computes tiles that do not fit the function.
    """

    run: RowFunctionCall
    fallback: RegionKernel

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """The function's tensor for each operand, then for the result; empty if there is not one for each."""
        places = self.run.places
        slots = [place.source if isinstance(place, StepRead) else len(places) - 1 for place in places]
        return tuple(map(slots.index, range(len(slots)))) if sorted(slots) == [*range(len(slots))] else ()

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel."""
        outs, operands, origins, _, workspace = arguments
        steps, extents = len(self.fallback.spec.region.steps), self.run.extents
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


def row_function(region: Region, extents: Sequence[int], compile_step: Compile) -> RowFunctionCall | None:
    """Return the call of one function for every step of a row region; None if a step needs NumPy."""
    if 0 in extents:
        return None
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
