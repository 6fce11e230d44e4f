"""Adjoints put together of parts, and taken apart: of tensors that are replaced, concatenated, or read by slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from einturnip.eingraph.builder import GraphBuilder, LabelSpace, StatementDrafts
from einturnip.eingraph.pieces import piece_box, visible_pieces
from einturnip.eingraph.types import ConcatNode, Node, TensorPiece
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Box, Index
from einturnip.ir.scalar import ScalarConst
from einturnip.ir.simplify import added, constant, is_number


@dataclass(frozen=True, slots=True)
class AdjointPart:
    """A part of an adjoint: a number at every element, or a node and its place."""

    value: int | ScalarConst
    piece: TensorPiece | None


class _Adding:
    """Nodes made while the parts of one adjoint are put together."""

    def __init__(self, assembly: GraphBuilder, dtype: DType, name: str, line: int) -> None:
        self.assembly, self.dtype, self.name, self.line = assembly, dtype, name, line

    def filled(self, number: ScalarConst, shape: Sequence[int]) -> int:
        """A number at every element."""
        space = self._space((), shape)
        space.emit(range(len(shape)), (), number, None, "")
        return self._place(space, ())

    def plus(self, nodes: Sequence[int], number: ScalarConst) -> int:
        """The sum of nodes of one shape, and a number."""
        distinct = tuple(dict.fromkeys(nodes))
        shape = self.assembly.nodes[nodes[0]].shape
        space = self._space(distinct, shape)
        axes = tuple(range(len(shape)))
        value = added(space.operand(0, axes), number)
        for node in nodes[1:]:
            value = added(value, space.operand(distinct.index(node), axes))
        space.emit(axes, (), value, None, "")
        return self._place(space, distinct)

    def cut(self, node: int, box: Box, axes: Sequence[int], number: ScalarConst | None = None) -> int:
        """The part of a node in a box, over some of its axes (along the others the box is 1 long)."""
        shape = [box[a][1] - box[a][0] for a in axes]
        space = self._space((node,), shape)
        at = {a: Index(((k, 1),), box[a][0]) for k, a in enumerate(axes)}
        value = space.operand(0, tuple(at.get(a, Index((), box[a][0])) for a in range(len(box))))
        space.emit(range(len(axes)), (), value, None, "")
        return self._place(space, (node,))

    def concatenated(self, shape: tuple[int, ...], pieces: Sequence[TensorPiece]) -> int:
        """Pieces put together."""
        return self.assembly.add(
            ConcatNode(self.assembly.fresh(self.name), shape, self.dtype, tuple(pieces), self.line)
        )

    def _space(self, nodes: Sequence[int], shape: Sequence[int]) -> LabelSpace:
        tensors = [(self.assembly.nodes[n].dtype, self.assembly.nodes[n].shape) for n in nodes]
        return LabelSpace(StatementDrafts(tensors), [f"i{axis}" for axis in range(len(shape))], shape)

    def _place(self, space: LabelSpace, outside: Sequence[int]) -> int:
        return self.assembly.place(space.drafts.nodes, outside, self.assembly.fresh(self.name), self.line)


def total(
    assembly: GraphBuilder, parts: Sequence[AdjointPart], shape: tuple[int, ...], dtype: DType, name: str, line: int
) -> int | ScalarConst:
    """The sum of the parts of an adjoint: whole ones added, the others added where they stand.

    Parts that stand side by side are set side by side, so that a slice for each step of a loop costs a slice.
    """
    adding = _Adding(assembly, dtype, name, line)
    number = constant(0, dtype)
    whole: list[int] = []
    placed: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for part in parts:
        if isinstance(part.value, ScalarConst):
            summed = added(number, part.value)
            assert isinstance(summed, ScalarConst)
            number = summed
            continue
        assert part.piece is not None
        axes, own = part.piece.axes, assembly.nodes[part.value].shape
        if own == shape and axes == tuple(range(len(shape))):
            whole.append(part.value)
        else:
            placed.setdefault((axes, part.piece.offsets, own), []).append(part.value)
    pieces = [
        TensorPiece(nodes[0] if len(nodes) == 1 else adding.plus(nodes, constant(0, dtype)), axes, offsets)
        for (axes, offsets, _), nodes in placed.items()
    ]
    if not pieces:
        if not whole:
            return number
        return whole[0] if len(whole) == 1 and is_number(number, 0) else adding.plus(whole, number)
    return _with_pieces(adding, pieces, whole, number, shape)


def _with_pieces(
    adding: _Adding, pieces: Sequence[TensorPiece], whole: Sequence[int], number: ScalarConst, shape: tuple[int, ...]
) -> int:
    nodes = adding.assembly.nodes
    boxes = [piece_box(piece, nodes[piece.operand].shape) for piece in pieces]
    apart = not any(_meet(a, b) for k, a in enumerate(boxes) for b in boxes[:k])
    if apart and not whole and is_number(number, 0):
        covered = visible_pieces(shape, boxes)[1]
        base = [] if covered else [_whole(adding.filled(number, shape), shape)]
        return adding.concatenated(shape, [*base, *pieces])
    base_node = adding.filled(number, shape) if not whole else whole[0]
    if whole and (len(whole) > 1 or not is_number(number, 0)):
        base_node = adding.plus(whole, number)
    if apart:
        changed = [_increased(adding, base_node, piece, box) for piece, box in zip(pieces, boxes, strict=True)]
        return adding.concatenated(shape, [_whole(base_node, shape), *changed])
    for piece, box in zip(pieces, boxes, strict=True):
        changed = [_increased(adding, base_node, piece, box)]
        base_node = adding.concatenated(shape, [_whole(base_node, shape), *changed])
    return base_node


def _increased(adding: _Adding, base: int, piece: TensorPiece, box: Box) -> TensorPiece:
    """A piece with what stands in its place added."""
    under = adding.cut(base, box, piece.axes)
    return TensorPiece(adding.plus([under, piece.operand], constant(0, adding.dtype)), piece.axes, piece.offsets)


def _whole(node: int, shape: Sequence[int]) -> TensorPiece:
    return TensorPiece(node, tuple(range(len(shape))), (0,) * len(shape))


def _meet(a: Box, b: Box) -> bool:
    return all(max(p[0], q[0]) < min(p[1], q[1]) for p, q in zip(a, b, strict=True))


def visible(
    assembly: GraphBuilder, user: ConcatNode, number: int, g: int | ScalarConst, node: Node
) -> Iterator[AdjointPart]:
    """What a tensor put together gives to the adjoint of a piece: its part of the adjoint that is not hidden."""
    boxes = [piece_box(piece, assembly.nodes[piece.operand].shape) for piece in user.pieces]
    adding = _Adding(assembly, user.dtype, f"{node.name}.grad", user.line)
    for k, piece in enumerate(user.pieces):
        box = boxes[k]
        if piece.operand != number or 0 in node.shape:
            continue
        hiding = [other for other in boxes[k + 1 :] if _meet(box, other)]
        if any(all(o[0] <= b[0] and b[1] <= o[1] for o, b in zip(other, box, strict=True)) for other in hiding):
            continue
        axes = tuple(range(len(node.shape)))
        if isinstance(g, ScalarConst):
            if not hiding:
                yield AdjointPart(g, None)
                continue
            part = adding.filled(g, node.shape)
        elif node.shape == user.shape and piece.axes == axes:
            part = g
        else:
            part = adding.cut(g, box, piece.axes)
        if hiding:
            zeros = [_hole(adding, piece, box, other) for other in hiding]
            part = adding.concatenated(node.shape, [_whole(part, node.shape), *zeros])
        yield AdjointPart(part, _whole(part, node.shape))


def _hole(adding: _Adding, piece: TensorPiece, box: Box, other: Box) -> TensorPiece:
    """Zeros over what another piece hides of one."""
    cut = [(max(box[a][0], other[a][0]) - box[a][0], min(box[a][1], other[a][1]) - box[a][0]) for a in piece.axes]
    shape = [stop - start for start, stop in cut]
    zeros = adding.filled(constant(0, adding.dtype), shape)
    return TensorPiece(zeros, tuple(range(len(shape))), tuple(start for start, _ in cut))
