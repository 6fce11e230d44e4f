"""Strided ranges of a file as boxes of a grid, to find overlaps and holes without listing runs.

If every stride is a multiple of the next smaller one, an address has digits: one for each stride, and the byte within
the smallest. A range is one box of digits, or a few. The borders of all boxes divide the grid into cells; the number of
boxes that cover each cell is computed from sums over the boxes' corners.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from einturnip.verify.types import Ints, NotAPlan

CELLS_AT_ONCE = 1 << 24
MAX_RUNS = 1 << 24
Range = tuple[int, int, tuple[tuple[int, int], ...]]  # first byte, bytes of a run, (count, stride) outermost first


@dataclass(frozen=True)
class Boxes:
    """Box ``i`` has digits ``low[i]`` to ``high[i]`` and belongs to range ``of[i]``.

    -1 marks the box that should be covered exactly once.
    """

    base: int
    strides: tuple[int, ...]
    low: Ints
    high: Ints
    of: Ints


def nested(axes: tuple[tuple[int, int], ...], nbytes: int) -> bool:
    """Return whether each repetition begins after the end of the previous one."""
    span = nbytes
    for count, stride in sorted(axes, key=lambda axis: axis[1]):
        if stride < span:
            return False
        span += (count - 1) * stride
    return True


def overlaps_itself(axes: tuple[tuple[int, int], ...], nbytes: int) -> bool:
    """Return whether runs of one range share bytes."""
    if nested(axes, nbytes):
        return False
    starts = np.sort(run_starts(0, axes))
    return bool((np.diff(starts) < nbytes).any())


def run_starts(start: int, axes: tuple[tuple[int, int], ...]) -> Ints:
    """Return the start of each run of a range.

    Raises:
        NotAPlan: there are too many runs to list; this is needed only if the strides do not form a grid.
    """
    if math.prod(count for count, _ in axes) > MAX_RUNS:
        raise NotAPlan(f"an extent repeats as {list(map(list, axes))}: too many runs for strides that make no grid")
    starts = np.array([start], np.int64)
    for count, stride in axes:
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return starts


def common_strides(axes: set[tuple[tuple[int, int], ...]]) -> tuple[int, ...] | None:
    """Return all strides, largest first, if each is a multiple of the next; else None."""
    strides = tuple(sorted({stride for key in axes for _, stride in key}, reverse=True))
    if any(large % small for large, small in zip(strides, strides[1:], strict=False)):
        return None
    return strides


def boxes(ranges: list[Range], strides: tuple[int, ...]) -> Boxes:
    """Return the ranges, and the span from their first to their last byte, as boxes.

    The ranges must not overlap themselves.
    """
    base = min(start for start, _, _ in ranges)
    stop = max(start + nbytes + sum((c - 1) * s for c, s in axes) for start, nbytes, axes in ranges)
    low: list[tuple[int, ...]] = []
    high: list[tuple[int, ...]] = []
    of: list[int] = []
    for i, (start, nbytes, axes) in [*enumerate(ranges), (-1, (base, stop - base, ()))]:
        counts = {stride: count for count, stride in axes}
        for a, b in _split(start - base, nbytes, [counts.get(s, 1) for s in strides], strides):
            low.append(a)
            high.append(b)
            of.append(i)
    shape = len(low), len(strides) + 1
    return Boxes(
        base,
        strides,
        np.array(low, np.int64).reshape(shape),
        np.array(high, np.int64).reshape(shape),
        np.array(of, np.int64),
    )


def _split(
    offset: int, nbytes: int, counts: list[int], strides: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the boxes of digits of a range: several if a run or a repetition continues in the next row."""
    work = [(offset, nbytes, counts)]
    while work:
        at, size, times = work.pop()
        digits, rest = [], at
        for stride in strides:
            digits.append(rest // stride)
            rest %= stride
        digits.append(rest)
        lengths = [*times, size]
        # From the innermost digit: a length beyond its digit's end is split there, and complete rows move one digit up.
        for axis in range(len(strides), 0, -1):
            unit = 1 if axis == len(strides) else strides[axis]
            radix = strides[axis - 1] // unit
            over = digits[axis] + lengths[axis] - radix
            if over <= 0:
                continue
            head = min(radix - digits[axis], lengths[axis]) if digits[axis] else 0
            rows, tail = divmod(lengths[axis] - head, radix)
            for length, skipped, repeat in ((head, 0, 1), (radix, head, rows), (tail, head + rows * radix, 1)):
                if length and repeat:
                    new = [*lengths]
                    new[axis] = length
                    if repeat > 1:
                        new[axis - 1] = repeat
                    work.append((at + skipped * unit, new[-1], new[:-1]))
            break
        else:
            yield tuple(digits), tuple(d + n for d, n in zip(digits, lengths, strict=True))


def miscovered_cells(found: Boxes) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Yield the cells (low and high digits) not covered exactly once, with the excess, or -1 for a hole."""
    work = [(found.low, found.high, np.where(found.of < 0, -1, 1))]
    while work:
        low, high, weight = work.pop()
        borders = [np.unique(np.concatenate([low[:, a], high[:, a]])) for a in range(low.shape[1])]
        longest = max(range(len(borders)), key=lambda a: len(borders[a]))
        if math.prod(map(len, borders)) > CELLS_AT_ONCE and len(borders[longest]) > 2:
            border = borders[longest]
            middle = border[len(border) // 2]
            for ends in ((border[0], middle), (middle, border[-1])):
                here = (low[:, longest] < ends[1]) & (high[:, longest] > ends[0])
                part = low[here].copy(), high[here].copy(), weight[here]
                for digits in part[:2]:
                    np.clip(digits[:, longest], *ends, out=digits[:, longest])
                work.append(part)
            continue
        count = _cover(low, high, weight, borders)
        for cell in np.argwhere(count != 0).tolist():
            yield (
                tuple(int(b[c]) for b, c in zip(borders, cell, strict=True)),
                tuple(int(b[c + 1]) for b, c in zip(borders, cell, strict=True)),
                int(count[tuple(cell)]),
            )


def _cover(low: Ints, high: Ints, weight: Ints, borders: list[Ints]) -> Ints:
    """Return the weighted number of boxes that cover each cell between the borders."""
    count = np.zeros([len(b) for b in borders], np.int64)
    ends = [(np.searchsorted(b, low[:, a]), np.searchsorted(b, high[:, a])) for a, b in enumerate(borders)]
    for corner in product((0, 1), repeat=len(borders)):
        sign = -1 if sum(corner) % 2 else 1
        np.add.at(count, tuple(end[c] for end, c in zip(ends, corner, strict=True)), sign * weight)
    for axis in range(count.ndim):
        np.cumsum(count, axis=axis, out=count)
    return count


def address(found: Boxes, digits: tuple[int, ...]) -> int:
    """Return the byte address of some digits."""
    return found.base + digits[-1] + sum(d * s for d, s in zip(digits, found.strides, strict=False))


def covering_ranges(found: Boxes, digits: tuple[int, ...]) -> list[int]:
    """Return the ranges that contain the byte at some digits."""
    here = (found.of >= 0) & (found.low <= digits).all(axis=1) & (found.high > digits).all(axis=1)
    return sorted(set(found.of[here].tolist()))
