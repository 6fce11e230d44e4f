"""The extended einsum: a join over labelled operands, aggregated over labels absent from the output.

``contraction`` recognizes einsums that a matrix product can compute, and the role of each label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

from einturnip.core.units import whole_lines
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import DType
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst, labels_of, slots_of

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


@dataclass(frozen=True, slots=True)
class ContractionRoles:
    """``out = alpha * sum over k of left * right``; roles are positions in the einsum's ``labels``.

    ``left`` and ``right`` are operand slots. Labels of role ``batch`` are on both operands and the output, ``m`` on
    left and output, ``n`` on right and output, and ``k`` on both operands, summed; each in the order of the einsum's
    labels. An operand has the labels of its affine indices: a convolution's ``X[b, c, i+p, j+q]`` has b, c, i, p, j and
    q. ``product`` is the dtype to which both operands are converted; ``accumulator`` is that of the sum. ``alpha`` is
    None where the program has no constant factor.
    """

    left: int
    right: int
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    product: DType
    accumulator: DType
    alpha: ScalarConst | None


def _factors(expr: Scalar) -> list[Scalar]:
    """The factors of a tree of ``mul``, left to right."""
    if isinstance(expr, ScalarCall) and expr.op == "mul":
        return [f for argument in expr.arguments for f in _factors(argument)]
    return [expr]


def _slot(expr: Scalar) -> int | None:
    """The slot of an operand, possibly converted; None for other expressions."""
    while isinstance(expr, ScalarCast):
        expr = expr.argument
    return expr.slot if isinstance(expr, OperandRef) else None


@lru_cache(maxsize=4096)
def contraction(einsum: Einsum) -> ContractionRoles | None:
    """Match an einsum to a product of two operands summed over common labels; None where it is not one."""
    if einsum.aggregation is None or not einsum.aggregation.is_sum or not einsum.aggregated or einsum.keys:
        return None
    factors = _factors(einsum.join)
    constants = [f for f in factors if isinstance(f, ScalarConst)]
    slots = [s for s in map(_slot, factors) if s is not None]
    if len(constants) > 1 or len(slots) != 2 or slots[0] == slots[1] or len(factors) != 2 + len(constants):
        return None
    product = einsum.join.dtype
    if product.kind == "b" or len(einsum.accesses) != 2:
        return None
    if not all(isinstance(p, int) or p.affine for access in einsum.accesses for p in access):
        return None
    left, right = (labels_read(einsum.accesses[s]) for s in slots)
    out, summed = range(einsum.n_out), einsum.aggregated
    if any(p not in left and p not in right for p in out) or any(p not in left or p not in right for p in summed):
        return None
    return ContractionRoles(
        left=slots[0],
        right=slots[1],
        batch=tuple(p for p in out if p in left and p in right),
        m=tuple(p for p in out if p in left and p not in right),
        n=tuple(p for p in out if p in right and p not in left),
        k=tuple(summed),
        product=product,
        accumulator=einsum.aggregation.state[0],
        alpha=constants[0] if constants else None,
    )


_Value = TypeVar("_Value")


class IdentityCache(Generic[_Value]):
    """Values by the identity of an object and a key. It keeps the objects, so that no id is used again.

    ``max_size``: the number of values with which it is full; it is then emptied.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._found: dict[tuple[int, Hashable], tuple[Any, _Value]] = {}

    def get(self, owner: object, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """Return the value for an object and a key; ``make`` returns one that is not there yet."""
        place = id(owner), key
        found = self._found.get(place)
        if found is None or found[0] is not owner:
            found = owner, make()
            if len(self._found) >= self._max_size:
                self._found.clear()
            self._found[place] = found
        return found[1]
