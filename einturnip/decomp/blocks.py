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
SHARE_STREAMED = 0.9
SHARE_COMPUTED = 0.5
SHARE_KEPT = 0.15  # tiles that are not stored but read by another node, beside whatever that one holds
MOST_CANDIDATES = 20_000


def consumed(graph: EinGraph) -> frozenset[int]:
    """Nodes that another node reads."""
    return frozenset(o for n in graph.nodes if isinstance(n, EinsumNode) for o in n.operands)


def choose_block(
    graph: EinGraph, i: int, part: Partitioning, capacity: int, intermediates: frozenset[int]
) -> tuple[Block, float]:
    """The block of einsum node ``i`` that reads the fewest bytes among those that fit, and those bytes."""
    node = graph.nodes[i]
    assert isinstance(node, EinsumNode)
    e = node.einsum
    counts = part.counts[: e.n_out]
    cut = is_cut(e, part.tiles)
    computed = any(isinstance(graph.nodes[o], EinsumNode) for o in node.operands)
    kept = i in intermediates
    room = capacity * (SHARE_KEPT if kept and not cut else SHARE_COMPUTED if computed or kept else SHARE_STREAMED)
    best = Block((1,) * e.n_out, None)
    best_cost = _traffic(e, part, best, room - _held(e, part, best, cut, kept), capacity)
    walks: list[int | None] = [None] if cut else [p for p in range(e.n_out) if counts[p] > 1]
    for walk in walks:
        ranges = [[counts[p]] if p == walk else _block_sizes(counts[p]) for p in range(e.n_out)]
        if math.prod(map(len, ranges)) > MOST_CANDIDATES:
            ranges = [r if len(r) == 1 else r[:: max(1, len(r) // 8)] for r in ranges]
        for tiles in product(*ranges):
            block = Block(tiles, walk)
            slack = room - _held(e, part, block, cut, kept)
            if slack < 0:
                continue
            cost = _traffic(e, part, block, slack, capacity)
            if cost < best_cost:
                best, best_cost = block, cost
    return best, best_cost


def _block_sizes(count: int) -> list[int]:
    """Block sizes that differ in the number of blocks they give."""
    return sorted({-(-count // n) for n in range(1, count + 1)}) or [1]


def _held(e: Einsum, part: Partitioning, block: Block, cut: bool, kept: bool) -> float:
    """Bytes that stand while a block is made: accumulators or ``kept`` tiles, this step's panels and half the next."""
    made = state_nbytes(e, part.tiles) if cut else output_nbytes(e, part.tiles)
    made *= math.prod(block.tiles) if cut or kept else 2
    panels = 0.0
    for s, access in enumerate(e.accesses):
        wide = math.prod(block.tiles[p] for p in set(access) if p < e.n_out and p != block.streamed)
        panels += operand_nbytes(e, s, part.tiles) * wide * (1.5 if cut or block.streamed in access else 1)
    return made + panels


def _traffic(e: Einsum, part: Partitioning, block: Block, slack: float, capacity: int) -> float:
    """Bytes read: each operand once a block along the labels it lacks, but for what is still held at each turn."""
    blocks = [-(-c // b) if b else 0 for c, b in zip(part.counts, block.tiles, strict=False)]
    least = total = 0.0
    whole = [operand_nbytes(e, s, e.bounds) for s in range(len(e.accesses))]
    for access, nbytes in zip(e.accesses, whole, strict=True):
        again = math.prod(b for p, b in enumerate(blocks) if p not in access)
        least += nbytes
        total += nbytes * (1 if nbytes < capacity / 8 else again)
    for p in range(e.n_out):
        # A step along p, between blocks that differ in p alone, shares the panels of the operands that lack p.
        turns = (blocks[p] - 1) * math.prod(blocks[:p])
        shared = sum(
            nbytes / max(1, math.prod(blocks[q] for q in set(access) if q < e.n_out))
            for access, nbytes in zip(e.accesses, whole, strict=True)
            if p not in access
        )
        total -= max(0, turns) * min(shared, max(0.0, slack))
    return max(least, total)
