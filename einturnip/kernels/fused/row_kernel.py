"""Kernels of regions of rows: one function of machine code, which reads a row, folds it, maps it and stores it.

Where there is none, or where tensors lie otherwise, NumPy does the steps one after the other in blocks of a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.region import Region
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.fused.build import BlockProgramBuilder, Compile, sum_of_mean
from einturnip.kernels.fused.program import BlockContext
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.fused.row_function import OpenRowFunction, RowFunctionCall
from einturnip.kernels.fused.space import lay_out
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.mask import LabelMask
from einturnip.kernels.protocol import Mode


@dataclass(frozen=True)
class RowsKernel:
    """All rows of a tile by one call; ``slow`` takes the workspace, and what the function was not made for."""

    run: RowFunctionCall
    slow: RegionKernel

    @property
    def workspace_nbytes(self) -> int:
        """What the NumPy kernel would need."""
        return self.slow.workspace_nbytes

    @property
    def flops(self) -> int:
        """Scalar operations of a call."""
        return self.slow.flops

    def __call__(
        self,
        outs: tuple[Array, ...],
        operands: tuple[Array, ...],
        origins: tuple[int, ...],
        first: bool,
        workspace: Array,
    ) -> int:
        """Run over one tile; gives what the floating-point unit saw."""
        region, extents = self.slow.region, self.run.extents
        frame = BlockContext(
            operands=operands,
            corners=(),
            workspace=workspace,
            scratch=workspace,
            values=[workspace] * len(region.steps),
            states=[()] * len(region.steps),
            out=outs[0],
            box=tuple([(o, o + n) for o, n in zip(origins, extents, strict=True)]),
            cuts=tuple([slice(0, n) for n in extents]),
        )
        bits = self.run.fast(frame)
        return self.slow(outs, operands, origins, first, workspace) if bits is None else bits


def compile_rows(
    region: Region, extents: tuple[int, ...], mode: Mode, compile_step: Compile, native: bool = False
) -> RowsKernel | RegionKernel:
    """The kernel of a region of rows over a tile; ``native``: for machine code, whether that is at hand or not."""
    slow = RegionKernel(region, extents, mode, compile_step)
    if (not native and not code_cache.ready()) or 0 in extents:
        return slow
    run = _run(region, extents, compile_step)
    return slow if run is None or (run.function is None and not native) else RowsKernel(run, slow)


def rows_bands(region: Region, compile_step: Compile) -> tuple[FusedRowSpec, ...]:
    """The machine code that a region of rows would call."""
    run = _run(region, region.bounds, compile_step)
    return () if run is None else (run.band,)


def _run(region: Region, extents: Sequence[int], compile_step: Compile) -> RowFunctionCall | None:
    """Every step in one band; None where one stays with NumPy."""
    mask, last = LabelMask(region), len(region.steps) - 1
    variant = mask.variant((None,) * len(mask.conditions), False)
    builder = BlockProgramBuilder(region, lay_out(region, extents, True), tuple(extents), compile_step)
    opened = OpenRowFunction(region)
    for k, step in enumerate(region.steps):
        einsum, reads = builder.einsum_of(k, step, variant)
        opened.add(k, sum_of_mean(einsum), reads, ())
    result = builder.made(last, region.steps[last], False)
    found = opened.close(frozenset({last}), {last: result}, False)
    if found is None:
        return None
    band, places, values, taken = found
    return RowFunctionCall(band, code_cache.find(band), (), places, values, taken, tuple(extents))
