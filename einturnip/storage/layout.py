"""Memory layouts of stored tensors, and the contiguous runs that make up a region."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import InternalError
from einturnip.storage.types import Extent, Region, Repeats

LONG_NBYTES = 1 << 18
"""Runs of this length are transferred one by one: batching gains nothing."""

SIEVED_STRIDE = 8192
"""Runs at most this far apart share pages: they are read together with the bytes between them."""


@dataclass(frozen=True, slots=True)
class StridedLayout:
    """A strided tensor: element ``i`` is at ``offset + sum(i * strides)``. Units: bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.itemsize

    def check(self, region: Region) -> None:
        """Raise InternalError unless the region is inside the tensor: regions come from plans, not from users."""
        if len(region) != len(self.shape) or any(
            not 0 <= start <= stop <= n for (start, stop), n in zip(region, self.shape, strict=True)
        ):
            raise InternalError(f"region {region} is not inside a tensor of shape {self.shape}")

    def extent(self, region: Region) -> Extent:
        """The extent of a region: first byte, bytes of one run, and the repeats, outermost first."""
        self.check(region)
        offset, axes = self.offset, []
        for (start, stop), stride in zip(region, self.strides, strict=True):
            count = stop - start
            if count == 0:
                return self.offset, 0, ()
            offset += stride * start
            if stride < 0:
                offset += stride * (count - 1)
            if count > 1 and stride:
                axes.append((abs(stride), count))
        nbytes, repeats = self.itemsize, list[tuple[int, int]]()
        for stride, count in sorted(axes):
            if not repeats and stride == nbytes:
                nbytes *= count
            elif repeats and stride == repeats[-1][0] * repeats[-1][1]:
                repeats[-1] = (repeats[-1][0] * count, repeats[-1][1])
            else:
                repeats.append((count, stride))
        return offset, nbytes, tuple(reversed(repeats))


def c_layout(shape: tuple[int, ...], itemsize: int, offset: int) -> StridedLayout:
    """C order: the last axis is fastest."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return StridedLayout(shape, tuple(reversed(strides)), itemsize, offset)


def f_layout(shape: tuple[int, ...], itemsize: int, offset: int) -> StridedLayout:
    """Fortran order: the first axis is fastest."""
    mirrored = c_layout(shape[::-1], itemsize, offset)
    return StridedLayout(shape, mirrored.strides[::-1], itemsize, offset)


def extent_nbytes(extent: Extent) -> int:
    """Total bytes of all runs."""
    return extent[1] * math.prod(count for count, _ in extent[2])


def extent_span(extent: Extent) -> tuple[int, int]:
    """First byte and the byte after the last one."""
    offset, nbytes, repeats = extent
    return offset, offset + nbytes + sum((count - 1) * stride for count, stride in repeats)


def rows(offset: int, repeats: Repeats) -> Iterator[tuple[int, int, int]]:
    """Yield the repeats as (offset, count, stride) of the innermost one, for each step of the outer ones."""
    if not repeats:
        yield offset, 1, 0
    elif len(repeats) == 1:
        yield offset, *repeats[0]
    else:
        count, stride = repeats[0]
        for i in range(count):
            yield from rows(offset + i * stride, repeats[1:])


def starts(extent: Extent, most: int = 1 << 13) -> Iterator[NDArray[np.int64]]:
    """Yield the offsets of the runs in batches of at most ``most``, which bounds the memory."""
    offset, nbytes, repeats = extent
    (count, stride), *inner = repeats or ((1, 0),)
    each = math.prod(n for n, _ in inner)
    if each > most:
        for i in range(count):
            yield from starts((offset + i * stride, nbytes, tuple(inner)), most)
        return
    together = max(1, most // max(1, each))
    for at in range(0, count, together):
        found = offset + stride * np.arange(at, min(count, at + together))
        for n, step in inner:
            found = (found[:, None] + step * np.arange(n)).ravel()
        yield found


def blocks(region: Region, itemsize: int, limit: int) -> Iterator[Region]:
    """Split the region, outermost axes first, into parts of at most ``limit`` bytes (or one element)."""
    inner = itemsize
    for axis in range(len(region) - 1, -1, -1):
        start, stop = region[axis]
        if inner * (stop - start) > limit:
            step = max(1, limit // inner)
            for head in _points(region[:axis]):
                for at in range(start, stop, step):
                    yield (*head, (at, min(stop, at + step)), *region[axis + 1 :])
            return
        inner *= stop - start
    if inner:
        yield region


def _points(axes: Region) -> Iterator[Region]:
    if not axes:
        yield ()
        return
    for i in range(*axes[0]):
        for rest in _points(axes[1:]):
            yield ((i, i + 1), *rest)
