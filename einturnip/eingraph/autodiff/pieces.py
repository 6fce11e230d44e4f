"""Sums the parts of an adjoint, for tensors that are concat_node, partly replaced or sliced."""

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
    """A part of an adjoint: a number at every element, or a node with its position."""

    value: int | ScalarConst
    piece: TensorPiece | None


class _PartBuilder:
    """Creates the nodes that combine the parts of one adjoint."""

    def __init__(self, assembly: GraphBuilder, dtype: DType, name: str, line: int) -> None:
        self.assembly, self.dtype, self.name, self.line = assembly, dtype, name, line

    def constant_node(self, number: ScalarConst, shape: Sequence[int]) -> int:
        """Add a node with the same number at every element."""
        space = self._space((), shape)
        space.emit(range(len(shape)), (), number, None, "")
        return self._place(space, ())

    def sum_node(self, nodes: Sequence[int], number: ScalarConst) -> int:
        """Add the sum of nodes of one shape and a number."""
        distinct = tuple(dict.fromkeys(nodes))
        shape = self.assembly.nodes[nodes[0]].shape
        space = self._space(distinct, shape)
        axes = tuple(range(len(shape)))
        value = added(space.operand(0, axes), number)
        for node in nodes[1:]:
            value = added(value, space.operand(distinct.index(node), axes))
        space.emit(axes, (), value, None, "")
        return self._place(space, distinct)

    def extract(self, node: int, box: Box, axes: Sequence[int]) -> int:
        """Add the part of a node inside a box, over some of its axes (the box has length 1 along the others)."""
        shape = [box[a][1] - box[a][0] for a in axes]
        space = self._space((node,), shape)
        at = {a: Index(((k, 1),), box[a][0]) for k, a in enumerate(axes)}
        value = space.operand(0, tuple(at.get(a, Index((), box[a][0])) for a in range(len(box))))
        space.emit(range(len(axes)), (), value, None, "")
        return self._place(space, (node,))

    def concat_node(self, shape: tuple[int, ...], pieces: Sequence[TensorPiece]) -> int:
        """Add the concatenation of pieces."""
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
    """Sum the parts of an adjoint: whole tensors are added, partial ones are added at their positions.

    Disjoint parts are concat_node, so that a slice for each step of a loop costs only a slice.
    """
    parts_builder = _PartBuilder(assembly, dtype, name, line)
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
        TensorPiece(nodes[0] if len(nodes) == 1 else parts_builder.sum_node(nodes, constant(0, dtype)), axes, offsets)
        for (axes, offsets, _), nodes in placed.items()
    ]
    if not pieces:
        if not whole:
            return number
        return whole[0] if len(whole) == 1 and is_number(number, 0) else parts_builder.sum_node(whole, number)
    return _with_pieces(parts_builder, pieces, whole, number, shape)


def _with_pieces(
    parts_builder: _PartBuilder,
    pieces: Sequence[TensorPiece],
    whole: Sequence[int],
    number: ScalarConst,
    shape: tuple[int, ...],
) -> int:
    nodes = parts_builder.assembly.nodes
    boxes = [piece_box(piece, nodes[piece.operand].shape) for piece in pieces]
    disjoint = not any(_overlap(a, b) for k, a in enumerate(boxes) for b in boxes[:k])
    if disjoint and not whole and is_number(number, 0):
        covered = visible_pieces(shape, boxes)[1]
        base = [] if covered else [_whole(parts_builder.constant_node(number, shape), shape)]
        return parts_builder.concat_node(shape, [*base, *pieces])
    base_node = parts_builder.constant_node(number, shape) if not whole else whole[0]
    if whole and (len(whole) > 1 or not is_number(number, 0)):
        base_node = parts_builder.sum_node(whole, number)
    if disjoint:
        changed = [_increased(parts_builder, base_node, piece, box) for piece, box in zip(pieces, boxes, strict=True)]
        return parts_builder.concat_node(shape, [_whole(base_node, shape), *changed])
    for piece, box in zip(pieces, boxes, strict=True):
        changed = [_increased(parts_builder, base_node, piece, box)]
        base_node = parts_builder.concat_node(shape, [_whole(base_node, shape), *changed])
    return base_node


def _increased(parts_builder: _PartBuilder, base: int, piece: TensorPiece, box: Box) -> TensorPiece:
    """A piece sum_node the values of ``base`` under it."""
    under = parts_builder.extract(base, box, piece.axes)
    return TensorPiece(
        parts_builder.sum_node([under, piece.operand], constant(0, parts_builder.dtype)), piece.axes, piece.offsets
    )


def _whole(node: int, shape: Sequence[int]) -> TensorPiece:
    return TensorPiece(node, tuple(range(len(shape))), (0,) * len(shape))


def _overlap(a: Box, b: Box) -> bool:
    return all(max(p[0], q[0]) < min(p[1], q[1]) for p, q in zip(a, b, strict=True))


def visible(
    assembly: GraphBuilder, user: ConcatNode, number: int, g: int | ScalarConst, node: Node
) -> Iterator[AdjointPart]:
    """Yield the part of a concatenation's adjoint that belongs to one piece and no later piece hides."""
    boxes = [piece_box(piece, assembly.nodes[piece.operand].shape) for piece in user.pieces]
    parts_builder = _PartBuilder(assembly, user.dtype, f"{node.name}.grad", user.line)
    for k, piece in enumerate(user.pieces):
        box = boxes[k]
        if piece.operand != number or 0 in node.shape:
            continue
        hiding = [other for other in boxes[k + 1 :] if _overlap(box, other)]
        if any(all(o[0] <= b[0] and b[1] <= o[1] for o, b in zip(other, box, strict=True)) for other in hiding):
            continue
        axes = tuple(range(len(node.shape)))
        if isinstance(g, ScalarConst):
            if not hiding:
                yield AdjointPart(g, None)
                continue
            part = parts_builder.constant_node(g, node.shape)
        elif node.shape == user.shape and piece.axes == axes:
            part = g
        else:
            part = parts_builder.extract(g, box, piece.axes)
        if hiding:
            zeros = [_hole(parts_builder, piece, box, other) for other in hiding]
            part = parts_builder.concat_node(node.shape, [_whole(part, node.shape), *zeros])
        yield AdjointPart(part, _whole(part, node.shape))


def _hole(parts_builder: _PartBuilder, piece: TensorPiece, box: Box, other: Box) -> TensorPiece:
    """Zeros over the part of a piece that another piece hides."""
    hidden = [(max(box[a][0], other[a][0]) - box[a][0], min(box[a][1], other[a][1]) - box[a][0]) for a in piece.axes]
    shape = [stop - start for start, stop in hidden]
    zeros = parts_builder.constant_node(constant(0, parts_builder.dtype), shape)
    return TensorPiece(zeros, tuple(range(len(shape))), tuple(start for start, _ in hidden))
