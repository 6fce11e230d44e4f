"""I/O blocking: which output tiles a walk keeps together.

Tiles are kernel-sized; blocks of them are memory-sized. While one block is made, its accumulators stay and operand
panels stream past, so operand s is read once for every block along the output labels that it lacks: for C = A B with
square blocks of side b this is 2MNK/b elements, the bound of Hong and Kung (1981) and Smith et al. (arXiv 1702.02017)
when the block fills the memory. Blocks need not divide the matrix evenly. What memory a block leaves keeps a small
operand for good, and at each turn of the walk what the next block shares with the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.working_set import is_cut, operand_nbytes, output_nbytes, state_nbytes
from einturnip.tiling.equivalence import EquivalenceClass
from einturnip.tiling.types import IoBlock, Partitioning, walk_order

Floats: TypeAlias = NDArray[np.float64]

# Of the capacity, what a block may hold. Less where operands are made by kernels of their own.
SHARE_STREAMED = 0.99
SHARE_COMPUTED = 0.5
SHARE_KEPT = 0.15  # tiles that are not stored but read by another node, beside whatever that one holds
# Tiles of each operand that are read ahead, where some are made by kernels; else one is.
AHEAD = 2
# Accumulators of two blocks that stand beside each other at a turn.
TURNING = 2
# Tiles of an operand that pass beside what stays at a turn.
STREAMED = 2
MOST_CANDIDATES = 20_000
# Fewer for einsums of more labels than this: of each candidate, what each label takes is kept.
FEW_LABELS = 4


class BestBlock(NamedTuple):
    """The block of an einsum that reads the fewest bytes in some memory: its row, and what all operands are read by it.

    ``together``: tiles of the largest block that reads as little; ``outermost``: as Block has it; ``reads``: bytes of
    each operand, turns' savings shared.
    """

    row: int
    nbytes: float
    together: int
    outermost: int
    reads: Floats


def choose_block(group: EquivalenceClass, part: Partitioning, capacity: int) -> tuple[IoBlock, float]:
    """The block of the group's einsums that reads the fewest bytes among those that fit, and those bytes."""
    return BlockTable(group, part).best(capacity)


class BlockTable:
    """The blocks that an einsum's tiles can be walked in, with what each holds and reads: one row a block."""

    def __init__(self, group: EquivalenceClass, part: Partitioning) -> None:
        e = group.einsum
        self._known: tuple[int, BestBlock] | None = None
        self.n_out = e.n_out
        self.reads = group.reads
        self.counts = part.counts
        self.cut = is_cut(e, part.tiles)
        self.whole = [float(operand_nbytes(e, s, e.bounds)) for s in range(len(e.accesses))]
        self.tile = [operand_nbytes(e, s, part.tiles) for s in range(len(e.accesses))]
        kept = group.consumed
        computed = group.from_kernels or kept
        self.share = SHARE_KEPT if kept and not self.cut else SHARE_COMPUTED if computed else SHARE_STREAMED
        made = self.made = state_nbytes(e, part.tiles) if self.cut else output_nbytes(e, part.tiles)
        counts = self.counts[: e.n_out]
        walks: list[int | None] = [None] if self.cut else [p for p in range(e.n_out) if counts[p] > 1]
        self.walks: list[int | None] = []
        rows = [np.ones((1, e.n_out), np.int64)]
        held = [self._held(rows[0], None, made, self.cut or kept)]
        self.walks.append(None)
        most = MOST_CANDIDATES // max(1, len(walks) * len(counts) ** 2 // FEW_LABELS**3)
        for walk in walks:
            rows.append(_sizes(counts, walk, most))
            held.append(self._held(rows[-1], walk, made, self.cut or kept))
            self.walks += [walk] * len(rows[-1])
        self.tiles = np.concatenate(rows)
        self.held = np.concatenate(held)
        self.turned = np.full(len(self.held), np.inf)
        if self.cut:
            firsts = (self._held(self.tiles, None, made, True, p) for p in range(e.n_out))
            self.turned = np.maximum.reduce([self.held, *firsts]) + (0 if computed else self._scattered())

    def best(self, capacity: int) -> tuple[IoBlock, float]:
        """The block that reads the fewest bytes in ``capacity``, and of those the smallest."""
        found = self._best(capacity)
        turning = bool(self.turned[found.row] <= capacity * self.share)
        tiles = tuple(self.tiles[found.row].tolist())
        return IoBlock(tiles, self.walks[found.row], turning, found.outermost), found.nbytes

    def read_nbytes(self, capacity: int) -> float:
        """Bytes that the best block reads."""
        return self._best(capacity).nbytes

    def reads_of_each(self, capacity: int) -> Floats:
        """The same of each operand, with a share of what turns save."""
        return self._best(capacity).reads

    def together(self, capacity: int) -> int:
        """Of how many output tiles the accumulators may stand beside one another with nothing read more often."""
        return self._best(capacity).together

    def spare(self, capacity: int) -> float:
        """How many more operand tiles would fit beside the best block: with few, free bytes come to be scattered."""
        slack = capacity * self.share - float(self.held[self._best(capacity).row])
        return slack / max(1, *self.tile)

    def _best(self, capacity: int) -> BestBlock:
        if self._known is None or self._known[0] != capacity:
            self._known = capacity, self._search(capacity)
        return self._known[1]

    def _search(self, capacity: int) -> BestBlock:
        slack = capacity * self.share - self.held
        slack[0] = max(0.0, slack[0])
        again, shared, turns = self._shares()
        reads, left = np.array(self.whole) * again, slack.copy()
        for s in sorted(range(len(self.whole)), key=self.whole.__getitem__):
            stays = (again[:, s] > 1) & (self.whole[s] <= left)
            left -= np.where(stays, self.whole[s], 0.0)
            shared[:, s] *= ~stays[:, None]
            reads[stays, s] = self.whole[s]
        # At a turn the last block's accumulators are on their way out while the next one's come. Where the walk of the
        # tiles turns too, all else is left for what both blocks read, but a tile of the other operand, and the next.
        block = self.tiles.prod(axis=1)
        passing = self.made + STREAMED * max(self.tile, default=0)
        turned = self.held - self.made * block - passing
        turning = self.turned <= capacity * self.share
        left += np.where(turning, turned, -self.made * np.minimum(TURNING, block))
        both = shared.sum(axis=1)
        kept = np.minimum(both, np.maximum(left, 0.0)[:, None])
        saved = (turns * kept).sum(axis=2)
        total = np.maximum(reads.sum(axis=1) - saved.max(axis=0), sum(self.whole))
        total[slack < 0] = np.inf
        row = int(np.lexsort((self.held, total))[0])
        outermost = int(saved[:, row].argmax())
        spared = shared[row] @ (turns[outermost, row] * kept[row] / np.maximum(1.0, both[row]))
        together = int(block[total <= total[row]].max())
        return BestBlock(row, float(total[row]), together, outermost, np.maximum(self.whole, reads[row] - spared))

    def _held(
        self, tiles: NDArray[np.int64], walk: int | None, made: int, stays: bool, first: int | None = None
    ) -> Floats:
        """Bytes that stand while a block is made: accumulators or kept tiles, what comes round again, what is next.

        ``first``: the output label that the walk of a block's tiles changes last of all, if not the first.
        """
        extents: dict[int, Any] = {p: tiles[:, p] for p in range(self.n_out)}
        inner = [p for p in range(self.n_out, len(self.counts)) if self.cut]
        extents |= {p: self.counts[p] for p in inner}
        outer = inner if walk is None else [walk]
        order = [*outer, *sorted((p for p in range(self.n_out) if p != walk), key=lambda p: p != first)]
        held: Floats = float(made) * (tiles.prod(axis=1) if stays else np.full(len(tiles), 2.0))
        for reads, tile in zip(self.reads, self.tile, strict=True):
            live = np.ones(len(tiles))
            every = np.ones(len(tiles))
            again = np.zeros(len(tiles), bool)
            for p in order:
                if p in reads:
                    live *= np.where(again, extents[p], 1)
                    every *= extents[p]
                else:
                    again |= np.asarray(extents[p]) > 1
            held += tile * np.minimum(every, live + (AHEAD if self.share < SHARE_STREAMED else 1))
        # Where values are not given up at will.
        return held + (self._scattered() if self.share < SHARE_STREAMED else 0)

    def _scattered(self) -> int:
        """Free bytes between values of sizes that do not fit each other."""
        return sum(tile for tile in self.tile if tile and max(self.made, tile) % min(self.made, tile))

    def _shares(self) -> tuple[Floats, Floats, Floats]:
        """How often each operand is read, what each turn of the walk shares of it, a row for each block; and the turns.

        Made for each capacity, of which few are asked for: kept, they would be most of what a search for plans holds.
        """
        n, axes = len(self.tiles), range(self.n_out)
        counts = np.array(self.counts[: self.n_out], np.int64).reshape(1, -1)
        blocks = -(-counts // self.tiles)
        again = np.ones((n, len(self.whole)))
        shared = np.zeros((n, len(self.whole), self.n_out))
        for s, (reads, nbytes) in enumerate(zip(self.reads, self.whole, strict=True)):
            lacking = [p for p in axes if p not in reads]
            again[:, s] = blocks[:, lacking].prod(axis=1)
            panel = nbytes / np.maximum(1, blocks[:, [p for p in axes if p in reads]].prod(axis=1))
            shared[:, s, lacking] = panel[:, None]
        # A step along p, between blocks that differ in p alone, shares the panels of the operands that lack p.
        # How many there are hangs on the label that the walk of blocks changes last: a page for each.
        turns = np.zeros((max(1, self.n_out), n, self.n_out))
        for outermost in axes:
            lines: Any = 1
            for p in walk_order(self.n_out, outermost):
                turns[outermost, :, p] = lines * (blocks[:, p] - 1)
                lines = lines * blocks[:, p]
        return again, shared, turns


def _sizes(counts: Sequence[int], walk: int | None, most: int) -> NDArray[np.int64]:
    """Blocks as tiles along each label: all along ``walk``, else sizes that give different numbers of blocks.

    Where these are more than ``most``, blocks are one tile along the labels with the fewest.
    """
    ranges = [[n] if p == walk else _block_sizes(n) for p, n in enumerate(counts)]
    if math.prod(map(len, ranges)) > most:
        ranges = [r if len(r) == 1 else r[:: max(1, len(r) // 8)] for r in ranges]
    for p in sorted(range(len(counts)), key=counts.__getitem__):
        if math.prod(map(len, ranges)) > most and p != walk:
            ranges[p] = [1]
    return np.array(list(product(*ranges)), np.int64).reshape(math.prod(map(len, ranges)), len(counts))


def _block_sizes(count: int) -> list[int]:
    """Block sizes that differ in the number of blocks they give."""
    root = math.isqrt(count)
    large = {-(-count // n) for n in range(1, root + 1)}
    return sorted(large.union(s for s in range(1, root + 1) if -(-count // -(-count // s)) == s)) or [1]
