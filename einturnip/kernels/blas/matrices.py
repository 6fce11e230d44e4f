"""Plans a contraction of tiles as matrix products: which labels are merged, looped over, or copied.

Also estimates the times of many small products, by NumPy's general kernels and by machine code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from einturnip.core.units import whole_lines
from einturnip.kernels.blas.cblas import orientation

Strides = Mapping[int, int]  # elements by label
Groups = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # labels of rows (m), columns (n) and the sum (k)

_CALL_NS = 12000.0
_FLOPS_PER_NS = 60.0
_PANEL_NBYTES = 1 << 20
_RESULT_NBYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ContractionTensor:
    """One of left, right and out: the groups of its rows and columns, strides, and whether to convert it."""

    rows: int
    columns: int
    strides: Strides
    convert: bool


@dataclass(frozen=True)
class MatrixPlan:
    """Products of matrices of ``groups`` (labels, outermost first), in blocks, inside loops.

    ``loops``: labels that are not in one product: batch, m, n, then k. ``packed``: which tensors are copied to the
    workspace. ``offsets``: of their panels, then of the product's scratch.
    """

    groups: Groups
    loops: tuple[int, ...]
    blocks: Mapping[int, int]
    packed: tuple[bool, bool, bool]
    offsets: tuple[int, int, int, int]
    workspace_nbytes: int
    cost_ns: float


@dataclass(frozen=True, slots=True)
class _Side:
    """A choice of labels for one side of the matrices.

    ``points``: of these labels; ``rest``: of the others. By tensor, the step, and whether the labels merge to one axis.
    """

    labels: tuple[int, ...]
    points: int
    rest: int
    steps: tuple[int, ...]
    merge: tuple[bool, ...]


def plan(
    groups: Groups,
    batch: Sequence[int],
    extents: Mapping[int, int],
    tensors: tuple[ContractionTensor, ContractionTensor, ContractionTensor],
    itemsize: int,
    scratch: bool,
    limit_nbytes: int,
) -> MatrixPlan:
    """Return the cheapest plan within ``limit_nbytes`` of workspace; labels of extent 1 must be left out."""
    sides = [[_side(r, g, i, extents, tensors) for r in _runs(g, i, extents, tensors)] for i, g in enumerate(groups)]
    calls = _points(batch, extents)
    cost, (m, n, k) = _cheapest(sides, calls, tensors)
    chosen, packed = (m.labels, n.labels, k.labels), _packed((m, n, k), tensors)
    blocks, offsets, nbytes = _fit(chosen, extents, packed, itemsize, scratch, limit_nbytes)
    blocks |= {p: 1 for p in (*batch, *itertools.chain(*groups)) if p not in blocks}
    loops = tuple(p for p in (*batch, *itertools.chain(*groups)) if blocks[p] < extents[p])
    return MatrixPlan(chosen, loops, blocks, packed, offsets, nbytes, cost)


def _runs(
    group: tuple[int, ...], index: int, extents: Mapping[int, int], tensors: Sequence[ContractionTensor]
) -> Iterator[tuple[int, ...]]:
    """Yield candidates for one side: all of the group, or labels that are one axis in a tensor or in both."""
    holders = [t.strides for t in tensors if index in (t.rows, t.columns)]
    found = {tuple(sorted(group, key=lambda p: -strides[p])): None for strides in holders}
    for among in (holders, holders[:1], holders[1:]) if len(group) > 1 else ():
        outer = _outer(group, extents, among)
        for label in group:
            run = _run(label, outer)
            if len(run) < len(group):
                found[run] = None
    yield from found


def _outer(group: tuple[int, ...], extents: Mapping[int, int], holders: Sequence[Strides]) -> dict[int, int]:
    """Return, for each label of a group, the label around it with which it merges in all the holders."""
    by_strides: dict[tuple[int, ...], int] = {}
    for p in group:
        by_strides.setdefault(tuple(s[p] for s in holders), p)
    around = {p: by_strides.get(tuple(extents[p] * s[p] for s in holders)) for p in group}
    return {p: outer for p, outer in around.items() if outer is not None}


def _run(label: int, outer: Mapping[int, int]) -> tuple[int, ...]:
    """Return the labels that are one axis with ``label`` innermost."""
    run = [label]
    while run[-1] in outer and outer[run[-1]] not in run:
        run.append(outer[run[-1]])
    return tuple(reversed(run))


def stride(labels: Sequence[int], strides: Strides) -> int:
    """Return the elements between rows (columns) of merged labels."""
    return strides[labels[-1]] if labels else 1


def _side(
    labels: tuple[int, ...],
    group: tuple[int, ...],
    index: int,
    extents: Mapping[int, int],
    tensors: Sequence[ContractionTensor],
) -> _Side:
    there = [index in (t.rows, t.columns) for t in tensors]
    steps = tuple(stride(labels, t.strides) if involved else 1 for t, involved in zip(tensors, there, strict=True))
    merge = tuple(
        not involved or _merges(labels, extents, t.strides) for t, involved in zip(tensors, there, strict=True)
    )
    points = _points(labels, extents)
    return _Side(labels, points, _points(group, extents) // points, steps, merge)


def _merges(labels: Sequence[int], extents: Mapping[int, int], strides: Strides) -> bool:
    return all(strides[a] == extents[b] * strides[b] for a, b in itertools.pairwise(labels))


def _packed(sides: Sequence[_Side], tensors: Sequence[ContractionTensor]) -> tuple[bool, bool, bool]:
    """Return which tensors BLAS cannot read in place."""
    found = []
    for x, t in enumerate(tensors):
        rows, columns = sides[t.rows], sides[t.columns]
        merged = rows.merge[x] and columns.merge[x]
        needs_copy = t.convert or not merged
        found.append(needs_copy or orientation(rows.points, columns.points, rows.steps[x], columns.steps[x]) is None)
    return found[0], found[1], found[2]


def _cost(sides: Sequence[_Side], calls: int, tensors: Sequence[ContractionTensor]) -> float:
    """Return rough nanoseconds of products, calls and copies."""
    m, n, k = (s.points for s in sides)
    turns = calls * math.prod(s.rest for s in sides)
    speed = _FLOPS_PER_NS * m / (m + 4) * n / (n + 8) * k / (k + 16)
    if min(m, n) == 1:
        speed = 4.0 * max(m, n) / (max(m, n) + 16)
    cost = turns * (_CALL_NS + 2 * m * n * k / speed)
    left, right, out = _packed(sides, tensors)
    return cost + left * turns * m * k * 1.5 + right * turns * k * n * 1.5 + out * turns / sides[2].rest * m * n * 2.0


def _cheapest(
    sides: Sequence[Sequence[_Side]], calls: int, tensors: Sequence[ContractionTensor]
) -> tuple[float, tuple[_Side, _Side, _Side]]:
    """Return the choice of three sides with the lowest cost, then with the first labels.

    A choice costs at least its calls, so the search skips those with more calls than the best so far pays for: tensors
    of many short axes have hundreds of choices.
    """
    best: tuple[float, Groups] | None = None
    found: tuple[_Side, _Side, _Side] | None = None
    rows, columns, sums = (sorted(_distinct(side), key=lambda s: s.rest) for side in sides)
    min_cost = calls * _CALL_NS
    for m in rows:
        if best and min_cost * m.rest > best[0]:
            break
        for n in columns:
            if best and min_cost * m.rest * n.rest > best[0]:
                break
            for k in sums:
                if best and min_cost * m.rest * n.rest * k.rest > best[0]:
                    break
                this = _cost((m, n, k), calls, tensors), (m.labels, n.labels, k.labels)
                if best is None or this < best:
                    best, found = this, (m, n, k)
    assert best is not None and found is not None  # each side has at least one candidate
    return best[0], found


def _distinct(sides: Iterable[_Side]) -> Iterable[_Side]:
    """Return one side, that of first labels, of those with equal costs in every combination."""
    kept: dict[Hashable, _Side] = {}
    for side in sides:
        key = side.points, side.steps, side.merge
        kept[key] = min(kept.get(key, side), side, key=lambda s: s.labels)
    return kept.values()


def _points(labels: Iterable[int], extents: Mapping[int, int]) -> int:
    return math.prod(extents[p] for p in labels)


def _fit(
    chosen: Groups,
    extents: Mapping[int, int],
    packed: tuple[bool, bool, bool],
    itemsize: int,
    scratch: bool,
    limit_nbytes: int,
) -> tuple[dict[int, int], tuple[int, int, int, int], int]:
    """Divide the matrices into blocks whose copies fit: block by label, panels' offsets, bytes in all."""
    max_points = [_points(labels, extents) for labels in chosen]
    while True:
        divided = [_block(labels, extents, n) for labels, n in zip(chosen, max_points, strict=True)]
        m, n, k = (math.prod(c.values()) for c in divided)
        sizes = [whole_lines(x * itemsize) for x in (m * k, k * n, m * n, m * n)]
        used = [s if p else 0 for s, p in zip(sizes, (*packed, scratch), strict=True)]
        limits = (_PANEL_NBYTES, _PANEL_NBYTES, _RESULT_NBYTES, _RESULT_NBYTES)
        over = [u > limit for u, limit in zip(used, limits, strict=True)]
        if not any(over) and sum(used) <= limit_nbytes or m * n * k == 1:
            offsets = tuple(itertools.accumulate(used, initial=0))
            return divided[0] | divided[1] | divided[2], (offsets[0], offsets[1], offsets[2], offsets[3]), sum(used)
        largest = used.index(max(used)) if not any(over) else over.index(True)
        sides = ((0, 2), (2, 1), (0, 1), (0, 1))[largest]
        points = (m, n, k)
        side = max(sides, key=lambda s: points[s] * (4 if s == 2 else 1))  # shortening sums is the cheapest
        max_points[side] = max(1, points[side] // 2) if points[side] > 1 else 1


def _block(labels: Sequence[int], extents: Mapping[int, int], max_points: int) -> dict[int, int]:
    """Return blocks of merged labels with at most ``max_points`` points: inner labels first."""
    blocks = {}
    for label in reversed(labels):
        limit = max(1, max_points)
        count = -(-extents[label] // limit)
        blocks[label] = -(-extents[label] // count)
        max_points = max_points // blocks[label] if blocks[label] == extents[label] else 1
    return blocks


def by_columns(tensor: ContractionTensor, made: MatrixPlan, extents: Mapping[int, int]) -> bool:
    """Return True if the tile's shortest stride is along its matrix's rows, or the longer of equal ones."""
    rows, columns = made.groups[tensor.rows], made.groups[tensor.columns]
    if not rows or not columns:
        return bool(rows)
    row, column = ((abs(tensor.strides[p]), -extents[p]) for p in (rows[-1], columns[-1]))
    return row < column


_POINT_NS = 1.2  # of the general kernels, for each point of four bytes
# Of machine code, on one thread of an AVX-512 core: fixed cost of a product, packing or storing an element, multiplying
# four rows by a vector.
_PRODUCT_NS, _ELEMENT_NS, _ROWS_NS, _ROWS, _VECTOR_NBYTES = 150.0, 0.6, 0.2, 4, 64


def general_ns(points: int, itemsize: int) -> float:
    """Return the nanoseconds that NumPy takes, operation by operation."""
    return points * _POINT_NS * itemsize / 4


def multiplied_ns(sides: Sequence[int], itemsize: int) -> float:
    """Return the nanoseconds of one product among many, with packing and storing."""
    (m, n, k), width = sides, _VECTOR_NBYTES // itemsize
    rows, vectors = -(-m // _ROWS), -(-n // width)
    return _PRODUCT_NS + _ELEMENT_NS * (m * n + (m + n) * k) + _ROWS_NS * rows * vectors * k
