"""Decides which einsums are packed, and the roles of their operands and labels.

Like products, any einsum whose join combines a value of a row and a value of a column has rows, columns and terms:
distances, (max, +). Values that depend on one side alone are computed as they are packed, once for a whole block of the
other side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from einturnip.ir.einsum import Access, Einsum, labels_read
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, rewrite, walk
from einturnip.kernels.expr.primitives import Array
from einturnip.kernels.expr.window import aligned, terms
from einturnip.kernels.llvm.packed_spec import PackedSpec

_MAX_TERMS = 8192  # maximum terms that are added in sequence; longer sums need blocks of partial sums
_MIN_ROWS, _MIN_COLUMNS, _MIN_TERMS = 48, 32, 8
# Packing pays for these operations: a tile of others would be long code, and is not limited by its loads.
_LIGHT = frozenset({"add", "subtract", "multiply", "square", "negative", "absolute", "maximum", "minimum"})
_MAX_JOINED, _MAX_PANELS = 6, 2  # of a side, each of an operand or of what is computed from several
_PRODUCTS = frozenset({"multiply", "square"})
_TYPES = ("f32", "f64", "i32", "i64")


@dataclass(frozen=True)
class PackedRoles:
    """Roles of a packed einsum's operands and labels, over a tile of fixed extents.

    Shapes:
        accesses, labels: of the left operands, the right ones, and the result: the accesses of their axes, and the
            labels of their views.
        slots: of the operands, left ones first.
        groups: labels of rows, columns and terms, of more than one point each, as in ``batch`` and ``long``.
    """

    accesses: tuple[Access, ...]
    labels: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    groups: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    batch: tuple[int, ...]
    extents: tuple[int, ...]
    long: Mapping[int, int]
    whole: bool
    alpha: complex = 1.0

    def view(self, index: int, array: Array) -> Array:
        """Return an operand with an axis a label."""
        return aligned(array, self.accesses[index], self.labels[index], self.extents)


@lru_cache(maxsize=256)
def packed(einsum: Einsum) -> PackedSpec | None:
    """Return what to compile for an einsum whose operands are packed; None if too few points share them."""
    aggregation, column, bounds = einsum.aggregation, einsum.n_out - 1, einsum.bounds
    if aggregation is None or column < 1 or einsum.keys or bounds[column] < _MIN_COLUMNS:
        return None
    if max((bounds[p] for p in einsum.aggregated), default=0) < _MIN_TERMS:
        return None
    if aggregation.rounds and math.prod(bounds[p] for p in einsum.aggregated) > _MAX_TERMS:
        return None
    left, right = _sides(einsum)
    if math.prod(bounds[p] for p in _groups(einsum, left, right)[0]) < _MIN_ROWS:
        return None
    spec = _spec(einsum, (*left, *right), len(left))
    if spec is None:
        return None
    graph, joined = spec.graph.graph, spec.graph.joined
    few = spec.graph.root in joined and len(joined) <= _MAX_JOINED
    few = few and max(spec.left_panels, spec.right_panels) <= _MAX_PANELS
    if not few or not _LIGHT.issuperset(graph[n].op for n in joined):
        return None
    # Sums and extrema alone are limited by one unit, not by loads: packing would only add work.
    apart = any(not is_smooth(access, column) for access in einsum.accesses)
    return spec if apart or any(graph[n].op in _PRODUCTS for n in joined) else None


def _spec(einsum: Einsum, slots: tuple[int, ...], n_left: int) -> PackedSpec | None:
    """Return the spec of a join of operands of one type, without indices; else None."""
    dtype, aggregation = einsum.dtype, einsum.aggregation
    if dtype.name not in _TYPES or any(d != dtype for d in einsum.dtypes) or aggregation is None:
        return None
    if any(isinstance(e, LabelValue) or e.dtype != dtype for e in walk(einsum.join)):
        return None

    def numbered(leaf: Scalar) -> Scalar:
        return replace(leaf, slot=slots.index(leaf.slot)) if isinstance(leaf, OperandRef) else leaf

    spec = PackedSpec(dtype, rewrite(einsum.join, numbered), aggregation, n_left, len(slots) - n_left)
    return spec if all(n.dtype == dtype for n in spec.graph.graph.nodes) else None


def _sides(einsum: Einsum) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the operands of rows and of columns; those of neither are read with the columns."""
    read = [labels_read(access) for access in einsum.accesses]
    columns = frozenset[int]().union(*(labels for labels in read if einsum.n_out - 1 in labels))
    slots = range(len(read))
    left = tuple(s for s in slots if any(p < einsum.n_out and p not in columns for p in read[s]))
    right = (s for s in slots if s not in left)
    return left, tuple(sorted(right, key=lambda s: einsum.n_out - 1 not in read[s]))


def _groups(
    einsum: Einsum, left: Sequence[int], right: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the labels of rows, columns and terms."""
    of_left, of_right = (
        frozenset[int]().union(*(labels_read(einsum.accesses[s]) for s in side)) for side in (left, right)
    )
    out = range(einsum.n_out)
    rows = tuple(p for p in out if p in of_left and p not in of_right)
    return rows, tuple(p for p in out if p in of_right and p not in of_left), tuple(einsum.aggregated)


def packed_roles(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> PackedRoles:
    """Return the roles of a packed einsum's operands and labels; ``whole``: the result is not added to."""
    left, right = _sides(einsum)
    rows, columns, folded = _groups(einsum, left, right)
    out = tuple(range(einsum.n_out))
    long = {p: n for p, n in enumerate(extents) if n > 1}
    slots = *left, *right
    accesses = *(einsum.accesses[s] for s in slots), out

    def kept(labels: Sequence[int]) -> tuple[int, ...]:
        return tuple(p for p in labels if p in long)

    return PackedRoles(
        accesses=accesses,
        labels=tuple(tuple(sorted(labels_read(access))) for access in accesses),
        slots=slots,
        groups=(kept(rows), kept(columns), kept(folded)),
        batch=kept([p for p in out if p not in rows and p not in columns]),
        extents=extents,
        long=long,
        whole=whole,
    )


def is_smooth(access: Access, label: int) -> bool:
    """Return whether a tensor is constant or contiguous along a label."""
    steps = [(axis, c) for axis, p in enumerate(access) for q, c in terms(p) if q == label]
    return not steps or steps == [(len(access) - 1, 1)]
