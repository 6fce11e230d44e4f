"""Reads the elements that a NumPy index selects from a stored tensor, and little else."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.storage.layout import blocks
from einturnip.storage.types import Array, Source, region_shape, whole

GAP_NBYTES = 16 << 10
"""[bytes] Elements that are not selected but read, between two that are, if reading apart would take longer."""

_PART_NBYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """An index into a tensor: the positions along each axis, and the index that NumPy applies to them.

    ``then`` selects from an array of these positions, which has all axes of the tensor, so that axes are dropped, added
    and moved as NumPy does.
    """

    axes: tuple[Sequence[int], ...]
    then: tuple[Any, ...]

    @classmethod
    def of(cls, key: Any, shape: tuple[int, ...]) -> Selection:
        """Return the selection of an index into a tensor of this shape.

        Raises:
            IndexError: it is out of bounds, has too many axes, or selects by several lists.
        """
        parts = list(key) if isinstance(key, tuple) else [key]
        used = sum(1 for part in parts if part is not None and part is not ...)
        if used > len(shape):
            raise IndexError(f"an index of {used} axes into a tensor of {len(shape)}")
        ellipses = sum(1 for part in parts if part is ...)
        if ellipses > 1:
            raise IndexError("an index has at most one '...'")
        rest = [slice(None)] * (len(shape) - used)
        at = next((k for k, part in enumerate(parts) if part is ...), len(parts))
        parts[at : at + 1] = rest
        axes, then, lists = list[Sequence[int]](), list[Any](), 0
        for part in parts:
            if part is None:
                then.append(None)
                continue
            n = shape[len(axes)]
            positions, kept = _positions(part, n, len(axes))
            lists += isinstance(kept, np.ndarray)
            axes.append(positions)
            then.append(kept)
        if lists > 1:
            raise IndexError("an index of a file has at most one list. help: read one axis by a list, then the other")
        return cls(tuple(axes), tuple(then))

    def read(self, source: Source) -> Any:
        """Return the selected elements: a scalar if only integers select, else a new array."""
        out = np.empty([len(axis) for axis in self.axes], source.dtype.numpy)
        runs, stride = [], float(source.dtype.itemsize)
        for axis, n in zip(reversed(self.axes), reversed(source.shape), strict=True):
            runs.append(_runs(axis, max(1, int(GAP_NBYTES / stride))))
            stride *= max(1, n)
        for one in itertools.product(*reversed(runs)):
            self._read_run(source, one, out)
        return out[self.then]

    def _read_run(self, source: Source, run: tuple[_Run, ...], out: Array) -> None:
        region = tuple((r.start, r.stop) for r in run)
        for part in blocks(region, source.dtype.itemsize, _PART_NBYTES):
            if 0 in region_shape(part):
                continue
            found = np.empty(region_shape(part), source.dtype.numpy)
            source.read(part, found)
            targets, origins = list[Array](), list[Array]()
            for (start, stop), r in zip(part, run, strict=True):
                inside = (r.positions >= start) & (r.positions < stop)
                targets.append(r.places[inside])
                origins.append(r.positions[inside] - start)
            if run:
                out[np.ix_(*targets)] = found[np.ix_(*origins)]
            else:
                out[()] = found


@dataclass(frozen=True, slots=True)
class _Run:
    """Positions of an axis that are read together. ``places``: where each of them is in the result."""

    positions: Array
    places: Array

    @property
    def start(self) -> int:
        return int(self.positions[0])

    @property
    def stop(self) -> int:
        return int(self.positions[-1]) + 1


def _runs(axis: Sequence[int], gap: int) -> list[_Run]:
    """Split the positions of an axis, sorted, where the next one is more than ``gap`` further."""
    positions = np.asarray(axis, np.int64)
    places = np.argsort(positions, kind="stable")
    positions = positions[places]
    ends = np.flatnonzero(np.diff(positions) > gap) + 1
    return [_Run(p, q) for p, q in zip(np.split(positions, ends), np.split(places, ends), strict=True) if len(p)]


def _positions(part: Any, n: int, axis: int) -> tuple[Sequence[int], Any]:
    """The positions that a part of an index selects, and the part of the index into them."""
    if isinstance(part, slice):
        return range(n)[part], slice(None)
    array = None if isinstance(part, int | np.integer) else np.asarray(part)
    if array is not None and (array.ndim or array.dtype == bool):
        if array.ndim == 1 and array.dtype == bool:
            if len(array) != n:
                raise IndexError(f"axis {axis} has {n} elements, but its mask {len(array)}")
            array = np.flatnonzero(array)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise IndexError(f"axis {axis}: an index is an integer, a slice, or one list of integers or mask")
        found = [_within(int(k), n, axis) for k in array]
        return found, np.arange(len(found))
    try:
        position = operator.index(part)
    except TypeError:
        raise IndexError(f"axis {axis}: {part!r} is no index. help: an integer, a slice, or a list") from None
    return [_within(position, n, axis)], 0


def _within(position: int, n: int, axis: int) -> int:
    if not -n <= position < n:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with {n} elements")
    return position % n


def read_whole(source: Source) -> Array:
    """Return all elements of a stored tensor."""
    out = np.empty(source.shape, source.dtype.numpy)
    source.read(whole(source.shape), out)
    return out
