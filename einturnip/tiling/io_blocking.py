"""I/O blocking: chooses the output tiles that are kept in memory together.

Tiles have the size of a kernel's work, blocks the size of the memory. While one block is made, its accumulators stay
and operand panels stream past, so an operand is read once for every block along the output labels that it lacks. For C
= A B with square blocks of side b this is 2MNK/b elements, the bound of Hong and Kung (1981) and Smith et al. (arXiv
1702.02017) if the block fills the memory. Blocks need not divide the matrix evenly. Remaining memory keeps a small
operand for good and, at each turn of the walk, the data shared by neighbouring blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.working_set import operand_nbytes, output_nbytes, splits_aggregation
from einturnip.tiling.equivalence import EquivalenceClass
from einturnip.tiling.types import IoBlock, Partitioning, walk_order
from einturnip.tuning.search import (
    COMPUTED_AHEAD,
    FEW_LABELS,
    MAX_BLOCK_CANDIDATES,
    SHARE_COMPUTED,
    SHARE_KEPT,
    SHARE_STREAMED,
    STREAMED_TILES,
    TURNING_TILES,
)

Floats: TypeAlias = NDArray[np.float64]


class BestBlock(NamedTuple):
    """The block of an einsum that reads the fewest bytes in some memory: its row and the bytes read.

    ``concurrent_tiles``: tiles of the largest block that reads as little; ``outermost``: as in IoBlock; ``reads``:
    bytes of each operand, savings at turns included.
    """

    row: int
    nbytes: float
    concurrent_tiles: int
    outermost: int
    reads: Floats


def choose_block(group: EquivalenceClass, part: Partitioning, capacity: int) -> tuple[IoBlock, float]:
    """Return the block that reads the fewest bytes among those that fit, and those bytes."""
    e = group.einsum
    if max(part.counts, default=1) == 1:  # one kernel makes all of the output
        return IoBlock((1,) * e.n_out, None, False, 0), sum(
            float(operand_nbytes(e, s, e.bounds)) for s in range(len(e.accesses))
        )
    return BlockTable(group, part).best(capacity)


class BlockTable:
    """All candidate blocks of an einsum's tiles, one per row, with the bytes that each holds and reads."""

    def __init__(self, group: EquivalenceClass, part: Partitioning) -> None:
        e = group.einsum
        self._known: tuple[int, BestBlock] | None = None
        self.n_out = e.n_out
        self.reads = group.reads
        self.counts = part.counts
        self.accumulates = splits_aggregation(e, part.tiles)
        self.whole = [float(operand_nbytes(e, s, e.bounds)) for s in range(len(e.accesses))]
        self.tile = [operand_nbytes(e, s, part.tiles) for s in range(len(e.accesses))]
        kept = group.consumed
        computed = group.from_kernels or kept
        self.share = SHARE_KEPT if kept and not self.accumulates else SHARE_COMPUTED if computed else SHARE_STREAMED
        made = self.made = e.state_nbytes(part.tiles) if self.accumulates else output_nbytes(e, part.tiles)
        counts = self.counts[: e.n_out]
        walks: list[int | None] = [None] if self.accumulates else [p for p in range(e.n_out) if counts[p] > 1]
        self.walks: list[int | None] = []
        rows = [np.ones((1, e.n_out), np.int64)]
        live = [self._live_nbytes(rows[0], None, made, self.accumulates or kept)]
        self.walks.append(None)
        max_blocks = MAX_BLOCK_CANDIDATES // max(1, len(walks) * len(counts) ** 2 // FEW_LABELS**3)
        for walk in walks:
            rows.append(_sizes(counts, walk, max_blocks))
            live.append(self._live_nbytes(rows[-1], walk, made, self.accumulates or kept))
            self.walks += [walk] * len(rows[-1])
        self.tiles = np.concatenate(rows)
        self.live_nbytes = np.concatenate(live)
        self.turned = np.full(len(self.live_nbytes), np.inf)
        if self.accumulates:
            firsts = (self._live_nbytes(self.tiles, None, made, True, p) for p in range(e.n_out))
            self.turned = np.maximum.reduce([self.live_nbytes, *firsts]) + (0 if computed else self._scattered())

    def best(self, capacity: int) -> tuple[IoBlock, float]:
        """Return the block that reads the fewest bytes in ``capacity``; among equals the smallest."""
        found = self._best(capacity)
        turning = bool(self.turned[found.row] <= capacity * self.share)
        tiles = tuple(self.tiles[found.row].tolist())
        return IoBlock(tiles, self.walks[found.row], turning, found.outermost), found.nbytes

    def read_nbytes(self, capacity: int) -> float:
        """Return the bytes that the best block reads."""
        return self._best(capacity).nbytes

    def reads_of_each(self, capacity: int) -> Floats:
        """Return the bytes that the best block reads of each operand, savings at turns included."""
        return self._best(capacity).reads

    def concurrent_tiles(self, capacity: int) -> int:
        """Return the largest number of concurrent accumulator tiles that needs no additional reads."""
        return self._best(capacity).concurrent_tiles

    def free_tiles(self, capacity: int) -> float:
        """Return the number of operand tiles that fit next to the best block; few mean fragmented memory."""
        slack = capacity * self.share - float(self.live_nbytes[self._best(capacity).row])
        return slack / max(1, *self.tile)

    def _best(self, capacity: int) -> BestBlock:
        if self._known is None or self._known[0] != capacity:
            self._known = capacity, self._search(capacity)
        return self._known[1]

    def _search(self, capacity: int) -> BestBlock:
        slack = capacity * self.share - self.live_nbytes
        slack[0] = max(0.0, slack[0])
        repeats, shared, turns = self._shares()
        reads, left = np.array(self.whole) * repeats, slack.copy()
        for s in sorted(range(len(self.whole)), key=self.whole.__getitem__):
            stays = (repeats[:, s] > 1) & (self.whole[s] <= left)
            left -= np.where(stays, self.whole[s], 0.0)
            shared[:, s] *= ~stays[:, None]
            reads[stays, s] = self.whole[s]
        # At a turn the last block's accumulators are stored while the next block's are made. If the walk of the tiles
        # turns too, the remaining memory, except for the streamed tiles, keeps the data that both blocks read.
        block = self.tiles.prod(axis=1)
        passing = self.made + STREAMED_TILES * max(self.tile, default=0)
        turned = self.live_nbytes - self.made * block - passing
        turning = self.turned <= capacity * self.share
        left += np.where(turning, turned, -self.made * np.minimum(TURNING_TILES, block))
        both = shared.sum(axis=1)
        kept = np.minimum(both, np.maximum(left, 0.0)[:, None])
        saved = (turns * kept).sum(axis=2)
        total = np.maximum(reads.sum(axis=1) - saved.max(axis=0), sum(self.whole))
        total[slack < 0] = np.inf
        row = int(np.lexsort((self.live_nbytes, total))[0])
        outermost = int(saved[:, row].argmax())
        spared = shared[row] @ (turns[outermost, row] * kept[row] / np.maximum(1.0, both[row]))
        concurrent_tiles = int(block[total <= total[row]].max())
        return BestBlock(
            row, float(total[row]), concurrent_tiles, outermost, np.maximum(self.whole, reads[row] - spared)
        )

    def _live_nbytes(
        self, tiles: NDArray[np.int64], walk: int | None, made: int, stays: bool, first: int | None = None
    ) -> Floats:
        """Return the bytes in memory while a block is made: accumulators, reused panels, prefetched tiles.

        ``first``: the output label that changes slowest in the walk of a block's tiles, if not the first.
        """
        extents: dict[int, Any] = {p: tiles[:, p] for p in range(self.n_out)}
        inner = [p for p in range(self.n_out, len(self.counts)) if self.accumulates]
        extents |= {p: self.counts[p] for p in inner}
        outer = inner if walk is None else [walk]
        order = [*outer, *sorted((p for p in range(self.n_out) if p != walk), key=lambda p: p != first)]
        nbytes: Floats = float(made) * (tiles.prod(axis=1) if stays else np.full(len(tiles), 2.0))
        for reads, tile in zip(self.reads, self.tile, strict=True):
            live = np.ones(len(tiles))
            every = np.ones(len(tiles))
            repeats = np.zeros(len(tiles), bool)
            for p in order:
                if p in reads:
                    live *= np.where(repeats, extents[p], 1)
                    every *= extents[p]
                else:
                    repeats |= np.asarray(extents[p]) > 1
            nbytes += tile * np.minimum(every, live + (COMPUTED_AHEAD if self.share < SHARE_STREAMED else 1))
        # Computed values cannot be dropped and read again, so fragmentation counts.
        return nbytes + (self._scattered() if self.share < SHARE_STREAMED else 0)

    def _scattered(self) -> int:
        """Return the free bytes lost between values of different sizes."""
        return sum(tile for tile in self.tile if tile and max(self.made, tile) % min(self.made, tile))

    def _shares(self) -> tuple[Floats, Floats, Floats]:
        """Return the reads of each operand, the shares saved at each turn, per block; and the turns.

        Computed for each capacity: cached, these tables would be most of the memory of a search.
        """
        n, axes = len(self.tiles), range(self.n_out)
        counts = np.array(self.counts[: self.n_out], np.int64).reshape(1, -1)
        blocks = -(-counts // self.tiles)
        repeats = np.ones((n, len(self.whole)))
        shared = np.zeros((n, len(self.whole), self.n_out))
        for s, (reads, nbytes) in enumerate(zip(self.reads, self.whole, strict=True)):
            lacking = [p for p in axes if p not in reads]
            repeats[:, s] = blocks[:, lacking].prod(axis=1)
            panel = nbytes / np.maximum(1, blocks[:, [p for p in axes if p in reads]].prod(axis=1))
            shared[:, s, lacking] = panel[:, None]
        # A step along p, between blocks that differ in p alone, shares the panels of the operands that lack p. The
        # number of such steps depends on the label that the walk of blocks changes last: one page for each choice.
        turns = np.zeros((max(1, self.n_out), n, self.n_out))
        for outermost in axes:
            lines: Any = 1
            for p in walk_order(self.n_out, outermost):
                turns[outermost, :, p] = lines * (blocks[:, p] - 1)
                lines = lines * blocks[:, p]
        return repeats, shared, turns


def _sizes(counts: Sequence[int], walk: int | None, max_blocks: int) -> NDArray[np.int64]:
    """Return candidate blocks as tiles along each label.

    All along ``walk``, else distinct numbers of blocks. If there are more than ``max_blocks``, blocks are one tile
    along the labels with the fewest.
    """
    ranges = [[n] if p == walk else _block_sizes(n) for p, n in enumerate(counts)]
    if math.prod(map(len, ranges)) > max_blocks:
        ranges = [r if len(r) == 1 else r[:: max(1, len(r) // 8)] for r in ranges]
    for p in sorted(range(len(counts)), key=counts.__getitem__):
        if math.prod(map(len, ranges)) > max_blocks and p != walk:
            ranges[p] = [1]
    return np.array(list(product(*ranges)), np.int64).reshape(math.prod(map(len, ranges)), len(counts))


def _block_sizes(count: int) -> list[int]:
    """Return the block sizes that give different numbers of blocks."""
    root = math.isqrt(count)
    large = {-(-count // n) for n in range(1, root + 1)}
    return sorted(large.union(s for s in range(1, root + 1) if -(-count // -(-count // s)) == s)) or [1]
