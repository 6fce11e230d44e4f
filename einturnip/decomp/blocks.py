"""I/O blocking: which output tiles a walk keeps together.

Tiles are kernel-sized; blocks of them are memory-sized. While one block is made, its accumulators stay and operand
panels stream past, so operand s is read once for every block along the output labels that it lacks: for C = A B with
square blocks of side b this is 2MNK/b elements, the bound of Hong and Kung (1981) and Smith et al. (arXiv 1702.02017)
when the block fills the memory.
"""

from __future__ import annotations

import math
from itertools import product

from einturnip.decomp.alike import Group
from einturnip.decomp.cost import is_cut, operand_nbytes, output_nbytes, state_nbytes
from einturnip.decomp.types import Block, Partitioning

# Of the capacity, what a block may hold; the rest prefetches. Less where operands are made by kernels of their own.
SHARE_STREAMED = 0.9
SHARE_COMPUTED = 0.5
SHARE_KEPT = 0.15  # tiles that are not stored but read by another node, beside whatever that one holds
MOST_CANDIDATES = 20_000


def choose_block(group: Group, part: Partitioning, capacity: int) -> tuple[Block, float]:
    """The block of the group's einsums that reads the fewest bytes among those that fit, and those bytes."""
    e = group.einsum
    counts = part.counts[: e.n_out]
    cut = is_cut(e, part.tiles)
    kept = group.consumed
    computed = group.from_kernels or kept
    room = capacity * (SHARE_KEPT if kept and not cut else SHARE_COMPUTED if computed else SHARE_STREAMED)
    best = Block((1,) * e.n_out, None)
    best_cost = _traffic(group, part, best, room - _held(group, part, best, cut), capacity)
    walks: list[int | None] = [None] if cut else [p for p in range(e.n_out) if counts[p] > 1]
    for walk in walks:
        ranges = [[counts[p]] if p == walk else _block_sizes(counts[p]) for p in range(e.n_out)]
        if math.prod(map(len, ranges)) > MOST_CANDIDATES:
            ranges = [r if len(r) == 1 else r[:: max(1, len(r) // 8)] for r in ranges]
        for tiles in product(*ranges):
            block = Block(tiles, walk)
            slack = room - _held(group, part, block, cut)
            if slack < 0:
                continue
            cost = _traffic(group, part, block, slack, capacity)
            if cost < best_cost:
                best, best_cost = block, cost
    return best, best_cost


def _block_sizes(count: int) -> list[int]:
    """Block sizes that differ in the number of blocks they give."""
    root = math.isqrt(count)
    large = {-(-count // n) for n in range(1, root + 1)}
    return sorted(large.union(s for s in range(1, root + 1) if -(-count // -(-count // s)) == s)) or [1]


def _held(group: Group, part: Partitioning, block: Block, cut: bool) -> float:
    """Bytes that stand while a block is made: accumulators or kept tiles, this step's panels and half the next."""
    e, kept = group.einsum, group.consumed
    made = state_nbytes(e, part.tiles) if cut else output_nbytes(e, part.tiles)
    made *= math.prod(block.tiles) if cut or kept else 2
    panels = 0.0
    for s, reads in enumerate(group.reads):
        wide = math.prod(block.tiles[p] for p in reads if p < e.n_out and p != block.streamed)
        panels += operand_nbytes(e, s, part.tiles) * wide * (1.5 if cut or block.streamed in reads else 1)
    return made + panels


def _traffic(group: Group, part: Partitioning, block: Block, slack: float, capacity: int) -> float:
    """Bytes read: each operand once a block along the labels it lacks, but for what is still held at each turn."""
    e = group.einsum
    blocks = [-(-c // b) if b else 0 for c, b in zip(part.counts, block.tiles, strict=False)]
    least = total = 0.0
    whole = [operand_nbytes(e, s, e.bounds) for s in range(len(e.accesses))]
    for reads, nbytes in zip(group.reads, whole, strict=True):
        again = math.prod(b for p, b in enumerate(blocks) if p not in reads)
        least += nbytes
        total += nbytes * (1 if nbytes < capacity / 8 else again)
    for p in range(e.n_out):
        # A step along p, between blocks that differ in p alone, shares the panels of the operands that lack p.
        turns = (blocks[p] - 1) * math.prod(blocks[:p])
        shared = sum(
            nbytes / max(1, math.prod(blocks[q] for q in reads if q < e.n_out))
            for reads, nbytes in zip(group.reads, whole, strict=True)
            if p not in reads
        )
        total -= max(0, turns) * min(shared, max(0.0, slack))
    return max(least, total)
