"""Steps of a region that are products of two sides: which they are, and the roles of their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.einsum import Index, contraction, labels_read
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import ScalarConst, labels_of, slots_of

_MAX_SLOTS = 4
_COMBINED = frozenset({"add", "mul", "max", "min"})


@dataclass(frozen=True)
class RegionProduct:
    """A step that folds a join of two sides.

    The left side varies along the rows, the right side ``across`` them. ``across``, ``folded``: labels, each either the
    columns or labels that the kernel takes at full extent. ``left``, ``right``: operand slots of the step.
    ``is_contraction``: the fold is ``alpha`` times a sum of products of the two operands, each converted to the
    accumulator's type.
    """

    step: int
    across: tuple[int, ...]
    folded: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    is_contraction: bool
    alpha: ScalarConst | None


def region_products(
    region: Region, rows: tuple[int, ...], columns: tuple[int, ...]
) -> tuple[tuple[RegionProduct, ...], frozenset[int]]:
    """Return the products among tiled and carried steps, and the row labels on which right sides depend.

    The rows of a block have the same index along these labels, so that they share the right sides.
    """
    found, batch = list[RegionProduct](), frozenset[int]()
    for k in sorted({*region.tiled, *region.carried}):
        made = _product(region, k, rows, columns)
        if made is not None and set(rows) - batch - made[1]:
            found.append(made[0])
            batch |= made[1]
    return tuple(found), batch


def _product(
    region: Region, k: int, rows: tuple[int, ...], columns: tuple[int, ...]
) -> tuple[RegionProduct, frozenset[int]] | None:
    step = region.steps[k]
    e, slots = step.einsum, sorted(slots_of(step.einsum.join))
    if e.aggregation is None or e.keys or not e.aggregated or labels_of(e.join) or not 2 <= len(slots) <= _MAX_SLOTS:
        return None
    if e.aggregation.combine not in _COMBINED or len(e.aggregation.state) > 1:
        return None
    across, folded = (
        _of_one_kind([p for p in labels if p not in rows], columns)
        for labels in (step.labels[: e.n_out], [step.labels[p] for p in e.aggregated])
    )
    if across is None or folded is None:
        return None
    reads = {slot: _labels_of_operand(region, step, slot) for slot in slots}
    right = tuple(slot for slot in slots if (reads[slot] or frozenset()) & set(across))
    left = tuple(slot for slot in slots if slot not in right)
    if not left or not right or any(labels is None for labels in reads.values()):
        return None
    batch = frozenset(p for slot in right for p in reads[slot] or () if p in rows)
    if not any(p in rows and p not in batch for slot in left for p in reads[slot] or ()):
        return None
    form = contraction(e)
    exact = form is not None and all(e.dtypes[slot] == form.product for slot in slots)
    alpha = form.alpha if form is not None and exact else None
    return RegionProduct(k, across, folded, left, right, exact, alpha), batch


def _of_one_kind(labels: Sequence[int], columns: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the columns if the labels are among them, else the labels; None for none or both kinds."""
    of_columns = [p in columns for p in labels]
    if not labels or (any(of_columns) and not all(of_columns)):
        return None
    return columns if of_columns[0] else tuple(labels)


def _labels_of_operand(region: Region, step: RegionStep, slot: int) -> frozenset[int] | None:
    """Return the region's labels that an operand depends on.

    None if its address is not a sum of terms of single labels.
    """
    o = step.operands[slot]
    if o < 0:
        return frozenset(region.steps[~o].labels[: region.steps[~o].einsum.n_out])
    if any(isinstance(p, Index) and not p.affine for p in region.accesses[o]):
        return None
    return labels_read(region.accesses[o])
