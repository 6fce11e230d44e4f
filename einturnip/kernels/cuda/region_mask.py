"""Code that skips columns in which a region's mask excludes all points."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.core.errors import InternalError
from einturnip.ir.dtypes import BOOL
from einturnip.ir.scalar import Scalar, labels_of
from einturnip.kernels.cuda.region_parts import RegionLabels
from einturnip.kernels.cuda.scalars import ScalarWriter
from einturnip.kernels.mask import label_mask


def required_conditions(parts: RegionLabels) -> list[tuple[Scalar, bool]]:
    """Return conditions on labels and values: where one has its value at no point, no state changes."""
    region, found = parts.region, list[tuple[Scalar, bool]]()
    mask, varying = label_mask(region), {*parts.batch, *parts.rows, *parts.columns}
    for n, condition in enumerate(mask.conditions):
        for value in (False, True):
            decided = tuple(value if k == n else None for k in range(len(mask.conditions)))
            if labels_of(condition) <= varying and mask.is_idle_where(decided):
                found.append((condition, not value))
    return found


def condition_bits(required: Sequence[tuple[Scalar, bool]]) -> list[str]:
    """Return statements that set a bit of ``live`` for each condition that has its value at a point."""
    writer = ScalarWriter(_no_operand, lambda p: f"h.origin[{p}] + l{p}")
    values = [writer.value(condition, BOOL) for condition, _ in required]
    bits = [f"{'' if required[n][1] else '!'}{name} << {n}" for n, name in enumerate(values)]
    return [*writer.lines, f"live |= {' | '.join(bits)};"]


def is_skipped(required: Sequence[tuple[Scalar, bool]]) -> list[str]:
    """Return statements that collect all threads' bits ``live`` and skip the columns where one is missing.

    Two words of ``alive`` take turns, so that one is cleared while no thread uses it.
    """
    whole = (1 << len(required)) - 1
    return [
        "if (threadIdx.x == 0) alive[!turn] = 0;",
        "if (live) atomicOr(&alive[turn], live);",
        "__syncthreads();",
        f"const bool idle = alive[turn] != {whole};",
        "turn = !turn;",
        "if (idle) continue;",
    ]


def _no_operand(slot: int) -> str:
    raise InternalError(f"a condition on labels reads operand {slot}")
