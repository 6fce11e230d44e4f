"""Simplifies concatenations: reads at the pieces, nested pieces flattened, hidden pieces dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from einturnip.eingraph.builder import EinsumInterner, LabelSpace, StatementDrafts, distinct, pattern
from einturnip.eingraph.indices import as_index, shifted
from einturnip.eingraph.pieces import boxes_of, inner_piece, visible_pieces
from einturnip.eingraph.products import python_number
from einturnip.eingraph.rewrite.sharing import drop_dead, with_operands
from einturnip.eingraph.rewrite.slice_versions import ElementSources
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, Node, TensorPiece, operands_of
from einturnip.ir.einsum import Access, Einsum
from einturnip.ir.scalar import ScalarConst


def read_pieces(graph: EinGraph, interner: EinsumInterner) -> EinGraph:
    """Redirect reads within one piece to that piece, through all versions of a tensor filled in a loop."""
    source = ElementSources(graph.nodes)
    nodes = [_read_at_source(interner, node, source) if isinstance(node, EinsumNode) else node for node in graph.nodes]
    return drop_dead(replace(graph, nodes=tuple(nodes)))


def _read_at_source(interner: EinsumInterner, node: EinsumNode, source: ElementSources) -> EinsumNode:
    """Redirect each access to a part of one piece to that piece."""
    if not any(isinstance(source.nodes[operand], ConcatNode) for operand in node.operands):
        return node
    einsum, whole = node.einsum, [(0, n) for n in node.einsum.bounds]
    operands, accesses = list(node.operands), list(einsum.accesses)
    for slot, operand in enumerate(node.operands):
        piece = source.of(operand, einsum.operand_box(slot, whole))
        moved = _moved(einsum.accesses[slot], piece)
        if piece.operand != operand and moved is not None:
            operands[slot], accesses[slot] = piece.operand, moved
    if operands == list(node.operands):
        return node
    same = pattern(operands)
    shapes = tuple(source.nodes[operand].shape for operand in operands)
    key = id(einsum), same, tuple(accesses), shapes
    found, left = interner.once(_reading, key, einsum, same, accesses, shapes)
    tensors = distinct(operands)
    return EinsumNode(node.name, interner.one(found), tuple(tensors[n] for n in left), node.line, node.hints)


def _moved(access: Access, piece: TensorPiece) -> Access | None:
    """Convert an access to the whole to one of a piece; None where an index cannot be shifted."""
    found = []
    for axis in piece.axes:
        index = access[axis]
        if piece.offsets[axis]:
            moved = shifted(as_index(index), -piece.offsets[axis])
            if moved is None:
                return None
            index = moved
        found.append(index)
    return tuple(found)


def _reading(
    einsum: Einsum, operands: Sequence[int], accesses: Sequence[Access], shapes: Sequence[tuple[int, ...]]
) -> tuple[Einsum, tuple[int, ...]]:
    """The einsum with new accesses over numbered tensors, and the numbers it reads."""
    tensors = {n: (einsum.dtypes[slot], shapes[slot]) for slot, n in enumerate(operands)}
    space = LabelSpace(StatementDrafts(tensors[n] for n in range(len(tensors))), einsum.labels, einsum.bounds)
    join = space.substitute(einsum.join, accesses, operands)
    keys = [(key.label, space.substitute(key.value, accesses, operands)) for key in einsum.keys]
    return space.einsum(range(einsum.n_out), einsum.aggregated, join, einsum.aggregation, keys)


def flatten_pieces(graph: EinGraph) -> EinGraph:
    """Flatten nested pieces with one reader; drop hidden pieces and concatenations of a single piece."""
    uses = [0] * len(graph.nodes)
    for operand in (o for node in graph.nodes for o in operands_of(node)):
        uses[operand] += 1
    outputs = {output for _, output in graph.outputs}
    for output in outputs:
        uses[output] += 1
    nodes, absorbed = list(graph.nodes), set[int]()
    for i in reversed(range(len(nodes))):
        if isinstance(node := nodes[i], ConcatNode) and i not in absorbed:
            nodes[i] = _seen_only(replace(node, pieces=_flat(nodes, uses, absorbed, node)), nodes)
    ids = list(range(len(nodes)))
    for i, node in enumerate(nodes):
        if isinstance(node, ConcatNode) and len(node.pieces) == 1 and i not in absorbed:
            source, (piece,) = ids[node.pieces[0].operand], node.pieces
            plain = piece.axes == tuple(range(len(node.shape)))
            if plain and not (i in outputs and isinstance(nodes[source], InputNode)):
                ids[i] = source
            else:
                nodes[i] = _copy(node, piece, nodes)
    moved = tuple(with_operands(node, ids) for node in nodes)
    return drop_dead(replace(graph, nodes=moved, outputs=tuple((name, ids[node]) for name, node in graph.outputs)))


def _flat(nodes: Sequence[Node], uses: Sequence[int], absorbed: set[int], node: ConcatNode) -> tuple[TensorPiece, ...]:
    """The node's pieces, with concatenations that only this node reads replaced by their pieces."""
    found: list[TensorPiece] = []
    stack = list(reversed(node.pieces))
    while stack:
        piece = stack.pop()
        inner = nodes[piece.operand]
        if isinstance(inner, ConcatNode) and uses[piece.operand] == 1:
            absorbed.add(piece.operand)
            stack += [inner_piece(piece, p) for p in reversed(inner.pieces)]
        else:
            found.append(piece)
    return tuple(found)


def _seen_only(node: ConcatNode, nodes: Sequence[Node]) -> Node:
    """Drop the pieces that later ones cover; a node without elements becomes a constant."""
    if prod(node.shape) == 0:
        axes = tuple(range(len(node.shape)))
        space = LabelSpace(StatementDrafts(), [f"i{axis}" for axis in axes], node.shape)
        nothing = space.einsum(axes, (), ScalarConst(python_number(0, node.dtype), node.dtype), None)[0]
        return EinsumNode(node.name, nothing, (), node.line)
    left, _ = visible_pieces(node.shape, boxes_of(node, nodes))
    return replace(node, pieces=tuple(node.pieces[p] for p in left))


def _copy(node: ConcatNode, piece: TensorPiece, nodes: Sequence[Node]) -> EinsumNode:
    """Replace a concatenation of one piece by a copy."""
    axes = tuple(range(len(node.shape)))
    source = nodes[piece.operand]
    space = LabelSpace(StatementDrafts([(source.dtype, source.shape)]), [f"i{axis}" for axis in axes], node.shape)
    einsum, _ = space.einsum(axes, (), space.operand(0, piece.axes), None)
    return EinsumNode(node.name, einsum, (piece.operand,), node.line)
