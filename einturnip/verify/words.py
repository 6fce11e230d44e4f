"""Names of ops, extents and values in messages."""

from __future__ import annotations

from einturnip.verify.types import KINDS, AccessRows, JudgedPlan, TierRange


def op_name(plan: JudgedPlan, x: int) -> str:
    """Return a name such as ``op 12 (kernel, task 9)``."""
    task = int(plan.task[x])
    return f"op {plan.ids[x]} ({KINDS[plan.kind[x]]}{f', task {task}' if task >= 0 else ''})"


def extent(plan: JudgedPlan, rows: AccessRows, row: int) -> str:
    """Return a name such as ``cpu:0[0:2560]``, or ``x.npy[128:256 x 20]`` for repeated runs."""
    start, stop = int(rows.start[row]), int(rows.start[row] + rows.nbytes[row])
    times = "".join(f" x {count}" for count, _ in plan.repeats.axes[rows.repeat[row]])
    return f"{plan.tiers[rows.tier[row]].name}[{start}:{stop}{times}]"


def span(plan: JudgedPlan, rows: AccessRows, row: int) -> TierRange:
    """Return the range from the first byte of a row to its last."""
    return TierRange(plan.tiers[rows.tier[row]].name, int(rows.start[row]), int(plan.stop_of(rows, row)))


def value_name(plan: JudgedPlan, v: int) -> str:
    """Return a name such as ``value 7``; ``nothing`` for bytes that a drop freed."""
    return f"value {plan.values[v]}" if v >= 0 else "nothing"
