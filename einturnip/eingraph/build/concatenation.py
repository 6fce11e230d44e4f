"""Lowers slice assignment and concatenation to pieces with positions."""

from __future__ import annotations

from collections.abc import Mapping

from einturnip.eingraph.build.sizes import BoundSize, BoundSizes
from einturnip.eingraph.types import TensorPiece
from einturnip.lang.program import Concatenate, Replace
from einturnip.lang.sizes import size_text

Placed = tuple[tuple[int, ...], tuple[TensorPiece, ...]]


def replacement(sizes: BoundSizes, statement: Replace, nodes: Mapping[int, int]) -> Placed:
    """Return the shape of a tensor with a slice replaced, and its pieces: the base, then the slice."""
    axes, name = sizes.axes[statement.base], sizes.name_of(statement.base)
    sizes.axes[statement.number] = axes
    found = iter(sizes.axes[statement.piece])
    offsets, kept = [], []
    for axis, (size, at) in enumerate(zip(axes, statement.at, strict=True)):
        if at is None:
            piece = next(found)
            offsets.append(0)
            kept.append(axis)
            if piece.value != size.value:
                message = f"the slice has {piece.value} elements along axis {axis} of {name}, which has {size.value}"
                sizes.report("E207", message, statement.span, expected=str(size), found=str(piece))
        else:
            value = sizes.integer(at)
            offsets.append(0 if value is None else value)
            if value is not None and not 0 <= value < size.value:
                range_ = f"0 .. {size.value - 1}" if size.value else "empty"
                message = f"index '{size_text(at)}' leaves axis {axis} of {name}: it is {value}, the axis is {range_}"
                sizes.report("E209", message, statement.span, expected=f"{range_}: {size}", found=str(value))
    whole = tuple(range(len(axes)))
    pieces = (
        TensorPiece(nodes[statement.base], whole, (0,) * len(axes)),
        TensorPiece(nodes[statement.piece], tuple(kept), tuple(offsets)),
    )
    return tuple(size.value for size in axes), pieces


def concatenation(sizes: BoundSizes, statement: Concatenate, nodes: Mapping[int, int]) -> Placed:
    """Return the shape of tensors concatenated along an axis, and the pieces."""
    first = sizes.axes[statement.parts[0]]
    pieces, start = [], 0
    for part in statement.parts:
        axes = sizes.axes[part]
        for axis, (size, expected) in enumerate(zip(axes, first, strict=True)):
            if axis != statement.axis and size.value != expected.value:
                message = f"parts of {statement.name} have {expected.value} and {size.value} elements along axis {axis}"
                sizes.report("E207", message, statement.span, expected=str(expected), found=str(size))
        offsets = tuple(start if axis == statement.axis else 0 for axis in range(statement.rank))
        pieces.append(TensorPiece(nodes[part], tuple(range(statement.rank)), offsets))
        start += axes[statement.axis].value
    total = " + ".join(str(sizes.axes[part][statement.axis].value) for part in statement.parts)
    joined = BoundSize(start, f"axis {statement.axis} of {statement.name}: {total}", statement.span)
    sizes.axes[statement.number] = tuple(joined if a == statement.axis else s for a, s in enumerate(first))
    return tuple(size.value for size in sizes.axes[statement.number]), tuple(pieces)
