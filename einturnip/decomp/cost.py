"""What a tile costs: bytes held while its kernel runs, and traffic when a label is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.codegen.kernels import compile_kernel
from einturnip.core.contraction import contraction
from einturnip.core.einsum import Access, Einsum
from einturnip.core.machine import Machine
from einturnip.core.region import Region, Space
from einturnip.core.scalar import Call, walk

# What copying a byte in memory takes of the time that reading it from a file takes.
COPY_COST = 0.125
# Of a box, what the tiles may take together that one task copies into it, unless it is one tile.
COPIED_AT_ONCE = 0.25
# How much faster than from memory scalars are computed on what stays in the cache.
CACHED = 8.0


def positions(access: Access) -> frozenset[int]:
    """The labels that an access hangs on."""
    return frozenset(q for p in access for q in ((p,) if isinstance(p, int) else (t for t, _ in p.terms)))


def operand_nbytes(einsum: Space, slot: int, tiles: Sequence[int]) -> int:
    """Bytes of the part of operand ``slot`` that one tile of the label space reads."""
    return math.prod(einsum.operand_extents(slot, tiles)) * einsum.dtypes[slot].itemsize


def overlap(einsum: Space, slot: int, tiles: Sequence[int]) -> float:
    """How many times the parts of an operand that the tiles read are, together, what the whole einsum reads of it."""
    whole = math.prod(einsum.operand_extents(slot, einsum.bounds))
    reads = positions(einsum.accesses[slot])
    parts = math.prod(-(-einsum.bounds[p] // tiles[p]) for p in reads)
    return parts * math.prod(einsum.operand_extents(slot, tiles)) / whole if whole else 1.0


def copies_tiles(einsum: Space, slot: int, tiles: Sequence[int]) -> bool:
    """True where parts of a stored operand overlap so much that they are copied from its tiles, each loaded once."""
    return overlap(einsum, slot, tiles) > 1 + COPY_COST


def state_nbytes(einsum: Space, tiles: Sequence[int]) -> int:
    """Bytes of the accumulator of one output tile (each component starts at a multiple of 64 bytes)."""
    return sum(-(-math.prod(shape) * d.itemsize // 64) * 64 for shape, d in einsum.components(tiles))


def output_nbytes(einsum: Space, tiles: Sequence[int]) -> int:
    """Bytes of one output tile."""
    return math.prod(tiles[: einsum.n_out]) * einsum.dtype.itemsize


def is_cut(einsum: Space, tiles: Sequence[int]) -> bool:
    """True where an output tile is made by several kernels, so that a state is carried between them."""
    return any(tiles[p] < einsum.bounds[p] for p in einsum.aggregated)


def is_finished(einsum: Space) -> bool:
    """True where a state is not yet the result."""
    return isinstance(einsum, Region) or (einsum.aggregation is not None and not einsum.aggregation.finish_is_identity)


def working_set_nbytes(einsum: Space, tiles: Sequence[int]) -> int:
    """Bytes that must stand in compute memory at once for one tile's kernel, workspace included."""
    cut = is_cut(einsum, tiles)
    kernel = compile_kernel(einsum, tuple(tiles), "touch" if cut else "whole")
    operands = sum(operand_nbytes(einsum, s, tiles) for s in range(len(einsum.accesses)))
    made = state_nbytes(einsum, tiles) if cut else output_nbytes(einsum, tiles)
    total = operands + made + kernel.workspace_nbytes
    if cut and is_finished(einsum):
        finish = compile_kernel(einsum, tuple(tiles), "finish")
        total = max(total, made + output_nbytes(einsum, tiles) + finish.workspace_nbytes)
    return total


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
