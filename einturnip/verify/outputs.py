"""Checks that each byte of an output is stored exactly once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from einturnip.verify.boxes import (
    Boxes,
    Range,
    address,
    boxes,
    common_strides,
    covering_ranges,
    miscovered_cells,
    nested,
    overlaps_itself,
    run_starts,
)
from einturnip.verify.types import Faults, Ints, JudgedPlan, Rule, Tier, TierRange
from einturnip.verify.words import op_name

# Files of several arrays, with headers between them.
CONTAINERS = (".npz", ".zip")


def check_outputs(plan: JudgedPlan, expected: Mapping[str, int], faults: Faults) -> None:
    """Check the stores of each output. ``expected``: total bytes that outputs must have, by tier."""
    ops = plan.write.op
    for number, tier in enumerate(plan.tiers):
        if tier.kind == "output":
            rows = np.flatnonzero(plan.write.tier == number)
            _Output(plan, tier, rows, ops[rows], faults).check(expected.get(tier.name))


class _Output:
    """The rows that write one output, and the op of each."""

    def __init__(self, plan: JudgedPlan, tier: Tier, rows: Ints, ops: Ints, faults: Faults) -> None:
        self.plan, self.tier, self.faults = plan, tier, faults
        order = np.argsort(plan.write.start[rows], kind="stable")
        self.rows, self.ops = rows[order], ops[order]

    def check(self, expected: int | None) -> None:
        total = int(self.plan.size(self.plan.write)[self.rows].sum())
        if expected is not None and total != expected and self.faults.count(Rule.NOT_STORED):
            text = f"{total} bytes are stored in {self.tier.name}; they should be {expected}"
            self.faults.add(Rule.NOT_STORED, (), None, text)
        if not len(self.rows):
            # An empty output needs no stores; its capacity distinguishes it.
            if self.tier.capacity:
                self._hole(0, self.tier.capacity, ())
            return
        self._check_self()
        starts, stops = self.plan.write.start[self.rows], self.plan.stop(self.plan.write)[self.rows]
        reach = np.maximum.accumulate(stops)
        begins = np.flatnonzero(np.concatenate([[True], starts[1:] >= reach[:-1]]))
        for first, last in zip(begins.tolist(), [*begins[1:].tolist(), len(starts)], strict=True):
            self._check_part(slice(first, last))
            if first and not self.tier.name.lower().endswith(CONTAINERS) and starts[first] > reach[first - 1]:
                self._hole(int(reach[first - 1]), int(starts[first]), (int(self.ops[first - 1]), int(self.ops[first])))
        if self.tier.capacity is not None and reach[-1] < self.tier.capacity:
            self._hole(int(reach[-1]), self.tier.capacity, (int(self.ops[-1]),))

    def _ranges(self, part: slice) -> list[Range]:
        w, rows = self.plan.write, self.rows[part]
        axes = self.plan.repeats.axes
        columns = w.start[rows].tolist(), w.nbytes[rows].tolist(), w.repeat[rows].tolist()
        return [(start, nbytes, axes[repeat]) for start, nbytes, repeat in zip(*columns, strict=True)]

    def _check_self(self) -> None:
        w = self.plan.write
        found: dict[tuple[int, int], bool] = {}
        repeated = np.flatnonzero(w.repeat[self.rows] > 0).tolist()
        for i in repeated:
            row = self.rows[i]
            key = int(w.repeat[row]), int(w.nbytes[row])
            if key not in found:
                found[key] = overlaps_itself(self.plan.repeats.axes[key[0]], key[1])
            if found[key] and self.faults.count(Rule.STORED_TWICE):
                text = f"{op_name(self.plan, int(self.ops[i]))} writes runs that overlap each other"
                place = TierRange(self.tier.name, int(w.start[row]), self.plan.stop_of(w, row))
                self.faults.add(Rule.STORED_TWICE, (int(self.ops[i]),), place, text)

    def _check_part(self, part: slice) -> None:
        """Check ranges whose spans overlap; all other ranges are disjoint from them."""
        w, rows = self.plan.write, self.rows[part]
        if len(rows) == 1 and not w.repeat[rows[0]]:
            return
        ranges = self._ranges(part)
        kinds = {(axes, nbytes) for _, nbytes, axes in ranges}
        strides = common_strides({axes for axes, _ in kinds})
        if strides is None or not all(nested(*kind) for kind in kinds):
            self._check_runs(part, ranges)
            return
        found = boxes(ranges, strides)
        for low, high, excess in miscovered_cells(found):
            start = address(found, low)
            place = TierRange(self.tier.name, start, start + high[-1] - low[-1])
            if excess < 0 and self.faults.count(Rule.NOT_STORED):
                self._report_hole(place, self._storing_before(found, low, part))
            elif excess > 0 and self.faults.count(Rule.STORED_TWICE):
                self._report_twice(place, [int(self.ops[part][i]) for i in covering_ranges(found, low)])

    def _storing_before(self, found: Boxes, low: tuple[int, ...], part: slice) -> tuple[int, ...]:
        """Return the op that stores the byte before a hole."""
        before = address(found, low) - 1 - found.base
        digits = []
        for stride in found.strides:
            digits.append(before // stride)
            before %= stride
        return tuple(int(self.ops[part][i]) for i in covering_ranges(found, (*digits, before))[:1])

    def _check_runs(self, part: slice, ranges: list[Range]) -> None:
        """Check run by run, for strides that do not form a grid."""
        starts = [run_starts(start, axes) for start, _, axes in ranges]
        of = np.repeat(np.arange(len(ranges)), [len(s) for s in starts])
        start = np.concatenate(starts)
        stop = start + np.array([nbytes for _, nbytes, _ in ranges])[of]
        order = np.argsort(start, kind="stable")
        start, stop, of = start[order], stop[order], of[order]
        reach = np.maximum.accumulate(stop)
        for i in np.flatnonzero(start[1:] != reach[:-1]).tolist():
            ops = [int(self.ops[part][of[j]]) for j in (i, i + 1)]
            if start[i + 1] > reach[i]:
                self._hole(int(reach[i]), int(start[i + 1]), tuple(ops))
            elif ops[0] != ops[1] and self.faults.count(Rule.STORED_TWICE):
                ops[0] = int(self.ops[part][of[int(np.argmax(stop[: i + 1]))]])
                end = int(min(reach[i], stop[i + 1]))
                self._report_twice(TierRange(self.tier.name, int(start[i + 1]), end), ops)

    def _hole(self, start: int, stop: int, ops: tuple[int, ...]) -> None:
        if self.faults.count(Rule.NOT_STORED):
            self._report_hole(TierRange(self.tier.name, start, stop), ops)

    def _report_hole(self, place: TierRange, ops: tuple[int, ...]) -> None:
        near = f"; {op_name(self.plan, ops[0])} stores the bytes before" if ops else ""
        self.faults.add(Rule.NOT_STORED, ops, place, f"no op stores {place}{near}")

    def _report_twice(self, place: TierRange, ops: list[int]) -> None:
        names = " and ".join(op_name(self.plan, x) for x in ops[:2])
        others = f" and {len(ops) - 2} others" if len(ops) > 2 else ""
        self.faults.add(Rule.STORED_TWICE, tuple(ops), place, f"{names}{others} store {place}")
