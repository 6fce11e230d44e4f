"""The extended einsum: a join over labelled operands, aggregated over labels absent from the output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeAlias

from einturnip.core.units import whole_lines
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import DType
from einturnip.ir.scalar import Scalar, labels_of, slots_of

Box: TypeAlias = tuple[tuple[int, int], ...]
"""A box of points or elements: the first index along each label or axis, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Index:
    """A static index: ``(offset + sum of coefficient * label) // divisor % modulus``.

    ``terms`` are (label position, coefficient), by ascending position, without zero coefficients. ``modulus`` 0 means
    none. If ``clamped``, a value outside the axis is moved to the nearest end; the join guards the value that is then
    read. A plain label is represented by its position instead of an Index.
    """

    terms: tuple[tuple[int, int], ...]
    offset: int = 0
    divisor: int = 1
    modulus: int = 0
    clamped: bool = False

    @property
    def affine(self) -> bool:
        """True for ``offset + sum of coefficient * label`` without division, modulus or clamp."""
        return self.divisor == 1 and self.modulus == 0 and not self.clamped

    def interval(self, box: Sequence[tuple[int, int]], size: int) -> tuple[int, int]:
        """The (start, stop) that contains the index at every point of a box of labels.

        (0, 0) for an empty box.
        """
        lo = hi = self.offset
        for position, coefficient in self.terms:
            start, stop = box[position]
            if start >= stop:
                return 0, 0
            ends = coefficient * start, coefficient * (stop - 1)
            lo, hi = lo + min(ends), hi + max(ends)
        lo, hi = lo // self.divisor, hi // self.divisor
        if self.modulus:
            if lo // self.modulus == hi // self.modulus:
                lo, hi = lo % self.modulus, hi % self.modulus
            else:
                lo, hi = 0, self.modulus - 1
        if self.clamped:
            lo, hi = (min(max(v, 0), size - 1) for v in (lo, hi))
        return lo, hi + 1


@dataclass(frozen=True, slots=True)
class Key:
    """A label whose index is data: only points where label ``label`` equals ``value`` contribute.

    ``value`` is an i64 over operands and labels, except ``label`` itself; a value outside the label's range is an
    error. A gather aggregates such a label (``pick``); a scatter has it on the output.
    """

    label: int
    value: Scalar


Access: TypeAlias = tuple[int | Index, ...]


def relabelled(index: int | Index, labels: Sequence[int] | Mapping[int, int]) -> int | Index:
    """Return an index with ``labels[p]`` for each label position p."""
    if isinstance(index, int):
        return labels[index]
    return replace(index, terms=tuple(sorted((labels[p], c) for p, c in index.terms)))


def labels_read(access: Access) -> frozenset[int]:
    """Positions of the labels that an access depends on."""
    return frozenset(q for p in access for q in ((p,) if isinstance(p, int) else (q for q, _ in p.terms)))


class TileSpace:
    """A label space that can be tiled, and the operands that its points read."""

    labels: tuple[str, ...]
    bounds: tuple[int, ...]
    n_out: int
    accesses: tuple[Access, ...]
    dtypes: tuple[DType, ...]
    shapes: tuple[tuple[int, ...], ...]
    keys: tuple[Key, ...]

    def __hash__(self) -> int:
        """Return the hash of all fields; it is computed once, since kernels and prices are looked up by it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple([getattr(self, f.name) for f in fields(self)]))  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return self.bounds[: self.n_out]

    @cached_property
    def points(self) -> int:
        """Number of points of the label space, that is of join evaluations."""
        return math.prod(self.bounds)

    @cached_property
    def plain(self) -> bool:
        """True where every access consists of plain labels and there are no keys."""
        return not self.keys and all(isinstance(p, int) for access in self.accesses for p in access)

    def components(self, extents: Sequence[int]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        """Shape and dtype of each component of the state of a tile of these extents."""
        raise NotImplementedError

    def state_nbytes(self, extents: Sequence[int]) -> int:
        """The bytes of the state of a tile of these extents; each component begins on a cache line."""
        return sum(whole_lines(math.prod(shape) * dtype.itemsize) for shape, dtype in self.components(extents))

    def operand_shape(self, slot: int) -> tuple[int, ...]:
        """Shape of operand ``slot``."""
        return self.shapes[slot] if self.shapes else self.operand_extents(slot, self.bounds)

    def operand_box(self, slot: int, box: Sequence[tuple[int, int]]) -> Box:
        """The part of operand ``slot`` that the points of a box of labels read: (start, stop) of each axis."""
        access = self.accesses[slot]
        sizes = self.shapes[slot] if self.shapes else (0,) * len(access)
        return tuple(box[p] if isinstance(p, int) else p.interval(box, n) for p, n in zip(access, sizes, strict=True))

    def operand_extents(self, slot: int, extents: Sequence[int]) -> tuple[int, ...]:
        """The maximum extent of operand ``slot`` along each axis that any box of these extents reads."""
        found = []
        for axis, p in enumerate(self.accesses[slot]):
            if isinstance(p, int):
                found.append(extents[p])
                continue
            points = [extents[q] for q, _ in p.terms]
            span = 0 if 0 in points else sum(abs(c) * (n - 1) for (_, c), n in zip(p.terms, points, strict=True))
            span = (span + p.divisor - 1) // p.divisor + 1 if 0 not in points else 0
            span = p.modulus if p.modulus and span > 1 else span  # it may wrap around
            found.append(min(span, self.shapes[slot][axis]))
        return tuple(found)


@dataclass(frozen=True)
class Einsum(TileSpace):
    """``out[labels[:n_out]] = agg[labels[n_out:]] join(operands...)``.

    Labels are identified by their position in ``labels``: first the output's, in the order of its axes, then the
    aggregated ones in the order in which the program binds them (argmax's flat index counts in that order).

    Shapes:
        bounds: size of each label's range, from 0. accesses: for each operand, the label position (a repeat takes a
        diagonal) or Index of each of its axes. dtypes: for each operand, its element type. join: typed scalar
        expression; its dtype is the aggregation's ``value`` (or the output's, without an aggregation). aggregation:
        None exactly where no label is aggregated *and* the program names no aggregation. shapes: shape of each operand;
        may be omitted where every access consists of plain labels. keys: labels whose index is data; only points where
        every key holds contribute.
    """

    __hash__ = TileSpace.__hash__

    labels: tuple[str, ...]
    bounds: tuple[int, ...]
    n_out: int
    accesses: tuple[Access, ...]
    dtypes: tuple[DType, ...]
    join: Scalar
    aggregation: Aggregation | None
    shapes: tuple[tuple[int, ...], ...] = ()
    keys: tuple[Key, ...] = ()

    @property
    def dtype(self) -> DType:
        """Element type of the output."""
        return self.join.dtype if self.aggregation is None else self.aggregation.result

    @property
    def aggregated(self) -> range:
        """Positions of the aggregated labels."""
        return range(self.n_out, len(self.labels))

    @property
    def state_dtypes(self) -> tuple[DType, ...]:
        """Element types of the accumulator's components; the output's own type without an aggregation."""
        return (self.dtype,) if self.aggregation is None else self.aggregation.state

    def components(self, extents: Sequence[int]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        """Shape and dtype of each component of the state of a tile of these extents."""
        return tuple((tuple(extents[: self.n_out]), dtype) for dtype in self.state_dtypes)

    def labels_of(self, expr: Scalar) -> frozenset[int]:
        """Positions of the labels that an expression depends on, including through its operands."""
        return labels_of(expr).union(*(labels_read(self.accesses[s]) for s in slots_of(expr)))
