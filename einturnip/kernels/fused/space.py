"""How a region's tile is walked: blocks whose values stay in the cache, and where each value lies in the workspace."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import BOOL, F32, F64
from einturnip.ir.predicates import conditions
from einturnip.ir.region import Region, RegionStep

VALUE_NBYTES = 1 << 20  # of one tiled value: about a core's second-level cache
TILED_NBYTES = 3 << 20  # of all of them
STATE_NBYTES = 2 << 20  # of the states of one block, where the workspace holds them
STREAMED_POINTS = 512  # along the streamed labels, enough for matrix products to run at their rate
# Of one tiled value between products by machine code, whose right sides stay packed from block to block: so that it
# lies in the second-level cache beside them. Along its rows a mask is followed so much closer.
NEAR_NBYTES = 256 << 10
_ANY_NUMBER = 1 << 62


def tiled_labels(region: Region) -> frozenset[int]:
    """The labels of the output over which tiled values extend; what is cut along another is computed again."""
    return frozenset(p for k in region.tiled for p in _out(region.steps[k])) & frozenset(range(region.n_out))


def state_labels(region: Region) -> frozenset[int]:
    """The labels that every state has."""
    return frozenset(range(region.n_out)).intersection(*(_out(region.steps[k]) for k in region.carried))


def choose_blocks(
    region: Region, extents: Sequence[int], whole: bool, value_nbytes: int | None = None
) -> tuple[int, ...]:
    """The extents of a block of a tile, by label: whole along inner labels, square-like along the tiled ones.

    ``value_nbytes``: what one tiled value may take; about a core's second-level cache, unless stated.
    """
    most_nbytes = VALUE_NBYTES if value_nbytes is None else value_nbytes
    fixed, rows = region.whole, frozenset(range(region.n_out)) if region.of_rows else tiled_labels(region)
    blocks = [n if p in fixed or (p < region.n_out and p not in rows) else min(n, 1) for p, n in enumerate(extents)]

    def fits() -> bool:
        values = [held_nbytes(region, k, blocks) for k in range(len(region.steps))]
        values += [nbytes(region.steps[-1], blocks)] if region.of_rows else []
        state = state_nbytes(region, blocks) if whole else 0
        return max(values, default=0) <= most_nbytes and sum(values) <= TILED_NBYTES and state <= STATE_NBYTES

    # A state that outlives the call and lacks a label would have each of that label's blocks folded into it.
    out = [p for p in range(region.n_out) if p not in fixed]
    cut = [p for p in out if whole or p in state_labels(region)]
    while not fits() and any(blocks[p] > 1 for p in cut):
        longest = max(cut, key=blocks.__getitem__)
        blocks[longest] = -(-blocks[longest] // 2)
    streamed = [p for p in region.aggregated if p not in fixed]
    for labels, most in ((streamed, STREAMED_POINTS), (sorted(rows), _ANY_NUMBER), (streamed, _ANY_NUMBER)):
        for p in reversed(labels):
            _grow(blocks, p, extents[p], max(1, most // math.prod(max(1, blocks[q]) for q in labels if q != p)), fits)
    return tuple(blocks)


def _grow(blocks: list[int], label: int, extent: int, most: int, fits: object) -> None:
    """Lengthen the block along a label while it fits, in halvings of the extent that cut it evenly."""
    assert callable(fits)
    before, count = blocks[label], max(1, -(-extent // most))
    while True:
        room = -(-extent // count)
        if count > 1 and room > 16:
            room = min(extent, -(-room // 16) * 16)
        if room <= before:
            blocks[label] = before
            return
        blocks[label] = room
        if fits():
            return
        count += max(1, count // 8)


def _out(step: RegionStep) -> tuple[int, ...]:
    """The region's labels of a step's output."""
    return step.labels[: step.einsum.n_out]


def out_shape(step: RegionStep, extents: Sequence[int]) -> tuple[int, ...]:
    """Shape of a step's output over a block."""
    return tuple([extents[p] for p in _out(step)])


def nbytes(step: RegionStep, extents: Sequence[int]) -> int:
    """Bytes of a step's output over a block."""
    return math.prod(out_shape(step, extents)) * step.einsum.dtype.itemsize


def held_nbytes(region: Region, k: int, extents: Sequence[int]) -> int:
    """Bytes of the place that a step's value needs: none for the result, or where a state is the value."""
    step = region.steps[k]
    aggregation = step.einsum.aggregation
    stated = k in region.carried and aggregation is not None and aggregation.finish_is_identity
    return 0 if stated or k == len(region.steps) - 1 else nbytes(step, extents)


def state_nbytes(region: Region, extents: Sequence[int]) -> int:
    """Bytes of the states over a block, each component from a multiple of 64 bytes."""
    return sum(rounded(math.prod(shape) * dtype.itemsize) for shape, dtype in region.components(extents))


def rounded(n: int) -> int:
    """Bytes up to the next multiple of 64."""
    return -(-n // 64) * 64


def folds_rows(step: RegionStep) -> bool:
    """True for folds in f32 or f64 of what may be the rows of a matrix."""
    aggregation = step.einsum.aggregation
    if aggregation is None or aggregation.op not in ("sum", "mean", "max", "min") or step.einsum.keys:
        return False
    return aggregation.value in (F32, F64) and aggregation.value == aggregation.state[0]


@dataclass(frozen=True)
class WorkspaceLayout:
    """Offsets in the workspace.

    ``values``: by step. ``moved``: of a step that others follow as it moves, what it was, where it is nothing yet, what
    other steps see, what they are multiplied by or gain, and how many values it had. ``sums``, ``masks``: by step, room
    for one block's. ``states``: by component.
    """

    values: tuple[int, ...]
    moved: tuple[tuple[int, ...], ...]
    sums: tuple[int, ...]
    masks: tuple[int, ...]
    states: tuple[int, ...]
    nbytes: int


def lay_out(
    region: Region, blocks: Sequence[int], whole: bool, apart: Collection[int] | None = None
) -> WorkspaceLayout:
    """Places for all values, or for those of the steps ``apart``: others lie over them. ``whole``: the states too."""
    total = 0

    def place(n: int) -> int:
        nonlocal total
        total += rounded(n)
        return total - rounded(n)

    values, moved, sums, masks = [], [], [], []
    masked = any(conditions(s.einsum.join) for s in region.steps)
    of = {r.of for r in region.rescales} | {shift.of for shift in region.shifts}
    for k, step in enumerate(region.steps):
        points, dtype = math.prod(out_shape(step, blocks)), step.einsum.dtype
        values.append(place(held_nbytes(region, k, blocks) if apart is None or k in apart else 0))
        wide = points * dtype.accumulator.itemsize
        moved.append(
            (place(wide), place(points * BOOL.itemsize), place(nbytes(step, blocks)), place(wide), place(wide))
            if k in of
            else ()
        )
        sums.append(place(wide) if k in region.carried and folds_rows(step) else 0)
        masks.append(place(points) if masked and k in region.tiled else 0)
    components = region.components(blocks) if whole else ()
    states = tuple(place(math.prod(shape) * dtype.itemsize) for shape, dtype in components)
    return WorkspaceLayout(tuple(values), tuple(moved), tuple(sums), tuple(masks), states, total)
