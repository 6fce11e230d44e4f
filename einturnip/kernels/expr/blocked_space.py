"""Divides a tile's label space into blocks that fit the cache, with the loops over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from einturnip.ir.einsum import Access, labels_read
from einturnip.kernels.expr.window import terms

BLOCK_POINTS = 65536
_INNER_POINTS = 1024  # makes NumPy's cost per inner loop small
_FOLDED_POINTS = 64  # makes the cost of folding partial results small
_CROSSING_POINTS = (128, 256)  # sides of a block that one operand reads by rows and another by columns


@dataclass(frozen=True)
class BlockedSpace:
    """Blocks of a label space.

    Shapes:
        order: label positions, outermost first: the axes of every array of a block, of size 1 where it lacks one.
        extents, blocks: by label position.
        loops: labels with more than one block; those of the output outermost, the aggregated ones inside.
        n_out_loops: how many of ``loops`` are the output's.
    """

    order: tuple[int, ...]
    extents: tuple[int, ...]
    blocks: tuple[int, ...]
    loops: tuple[int, ...]
    n_out_loops: int

    def level(self, labels: Iterable[int]) -> int:
        """Return the loop depth at which a value over ``labels`` is fixed."""
        return max((self.loops.index(p) + 1 for p in labels if p in self.loops), default=0)

    def shape(self, labels: Iterable[int]) -> tuple[int, ...]:
        """Return the shape of a full block of a value over ``labels``."""
        kept = frozenset(labels)
        return tuple(self.blocks[p] if p in kept else 1 for p in self.order)

    def is_dense(self, labels: Sequence[int]) -> bool:
        """Return True if a block is contiguous in a contiguous tensor with these axes."""
        long = [p for p in labels if self.extents[p] > 1]
        cut = [self.blocks[p] < self.extents[p] for p in long]
        ahead = [self.blocks[p] for p in long[: 1 + max((i for i, c in enumerate(cut) if c), default=-1)]][:-1]
        return long == [p for p in self.order if p in long] and all(n == 1 for n in ahead)

    def axes(self, labels: Iterable[int]) -> tuple[int, ...]:
        """Return the axes of labels in a block's arrays."""
        return tuple(self.order.index(p) for p in labels)


def cut(
    order: Sequence[int], extents: Sequence[int], n_out: int, points: int, crossing: frozenset[int] = frozenset()
) -> BlockedSpace:
    """Return blocks of at most about ``points`` points, long along the last of ``order``.

    ``crossing``: labels that some operand has as its last axis, but that are not the last of ``order``.
    """
    blocks = [1] * len(extents)
    inner = order[-1:]
    folded = [p for p in reversed(order) if p >= n_out]
    outputs = [p for p in reversed(order) if p < n_out]
    _grow(blocks, extents, inner, _CROSSING_POINTS[0] if crossing else _INNER_POINTS, points)
    for label in crossing:
        _grow(blocks, extents, [label], _CROSSING_POINTS[1], points)
    _grow(blocks, extents, [p for p in folded if p not in inner], 2 * _FOLDED_POINTS, points)
    both = [p for p in reversed(order) if p in outputs or p in folded]
    _grow(blocks, extents, both, points, points)
    loops = [p for p in order if blocks[p] < extents[p]]
    outer = [p for p in loops if p < n_out]
    return BlockedSpace(
        tuple(order), tuple(extents), tuple(blocks), (*outer, *(p for p in loops if p >= n_out)), len(outer)
    )


def cut_all(order: Sequence[int], extents: Sequence[int], points: int) -> BlockedSpace:
    """Return blocks of a space that has output labels only."""
    return cut(order, extents, len(order), points)


def _grow(blocks: list[int], extents: Sequence[int], labels: Sequence[int], max_points: int, points: int) -> None:
    """Lengthen blocks one by one, up to ``max_points`` points of these labels and ``points`` in all."""
    for label in labels:
        among = math.prod(blocks[p] for p in labels) // blocks[label]
        others = math.prod(blocks) // blocks[label]
        limit = min(max_points // among, points // others)
        if limit > blocks[label]:
            count = math.ceil(extents[label] / limit)
            blocks[label] = math.ceil(extents[label] / count)


@lru_cache(maxsize=64)  # a kernel is measured with blocks of many sizes
def choose_order(
    extents: tuple[int, ...], n_out: int, accesses: tuple[Access, ...], program_order: bool
) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return the axis order of blocks, and the labels along which other operands are contiguous.

    ``program_order``: keep the aggregated labels last and in order, as argmax counts them.
    """
    labels = list(range(len(extents)))
    if program_order or len(labels) < 2:
        inner = labels[-1] if labels else 0
        order = labels
    else:
        inner = min(reversed(labels), key=lambda p: _inner_cost(p, extents, n_out, accesses))
        order = [p for p in labels if p != inner] + [inner]
    ends = [contiguous(access) for access in accesses if len(access) > 1 and not _is_reused(access, extents)]
    return tuple(order), frozenset(max(e, key=extents.__getitem__) for e in ends if e and inner not in e)


def contiguous(access: Access) -> frozenset[int]:
    """Return the labels whose step is one element of the operand."""
    return frozenset(p for p, c in terms(access[-1]) if abs(c) == 1) if access else frozenset()


def _is_reused(access: Access, extents: Sequence[int]) -> bool:
    """Return True if the operand lacks labels, so that each element is read at many points."""
    labels = labels_read(access)
    return math.prod(e for p, e in enumerate(extents) if p not in labels) >= 8


def _inner_cost(label: int, extents: Sequence[int], n_out: int, accesses: Sequence[Access]) -> float:
    """Return the rough cost of a point with ``label`` innermost; 1 is a contiguous pass."""
    cost = 300 / max(1, extents[label])
    tensors = [(a, 5.0) for a in accesses if a]
    tensors.append((tuple(range(n_out)), 5.0 if n_out == len(extents) else 0.5))
    for access, strided in tensors:
        if label not in labels_read(access):
            cost += 0.5
        elif label in contiguous(access):
            cost += 1.0
        else:
            cost += 1.2 if _gathered_once(access, n_out, extents) else strided
    return cost


def _gathered_once(access: Access, n_out: int, extents: Sequence[int]) -> bool:
    """Return True if a transposed copy of a block is read at many points before the inner loops advance."""
    folded = math.prod(extents[p] for p in labels_read(access) if p >= n_out)
    return _is_reused(access, extents) and folded <= 2 * _FOLDED_POINTS


def must_gather(access: Access, order: Sequence[int], extents: Sequence[int]) -> bool:
    """Return True if an operand is read across its contiguous axis, so that a transposed copy pays."""
    inner = order[-1] if order else -1
    crossed = inner in labels_read(access) and inner not in contiguous(access)
    return len(access) > 1 and crossed and extents[inner] > 1
