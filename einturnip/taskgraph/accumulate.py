"""Accumulator states: one per output tile, or a tree of partial states where rounding errors add up."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from einturnip.ir.einsum import contraction
from einturnip.ir.region import Region, Space
from einturnip.kernels.expr.fold import carries_rounded_sums
from einturnip.tiling.types import Partitioning
from einturnip.tuning.memory import (
    LIBRARY_TERMS,
    MAX_ADDITIONS,
    MAX_GROUPS_OF_ROW,
    MAX_ORDERED_GROUPS,
    MAX_TILES_BY_KEY,
    MIN_ORDERED_TERMS,
    ROWS_OF_GROUP,
)

Key: TypeAlias = tuple[int, ...]


def max_additions(space: Space, part: Partitioning) -> int | None:
    """Return how many tiles are added to one state; None if there is one state for all.

    A tile by key that has too few rows for a table of partial sums adds up to about a hundred rows of a group to the
    state, one after the other.
    """
    if not _splits(space, part.counts):
        return None
    if isinstance(space, Region) or not space.keys:
        return MAX_ADDITIONS
    keys = {key.label for key in space.keys}
    rows = math.prod(part.tiles[p] for p in frozenset().union(*(space.labels_of(key.value) for key in space.keys)))
    groups = math.prod(part.tiles[p] for p in keys if p < space.n_out)
    few_rows = rows < ROWS_OF_GROUP * groups and groups <= MAX_GROUPS_OF_ROW * rows
    return MAX_TILES_BY_KEY if few_rows else MAX_ADDITIONS


def _splits(space: Space, counts: Sequence[int]) -> bool:
    """Return True if a long accumulation is split into partial states.

    ``counts``: the number of tiles, by label.

    Matrix products of large tiles are not: a second set of accumulators would take the memory that makes them fast, and
    a library that computes the whole product adds as many partial sums in a row.
    """
    if isinstance(space, Region):
        return carries_rounded_sums(space)
    if space.aggregation is None or not space.aggregation.rounds:
        return False
    product = contraction(space)
    if product is None or min(math.prod(space.bounds[p] for p in side) for side in (product.m, product.n)) == 1:
        return True
    tiles, terms = (math.prod(by_label[p] for p in space.aggregated) for by_label in (counts, space.bounds))
    return tiles * LIBRARY_TERMS > terms


def tiles_of_group(space: Space, part: Partitioning) -> int:
    """Return how many tiles form a group of an ordered sum, which one device adds."""
    tiles, terms = (math.prod(by_label[p] for p in space.aggregated) for by_label in (part.counts, part.tiles))
    return max(1, min(tiles, max(-(-tiles // MAX_ORDERED_GROUPS), -(-MIN_ORDERED_TERMS // max(1, terms)))))


class Accumulators:
    """The states of a block of output tiles while its tasks are emitted.

    Each key has levels of states on each device that has a part of its terms. Tiles are accumulated into the lowest
    level; a full state is added to the level above, and the next tile starts a new one. So a plan with few tiles has
    one state per key and device, and rounding errors grow with the logarithm of the number of tiles.

    ``limit``: how many tiles are added to one state; None if there is one state for all. ``group``: tiles of a group of
    an ordered sum, else 0. The groups are combined in pairs, by a tree that does not depend on devices, and neither do
    the bits; the states of each level are then shared by all devices, and a sum of one group has one state.

    ``new``: creates a state for an output tile on a device; ``combine``: emits the task that adds one state to another;
    ``tree``: returns pairs (device, device that combines its state) for a tile of several devices, leaves first.
    """

    def __init__(
        self,
        limit: int | None,
        group: int,
        new: Callable[[Key, int], int],
        combine: Callable[[Key, int, int], None],
        tree: Callable[[Key, Sequence[int]], Sequence[tuple[int, int]]],
    ) -> None:
        self.group, self._new, self._combine, self._tree = group, new, combine, tree
        # How many tiles are added to a state of level 0, and states of the level below to one of each further level.
        # The last entry holds for all levels above it.
        self._additions = [limit or sys.maxsize, MAX_ADDITIONS]
        if group:
            added = min(group, self._additions[0])
            self._additions = [added, -(-group // added), 2]
        # By key and device the levels, lowest first: a state and its number of additions.
        self._levels: dict[Key, dict[int, list[tuple[int, int]]]] = {}
        self._device: dict[int, int] = {}

    def next_state(self, key: Key, device: int) -> int:
        """Return the state that the next tile of ``key`` on a device is accumulated into."""
        levels = self._levels.setdefault(key, {}).setdefault(0 if self.group else device, [(-1, 0)])
        self._make_room(key, levels, 0)
        state, count = levels[0]
        if not count:
            state = self._new(key, device)
            self._device[state] = device
        levels[0] = state, count + 1
        return state

    def finalize(self, key: Key) -> tuple[int, int]:
        """Combine all states of ``key``; return the one that holds the total, and its device."""
        by_device = self._levels.pop(key)
        totals = {device: self._total(key, by_device[device]) for device in sorted(by_device)}
        root = next(iter(totals))
        for device, root in self._tree(key, list(totals)) if len(totals) > 1 else ():
            self._combine(key, totals[root], totals[device])
        return totals[root], self._device[totals[root]]

    def _total(self, key: Key, levels: list[tuple[int, int]]) -> int:
        level = 0
        while level + 1 < len(levels):  # a full level adds one above it
            self._move_up(key, levels, level)
            level += 1
        return levels[-1][0]

    def _make_room(self, key: Key, levels: list[tuple[int, int]], level: int) -> None:
        """Ensure that a level exists and is not full."""
        if level == len(levels):
            levels.append((-1, 0))
        elif levels[level][1] == self._additions[min(level, len(self._additions) - 1)]:
            self._move_up(key, levels, level)

    def _move_up(self, key: Key, levels: list[tuple[int, int]], level: int) -> None:
        """Add the state of a level to that of the level above, or make it that state."""
        state, count = levels[level]
        if not count:
            return
        self._make_room(key, levels, level + 1)
        upper, added = levels[level + 1]
        if added:
            self._combine(key, upper, state)
        levels[level + 1] = (upper if added else state), added + 1
        levels[level] = -1, 0
