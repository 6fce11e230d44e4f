"""Defines the meaning of a Decomposition: every einsum tile by tile, as joins and aggregations."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.pieces import piece_box
from einturnip.eingraph.types import ConcatNode, EinsumNode, InputNode
from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import State
from einturnip.tiling.types import Decomposition, index
from tests.reference.region import combine_spaces, evaluate_space, finalize_space

Array = NDArray[Any]


def evaluate(decomposition: Decomposition, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return every output by name."""
    graph = decomposition.graph
    tensors: list[Array] = []
    for i, node in enumerate(graph.nodes):
        match node:
            case InputNode():
                tensors.append(np.asarray(inputs[node.name]))
            case EinsumNode():
                tensors.append(_node(decomposition, i, node, tensors))
            case ConcatNode():
                tensors.append(_put_together(node, tensors))
            case _:
                assert_never(node)
    return {name: tensors[node] for name, node in graph.outputs}


def _put_together(node: ConcatNode, tensors: list[Array]) -> Array:
    """Assemble a concatenation from its pieces; later pieces overwrite earlier ones."""
    out = np.empty(node.shape, node.dtype.numpy)
    for piece in node.pieces:
        part = tensors[piece.operand]
        box = piece_box(piece, part.shape)
        out[index(box)] = part.reshape([hi - lo for lo, hi in box])
    return out


def _node(decomposition: Decomposition, i: int, node: EinsumNode, tensors: list[Array]) -> Array:
    e, part = node.einsum, decomposition.partitionings[i]
    out = np.empty(e.shape, e.dtype.numpy)
    # A label of size 0 has no tile; its aggregation is empty but still has a result.
    inner = list(product(*(range(max(1, part.counts[p])) for p in e.aggregated)))
    rest = (0,) * (len(e.labels) - e.n_out - len(e.aggregated))
    once = isinstance(e, Einsum) and e.aggregation is None
    for key in decomposition.output(i).each():
        states: list[State] = []
        for k in inner:
            box = part.box(key + k + rest)
            operands = [tensors[o][index(e.operand_box(slot, box))] for slot, o in enumerate(node.operands)]
            origins, extents = [lo for lo, _ in box], [hi - lo for lo, hi in box]
            mode: Literal["result", "state"] = "result" if once else "state"
            states.append(evaluate_space(e, operands, origins, extents, mode))
        where = index(decomposition.output(i).box(key))
        if once:
            out[where] = states[0][0]
            continue
        state = states[0]
        for other in states[1:]:
            state = combine_spaces(e, state, other)
        out[where] = finalize_space(e, state)
    return out
