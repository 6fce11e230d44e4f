"""The order of a node's tiles: lines of blocks back and forth, and the values that stay in memory between turns."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from einturnip.taskgraph.order import block_keys, block_starts, tile_orders, turning_labels
from einturnip.tiling.types import IoBlock

lines = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=3)
outermost = st.integers(0, 2)


@given(lines, outermost)
def test_turns_are_the_labels_in_which_neighbours_of_the_walk_differ(line: list[tuple[int, int]], last: int) -> None:
    counts = [c for c, _ in line]
    block = IoBlock(tuple(b for _, b in line), None, True, min(last, len(line) - 1))
    starts = list(block_starts(counts, block))
    for n, start in enumerate(starts):
        near = (starts[n - 1] if n else start, starts[n + 1] if n + 1 < len(starts) else start)
        differ = [[p for p, (a, b) in enumerate(zip(start, other, strict=True)) if a != b] for other in near]
        assert turning_labels(counts, block, start) == tuple(d[0] if d else None for d in differ)
        assert all(len(d) <= 1 for d in differ)


@given(lines, st.integers(1, 5), st.booleans(), outermost)
def test_every_step_walks_every_tile_once_and_goes_on_where_the_last_one_ended(
    line: list[tuple[int, int]], steps: int, turning: bool, last: int
) -> None:
    counts = [c for c, _ in line]
    block = IoBlock(tuple(b for _, b in line), None, turning, min(last, len(line) - 1))
    for start in block_starts(counts, block):
        keys = block_keys(counts, block, start)
        came, leaves = turning_labels(counts, block, start)
        walks = list(tile_orders(counts, block, start, keys, steps))
        assert len(walks) == steps
        assert all(sorted(walk) == sorted(keys) for walk in walks)
        changed = [n for n in range(1, steps) if walks[n][0] != walks[n - 1][-1]]
        assert len(changed) <= (1 if turning and None not in (came, leaves) and came != leaves else 0)
        if turning and leaves is not None and steps > 1:  # the tiles of one place along that label stand together
            places = [k[leaves] for k in walks[-1]]
            assert sum(a != b for a, b in zip(places, places[1:], strict=False)) == len(set(places)) - 1


def test_products_in_blocks_that_turn_read_what_both_share_once() -> None:
    counts, block = (4, 4), IoBlock((2, 2), None, True)
    first, second, *_ = block_starts(counts, block)
    before = list(tile_orders(counts, block, first, block_keys(counts, block, first), 2))[-1]
    after = next(tile_orders(counts, block, second, block_keys(counts, block, second), 2))
    assert [k[1] for k in (*before, *after)] in ([0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 0, 0, 2, 2, 3, 3])
    assert math.prod(counts) == 16


def test_the_walk_of_blocks_goes_on_last_along_the_label_that_is_said() -> None:
    starts = [list(block_starts((4, 6), IoBlock((2, 2), None, True, last))) for last in (0, 1)]
    assert starts[0] == [(0, 0), (0, 2), (0, 4), (2, 4), (2, 2), (2, 0)]
    assert starts[1] == [(0, 0), (2, 0), (2, 2), (0, 2), (0, 4), (2, 4)]
