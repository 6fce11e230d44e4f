"""Kernels of regions of rows: one function of machine code, which reads a row, folds it, maps it and stores it.

Where there is none, or where tensors lie otherwise, NumPy does the steps one after the other in blocks of a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.codegen.mask import Mask
from einturnip.codegen.native import library
from einturnip.codegen.native.band import Band
from einturnip.codegen.primitives import Array
from einturnip.codegen.protocol import Mode
from einturnip.codegen.region import RegionKernel
from einturnip.codegen.region_band import Open, RunBand
from einturnip.codegen.region_build import Builder, Compile, uncounted
from einturnip.codegen.region_program import Frame
from einturnip.codegen.region_space import lay_out
from einturnip.core.region import Region


@dataclass(frozen=True)
class RowsKernel:
    """All rows of a tile by one call; ``slow`` takes the workspace, and what the function was not made for."""

    run: RunBand
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
        frame = Frame(
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
    if (not native and not library.ready()) or 0 in extents:
        return slow
    run = _run(region, extents, compile_step)
    return slow if run is None or (run.function is None and not native) else RowsKernel(run, slow)


def rows_bands(region: Region, compile_step: Compile) -> tuple[Band, ...]:
    """The machine code that a region of rows would call."""
    run = _run(region, region.bounds, compile_step)
    return () if run is None else (run.band,)


def _run(region: Region, extents: Sequence[int], compile_step: Compile) -> RunBand | None:
    """Every step in one band; None where one stays with NumPy."""
    mask, last = Mask(region), len(region.steps) - 1
    variant = mask.variant((None,) * len(mask.conditions), False)
    builder = Builder(region, lay_out(region, extents, True), tuple(extents), compile_step)
    opened = Open(region)
    for k, step in enumerate(region.steps):
        einsum, reads = builder.einsum_of(k, step, variant)
        opened.add(k, uncounted(einsum), reads, ())
    result = builder.made(last, region.steps[last], False)
    found = opened.close(frozenset({last}), {last: result}, False)
    if found is None:
        return None
    band, places, values, taken = found
    return RunBand(band, library.find(band), (), places, values, taken, tuple(extents))
