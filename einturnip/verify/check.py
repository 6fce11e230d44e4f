"""Checks a plan against every rule and returns the verdict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from einturnip.verify.conflicts import conflicting, describe_conflict
from einturnip.verify.names import Names, names
from einturnip.verify.order import serial_order
from einturnip.verify.outputs import check_outputs
from einturnip.verify.reach import OrderQueries, answer_queries
from einturnip.verify.read import in_order
from einturnip.verify.sites import check_wires, joined
from einturnip.verify.sweep import PlanSweep, SweepResult
from einturnip.verify.types import DROP, MOVE, NOTICE, SEND, Faults, Ints, JudgedPlan, NotAPlan, Rule, TierUse, Verdict
from einturnip.verify.words import extent, op_name, span, value_name

# Maximum number of explained faults per rule.
LIMIT = 20


def check(plan: JudgedPlan, expected: Mapping[str, int] | None = None, limit: int = LIMIT) -> Verdict:
    """Return the verdict on a plan. ``expected``: total bytes that outputs must have, by tier.

    Raises:
        NotAPlan: ``expected`` names a tier that is not an output.
    """
    expected = expected or {}
    for name in expected:
        if name not in {tier.name for tier in plan.tiers if tier.kind == "output"}:
            raise NotAPlan(f"the plan has no output '{name}'")
    faults = Faults(limit)
    if plan.sites is not None:
        if not check_wires(plan, plan.sites, faults):
            return _verdict(plan, None, faults)
        plan = joined(plan, plan.sites)
    order = serial_order(plan, faults)
    if order is not None and not np.array_equal(order, np.arange(len(plan))):
        plan = in_order(plan, order)
    _check_capacity(plan, faults)
    _check_devices(plan, faults)
    naming = names(plan, faults)
    check_outputs(plan, expected, faults)
    implied = None
    if order is not None:
        queries = OrderQueries(plan)
        swept = PlanSweep(plan, naming, faults, queries.add).run()
        implied = _check_order(plan, swept, queries, faults)
        _check_used(plan, naming, swept, faults)
    return _verdict(plan, implied, faults)


def _verdict(plan: JudgedPlan, implied: int | None, faults: Faults) -> Verdict:
    return Verdict(
        program=plan.program,
        n_ops=int(np.count_nonzero((plan.kind != SEND) & (plan.kind != NOTICE))),  # a transfer is one op
        n_values=len(plan.values),
        n_dependencies=len(plan.after) + plan.repeated,
        implied=implied,
        uses=_uses(plan),
        faults=tuple(sorted(faults.reported, key=lambda f: (f.rule is not Rule.CYCLE, max(f.ops, default=-1)))),
        counts=dict(faults.counts),
        ids=plan.ids,
        kind=plan.kind,
        task=plan.task,
    )


def _check_capacity(plan: JudgedPlan, faults: Faults) -> None:
    """Check that all addresses are within their tier, which bounds the bytes held in any order."""
    largest = np.iinfo(np.int64).max
    limits = np.array([largest if tier.capacity is None else tier.capacity for tier in plan.tiers] or [0], np.int64)
    for verb, rows in (("reads", plan.read), ("writes", plan.write)):
        stop, ops = plan.stop(rows), rows.op
        for row in np.flatnonzero((rows.start < 0) | (stop > limits[rows.tier])).tolist():
            if faults.count(Rule.CAPACITY):
                tier, x = plan.tiers[rows.tier[row]], int(ops[row])
                over = int(stop[row] - limits[rows.tier[row]])
                bound = f"ends {over} byte{'' if over == 1 else 's'} past its capacity of {tier.capacity}"
                if rows.start[row] < 0:
                    bound = "begins before its first byte"
                text = f"{op_name(plan, x)} {verb} {extent(plan, rows, row)}, which {bound}"
                faults.add(Rule.CAPACITY, (x,), span(plan, rows, row), text)


def _check_devices(plan: JudgedPlan, faults: Faults) -> None:
    """Check that an op uses one device; only a move may use two, if it keeps the value."""
    first = np.full(len(plan), -1, np.int64)
    joins = np.zeros(len(plan), bool)
    for rows in (plan.read, plan.write):
        mine = np.flatnonzero(plan.is_tier(rows, "compute"))
        ops, tiers = rows.op[mine], rows.tier[mine]
        first[ops[first[ops] < 0]] = tiers[first[ops] < 0]
        joins[ops[first[ops] != tiers]] = True
    for x in np.flatnonzero(joins).tolist():
        read, write = slice(*plan.read.ptr[x : x + 2].tolist()), slice(*plan.write.ptr[x : x + 2].tolist())
        moved = plan.kind[x] == MOVE and np.array_equal(plan.read.value[read], plan.write.value[write])
        if not moved and faults.count(Rule.DEVICE):
            names = sorted({plan.tiers[t].name for t in (*plan.read.tier[read], *plan.write.tier[write])})
            text = f"{op_name(plan, x)} works on {' and '.join(names)}; its operands must be moved to one device first"
            faults.add(Rule.DEVICE, (x,), None, text)


def _check_order(plan: JudgedPlan, swept: SweepResult, queries: OrderQueries, faults: Faults) -> int:
    """Check that conflicting ops are ordered; return the number of dependencies implied by others."""
    x, u = queries.pairs()
    ordered, implied = answer_queries(plan, x, u)
    x, u = x[~ordered], u[~ordered]
    # A wrong read conflicts with all ranges that it overlaps, even partly.
    racing_pairs = conflicting(plan, u, x)
    races = list(zip(u[racing_pairs].tolist(), x[racing_pairs].tolist(), strict=True))
    for a, b in races:
        if faults.count(Rule.RACE):
            faults.add(Rule.RACE, (a, b), *describe_conflict(plan, a, b))
    racing = set(races)
    for b, others, place, text in swept.misreads:
        # If the ops race, the race is reported instead: the read finds the right bytes in some other order.
        if not any((a, b) in racing for a in others) and faults.count(Rule.WRONG_VALUE):
            faults.add(Rule.WRONG_VALUE, (*others[:1], b), place, text)
    return implied


def _check_used(plan: JudgedPlan, naming: Names, swept: SweepResult, faults: Faults) -> None:
    """Check that the result of each op and unit is read by an op that does more than copy it."""
    content = naming.content
    read_op, write_op = plan.read.op, plan.write.op
    stores = np.zeros(len(plan), bool)
    stores[write_op[plan.is_tier(plan.write, "output")]] = True
    using = ~naming.summed_read & (stores | (~naming.copies & (plan.kind != DROP)))[read_op]
    used = np.zeros(len(plan.values), bool)
    used[content[plan.read.value[using]]] = True
    used[list(swept.continued)] = True
    made = ~naming.summed_write & ~naming.copies[write_op]
    idle = np.zeros(len(plan), bool)
    idle[write_op[made]] = True
    idle[write_op[made & used[content[plan.write.value]]]] = False
    idle &= ~stores & (plan.unit < 0)
    for x in np.flatnonzero(idle).tolist():
        if faults.count(Rule.LOST):
            row = int(plan.write.ptr[x])
            text = f"{op_name(plan, x)} makes {value_name(plan, int(plan.write.value[row]))}, which nothing uses"
            faults.add(Rule.LOST, (x,), span(plan, plan.write, row), text)
    known = np.flatnonzero(naming.unit_content >= 0)
    for unit in known[~used[naming.unit_content[known]]].tolist():
        if faults.count(Rule.LOST):
            ops: Ints = np.flatnonzero(plan.unit == unit)
            v = value_name(plan, int(naming.unit_content[unit]))
            text = f"unit {plan.units[unit]} ({len(ops)} ops) accumulates {v}, which nothing uses and no unit continues"
            faults.add(Rule.LOST, tuple(ops[:2].tolist()), None, text)


def _uses(plan: JudgedPlan) -> tuple[TierUse, ...]:
    """Return for each tier the end of the highest byte used; for outputs the bytes stored."""
    highest = np.zeros(len(plan.tiers), np.int64)
    stored = np.zeros(len(plan.tiers), np.int64)
    for rows in (plan.read, plan.write):
        np.maximum.at(highest, rows.tier, plan.stop(rows))
    np.add.at(stored, plan.write.tier, plan.size(plan.write))
    return tuple(
        TierUse(tier, int(stored[i] if tier.kind == "output" else highest[i])) for i, tier in enumerate(plan.tiers)
    )
