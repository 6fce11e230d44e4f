"""What a tile's kernel takes, in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.core.contraction import contraction
from einturnip.core.einsum import Einsum
from einturnip.core.machine import Machine
from einturnip.core.region import Region, Space
from einturnip.core.scalar import Call, walk
from einturnip.decomp.cost import operand_nbytes, state_nbytes

# How much faster than from memory scalars are computed on what stays in the cache.
CACHED = 8.0


def kernel_seconds(einsum: Space, extents: Sequence[int], machine: Machine) -> float:
    """Predicted seconds of one tile's kernel on one worker."""
    if isinstance(einsum, Region):
        return machine.op_latency + sum(_step_seconds(einsum, k, extents, machine) for k in range(len(einsum.steps)))
    keyed = {key.label for key in einsum.keys}  # of a label whose index is data, one point counts
    points = math.prod(n for p, n in enumerate(extents) if p not in keyed)
    if contraction(einsum) is not None and einsum.join.dtype.is_inexact:
        narrow = min([d.itemsize for d in einsum.dtypes], default=4) <= 4
        touched = sum(operand_nbytes(einsum, s, extents) for s in range(2)) + 2 * state_nbytes(einsum, extents)
        rate = machine.gemm_flops * (1.0 if narrow else 0.5)
        return machine.op_latency + 2 * points / rate + touched / (4 * machine.memory_bandwidth)
    return machine.op_latency + points * (1 + join_ops(einsum)) / machine.scalar_flops


def join_ops(einsum: Einsum) -> int:
    """Scalar operations of the join at one point."""
    return sum(isinstance(e, Call) for e in walk(einsum.join))


def _step_seconds(region: Region, k: int, extents: Sequence[int], machine: Machine) -> float:
    """Predicted seconds of one step of a region: products at their rate, all else in the cache."""
    step = region.steps[k]
    points = math.prod(extents[p] for p in step.labels)
    if contraction(step.einsum) is not None and step.einsum.join.dtype.is_inexact:
        return 2 * points * step.einsum.dtype.itemsize / 4 / machine.gemm_flops
    return points * (1 + join_ops(step.einsum)) / (CACHED * machine.scalar_flops)
