"""Finds the elements that an index out of range was read from, and those that show a numeric event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from einturnip.core.errors import OutOfRange
from einturnip.eingraph.types import EinsumNode, Node
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.region import Region
from einturnip.ir.scalar import slots_of
from einturnip.tuning.memory import INDEX_BUFFER_ELEMENTS

SAME_REGION = -1


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
            place = ", ".join(str(first) for first, _ in ranges)
            yield f"{name}[{place}]" if place else name


def event_place(result: np.ndarray[Any, Any], is_nan: bool) -> tuple[int, ...] | None:
    """Return the place of the first NaN, or of the first infinite element; None if there is none.

    Takes a buffer of fixed size, whatever the tile.
    """
    passed = 0
    blocks: Any = np.nditer(
        result, flags=["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=INDEX_BUFFER_ELEMENTS
    )
    for block in blocks:
        wrong = np.isnan(block) if is_nan else np.isinf(block)
        if wrong.any():
            return tuple(map(int, np.unravel_index(passed + int(np.argmax(wrong)), result.shape)))
        passed += block.size
    return None
