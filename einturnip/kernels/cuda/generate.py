"""Generates the CUDA kernel of an einsum or a region: chooses the kind of kernel and the layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.cuda.elementwise import elementwise
from einturnip.kernels.cuda.folding import folding
from einturnip.kernels.cuda.gathers import gather, is_gather, rows_are_looked_up
from einturnip.kernels.cuda.products import semiring, sides
from einturnip.kernels.cuda.regions import region_kernel
from einturnip.kernels.cuda.scatters import moves_rows, rows_of, scatter
from einturnip.kernels.cuda.transposes import transposed_operands, transposing
from einturnip.kernels.cuda.types import ANY, CudaKernel, DeviceTile, TileLayout
from einturnip.kernels.protocol import Mode

_NARROW = 1 << 30
"""Points and bytes below which 32-bit numbers suffice, with those of the blocks at the edges."""


def generate(space: Einsum | Region, mode: Mode, layout: TileLayout = ANY) -> CudaKernel:
    """Return the kernel for tiles of any extents, in any mode of a HostKernel.

    Picks have no mode "combine", because their states are not split. Einsums that differ only in sizes or
    in the names of labels get the same source and share one compiled kernel.
    """
    if isinstance(space, Region):
        return region_kernel(space, mode)
    if space.aggregation is None or mode in ("finalize", "combine"):
        return transposing(space, mode, layout) if layout.transposed else elementwise(space, mode, layout)
    if is_gather(space):
        return gather(space, mode, layout)
    sorted_by = rows_of(space)
    if sorted_by is not None:
        return scatter(space, mode, sorted_by, layout)
    found = sides(space)
    return folding(space, mode) if found is None else semiring(space, mode, found)


def layout(
    space: Einsum | Region,
    mode: Mode,
    extents: Sequence[int],
    operands: Sequence[DeviceTile],
    outs: Sequence[DeviceTile],
) -> TileLayout:
    """Return the fastest layout that is valid for a tile's extents, strides and alignments."""
    if isinstance(space, Region):
        return ANY
    mapped = space.aggregation is None or mode in ("finalize", "combine")
    narrow = mapped and math.prod(extents) < _NARROW and all(tile.span < _NARROW for tile in (*operands, *outs))
    return replace(_vectors(space, mode, extents, operands, outs), narrow=narrow)


def _vectors(
    space: Einsum, mode: Mode, extents: Sequence[int], operands: Sequence[DeviceTile], outs: Sequence[DeviceTile]
) -> TileLayout:
    """Return the layout without ``narrow``."""
    if space.n_out == 0:
        return ANY
    last, out, limit = space.n_out - 1, space.dtype.itemsize, 16
    vectors_stored = True
    if space.aggregation is not None:
        vectors_stored, limit = is_gather(space), 32
        if mode not in ("full", "accumulate") or (mode != "full" and vectors_stored):
            return ANY
        if not (rows_are_looked_up(space) if vectors_stored else moves_rows(space)):
            return ANY
    else:
        across, transposed = transposed_operands(space, extents, operands, outs[0])
        if transposed:
            return TileLayout(transposed=transposed, across=across)
    packed = []
    for slot, access in enumerate(space.accesses):
        only_last = access[-1:] == (last,) and all(p != last for p in access[:-1] if isinstance(p, int))
        if only_last and all(isinstance(p, int) for p in access):
            packed.append(slot)
    widest = max([out * vectors_stored, *(space.dtypes[s].itemsize for s in packed)])
    vector = min(8, (limit if vectors_stored else 16) // max(1, widest))
    if vector < 2 or (vectors_stored and not _dense(outs[0], out, vector)):
        return ANY
    dense = frozenset(s for s in packed if _dense(operands[s], space.dtypes[s].itemsize, vector))
    return TileLayout(vector, dense) if dense or vectors_stored else ANY


def _dense(view: DeviceTile, itemsize: int, vector: int) -> bool:
    """Return whether each group of ``vector`` elements of a row is contiguous and aligned to its size."""
    return (
        view.aligned and view.strides[-1] == itemsize and all(s % (vector * itemsize) == 0 for s in view.strides[:-1])
    )
