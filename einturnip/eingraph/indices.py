"""Static indices: normalization, composition, and their value as a scalar expression."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from einturnip.ir.dtypes import I64
from einturnip.ir.einsum import Access, Index
from einturnip.ir.scalar import LabelValue, Scalar, ScalarCall, ScalarConst


def affine(terms: Iterable[tuple[int, int]], offset: int = 0, divisor: int = 1, modulus: int = 0) -> Index:
    """An Index of terms in any order; terms of the same label are added."""
    total: dict[int, int] = {}
    for label, coefficient in terms:
        total[label] = total.get(label, 0) + coefficient
    return Index(tuple(sorted((p, c) for p, c in total.items() if c)), offset, divisor, modulus)


def row_major(labels: Sequence[int], bounds: Sequence[int]) -> Index:
    """The row-major index of several labels; the last one varies fastest."""
    stride, terms = 1, []
    for p in reversed(labels):
        terms.append((p, stride))
        stride *= bounds[p]
    return affine(terms)


def as_index(index: int | Index) -> Index:
    """Convert a plain label to an Index."""
    return Index(((index, 1),)) if isinstance(index, int) else index


def span(index: Index, bounds: Sequence[int]) -> tuple[int, int] | None:
    """Minimum and maximum over the ranges of the labels, before clamping; None for an empty range."""
    if any(bounds[p] == 0 for p, _ in index.terms):
        return None
    index = replace(index, clamped=False) if index.clamped else index
    start, stop = index.interval([(0, n) for n in bounds], 0)
    return start, stop - 1


def normal(index: int | Index, bounds: Sequence[int], size: int) -> int | Index:
    """The simplest equal index into an axis of ``size``; a label over the whole axis is its position."""
    if isinstance(index, int):
        if bounds[index] == size:
            return index
        index = Index(((index, 1),))
    elif _is_label(index) and bounds[index.terms[0][0]] == size:
        return index.terms[0][0]
    if any(bounds[p] == 0 for p, _ in index.terms):
        return index
    index = replace(index, terms=tuple((p, c) for p, c in index.terms if bounds[p] > 1))
    index = _without_modulus(_without_divisor(index, bounds), bounds)
    if index.clamped and (ends := span(index, bounds)) and ends[0] >= 0 and ends[1] < size:
        index = replace(index, clamped=False)
    return index.terms[0][0] if _is_label(index) and bounds[index.terms[0][0]] == size else index


def _is_label(index: Index) -> bool:
    """True for a plain label, regardless of its range."""
    return index.affine and index.offset == 0 and len(index.terms) == 1 and index.terms[0][1] == 1


def _without_divisor(index: Index, bounds: Sequence[int]) -> Index:
    """Simplify ``(6*i + j) // 3`` to ``2*i`` where j is below 3."""
    d = index.divisor
    if d == 1:
        return index
    whole = tuple((p, c // d) for p, c in index.terms if c % d == 0)
    rest = Index(tuple((p, c) for p, c in index.terms if c % d), index.offset % d)
    ends = span(rest, bounds)
    if ends is None or ends[0] // d != ends[1] // d:
        return index
    return replace(index, terms=whole, offset=index.offset // d + ends[0] // d, divisor=1)


def _without_modulus(index: Index, bounds: Sequence[int]) -> Index:
    """Simplify ``(6*i + j) % 3`` to ``j`` where j is below 3."""
    m, d = index.modulus, index.divisor
    if not m:
        return index
    index = replace(index, terms=tuple((p, c) for p, c in index.terms if c % (m * d)), offset=index.offset % (m * d))
    ends = span(replace(index, modulus=0), bounds)
    if ends is None or ends[0] // m != ends[1] // m:
        return index
    return replace(index, offset=index.offset - ends[0] // m * m * d, modulus=0)


def shifted(index: Index, by: int) -> Index | None:
    """``index + by``; None where a modulus or a clamp prevents it."""
    if by == 0:
        return index
    return None if index.modulus or index.clamped else replace(index, offset=index.offset + by * index.divisor)


def inside(index: int | Index, access: Access) -> int | Index | None:
    """``index`` with each label p replaced by ``access[p]``; None where the result is not an Index."""
    if isinstance(index, int):
        return access[index]
    outer = [(as_index(access[p]), c) for p, c in index.terms]
    if all(o.affine for o, _ in outer):
        terms = [(q, c * b) for o, c in outer for q, b in o.terms]
        total = affine(terms, index.offset + sum(c * o.offset for o, c in outer))
        return replace(index, terms=total.terms, offset=total.offset)
    if index.affine and len(outer) == 1 and outer[0][1] == 1:
        return shifted(outer[0][0], index.offset)
    return None


def inside_all(inner: Access, access: Access) -> Access | None:
    """``inside`` for each index of an access; None where one is not an Index."""
    found = tuple(inside(index, access) for index in inner)
    return None if None in found else tuple(i for i in found if i is not None)


def number(index: int | Index) -> Scalar:
    """The value of an index as an i64, before clamping."""
    if isinstance(index, int):
        return LabelValue(index)
    total: Scalar | None = None
    for p, c in index.terms:
        term: Scalar = LabelValue(p) if abs(c) == 1 else _call("mul", LabelValue(p), abs(c))
        if total is None:
            total = term if c > 0 else ScalarCall("neg", (term,), I64)
        else:
            total = ScalarCall("add" if c > 0 else "sub", (total, term), I64)
    if total is None:
        total = ScalarConst(index.offset, I64)
    elif index.offset:
        total = _call("add" if index.offset > 0 else "sub", total, abs(index.offset))
    if index.divisor != 1:
        total = _call("floordiv", total, index.divisor)
    return _call("mod", total, index.modulus) if index.modulus else total


def _call(op: str, left: Scalar, right: int) -> Scalar:
    return ScalarCall(op, (left, ScalarConst(right, I64)), I64)
