"""Tensors put together from pieces: what of each piece is seen, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import ConcatNode, EinGraph, TensorPiece
from einturnip.ir.einsum import Box

# With fewer pieces than this, each is asked in turn whether it meets a box.
FEW = 8


def points(box: Box) -> int:
    """Number of points of a box."""
    n = 1
    for lo, hi in box:
        n *= hi - lo
    return n


def piece_box(node: ConcatNode, piece: TensorPiece, shape: Sequence[int]) -> Box:
    """Where a piece of the given shape stands in the whole."""
    sizes = dict(zip(piece.axes, shape, strict=True))
    return tuple((lo, lo + sizes.get(axis, 1)) for axis, lo in enumerate(piece.offsets))


def intersection(a: Box, b: Box) -> Box | None:
    """The points of both boxes; None where there are none."""
    found = []
    for (lo, hi), (low, high) in zip(a, b, strict=True):
        lo, hi = max(lo, low), min(hi, high)
        if lo >= hi:
            return None
        found.append((lo, hi))
    return tuple(found)


def difference(a: Box, b: Box) -> list[Box]:
    """The points of ``a`` outside of ``b``, which lies in it, as disjoint boxes."""
    left = []
    for axis, ((lo, hi), (low, high)) in enumerate(zip(a, b, strict=True)):
        if lo < low:
            left.append((*b[:axis], (lo, low), *a[axis + 1 :]))
        if high < hi:
            left.append((*b[:axis], (high, hi), *a[axis + 1 :]))
    return left


def disjoint_groups(boxes: Iterable[Box], axis: int) -> list[list[Box]]:
    """The boxes in groups that have no coordinate along ``axis`` in common."""
    groups: list[list[Box]] = []
    end = -1
    for box in sorted(boxes, key=lambda b: b[axis]):
        if box[axis][0] >= end:
            groups.append([])
        groups[-1].append(box)
        end = max(end, box[axis][1])
    return groups


def union_points(boxes: Sequence[Box], axis: int = 0) -> int:
    """Number of points of a union of boxes: group by group along one axis after the other, then box by box."""
    if len(boxes) < 2:
        return sum(map(points, boxes))
    if axis < len(boxes[0]):
        return sum(union_points(group, axis + 1) for group in disjoint_groups(boxes, axis))
    kept: list[Box] = []
    for box in sorted(boxes, key=points, reverse=True):
        left = [box]
        for other in kept:
            rest: list[Box] = []
            for b in left:
                common = intersection(b, other)
                rest += [b] if common is None else difference(b, common)
            left = rest
            if not left:
                break
        kept += left
    return sum(map(points, kept))


@dataclass(frozen=True, slots=True)
class VisiblePart:
    """A box of the whole and the same points as a box of the operand that shows there."""

    piece: TensorPiece
    box: Box

    @property
    def operand(self) -> int:
        """The piece's node."""
        return self.piece.operand

    @property
    def within(self) -> Box:
        """The box in the operand."""
        return tuple(
            (self.box[x][0] - self.piece.offsets[x], self.box[x][1] - self.piece.offsets[x]) for x in self.piece.axes
        )

    def outside(self, box: Box) -> Box:
        """A box of the operand, seen in the whole."""
        found = [(lo, lo + 1) for lo in self.piece.offsets]
        for x, (lo, hi) in zip(self.piece.axes, box, strict=True):
            found[x] = lo + self.piece.offsets[x], hi + self.piece.offsets[x]
        return tuple(found)


class ConcatPieces:
    """The pieces of one node, found by the boxes that they show in."""

    def __init__(self, graph: EinGraph, node: ConcatNode) -> None:
        self.pieces = node.pieces
        self.boxes = [piece_box(node, p, graph.nodes[p.operand].shape) for p in node.pieces]
        self._starts: NDArray[np.int64] | None = None
        if len(self.boxes) > FEW:
            table = np.array(self.boxes, np.int64).reshape(len(self.boxes), -1, 2)
            self._starts, self._stops = table[:, :, 0], table[:, :, 1]

    def parts(self, box: Box) -> list[VisiblePart]:
        """What shows in a box: parts that do not overlap, the pieces' order; later pieces lie over earlier ones."""
        left, found = [box], []
        for number in self._meeting(box):
            rest: list[Box] = []
            for b in left:
                common = intersection(b, self.boxes[number])
                if common is None:
                    rest.append(b)
                else:
                    found.append(VisiblePart(self.pieces[number], common))
                    rest += difference(b, common)
            left = rest
            if not left:
                break
        return found[::-1]

    def _meeting(self, box: Box) -> Sequence[int]:
        """The pieces that meet a box, last first."""
        if self._starts is None:
            return range(len(self.boxes) - 1, -1, -1)
        want = np.array(box, np.int64).reshape(-1, 2)
        hits = ((self._starts < want[:, 1]) & (self._stops > want[:, 0])).all(axis=1)
        numbers: list[int] = np.flatnonzero(hits)[::-1].tolist()
        return numbers


def composed(outer: TensorPiece, inner: TensorPiece) -> TensorPiece:
    """A piece of a piece, as a piece of the whole."""
    offsets = list(outer.offsets)
    for axis, lo in zip(outer.axes, inner.offsets, strict=True):
        offsets[axis] += lo
    return TensorPiece(inner.operand, tuple(outer.axes[a] for a in inner.axes), tuple(offsets))
