"""Evaluates an EinGraph in NumPy, node by node over whole arrays; this defines its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import numpy as np

from einturnip.core.errors import BindError
from einturnip.eingraph.pieces import piece_box
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, InputNode, operands_of
from einturnip.ir.operators import Array
from tests.reference.region import evaluate_space


def evaluate(graph: EinGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return every output by name.

    Raises:
        BindError: an input is missing, or has another shape or dtype than its node.
    """
    last_use = {operand: i for i, node in enumerate(graph.nodes) for operand in operands_of(node)}
    wanted = {node for _, node in graph.outputs}
    values: dict[int, Array] = {}
    for i, node in enumerate(graph.nodes):
        match node:
            case InputNode():
                values[i] = _input(node, inputs)
            case EinsumNode(einsum=einsum, operands=operands):
                (values[i],) = evaluate_space(einsum, [values[o] for o in operands])
            case ConcatNode():
                values[i] = _concatenate(node, values)
            case _:
                assert_never(node)
        for operand in operands_of(node):
            if last_use[operand] == i and operand not in wanted:
                values.pop(operand, None)
    return {name: values[node] for name, node in graph.outputs}


def _concatenate(node: ConcatNode, values: Mapping[int, Array]) -> Array:
    """Write the pieces into the whole in order, later ones over earlier ones."""
    whole = np.empty(node.shape, node.dtype.numpy)
    for piece in node.pieces:
        array = values[piece.operand]
        box = piece_box(piece, array.shape)
        order = sorted(range(array.ndim), key=piece.axes.__getitem__)
        whole[tuple(slice(*ends) for ends in box)] = array.transpose(order).reshape(
            [stop - start for start, stop in box]
        )
    return whole


def _input(node: InputNode, inputs: Mapping[str, Array]) -> Array:
    if node.name not in inputs:
        raise BindError(f"input '{node.name}' has no array")
    array = np.asarray(inputs[node.name])
    if array.shape != node.shape or array.dtype != node.dtype.numpy:
        expected = f"{node.dtype}{list(node.shape)}"
        raise BindError(f"input '{node.name}' must be {expected}, found {array.dtype}{list(array.shape)}")
    return array
