"""Strided ranges of one file as boxes of a grid, so that what overlaps and what is missing shows without listing runs.

Where every stride is a multiple of the next smaller one, an address has digits: one for each stride, and the byte
within the smallest. A range is a box of digits, or a few. The borders of all boxes cut the grid into cells; how often
each cell is covered comes from sums over the boxes' corners.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from einturnip.verify.types import Ints, NotAPlan

CELLS_AT_ONCE = 1 << 24
MOST_RUNS = 1 << 24
Range = tuple[int, int, tuple[tuple[int, int], ...]]  # first byte, bytes of a run, (count, stride) outermost first


@dataclass(frozen=True)
class Boxes:
    """Box ``i`` is digits ``low[i]`` to ``high[i]`` and belongs to range ``of[i]``; -1: what should be covered once."""

    base: int
    strides: tuple[int, ...]
    low: Ints
    high: Ints
    of: Ints


def nested(axes: tuple[tuple[int, int], ...], nbytes: int) -> bool:
    """Whether each repetition lies wholly beyond the one before."""
    span = nbytes
    for count, stride in sorted(axes, key=lambda axis: axis[1]):
        if stride < span:
            return False
        span += (count - 1) * stride
    return True


def overlaps_itself(axes: tuple[tuple[int, int], ...], nbytes: int) -> bool:
    """Whether runs of one range share bytes."""
    if nested(axes, nbytes):
        return False
    starts = np.sort(run_starts(0, axes))
    return bool((np.diff(starts) < nbytes).any())


def run_starts(start: int, axes: tuple[tuple[int, int], ...]) -> Ints:
    """Where each run of a range begins.

    Raises:
        NotAPlan: more runs than can be listed; only ranges whose strides make no grid need to be.
    """
    if math.prod(count for count, _ in axes) > MOST_RUNS:
        raise NotAPlan(f"an extent repeats as {list(map(list, axes))}: too many runs for strides that make no grid")
    starts = np.array([start], np.int64)
    for count, stride in axes:
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return starts


def chained(axes: set[tuple[tuple[int, int], ...]]) -> tuple[int, ...] | None:
    """All strides, largest first, where each is a multiple of the next; None where they are not."""
    strides = tuple(sorted({stride for key in axes for _, stride in key}, reverse=True))
    if any(large % small for large, small in zip(strides, strides[1:], strict=False)):
        return None
    return strides


def boxes(ranges: list[Range], strides: tuple[int, ...]) -> Boxes:
    """The ranges, none of which overlaps itself, and what lies from the first byte of all to the last as boxes."""
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
    """Boxes of digits that make up a range: several where a run or a repetition goes on in the next row."""
    work = [(offset, nbytes, counts)]
    while work:
        at, size, times = work.pop()
        digits, rest = [], at
        for stride in strides:
            digits.append(rest // stride)
            rest %= stride
        digits.append(rest)
        lengths = [*times, size]
        # From the inside out: whatever goes over its digit's end is cut there, and its whole rows counted one digit up.
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


def uneven(found: Boxes) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Cells (low and high digits) that are not covered once: by how many too many, or -1."""
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
    """How often each cell between the borders is covered, by weight."""
    count = np.zeros([len(b) for b in borders], np.int64)
    ends = [(np.searchsorted(b, low[:, a]), np.searchsorted(b, high[:, a])) for a, b in enumerate(borders)]
    for corner in product((0, 1), repeat=len(borders)):
        sign = -1 if sum(corner) % 2 else 1
        np.add.at(count, tuple(end[c] for end, c in zip(ends, corner, strict=True)), sign * weight)
    for axis in range(count.ndim):
        np.cumsum(count, axis=axis, out=count)
    return count


def address(found: Boxes, digits: tuple[int, ...]) -> int:
    """The byte at some digits."""
    return found.base + digits[-1] + sum(d * s for d, s in zip(digits, found.strides, strict=False))


def holders(found: Boxes, digits: tuple[int, ...]) -> list[int]:
    """The ranges that hold the byte at some digits."""
    here = (found.of >= 0) & (found.low <= digits).all(axis=1) & (found.high > digits).all(axis=1)
    return sorted(set(found.of[here].tolist()))
