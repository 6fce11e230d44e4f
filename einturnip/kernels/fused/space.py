"""The extents of a region's blocks, which keep values in the cache, and the layout of its workspace."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from einturnip.ir.contraction import contraction
from einturnip.ir.dtypes import BOOL, F32, F64
from einturnip.ir.predicates import conditions
from einturnip.ir.region import Region, RegionStep

VALUE_NBYTES = 1 << 20  # of one tiled value: about a core's second-level cache
TILED_NBYTES = 3 << 20  # of all tiled values together
STATE_NBYTES = 2 << 20  # of the states of one block, where the workspace holds them
STREAMED_POINTS = 512  # along the streamed labels, enough for matrix products to run at their rate
# Of one tiled value between products by machine code, whose packed right sides share the second-level cache with it
# from block to block. Smaller blocks also follow a mask more closely.
PACKED_VALUE_NBYTES = 256 << 10
# Along the streamed labels, if products are summed: of small matrices, a library adds all terms one after the other.
PRODUCT_TERMS = 4096
SUMMED_TERMS = 256  # of a long sum, added by one product with ones
_UNLIMITED = 1 << 62


def tiled_labels(region: Region) -> frozenset[int]:
    """Return the output labels of tiled values; a cut along any other label computes them again."""
    return frozenset(p for k in region.tiled for p in _out(region.steps[k])) & frozenset(range(region.n_out))


def state_labels(region: Region) -> frozenset[int]:
    """Return the labels that every state has."""
    return frozenset(range(region.n_out)).intersection(*(_out(region.steps[k]) for k in region.carried))


def choose_blocks(
    region: Region, extents: Sequence[int], whole: bool, value_nbytes: int | None = None
) -> tuple[int, ...]:
    """Return the extents of a block by label: full along inner labels, nearly square along tiled ones.

    ``value_nbytes``: the most that one tiled value may take, by default about a core's second-level cache.
    """
    max_nbytes = VALUE_NBYTES if value_nbytes is None else value_nbytes
    fixed, rows = region.whole, frozenset(range(region.n_out)) if region.of_rows else tiled_labels(region)
    blocks = [n if p in fixed or (p < region.n_out and p not in rows) else min(n, 1) for p, n in enumerate(extents)]

    def fits() -> bool:
        values = [stored_nbytes(region, k, blocks) for k in range(len(region.steps))]
        values += [nbytes(region.steps[-1], blocks)] if region.of_rows else []
        state = state_nbytes(region, blocks) if whole else 0
        return max(values, default=0) <= max_nbytes and sum(values) <= TILED_NBYTES and state <= STATE_NBYTES

    # A state that outlives the call and lacks a label would have each of that label's blocks folded into it.
    out = [p for p in range(region.n_out) if p not in fixed]
    divisible = [p for p in out if whole or p in state_labels(region)]
    while not fits() and any(blocks[p] > 1 for p in divisible):
        longest = max(divisible, key=blocks.__getitem__)
        blocks[longest] = -(-blocks[longest] // 2)
    streamed = [p for p in region.aggregated if p not in fixed]
    longest_sum = PRODUCT_TERMS if sums_products(region) else _UNLIMITED
    for labels, max_points in ((streamed, STREAMED_POINTS), (sorted(rows), _UNLIMITED), (streamed, longest_sum)):
        for p in reversed(labels):
            others = math.prod(max(1, blocks[q]) for q in labels if q != p)
            _grow(blocks, p, extents[p], max(1, max_points // others), fits)
    return tuple(blocks)


def _grow(blocks: list[int], label: int, extent: int, max_points: int, fits: object) -> None:
    """Lengthen the block along a label to the longest even division of its extent that fits."""
    assert callable(fits)
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
    """Return whether a region carries a sum of products, which a library for matrix products can compute."""
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
    """Return the workspace bytes of a step's value: 0 for the result, and where the state is the value."""
    step = region.steps[k]
    aggregation = step.einsum.aggregation
    stated = k in region.carried and aggregation is not None and aggregation.finalize_is_identity
    return 0 if stated or k == len(region.steps) - 1 else nbytes(step, extents)


def state_ranges(region: Region) -> dict[int, range]:
    """Return, by carried step, the numbers of its state's components."""
    found, start = {}, 0
    for k in region.carried:
        n = len(region.steps[k].einsum.state_dtypes)
        found[k] = range(start, start + n)
        start += n
    return found


def state_nbytes(region: Region, extents: Sequence[int]) -> int:
    """Return the bytes of the states over a block, each component aligned to 64 bytes."""
    return sum(rounded(math.prod(shape) * dtype.itemsize) for shape, dtype in region.components(extents))


def rounded(n: int) -> int:
    """Round up to a multiple of 64 bytes."""
    return -(-n // 64) * 64


def folds_rows(step: RegionStep) -> bool:
    """Return True for folds in f32 or f64 that can run as folds of a matrix's rows."""
    aggregation = step.einsum.aggregation
    if aggregation is None or aggregation.combine not in ("add", "max", "min") or step.einsum.keys:
        return False
    return aggregation.value in (F32, F64) and aggregation.value == aggregation.state[0]


def summed_at_once(terms: int) -> int:
    """Return how many terms of a sum one product with ones adds: all of a short sum."""
    return terms if terms <= 2 * SUMMED_TERMS else SUMMED_TERMS


@dataclass(frozen=True)
class WorkspaceLayout:
    """Offsets in the workspace.

    ``values``: by step. ``moved``: by step whose running value others read: its old value, the mask of points without a
    term, the published value, the factor or gain, and the count. ``sums``, ``masks``: by step, scratch for one block.
    ``states``: by level of partial states, then by component; the last level is the state of the whole tile where that
    does not outlive the call. ``combine``: scratch that adds one state to another.
    """

    values: tuple[int, ...]
    moved: tuple[tuple[int, ...], ...]
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
    by default all; other values overwrite one of these. ``combine_nbytes``: scratch for combining states.
    """
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
        values.append(place(stored_nbytes(region, k, blocks) if stored is None or k in stored else 0))
        wide = points * dtype.accumulator.itemsize
        moved.append(
            (place(wide), place(points * BOOL.itemsize), place(nbytes(step, blocks)), place(wide), place(wide))
            if k in of
            else ()
        )
        folded = math.prod(blocks[step.labels[p]] for p in step.einsum.aggregated)
        parts = folded // summed_at_once(folded) if folded else 0
        sums.append(place((1 + parts) * rounded(wide)) if k in region.carried and folds_rows(step) else 0)
        masks.append(place(points) if masked and k in region.tiled else 0)
    components = region.components(blocks) if state_levels else ()
    states = tuple(
        tuple(place(math.prod(shape) * dtype.itemsize) for shape, dtype in components) for _ in range(state_levels)
    )
    return WorkspaceLayout(tuple(values), tuple(moved), tuple(sums), tuple(masks), states, place(combine_nbytes), total)
