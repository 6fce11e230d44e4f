"""Rewrites of a region step's einsum: another join, fewer operands, indices over region labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from einturnip.ir.dtypes import BOOL
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import RegionStep
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, rewrite


@lru_cache(maxsize=256)
def sum_of_mean(einsum: Einsum) -> Einsum:
    """Return the einsum of a mean's sum alone; a separate action counts the values."""
    aggregation = einsum.aggregation
    if aggregation is None or not aggregation.row.finalize_reads_count or einsum.keys:
        return einsum
    return replace(einsum, aggregation=replace(aggregation, state=aggregation.state[:1]))


def folded_axis(einsum: Einsum, extents: Sequence[int]) -> int | None:
    """Return the axis to fold if the operand is a matrix of kept and folded labels; else None."""
    if len(einsum.accesses) != 1 or not all(isinstance(p, int) for p in einsum.accesses[0]):
        return None
    access = [p for p in einsum.accesses[0] if isinstance(p, int)]
    kept, folded = ([p for p in access if (p < einsum.n_out) == side and extents[p] > 1] for side in (True, False))
    if sorted(access) != list(range(len(einsum.labels))) or kept != sorted(kept):
        return None
    long = [p for p in access if extents[p] > 1]
    return 1 if long == kept + folded else 0 if long == folded + kept else None


@lru_cache(maxsize=256)
def where_fails(condition: Scalar, labels: tuple[int, ...], bounds: tuple[int, ...]) -> Einsum:
    """Return the einsum of the points at which a condition on labels fails."""

    def placed(expr: Scalar) -> Scalar:
        return LabelValue(labels.index(expr.position), expr.dtype) if isinstance(expr, LabelValue) else expr

    join = ScalarCall("not", (rewrite(condition, placed),), BOOL)
    return Einsum(("",) * len(labels), bounds, len(labels), (), (), join, None)


def broadcast_axes(wider: RegionStep, step: RegionStep) -> tuple[Any, ...]:
    """Return the axis order and the index that broadcast a step's output to a step with more labels."""
    mine, other = step.labels[: step.einsum.n_out], wider.labels[: wider.einsum.n_out]
    order = tuple(mine.index(p) for p in other if p in mine)
    return order, (*(slice(None) if p in mine else None for p in other), ...)


@lru_cache(maxsize=1024)
def pruned(e: Einsum, join: Scalar, slots: tuple[int, ...]) -> Einsum:
    """Return the einsum with another join and only the operands that the join reads."""
    number = {s: n for n, s in enumerate(slots)}

    def renumbered(expr: Scalar) -> Scalar:
        return rewrite(expr, lambda x: OperandRef(number[x.slot], x.dtype) if isinstance(x, OperandRef) else x)

    return replace(
        e,
        accesses=tuple(e.accesses[s] for s in slots),
        dtypes=tuple(e.dtypes[s] for s in slots),
        shapes=tuple(e.shapes[s] for s in slots) if e.shapes else (),
        join=renumbered(join),
        keys=tuple(replace(key, value=renumbered(key.value)) for key in e.keys),
    )
