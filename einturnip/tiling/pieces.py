"""Concatenations: which part of each piece is visible, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.pieces import inner_piece, piece_box
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, TensorPiece
from einturnip.ir.einsum import Box
from einturnip.tuning.search import FEW_PIECES


def points(box: Box) -> int:
    """Return the number of points of a box."""
    n = 1
    for lo, hi in box:
        n *= hi - lo
    return n


def intersection(a: Box, b: Box) -> Box | None:
    """Return the common points of both boxes; None if there are none."""
    found = []
    for (lo, hi), (low, high) in zip(a, b, strict=True):
        lo, hi = max(lo, low), min(hi, high)
        if lo >= hi:
            return None
        found.append((lo, hi))
    return tuple(found)


def difference(a: Box, b: Box) -> list[Box]:
    """Return the points of ``a`` outside ``b``, a box within it, as disjoint boxes."""
    left = []
    for axis, ((lo, hi), (low, high)) in enumerate(zip(a, b, strict=True)):
        if lo < low:
            left.append((*b[:axis], (lo, low), *a[axis + 1 :]))
        if high < hi:
            left.append((*b[:axis], (high, hi), *a[axis + 1 :]))
    return left


def read_ranges(graph: EinGraph) -> list[Box]:
    """Return for each node the smallest box with all points that outputs depend on.

    Nodes are visited from the outputs back, so that a slice at the end of a program limits what is read before it. A
    node that no output depends on has an empty tuple.
    """
    found: list[Box] = [()] * len(graph.nodes)
    needed = [False] * len(graph.nodes)

    def extend(node: int, box: Box) -> None:
        before = found[node] if needed[node] else box
        needed[node] = True
        found[node] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, box, strict=True))

    for _, i in graph.outputs:
        extend(i, tuple((0, n) for n in graph.nodes[i].shape))
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if not needed[i]:
            continue
        if isinstance(node, EinsumNode):
            bounds = [*found[i], *((0, n) for n in node.einsum.bounds[node.einsum.n_out :])]
            for slot, operand in enumerate(node.operands):
                extend(operand, node.einsum.operand_box(slot, bounds))
        elif isinstance(node, ConcatNode):
            for operand in node.operands:
                extend(operand, tuple((0, n) for n in graph.nodes[operand].shape))
    return found


def disjoint_groups(boxes: Iterable[Box], axis: int) -> list[list[Box]]:
    """Group the boxes so that groups share no coordinate along ``axis``."""
    groups: list[list[Box]] = []
    end = -1
    for box in sorted(boxes, key=lambda b: b[axis]):
        if box[axis][0] >= end:
            groups.append([])
        groups[-1].append(box)
        end = max(end, box[axis][1])
    return groups


def union_points(boxes: Sequence[Box], axis: int = 0) -> int:
    """Return the number of points of a union of boxes: by groups along each axis, then box by box."""
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
    """A visible box of the whole, and the same points as a box of the operand."""

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
        """Translate a box of the operand to the whole."""
        found = [(lo, lo + 1) for lo in self.piece.offsets]
        for x, (lo, hi) in zip(self.piece.axes, box, strict=True):
            found[x] = lo + self.piece.offsets[x], hi + self.piece.offsets[x]
        return tuple(found)


class ConcatPieces:
    """The pieces of one node, indexed by their visible boxes."""

    def __init__(self, graph: EinGraph, node: ConcatNode) -> None:
        self.pieces = node.pieces
        self.boxes = [piece_box(p, graph.nodes[p.operand].shape) for p in node.pieces]
        self._starts: NDArray[np.int64] | None = None
        if len(self.boxes) > FEW_PIECES:
            table = np.array(self.boxes, np.int64).reshape(len(self.boxes), -1, 2)
            self._starts, self._stops = table[:, :, 0], table[:, :, 1]

    def parts(self, box: Box) -> list[VisiblePart]:
        """Return the disjoint visible parts in a box, in the pieces' order; later pieces cover earlier ones."""
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
        """Yield the pieces that overlap a box, last first."""
        if self._starts is None:
            return range(len(self.boxes) - 1, -1, -1)
        want = np.array(box, np.int64).reshape(-1, 2)
        hits = ((self._starts < want[:, 1]) & (self._stops > want[:, 0])).all(axis=1)
        numbers: list[int] = np.flatnonzero(hits)[::-1].tolist()
        return numbers


def visible_parts(graph: EinGraph, node: int, pieces: dict[int, ConcatPieces]) -> list[VisiblePart]:
    """Return the parts of a concatenation, nested ones resolved to nodes that are not concatenations.

    ``pieces`` caches the pieces of each concatenation.
    """
    shape = graph.nodes[node].shape
    work = [VisiblePart(TensorPiece(node, tuple(range(len(shape))), (0,) * len(shape)), tuple((0, n) for n in shape))]
    found = []
    while work:
        part = work.pop()
        inner = graph.nodes[part.operand]
        if not isinstance(inner, ConcatNode):
            found.append(part)
            continue
        if part.operand not in pieces:
            pieces[part.operand] = ConcatPieces(graph, inner)
        for p in reversed(pieces[part.operand].parts(part.within)):
            work.append(VisiblePart(inner_piece(part.piece, p.piece), part.outside(p.box)))
    return found
