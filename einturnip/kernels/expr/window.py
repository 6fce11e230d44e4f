"""Views of tiles through affine indices: one axis a label, with the label's stride."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from einturnip.ir.einsum import Access, Index
from einturnip.kernels.expr.primitives import Array

_ALL = slice(None)
Shape: TypeAlias = tuple[int, ...]


class TileView(NamedTuple):
    """A tile as passed to the kernel, and the first point of its labels."""

    array: Array
    origins: tuple[int, ...]


class _Interface:
    """Memory described by NumPy's array interface; arrays made of it keep ``base`` alive."""

    __slots__ = ("__array_interface__", "base")

    def __init__(self, base: Array, typestr: str, address: int, shape: Shape, strides: Shape) -> None:
        self.base = base
        self.__array_interface__ = {
            "version": 3,
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
            "data": (address, False),
        }


def view(array: Array, offset: int, shape: Shape, strides: Shape, dtype: np.dtype[Any] | None = None) -> Array:
    """Return an array over the same memory from a byte offset on; strides in bytes, of any sign."""
    dtype = array.dtype if dtype is None else dtype
    address = array.__array_interface__["data"][0] + offset
    made: Array = np.asarray(_Interface(array, dtype.str, address, shape, strides))
    return made if made.dtype == dtype else made.view(dtype)  # ml_dtypes have no type string of their own


def is_affine(access: Access) -> bool:
    """Return True if each axis is a label or an affine index."""
    return all(isinstance(p, int) or p.affine for p in access)


def terms(axis: int | Index) -> tuple[tuple[int, int], ...]:
    """Return (label, coefficient) of an axis."""
    return ((axis, 1),) if isinstance(axis, int) else axis.terms


def label_strides(access: Access, strides: Sequence[int]) -> dict[int, int]:
    """Return the stride of each label, for an affine access of an array of these strides."""
    found: dict[int, int] = {}
    for axis, stride in zip(access, strides, strict=True):
        for label, coefficient in terms(axis):
            found[label] = found.get(label, 0) + coefficient * stride
    return found


def first_offset(access: Access, strides: Sequence[int], extents: Mapping[int, int] | Sequence[int]) -> int:
    """Return the byte offset of the labels' first points; a falling index starts at the far end."""
    return sum(
        -coefficient * (extents[label] - 1) * stride
        for axis, stride in zip(access, strides, strict=True)
        for label, coefficient in terms(axis)
        if coefficient < 0
    )


def window(array: Array, access: Access, order: Sequence[int], extents: Sequence[int]) -> Array:
    """Return the tile with an axis for each label of ``order``, of size 1 where it lacks the label."""
    steps = label_strides(access, array.strides)
    shape = tuple(extents[p] if p in steps else 1 for p in order)
    offset = first_offset(access, array.strides, extents)
    return view(array, offset, shape, tuple(steps.get(p, 0) for p in order))


def aligned(array: Array, access: Access, order: Sequence[int], extents: Sequence[int]) -> Array:
    """Return ``window`` by slicing alone, where each axis is a label of its own."""
    if len(set(access)) != len(access) or not all(isinstance(p, int) for p in access):
        return window(array, access, order, extents)
    place = [access.index(p) for p in order if p in access]
    if place != sorted(place):
        array = array.transpose(place)
    if len(place) == len(order):
        return array
    return array[tuple([_ALL if p in access else None for p in order])]
