"""The order in which a node's tiles are visited: block by block, and the tiles of each block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from operator import itemgetter
from typing import TypeAlias

from einturnip.kernels.mask import LabelMask
from einturnip.tiling.types import IoBlock, Partitioning, walk_order

Key: TypeAlias = tuple[int, ...]


def block_keys(counts: Sequence[int], block: IoBlock, key: Key) -> list[Key]:
    """Return the keys of the block that contains ``key``.

    The streamed label is outermost, so each tile passes once.
    """
    if block.streamed is None and math.prod(block.tiles) == 1:
        return [key]
    ranges = [range(k // b * b, min((k // b + 1) * b, c)) for k, b, c in zip(key, block.tiles, counts, strict=True)]
    if block.streamed is None:
        return list(product(*ranges))
    return _walked(ranges, block.streamed, product)


def block_starts(counts: Sequence[int], block: IoBlock | None) -> Iterator[Key]:
    """Yield the first key of every block in serpentine order."""
    steps, outermost = ((1,) * len(counts), 0) if block is None else (block.tiles, block.outermost)
    ranges = [range(0, c, b) for c, b in zip(counts, steps, strict=True)]
    yield from _walked(ranges, outermost, lambda *ordered: serpentine(ordered))


def _walked(ranges: Sequence[range], outermost: int, walk: Callable[..., Iterable[Key]]) -> list[Key]:
    """Return the keys of a walk over ranges with one axis outermost."""
    order = walk_order(len(ranges), outermost)
    back = sorted(range(len(order)), key=order.__getitem__)
    return [tuple(k[b] for b in back) for k in walk(*(ranges[p] for p in order))]


def tile_orders(
    counts: Sequence[int], block: IoBlock, key: Key, keys: Sequence[Key], steps: int
) -> Iterator[Sequence[Key]]:
    """Yield, for each step of aggregated tiles, the order of the tiles of the block that contains ``key``.

    Every second step runs backwards. If the plan has spare memory, the label along which the walk entered the block
    changes slowest in the first half of the steps, and the label along which it leaves in the second half. So tiles
    shared with the neighbouring block stay in memory and the others pass one by one.
    """
    came, leaves = turning_labels(counts, block, key) if block.turning else (None, None)
    first, second = (keys if p is None else [k for _, k in sorted((k[p], k) for k in keys)] for p in (came, leaves))
    for n in range(steps):
        walk = first if leaves is None or (came is not None and 2 * n < steps) else second
        yield walk if n % 2 == 0 else walk[::-1]


def turning_labels(counts: Sequence[int], block: IoBlock, key: Key) -> tuple[int | None, int | None]:
    """Return the labels along which the walk of blocks enters and leaves the block that contains ``key``."""
    came = leaves = None
    at = [k // b for k, b in zip(key, block.tiles, strict=True)]
    lines = 0
    for p in walk_order(len(at), block.outermost):
        further, back = (at[p] + 1) * block.tiles[p] < counts[p], at[p] > 0
        if lines % 2:  # this line is walked backwards
            further, back = back, further
        came, leaves, lines = p if back else came, p if further else leaves, lines + at[p]
    return came, leaves


def serpentine(ranges: Sequence[range]) -> Iterator[Key]:
    """Yield the product of the ranges, each step changing one coordinate by one (boustrophedon)."""
    if not ranges:
        yield ()
        return
    forward = list(serpentine(ranges[1:]))
    for n, first in enumerate(ranges[0]):
        for rest in forward if n % 2 == 0 else reversed(forward):
            yield (first, *rest)


def idle_tiles(mask: LabelMask, part: Partitioning, keys: Sequence[Key], steps: Sequence[Key]) -> frozenset[Key]:
    """Return the tiles that a mask leaves empty, except one per output tile that initialises its state."""
    if not mask.conditions:
        return frozenset()
    found: set[Key] = set()
    for k in keys:
        nothing = [k + inner for inner in steps if mask.is_idle(part.box(k + inner))]
        found.update(nothing if len(nothing) < len(steps) else nothing[1:])
    return frozenset(found)


def picker(axes: Sequence[int]) -> Callable[[Key], Key]:
    """Return a function that selects the given entries of a key."""
    if len(axes) > 1:
        return itemgetter(*axes)
    return (lambda key: (key[axes[0]],)) if axes else (lambda key: ())
