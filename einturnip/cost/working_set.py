"""What a tile costs: bytes held while its kernel runs, and traffic when a label is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.ir.einsum import Access, Index
from einturnip.ir.region import Region, Space
from einturnip.kernels.select import compile_kernel, slower_kernel

# What copying a byte in memory takes of the time that reading it from a file takes.
COPY_COST = 0.125
# Of a box, what the tiles may take together that one task copies into it, unless it is one tile.
COPIED_AT_ONCE = 0.25


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


def copies_tiles(einsum: Space, slots: Sequence[int], tiles: Sequence[int]) -> bool:
    """True where parts of a stored operand overlap so much that they are copied from its tiles, each loaded once.

    ``slots``: all that read the operand. Parts that lie across its tiles would be loaded one by one, those of a slot,
    and those of slots that are shifted against each other.
    """
    shifted = {across(einsum, slot, tiles): slot for slot in slots}
    within = shifted.pop((), None) is not None
    return sum(overlap(einsum, slot, tiles) for slot in shifted.values()) + within > 1 + COPY_COST * len(shifted)


def across(einsum: Space, slot: int, tiles: Sequence[int]) -> tuple[tuple[int, Index], ...]:
    """The axes along which parts of an operand may lie across its tiles, and how each is indexed."""
    cut = {p for p, (tile, bound) in enumerate(zip(tiles, einsum.bounds, strict=True)) if tile < bound}
    indexed = ((axis, p) for axis, p in enumerate(einsum.accesses[slot]) if not isinstance(p, int))
    return tuple((axis, p) for axis, p in indexed if any(q in cut for q, _ in p.terms))


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
    return isinstance(einsum, Region) or (
        einsum.aggregation is not None and not einsum.aggregation.finalize_is_identity
    )


def working_set_nbytes(einsum: Space, tiles: Sequence[int]) -> int:
    """Bytes that must stand in compute memory at once for one tile's kernel, workspace included."""
    cut = is_cut(einsum, tiles)
    kernel = slower_kernel(einsum, tuple(tiles), "accumulate" if cut else "full")
    operands = sum(operand_nbytes(einsum, s, tiles) for s in range(len(einsum.accesses)))
    made = state_nbytes(einsum, tiles) if cut else output_nbytes(einsum, tiles)
    total = operands + made + kernel.workspace_nbytes
    if cut and is_finished(einsum):
        finalizer = compile_kernel(einsum, tuple(tiles), "finalize")
        total = max(total, made + output_nbytes(einsum, tiles) + finalizer.workspace_nbytes)
    return total
