"""Refines tilings for a memory: tiles that fill a block evenly, then steps along one class at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from einturnip.ir.einsum import Einsum, contraction
from einturnip.tiling.equivalence import EquivalenceClass, EquivalenceClasses
from einturnip.tiling.label_classes import LabelClasses
from einturnip.tiling.search import chunk_divisor
from einturnip.tuning.search import (
    ACCUMULATOR_SHARE,
    MAX_BLOCKS,
    MAX_SHAPES,
    MORE_BLOCKS,
    PRODUCT_DEPTHS,
    PRODUCT_SIDES,
    SHARE_STREAMED,
    STEP_FACTORS,
    THINNEST_STEP,
)

Price = Callable[[Sequence[int]], float]


def fit_capacity(graph: EquivalenceClasses, tiles: Sequence[int], capacity: int) -> Iterator[tuple[int, ...]]:
    """Change ``tiles`` so that blocks of the largest product's accumulators fill ``capacity`` evenly."""
    products = [g for g in graph.groups if g.from_files and _is_product(g)]
    if not products:
        return
    group = max(products, key=lambda g: len(g.nodes) * math.prod(g.einsum.bounds))
    e = group.einsum
    assert isinstance(e, Einsum)
    c = contraction(e)
    assert c is not None
    fixed = graph.classes.fixed | graph.classes.tiled_last | graph.classes.whole
    free = [p for p in range(len(e.bounds)) if group.classes[p] not in fixed]
    m, n, k = (max((p for p in side if p in free), key=e.bounds.__getitem__, default=None) for side in (c.m, c.n, c.k))
    if m is None or n is None or k is None or group.classes[m] == group.classes[n] or 0 in e.bounds:
        return
    own = graph.tiles(group, tiles)
    others = math.prod(own[p] for p in range(e.n_out) if p not in (m, n))
    available = capacity * SHARE_STREAMED / (others * c.accumulator.itemsize)
    for rows, columns in _shapes(e.bounds[m], e.bounds[n], e.bounds[k], available):
        for depth, high, wide in product(PRODUCT_DEPTHS, PRODUCT_SIDES, PRODUCT_SIDES):
            changed = list(tiles)
            for p, blocks, side in ((m, rows, high), (n, columns, wide), (k, 1, depth)):
                own_class, split = group.classes[p], max(1, math.ceil(e.bounds[p] / blocks / side))
                changed[own_class] = even_tile(graph.classes, own_class, e.bounds[p], blocks * split)
            yield tuple(changed)


def _shapes(m: int, n: int, k: int, available: float) -> list[tuple[int, int]]:
    """Return numbers of blocks along both sides of an m by n product with one block in memory, best first.

    Each block reads a panel of either operand, except the part that the previous block has left in memory.
    """
    found = []
    for rows in range(1, MAX_BLOCKS + 1):
        min_columns = math.ceil(n / max(1.0, ACCUMULATOR_SHARE * available / math.ceil(m / rows)))
        for columns in range(min_columns, min(n, min_columns + MORE_BLOCKS) + 1):
            unused = ACCUMULATOR_SHARE * available - math.ceil(m / rows) * math.ceil(n / columns)
            across, down = (columns - 1) * min(unused, m * k / rows), (rows - 1) * min(unused, n * k / columns)
            turns = max(across * rows + down, across + down * columns)
            found.append((m * k * columns + n * k * rows - turns, rows, columns))
    return list(dict.fromkeys((rows, columns) for _, rows, columns in sorted(found)))[:MAX_SHAPES]


def _is_product(group: EquivalenceClass) -> bool:
    e = group.einsum
    return isinstance(e, Einsum) and e.plain and contraction(e) is not None


def even_tile(classes: LabelClasses, c: int, bound: int, count: int) -> int:
    """Return the tile of class ``c`` for ``count`` tiles of ``bound``; it divides the calls of sites."""
    return classes.dividing(c, even_extent(bound, count, classes.steps[c], classes.chunks[c]))


def even_extent(bound: int, count: int, step: int = 1, chunk: int = 1) -> int:
    """Return the larger extent of ``count`` nearly equal tiles, as a multiple of 8 or 16 if possible.

    A multiple or divisor of ``chunk`` is preferred, else a multiple of ``step``.
    """
    tile = -(-bound // max(1, min(count, bound)))
    if chunk > step:
        if tile < chunk:
            return chunk_divisor(chunk, tile, step) or even_extent(bound, count, step)
        return min(bound, -(-tile // chunk) * chunk)
    if tile >= 64 and tile < bound:
        whole = 16 if tile >= 1024 else 8
        tile = -(-tile // whole) * whole
    return min(bound, -(-tile // step) * step) or 1


def improved(
    graph: EquivalenceClasses, tiles: Sequence[int], price: Price, classes: Sequence[int], evaluations: int
) -> tuple[int, ...]:
    """Return the tiles after steps along one class at a time, each lowering the price, to a local minimum."""
    best, lowest = tuple(tiles), price(tiles)
    bounds = graph.classes.bounds
    improving = True
    while improving and evaluations > 0:
        improving = False
        for c in classes:
            count = -(-bounds[c] // best[c])
            counts = {count - 1, count + 1, *(round(count * t) for t in STEP_FACTORS)}
            sizes = {even_tile(graph.classes, c, bounds[c], n) for n in counts if 1 <= n <= bounds[c]} - {best[c]}
            for size in sorted(n for n in sizes if n >= min(THINNEST_STEP, best[c])):
                changed = (*best[:c], size, *best[c + 1 :])
                evaluations -= 1
                found = price(changed)
                if found < lowest:
                    best, lowest, improving = changed, found, True
    return best


def blocked_classes(graph: EquivalenceClasses) -> list[int]:
    """Return the classes of products that read files, largest product first, except those fixed."""
    fixed = graph.classes.fixed | graph.classes.tiled_last | graph.classes.whole
    groups = sorted(
        (g for g in graph.groups if g.from_files and _is_product(g)),
        key=lambda g: -len(g.nodes) * math.prod(g.einsum.bounds),
    )
    return list(dict.fromkeys(c for g in groups for c in g.classes if c not in fixed))
