"""Finds the source of elements in a tensor filled slice by slice, without visiting every version."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from einturnip.eingraph.pieces import inner_piece, piece_box
from einturnip.eingraph.types import ConcatNode, Node, TensorPiece
from einturnip.ir.einsum import Box

# The axes along which a slice has length 1, and its coordinates on them.
_Axes = tuple[int, ...]
_Place = tuple[int, ...]


@dataclass
class _Chain:
    """A tensor and the slices assigned to it, in order; version n contains the first n of them."""

    root: int
    slices: list[TensorPiece] = field(default_factory=list)
    places: dict[_Axes, dict[_Place, list[int]]] = field(default_factory=dict)
    all_of: dict[_Axes, list[int]] = field(default_factory=dict)

    def add(self, axes: _Axes, piece: TensorPiece) -> None:
        """Add a version."""
        place = tuple(piece.offsets[a] for a in axes)
        self.places.setdefault(axes, {}).setdefault(place, []).append(len(self.slices))
        self.all_of.setdefault(axes, []).append(len(self.slices))
        self.slices.append(piece)

    def latest(self, box: Box, version: int, shape: Sequence[int]) -> tuple[int, bool]:
        """Return the latest slice that overlaps the box, and whether it contains the whole box; -1 for none."""
        found, holds = -1, False
        for axes, places in self.places.items():
            ends = [box[a] for a in axes]
            alone = all(stop - start == 1 for start, stop in ends)
            if alone:
                at = _before(places.get(tuple(start for start, _ in ends), []), version)
            elif all((start, stop) == (0, shape[a]) for a, (start, stop) in zip(axes, ends, strict=True)):
                at = _before(self.all_of[axes], version)
            else:
                inside = (
                    _before(positions, version)
                    for place, positions in places.items()
                    if all(start <= n < stop for n, (start, stop) in zip(place, ends, strict=True))
                )
                at = max(inside, default=-1)
            if at > found:
                found, holds = at, alone
        return found, holds


def _before(positions: Sequence[int], version: int) -> int:
    """The last of sorted positions below a version; -1 for none."""
    i = bisect_left(positions, version)
    return positions[i - 1] if i else -1


class ElementSources:
    """Finds the node that provides a box of another node's elements. Queries must come in node order."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._versions: dict[int, tuple[_Chain, int]] = {}
        for i, node in enumerate(nodes):
            if isinstance(node, ConcatNode) and (axes := self._slice_axes(node)) is not None:
                base = node.pieces[0].operand
                chain, version = self._versions.get(base, (_Chain(base), 0))
                if version != len(chain.slices):
                    # The base has another version already: this one begins a new chain.
                    chain = _Chain(base)
                chain.add(axes, node.pieces[1])
                self._versions[i] = chain, len(chain.slices)

    def of(self, number: int, box: Box) -> TensorPiece:
        """The node that contains the box, as a piece of node ``number``; itself where no piece does."""
        rank = len(self.nodes[number].shape)
        found = TensorPiece(number, tuple(range(rank)), (0,) * rank)
        while all(start < stop for start, stop in box) and (step := self._step(found.operand, box)) is not None:
            found = inner_piece(found, step)
            box = tuple((box[a][0] - step.offsets[a], box[a][1] - step.offsets[a]) for a in step.axes)
        return found

    def _slice_axes(self, node: ConcatNode) -> _Axes | None:
        """The axes along which a node's slice has length 1; None unless it is a base with one slice."""
        if len(node.pieces) != 2:
            return None
        whole = tuple((0, n) for n in node.shape)
        first, second = (piece_box(p, self.nodes[p.operand].shape) for p in node.pieces)
        axes = tuple(a for a in range(len(whole)) if a not in node.pieces[1].axes)
        full = all(second[a] == whole[a] for a in node.pieces[1].axes)
        return axes if full and first == whole and node.pieces[0].axes == tuple(range(len(whole))) else None

    def _step(self, number: int, box: Box) -> TensorPiece | None:
        """The piece of a node that contains the whole box; None where there is none."""
        node = self.nodes[number]
        if not isinstance(node, ConcatNode):
            return None
        if number in self._versions:
            chain, version = self._versions[number]
            at, holds = chain.latest(box, version, node.shape)
            if at < 0:
                rank = len(node.shape)
                return TensorPiece(chain.root, tuple(range(rank)), (0,) * rank)
            return chain.slices[at] if holds else None
        for piece in reversed(node.pieces):
            place = piece_box(piece, self.nodes[piece.operand].shape)
            pairs = list(zip(box, place, strict=True))
            if all(p[0] <= b[0] and b[1] <= p[1] for b, p in pairs):
                return piece
            if not any(b[1] <= p[0] or p[1] <= b[0] for b, p in pairs):
                return None
        return None
