"""Scalar operations of a kernel over one tile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region, Space
from einturnip.ir.scalar import ScalarCall, walk
from einturnip.kernels.fused.build import required_steps
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import blas_spec


def kernel_flops(space: Space, extents: tuple[int, ...], mode: Mode) -> int:
    """Return the operations of a tile.

    A contraction has 2 for each point, any other einsum its operators and its fold. Combining or finalizing a state has
    one for each element.
    """
    if isinstance(space, Region):
        return _region_flops(space, extents, mode)
    finalized = math.prod(extents[: space.n_out])
    if mode in ("finalize", "combine"):
        return finalized
    if 0 in extents:
        return 0
    if blas_spec(space, extents, mode) is not None:
        return 2 * math.prod(extents)
    scatters = any(key.label < space.n_out for key in space.keys)
    finalizes = space.aggregation is not None and not space.aggregation.finalize_is_identity
    return _operators(space, extents) + (finalized if scatters and finalizes and mode == "full" else 0)


def _region_flops(region: Region, extents: Sequence[int], mode: Mode) -> int:
    if mode == "combine":
        return sum(math.prod(shape) for shape, _ in region.components(extents))
    folded, steps = required_steps(region, region.carried), range(len(region.steps))
    total = 0
    for k in steps if mode == "full" else folded if mode == "accumulate" else {*steps} - folded:
        step = region.steps[k]
        own = tuple([extents[p] for p in step.labels])
        multiplied = contraction(step.einsum) is not None and step.einsum.join.dtype.is_inexact
        total += 2 * math.prod(own) if multiplied else _operators(step.einsum, own)
    return total


def _operators(einsum: Einsum, extents: Sequence[int]) -> int:
    """Return one operation for each operator of the join, and one for the fold, at every selected point."""
    operators = sum(isinstance(e, ScalarCall) for e in walk(einsum.join)) + (einsum.aggregation is not None)
    keyed = {key.label for key in einsum.keys}
    return max(1, operators) * math.prod([n for p, n in enumerate(extents) if p not in keyed])
