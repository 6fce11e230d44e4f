"""Finds, for an index out of range, the indexed axis and the elements that the index was read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from einturnip.core.errors import OutOfRange
from einturnip.core.units import element_name
from einturnip.eingraph.types import EinsumNode, Node
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.region import Region
from einturnip.ir.scalar import slots_of
from einturnip.memgraph.types import MemGraph

SAME_REGION = -1


def statement_of(graph: MemGraph, op: int) -> str:
    """Return the place and the text of the statement that a kernel computes, for error messages."""
    eingraph = graph.taskgraph.decomposition.graph
    line = eingraph.nodes[graph.taskgraph.node[graph.task[op]]].line
    return f"{eingraph.place(line)}: {eingraph.statement(line)}"


def locate_index(graph: MemGraph, op: int, error: BaseException | None) -> None:
    """Add to an index error of a kernel the elements from which the wrong index was read."""
    if isinstance(error, OutOfRange):
        nodes = graph.taskgraph.decomposition.graph.nodes
        node = nodes[graph.taskgraph.node[graph.task[op]]]
        assert isinstance(node, EinsumNode)
        error.locate(*index_origin(node, nodes, error))


def index_origin(node: EinsumNode, nodes: Sequence[Node], error: OutOfRange) -> tuple[str, tuple[str, ...]]:
    """Return the axis in words (``axis 0 of X``) and the elements read (``K[11, 2]``).

    Tensors that the compiler introduced are left out, since the user does not know their names.
    """
    for name, einsum, operands in _einsums(node):
        for key in einsum.keys:
            if (einsum.labels[key.label], einsum.bounds[key.label]) == (error.label, error.size):
                return _axis(name, einsum, key), tuple(_elements(einsum, key, operands, nodes, error))
    return "", ()


def _einsums(node: EinsumNode) -> Iterator[tuple[str, Einsum, tuple[int, ...]]]:
    """Yield each einsum of a node with its name and the nodes that its operand slots read."""
    if not isinstance(node.einsum, Region):
        yield node.name, node.einsum, node.operands
        return
    for (name, _), step in zip(node.steps, node.einsum.steps, strict=True):
        read = (node.operands[slot] if slot >= 0 else SAME_REGION for slot in step.operands)
        yield name, step.einsum, tuple(read)


def _axis(name: str, einsum: Einsum, key: Key) -> str:
    if key.label < einsum.n_out:  # a scatter
        return f"axis {key.label} of {name}"
    tensor, _, axis = einsum.labels[key.label].rpartition(".")
    return f"axis {axis} of {tensor}" if tensor else ""


def _elements(
    einsum: Einsum, key: Key, operands: Sequence[int], nodes: Sequence[Node], error: OutOfRange
) -> Iterator[str]:
    """Yield the elements of named tensors that the key expression reads at the point of the error."""
    at = dict(error.point)
    box = [(at.get(label, -1), at.get(label, -1) + 1) for label in einsum.labels]
    for slot in sorted(slots_of(key.value)):
        name = nodes[operands[slot]].name if operands[slot] != SAME_REGION else "."
        ranges = einsum.operand_box(slot, box)
        if "." not in name and all(first >= 0 and stop == first + 1 for first, stop in ranges):
            yield element_name(name, [first for first, _ in ranges])
