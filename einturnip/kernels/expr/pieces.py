"""Pieces of a label's range in which indices that divide, wrap or clamp the label are affine.

The range is divided where a quotient or a remainder restarts, and whole periods form a further axis: over ``u // 3``
and ``u % 3`` the range 2 .. 13 becomes 2 | 3 .. 12 by threes | 12. So merging or splitting axes, repeating rows and
padding are a few strided copies, wherever a tile begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from einturnip.ir.einsum import Index


@dataclass(frozen=True, slots=True)
class AffinePiece:
    """Points of one label in mixed radix, and the values of indices there.

    Shapes:
        sizes: extents of the digits, outermost first.
        first, steps: the label's value where all digits are 0, and the increment of each digit.
        firsts, index_steps: the same for each index.
        inside: False where an index is clamped.
    """

    sizes: tuple[int, ...]
    first: int
    steps: tuple[int, ...]
    firsts: tuple[int, ...]
    index_steps: tuple[tuple[int, ...], ...]
    inside: bool = True


def splits(indices: Sequence[Index]) -> bool:
    """Return True if indices of one label can be divided into pieces: their periods nest and align."""
    if any(len(i.terms) != 1 or (i.clamped and i.modulus) for i in indices):
        return False
    cyclic = [i for i in indices if i.divisor > 1 or i.modulus]
    if any(abs(i.terms[0][1]) != 1 for i in cyclic) or len({(i.terms, i.offset) for i in cyclic}) > 1:
        return False
    lengths = periods(cyclic)
    return all(a % b == 0 for a, b in zip(lengths, lengths[1:], strict=False))


def periods(indices: Sequence[Index]) -> list[int]:
    """Return the lengths after which a quotient steps or a remainder restarts, longest first."""
    return sorted({n for i in indices for n in (i.divisor, i.divisor * i.modulus) if n > 1}, reverse=True)


def pieces(indices: Sequence[Index], sizes: Sequence[int], start: int, stop: int) -> Iterator[AffinePiece]:
    """Yield the pieces of the range start .. stop of the label; ``sizes``: of the indices' axes."""
    edges = {start, stop}
    for index, size in zip(indices, sizes, strict=True):
        if index.clamped:
            edges.update(x for x in _clamp_edges(index, size) if start < x < stop)
    ordered = sorted(edges)
    for a, b in zip(ordered, ordered[1:], strict=False):
        held = [_unclamped(i, n, a) for i, n in zip(indices, sizes, strict=True)]
        inside = all(i.terms for i in held)
        yield from (replace(p, inside=inside) for p in _within(held, a, b))


def value(index: Index, x: int) -> int:
    """Return an index of one label at a point, unclamped."""
    y = (index.offset + sum(c * x for _, c in index.terms)) // index.divisor
    return y % index.modulus if index.modulus else y


def _clamp_edges(index: Index, size: int) -> Iterator[int]:
    """Yield the points at which the index enters or leaves 0 .. size - 1."""
    ((_, c),) = index.terms
    for bound in (0, size * index.divisor):  # offset + c * x crosses it
        yield -((index.offset - bound) // c) if c > 0 else (index.offset - bound) // -c + 1


def _unclamped(index: Index, size: int, x: int) -> Index:
    """Return a clamped index as it is around ``x``: without the clamp, or one end of the axis."""
    if not index.clamped:
        return index
    inner = value(index, x)
    return replace(index, clamped=False) if 0 <= inner < size else Index((), 0 if inner < 0 else size - 1)


def _within(indices: Sequence[Index], start: int, stop: int) -> Iterator[AffinePiece]:
    cyclic = [i for i in indices if i.divisor > 1 or i.modulus]
    if not cyclic:
        yield _piece(indices, start, (stop - start,), (1,))
        return
    ((_, sign),) = cyclic[0].terms
    offset = cyclic[0].offset
    first, last = sorted((offset + sign * start, offset + sign * (stop - 1)))
    for y, digits in _cut(first, last + 1, periods(cyclic)):
        yield _piece(indices, (y - offset) * sign, tuple(n for n, _ in digits), tuple(sign * p for _, p in digits))


def _cut(start: int, stop: int, lengths: Sequence[int]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield runs of start .. stop as (first, [(count, step), ...]), with whole periods as one run."""
    if not lengths:
        if start < stop:
            yield start, [(stop - start, 1)]
        return
    period = lengths[0]
    body, end = -(-start // period) * period, stop // period * period
    if body >= end:
        middle = min(body, stop)
        yield from _cut(start, middle, lengths[1:])
        yield from _cut(middle, stop, lengths[1:])
        return
    yield from _cut(start, body, lengths[1:])
    for _, digits in _cut(0, period, lengths[1:]):
        yield body, [((end - body) // period, period), *digits]
    yield from _cut(end, stop, lengths[1:])


def _piece(indices: Sequence[Index], first: int, sizes: tuple[int, ...], steps: tuple[int, ...]) -> AffinePiece:
    moved = tuple(tuple(_step(i, s) for s in steps) for i in indices)
    return AffinePiece(sizes, first, steps, tuple(value(i, first) for i in indices), moved)


def _step(index: Index, step: int) -> int:
    """Return the increment of an index for a digit's step of its label."""
    if not index.terms:
        return 0
    gained, period = step * index.terms[0][1], index.divisor * index.modulus
    if (period and gained % period == 0) or gained % index.divisor:
        return 0
    return gained // index.divisor
