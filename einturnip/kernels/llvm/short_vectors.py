"""Chooses vectors for tensors without a long contiguous label, and estimates the time of such loops.

Batches of small matrices, points in space, states of a filter: the last axis has 2 to 7 elements, or operands are
contiguous along different labels. Vectors are then as short as a label, or their elements are loaded one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from einturnip.ir.einsum import Access, labels_read
from einturnip.kernels.llvm.pack_plan import is_smooth

# Operations of a vector that take as long: loading or storing one element, an element of a tensor that is not cached,
# a vector, a scalar that all lanes share; folding the lanes of one; starting the loop along the vector label, with its
# masked last step.
_ELEMENT, _FAR, _VECTOR, _SHARED, _ACROSS, _START = 2.0, 6.0, 1.0, 0.25, 4.0, 8.0
_CACHED_ELEMENTS = 1 << 16
OPERATION_NS = 0.1  # of one operation of a vector, on a Zen 5


class ShortVectors(NamedTuple):
    """The vector label, the lanes of a vector, and the tensors whose vectors are elements at a stride."""

    label: int
    width: int
    strided: frozenset[int]


@dataclass(frozen=True)
class LoopWork:
    """The work of a loop nest: the accesses of operands and outputs, and the points by label.

    ``n_out``: labels of the output. ``weight``: operations of a vector's arithmetic.
    """

    operands: Sequence[Access]
    outs: Sequence[Access]
    extents: Sequence[int]
    n_out: int
    weight: float

    def operations(self, label: int, width: int, tile: Mapping[int, int]) -> float:
        """Return the operations of all points by vectors along a label.

        ``tile``: counts of a register tile by label, which reuses what it loads.
        """
        if label < 0:
            return self.weight + len(self.operands) + len(self.outs)
        n, points = self.extents[label], math.prod(self.extents)
        counts = {p: min(count, self.extents[p]) for p, count in tile.items() if p != label}
        loads = sum(self._moving(access, label, width, counts) for access in self.operands)
        stores = sum(self._moving(access, label, width, {}) for access in self.outs)
        folds = math.prod(self.extents[self.n_out :])
        started, vectors = points / n / math.prod(counts.values()), points / n * -(-n // width)
        if label < self.n_out:
            return vectors * (self.weight + loads + stores / folds) + started / max(1, folds) * _START
        return vectors * (self.weight + loads) + points / folds * (_ACROSS + stores) + started * _START

    def _moving(self, access: Access, label: int, width: int, counts: Mapping[int, int]) -> float:
        """Return the operations of loading or storing a vector of a tensor."""
        read = labels_read(access)
        if label not in read:
            each = _SHARED
        elif is_smooth(access, label):
            each = _VECTOR
        else:
            is_cached = math.prod(self.extents[p] for p in read) <= _CACHED_ELEMENTS
            each = width * (_ELEMENT if is_cached else _FAR)
        return each / math.prod(count for p, count in counts.items() if p not in read)


def short_vectors(work: LoopWork, full_width: int) -> ShortVectors:
    """Return the vectors that are fastest; without labels, label -1. ``full_width``: maximum lanes."""
    found: list[tuple[float, int, int]] = []
    for p, n in enumerate(work.extents):
        width = min(full_width, max(2, 1 << (n - 1).bit_length()))
        found.append((work.operations(p, width, {}), p, width))
    if not found:
        return ShortVectors(-1, 1, frozenset())
    _, label, width = min(found)
    tensors = *work.operands, *work.outs
    return ShortVectors(label, width, frozenset(k for k, access in enumerate(tensors) if not is_smooth(access, label)))
