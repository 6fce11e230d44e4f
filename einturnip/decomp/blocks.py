"""I/O blocking: which output tiles a walk keeps together.

Tiles are kernel-sized; blocks of them are memory-sized. While one block is made, its accumulators stay and operand
panels stream past, so operand s is read once for every block along the output labels that it lacks: for C = A B with
square blocks of side b this is 2MNK/b elements, the bound of Hong and Kung (1981) and Smith et al. (arXiv 1702.02017)
when the block fills the memory.
"""

from __future__ import annotations

import math
from itertools import product

from einturnip.core.einsum import Einsum
from einturnip.decomp.cost import is_cut, operand_nbytes, output_nbytes, state_nbytes
from einturnip.decomp.types import Block, Partitioning
from einturnip.eingraph.types import EinGraph, EinsumNode

# Of the capacity, what a block may hold; the rest prefetches. Less where operands are made by kernels of their own.
SHARE_STREAMED = 0.8
SHARE_COMPUTED = 0.5
MOST_CANDIDATES = 20_000


def choose_block(graph: EinGraph, i: int, part: Partitioning, capacity: int) -> Block:
    """The block of einsum node ``i`` that moves the fewest bytes among those that fit."""
    node = graph.nodes[i]
    assert isinstance(node, EinsumNode)
    e = node.einsum
    counts = part.counts[: e.n_out]
    cut = is_cut(e, part.tiles)
    computed = any(isinstance(graph.nodes[o], EinsumNode) for o in node.operands)
    room = capacity * (SHARE_COMPUTED if computed else SHARE_STREAMED)
    one = Block((1,) * e.n_out, None)
    best, best_cost = one, _traffic(e, part, one, capacity)
    walks: list[int | None] = [None] if cut else [p for p in range(e.n_out) if counts[p] > 1]
    for walk in walks:
        ranges = [[counts[p]] if p == walk else _block_sizes(counts[p]) for p in range(e.n_out)]
        if math.prod(map(len, ranges)) > MOST_CANDIDATES:
            ranges = [r if len(r) == 1 else r[:: max(1, len(r) // 8)] for r in ranges]
        for tiles in product(*ranges):
            block = Block(tiles, walk)
            if _held(e, part, block, cut) > room:
                continue
            cost = _traffic(e, part, block, capacity)
            if cost < best_cost:
                best, best_cost = block, cost
    return best


def _block_sizes(count: int) -> list[int]:
    """Block sizes that differ in the number of blocks they give."""
    return sorted({-(-count // n) for n in range(1, count + 1)}) or [1]


def _held(e: Einsum, part: Partitioning, block: Block, cut: bool) -> float:
    """Bytes that stand while a block is made: accumulators, and two steps of every operand's panel."""
    made = state_nbytes(e, part.tiles) * math.prod(block.tiles) if cut else 2 * output_nbytes(e, part.tiles)
    panels = 0
    for s, access in enumerate(e.accesses):
        wide = math.prod(block.tiles[p] for p in set(access) if p < e.n_out and p != block.streamed)
        panels += operand_nbytes(e, s, part.tiles) * wide * (2 if cut or block.streamed in access else 1)
    return made + panels


def _traffic(e: Einsum, part: Partitioning, block: Block, capacity: int) -> float:
    """Bytes read: each operand once a block along the labels it lacks; operands that fit in a corner stay."""
    counts = part.counts
    total = 0.0
    for s, access in enumerate(e.accesses):
        whole = operand_nbytes(e, s, e.bounds)
        again = math.prod(-(-counts[p] // block.tiles[p]) for p in range(e.n_out) if p not in access and block.tiles[p])
        total += whole * (1 if whole < capacity / 16 else again)
    return total
