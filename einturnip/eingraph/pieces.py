"""Pieces of a tensor as boxes: which pieces are visible, and whether they cover the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from einturnip.core.distinct import sorted_distinct
from einturnip.eingraph.types import ConcatNode, Node, TensorPiece
from einturnip.ir.einsum import Box


def piece_box(piece: TensorPiece, shape: Sequence[int]) -> Box:
    """The box of a piece of this shape: (start, stop) along each axis of the whole."""
    lengths = [1] * len(piece.offsets)
    for axis, n in zip(piece.axes, shape, strict=True):
        lengths[axis] = n
    return tuple((start, start + n) for start, n in zip(piece.offsets, lengths, strict=True))


def inner_piece(outer: TensorPiece, inner: TensorPiece) -> TensorPiece:
    """Compose pieces: ``inner`` of ``outer``'s tensor, as a piece of the whole that contains ``outer``."""
    offsets = list(outer.offsets)
    for axis, offset in zip(outer.axes, inner.offsets, strict=True):
        offsets[axis] += offset
    return TensorPiece(inner.operand, tuple(outer.axes[a] for a in inner.axes), tuple(offsets))


def boxes_of(node: ConcatNode, nodes: Sequence[Node]) -> list[Box]:
    """The box of each piece."""
    return [piece_box(piece, nodes[piece.operand].shape) for piece in node.pieces]


def visible_pieces(shape: Sequence[int], boxes: Sequence[Box]) -> tuple[list[int], bool]:
    """Return the positions of boxes not covered by later ones, and whether all cover the shape.

    The start and stop coordinates of the boxes divide the whole into cells; the last box that contains a cell owns it.
    """
    if prod(shape) == 0:
        return [], True
    whole = tuple((0, n) for n in shape)
    if len(boxes) == 1:
        return [0], boxes[0] == whole
    cuts = [sorted_distinct([0, n, *(end for box in boxes for end in box[axis])]) for axis, n in enumerate(shape)]
    owner = np.full([len(c) - 1 for c in cuts], -1)
    for position, box in enumerate(boxes):
        cells = tuple(slice(*np.searchsorted(c, ends)) for c, ends in zip(cuts, box, strict=True))
        owner[cells] = position
    found = sorted_distinct(owner).tolist()
    return [p for p in found if p >= 0], -1 not in found
