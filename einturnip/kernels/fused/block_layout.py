"""Chooses the blocks in which a region's kernel computes a tile, and lays out its workspace.

Blocks are chosen so that the values of a block's steps stay in a core's second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from einturnip.core.units import whole_lines
from einturnip.ir.dtypes import BOOL, F32, F64
from einturnip.ir.einsum import contraction
from einturnip.ir.predicates import conditions
from einturnip.ir.region import Region, RegionStep

# Bytes that a block may have: of one tiled value (about a core's second-level cache), of all tiled values together, and
# of the states, where the workspace holds them.
MAX_VALUE_NBYTES = 1 << 20
MAX_TILED_NBYTES = 3 << 20
MAX_STATE_NBYTES = 2 << 20
# The same for one tiled value that is an operand of packed products: their packed right sides stay in the second-level
# cache too. Smaller blocks also skip more of a mask.
MAX_PACKED_VALUE_NBYTES = 256 << 10
# Points of a block along the streamed labels: enough for matrix products to reach their rate.
MAX_STREAMED_POINTS = 512
# The same where a region sums products: BLAS adds all terms of a small product in sequence, which rounds each time.
MAX_PRODUCT_TERMS = 4096
# Terms that one product with a vector of ones adds; a longer sum is several products.
TERMS_PER_PRODUCT = 256
_UNLIMITED = 1 << 62


def tiled_labels(region: Region) -> frozenset[int]:
    """Return the output labels that tiled values have.

    Blocks along another output label would each compute the same tiled values.
    """
    return frozenset(p for k in region.tiled for p in _out(region.steps[k])) & frozenset(range(region.n_out))


def state_labels(region: Region) -> frozenset[int]:
    """Return the output labels that all states have."""
    return frozenset(range(region.n_out)).intersection(*(_out(region.steps[k]) for k in region.carried))


def choose_blocks(
    region: Region, extents: Sequence[int], whole: bool, value_nbytes: int | None = None
) -> tuple[int, ...]:
    """Return the extents of a block by label: full along inner labels, nearly square along tiled ones.

    ``whole``: the call computes the result, so its states are in the workspace. ``value_nbytes``: the maximum bytes of
    one tiled value, by default MAX_VALUE_NBYTES.
    """
    max_nbytes = MAX_VALUE_NBYTES if value_nbytes is None else value_nbytes
    fixed, rows = region.whole, frozenset(range(region.n_out)) if region.of_rows else tiled_labels(region)
    blocks = [n if p in fixed or (p < region.n_out and p not in rows) else min(n, 1) for p, n in enumerate(extents)]

    def fits() -> bool:
        values = [stored_nbytes(region, k, blocks) for k in range(len(region.steps))]
        values += [nbytes(region.steps[-1], blocks)] if region.of_rows else []
        state = region.state_nbytes(blocks) if whole else 0
        return max(values, default=0) <= max_nbytes and sum(values) <= MAX_TILED_NBYTES and state <= MAX_STATE_NBYTES

    # A state that lacks a label is folded once for each block along it. Only the workspace has a state for each block,
    # so where the caller holds the states, labels that a state lacks are not divided.
    out = [p for p in range(region.n_out) if p not in fixed]
    divisible = [p for p in out if whole or p in state_labels(region)]
    while not fits() and any(blocks[p] > 1 for p in divisible):
        longest = max(divisible, key=blocks.__getitem__)
        blocks[longest] = -(-blocks[longest] // 2)
    streamed = [p for p in region.aggregated if p not in fixed]
    longest_sum = MAX_PRODUCT_TERMS if sums_products(region) else _UNLIMITED
    for labels, max_points in ((streamed, MAX_STREAMED_POINTS), (sorted(rows), _UNLIMITED), (streamed, longest_sum)):
        for p in reversed(labels):
            others = math.prod(max(1, blocks[q]) for q in labels if q != p)
            _grow(blocks, p, extents[p], max(1, max_points // others), fits)
    return tuple(blocks)


def _grow(blocks: list[int], label: int, extent: int, max_points: int, fits: Callable[[], bool]) -> None:
    """Lengthen the block along a label to the longest even division of its extent that fits."""
    before, count = blocks[label], max(1, -(-extent // max_points))
    while True:
        size = -(-extent // count)
        if count > 1 and size > 16:
            size = min(extent, -(-size // 16) * 16)
        if size <= before:
            blocks[label] = before
            return
        blocks[label] = size
        if fits():
            return
        count += max(1, count // 8)


def sums_products(region: Region) -> bool:
    """Return whether a carried step is a sum of products, which BLAS can compute."""
    return any(contraction(region.steps[k].einsum) is not None for k in region.carried)


def _out(step: RegionStep) -> tuple[int, ...]:
    """Return the region's labels of a step's output."""
    return step.labels[: step.einsum.n_out]


def out_shape(step: RegionStep, extents: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a step's output over a block."""
    return tuple([extents[p] for p in _out(step)])


def nbytes(step: RegionStep, extents: Sequence[int]) -> int:
    """Return the bytes of a step's output over a block."""
    return math.prod(out_shape(step, extents)) * step.einsum.dtype.itemsize


def stored_nbytes(region: Region, k: int, extents: Sequence[int]) -> int:
    """Return the workspace bytes of a step's value: 0 for the result and for a value that is a state."""
    step = region.steps[k]
    aggregation = step.einsum.aggregation
    stated = k in region.carried and aggregation is not None and aggregation.finalize_is_identity
    return 0 if stated or k == len(region.steps) - 1 else nbytes(step, extents)


def state_ranges(region: Region) -> dict[int, range]:
    """Return the range of each carried step's state in the list of all components."""
    found, start = {}, 0
    for k in region.carried:
        n = len(region.steps[k].einsum.state_dtypes)
        found[k] = range(start, start + n)
        start += n
    return found


def folds_rows(step: RegionStep) -> bool:
    """Return True for f32 and f64 folds of a matrix: a product with ones or one ufunc computes them."""
    aggregation = step.einsum.aggregation
    if aggregation is None or aggregation.combine not in ("add", "max", "min") or step.einsum.keys:
        return False
    return aggregation.value in (F32, F64) and aggregation.value == aggregation.state[0]


def summed_at_once(terms: int) -> int:
    """Return the terms of a sum that one product with ones adds: all of them if the sum is short."""
    return terms if terms <= 2 * TERMS_PER_PRODUCT else TERMS_PER_PRODUCT


class RunningValueOffsets(NamedTuple):
    """Workspace offsets of a running extremum or mean that other steps read while it changes.

    ``old``: the value before the block. ``empty``: the mask of points without a term yet. ``published``: the value that
    other steps read. ``factor``: by which sums relative to an extremum are rescaled, or the gain of a sum of squares.
    ``terms``: the number of terms of a mean before the block.
    """

    old: int
    empty: int
    published: int
    factor: int
    terms: int


@dataclass(frozen=True)
class WorkspaceLayout:
    """Offsets in the workspace.

    ``values``: by step. ``running``: by step; None if no other step reads its running value. ``sums``, ``masks``: by
    step, scratch for one block. ``states``: by level of partial states, then by component; in a call that computes the
    result, the last level is the state of the whole tile. ``combine``: scratch for combining two states.
    """

    values: tuple[int, ...]
    running: tuple[RunningValueOffsets | None, ...]
    sums: tuple[int, ...]
    masks: tuple[int, ...]
    states: tuple[tuple[int, ...], ...]
    combine: int
    nbytes: int


def lay_out(
    region: Region,
    blocks: Sequence[int],
    state_levels: int,
    stored: Collection[int] | None = None,
    combine_nbytes: int = 0,
) -> WorkspaceLayout:
    """Lay out the workspace.

    ``state_levels``: the number of states in the workspace. ``stored``: the steps whose values need bytes of their own,
    by default all; the value of another step overwrites one of these values. ``combine_nbytes``: scratch for combining
    two states.
    """
    total = 0

    def place(n: int) -> int:
        nonlocal total
        total += whole_lines(n)
        return total - whole_lines(n)

    values, running, sums, masks = [], [], [], []
    masked = any(conditions(s.einsum.join) for s in region.steps)
    of = {r.of for r in region.rescales} | {shift.of for shift in region.shifts}
    for k, step in enumerate(region.steps):
        points, dtype = math.prod(out_shape(step, blocks)), step.einsum.dtype
        values.append(place(stored_nbytes(region, k, blocks) if stored is None or k in stored else 0))
        wide = points * dtype.accumulator.itemsize
        sizes = (wide, points * BOOL.itemsize, nbytes(step, blocks), wide, wide)
        running.append(RunningValueOffsets(*map(place, sizes)) if k in of else None)
        folded = math.prod(blocks[step.labels[p]] for p in step.einsum.aggregated)
        parts = folded // summed_at_once(folded) if folded else 0
        sums.append(place((1 + parts) * whole_lines(wide)) if k in region.carried and folds_rows(step) else 0)
        masks.append(place(points) if masked and k in region.tiled else 0)
    components = region.components(blocks) if state_levels else ()
    states = tuple(
        tuple(place(math.prod(shape) * dtype.itemsize) for shape, dtype in components) for _ in range(state_levels)
    )
    return WorkspaceLayout(
        tuple(values), tuple(running), tuple(sums), tuple(masks), states, place(combine_nbytes), total
    )
