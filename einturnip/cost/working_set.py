"""Costs of a tile: bytes in memory while its kernel runs, and traffic caused by tiling a label."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.ir.einsum import Index, labels_read
from einturnip.ir.region import Region, Space
from einturnip.kernels.select import workspace_nbytes
from einturnip.tuning.search import COPY_COST


def operand_nbytes(einsum: Space, slot: int, tiles: Sequence[int]) -> int:
    """Return the bytes of operand ``slot`` that one tile of the label space reads."""
    return math.prod(einsum.operand_extents(slot, tiles)) * einsum.dtypes[slot].itemsize


def overlap(einsum: Space, slot: int, tiles: Sequence[int]) -> float:
    """Return the elements of an operand that all tiles read, relative to the number of distinct elements."""
    whole = math.prod(einsum.operand_extents(slot, einsum.bounds))
    reads = labels_read(einsum.accesses[slot])
    parts = math.prod(-(-einsum.bounds[p] // tiles[p]) for p in reads)
    return parts * math.prod(einsum.operand_extents(slot, tiles)) / whole if whole else 1.0


def copies_tiles(einsum: Space, slots: Sequence[int], tiles: Sequence[int]) -> bool:
    """Return whether overlapping parts of a stored operand are copied from its tiles, each loaded once.

    ``slots``: all operand slots that read the tensor. Otherwise every part that crosses tiles would be loaded
    separately, once for each slot and shift.
    """
    shifted = {across(einsum, slot, tiles): slot for slot in slots}
    within = shifted.pop((), None) is not None
    return sum(overlap(einsum, slot, tiles) for slot in shifted.values()) + within > 1 + COPY_COST * len(shifted)


def across(einsum: Space, slot: int, tiles: Sequence[int]) -> tuple[tuple[int, Index], ...]:
    """Return the axes along which parts of an operand may cross its tiles, and their indices."""
    split = {p for p, (tile, bound) in enumerate(zip(tiles, einsum.bounds, strict=True)) if tile < bound}
    indexed = ((axis, p) for axis, p in enumerate(einsum.accesses[slot]) if not isinstance(p, int))
    return tuple((axis, p) for axis, p in indexed if any(q in split for q, _ in p.terms))


def output_nbytes(einsum: Space, tiles: Sequence[int]) -> int:
    """Return the bytes of one output tile."""
    return math.prod(tiles[: einsum.n_out]) * einsum.dtype.itemsize


def splits_aggregation(einsum: Space, tiles: Sequence[int]) -> bool:
    """Return whether several kernels make one output tile, so that a state is carried between them."""
    return any(tiles[p] < einsum.bounds[p] for p in einsum.aggregated)


def needs_finalize(einsum: Space) -> bool:
    """Return whether a state needs a finalizing step."""
    return isinstance(einsum, Region) or (
        einsum.aggregation is not None and not einsum.aggregation.finalize_is_identity
    )


def working_set_nbytes(einsum: Space, tiles: Sequence[int]) -> int:
    """Return the bytes that one tile's kernel needs in memory at once, workspace included."""
    split = splits_aggregation(einsum, tiles)
    workspace = workspace_nbytes(einsum, tuple(tiles), "accumulate" if split else "full")
    operands = sum(operand_nbytes(einsum, s, tiles) for s in range(len(einsum.accesses)))
    made = einsum.state_nbytes(tiles) if split else output_nbytes(einsum, tiles)
    total = operands + made + workspace
    if split and needs_finalize(einsum):
        finalizing = workspace_nbytes(einsum, tuple(tiles), "finalize")
        total = max(total, made + output_nbytes(einsum, tiles) + finalizing)
    return total
