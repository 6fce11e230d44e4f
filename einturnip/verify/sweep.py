"""Sweeps the ops in one allowed order, tracking byte contents, and derives which ops must be ordered.

For each range of bytes it tracks the value, its writers and its readers since. A read must come after the writers; a
write after the readers, or after the writers if there are no readers. Each access is compared with the last accesses
only, because those were already compared with the ones before them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from einturnip.verify.names import Names
from einturnip.verify.ranges import TierRanges, TrackedRange
from einturnip.verify.types import DROP, TRANSFERS, AccessRows, Faults, Ints, JudgedPlan, Rule, TierRange
from einturnip.verify.words import extent, op_name, span, value_name

OPS_AT_ONCE = 1 << 14
NOTHING = -1
_GIVEN, _MEMORY, _OUTPUT = range(3)


@dataclass
class SweepResult:
    """Results of the sweep.

    ``misreads``: reads of wrong values, which are faults unless the ops that share the bytes are a race already.
    ``continued``: contents that a unit accumulates into after a reload.
    """

    misreads: list[tuple[int, tuple[int, ...], TierRange, str]] = field(default_factory=list)
    continued: set[int] = field(default_factory=set)


class PlanSweep:
    """Sweeps a plan whose dependencies all point backwards.

    ``add_queries``: receives, for consecutive ops, the ops that must precede each.
    """

    def __init__(
        self, plan: JudgedPlan, names: Names, faults: Faults, add_queries: Callable[[Ints, Ints], None]
    ) -> None:
        self.plan, self.names, self.faults, self.add_queries = plan, names, faults, add_queries
        self.found = SweepResult()
        self.tier_mode = [{"input": _GIVEN, "output": _OUTPUT}.get(tier.kind, _MEMORY) for tier in plan.tiers]
        self.memory = [TierRanges() for _ in plan.tiers]
        self.stored: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self.begun: dict[int, tuple[int, Any]] = {}  # for each unit its first op and that op's accumulator
        self.before = array("q")
        self.waits: list[int] = []  # dependencies of the current op
        self.kind = plan.kind.tolist()
        self.is_unit_content = np.zeros(len(plan.values), bool)
        known = names.unit_content[names.unit_content >= 0]
        self.is_unit_content[known] = True

    def run(self) -> SweepResult:
        """Sweep all ops."""
        n = len(self.plan)
        for first in range(0, n, OPS_AT_ONCE):
            last = min(n, first + OPS_AT_ONCE)
            counts = array("q")
            reads = _rows(self.plan.read, self.names.content, self.names.summed_read, first, last)
            writes = _rows(self.plan.write, self.names.content, self.names.summed_write, first, last)
            units = self.plan.unit[first:last].tolist()
            waits = _dependencies(self.plan, first, last)
            for x, unit, read, write, self.waits in zip(range(first, last), units, reads, writes, waits, strict=True):
                first_query = len(self.before)
                for row in read:
                    if not row[5]:
                        self._read(x, row)
                for row in write:
                    if row[5]:
                        self._accumulate(x, unit, row)
                    else:
                        self._write(x, row)
                if self.kind[x] == DROP:
                    for row in read:
                        self._write(x, (*row[:3], NOTHING, *row[4:]))
                counts.append(len(self.before) - first_query)
            ops = np.repeat(np.arange(first, last), np.frombuffer(counts, np.int64))
            self.add_queries(ops, np.array(self.before, np.int64))
            self.before = array("q")
        return self.found

    # Rows are tuples: tier, start, nbytes, content, repeat, whether it is the op's accumulator, row number.

    def _read(self, x: int, row: Any) -> None:
        tier, start, nbytes, content = row[:4]
        mode = self.tier_mode[tier]
        if mode == _MEMORY:
            tracked = self.memory[tier].at.get(start)
            if tracked is not None and tracked.stop == start + nbytes and tracked.value == content and tracked.whole:
                self._wait(tracked.writers, tracked.readers)
                tracked.readers.append(x)
            else:
                self._misread(x, row)
        elif mode == _OUTPUT:
            stored = self.stored.get((tier, start, nbytes, row[4]))
            if stored is not None:
                self.before.append(stored[0])
            if stored is None or stored[1] != content:
                found = (
                    "which no op has stored so" if stored is None else f"where op {self._id(stored[0])} stored another"
                )
                self._report_misread(x, "reads", row[6], (stored[0],) if stored else (), found)

    def _wait(self, earlier: list[int], others: list[int]) -> None:
        """Require the op to come after ``earlier``; a dependency on one of ``others``, which do too, suffices."""
        if len(earlier) > 1 and others and others[0] in self.waits:
            return
        self.before.extend(earlier)

    def _misread(self, x: int, row: Any) -> None:
        """Report bytes that do not hold the named value, or hold only a part of it."""
        tier, start, nbytes, content = row[:4]
        stop = start + nbytes
        ranges = self.memory[tier].overlapping(start, stop)
        others = []
        at = start
        hole: tuple[int, int] | None = None
        for tracked in ranges:
            if tracked.start > at and hole is None:
                hole = at, tracked.start
            at = tracked.stop
            self.before.extend([u for u in tracked.writers if u != x])
            tracked.readers.append(x)
            if tracked.value != content or not tracked.whole:
                others.append(tracked)
        if at < stop and hole is None:
            hole = max(at, start), stop
        name = self.plan.tiers[tier].name
        if others:
            tracked = others[0]
            which = TierRange(name, max(start, tracked.start), min(stop, tracked.stop))
            if tracked.value == content:
                what = f"but {which} is only a remainder of it: its other bytes were overwritten"
            elif tracked.value == NOTHING:
                what = f"but op {self._id(tracked.writers[0])} freed {which}"
            else:
                other = value_name(self.plan, tracked.value)
                what = f"but {which} holds {other}, written by {self._name(tracked.writers[-1])}"
            self._report_misread(x, "reads", row[6], tuple(u for u in tracked.writers if u != x), what)
        elif hole is not None:
            self._report_misread(x, "reads", row[6], (), f"but nothing wrote {TierRange(name, *hole)} before")
        else:
            tracked = ranges[0]
            which = TierRange(name, tracked.start, tracked.stop)
            what = f"but it is at {which}, written by {self._name(tracked.writers[-1])}"
            self._report_misread(x, "reads", row[6], tuple(tracked.writers), what)

    def _report_misread(self, x: int, verb: str, at: int, others: tuple[int, ...], what: str) -> None:
        """Report that row ``at``, read or accumulated by op ``x``, does not hold the named value."""
        rows = self.plan.read if verb == "reads" else self.plan.write
        if len(self.found.misreads) < 4 * self.faults.limit:
            v = value_name(self.plan, int(rows.value[at]))
            text = f"{self._name(x)} {verb} {v} at {extent(self.plan, rows, at)}, {what}"
            self.found.misreads.append((x, others, span(self.plan, rows, at), text))
        else:
            self.faults.count(Rule.WRONG_VALUE)

    def _write(self, x: int, row: Any) -> TrackedRange | None:
        tier, start, nbytes, content = row[:4]
        mode = self.tier_mode[tier]
        if mode != _MEMORY:
            if mode == _OUTPUT:
                self.stored[tier, start, nbytes, row[4]] = x, content
            return None
        memory = self.memory[tier]
        new = TrackedRange(start, start + nbytes, content, x)
        old = memory.overlapping(start, new.stop)
        before: list[int] = []
        for tracked in old:
            # Readers come after writers, so a query for a reader covers the writers.
            before += tracked.readers or tracked.writers
        if x in before:
            before = [u for u in before if u != x]
            if content != NOTHING:
                self._report_overlap(x, row)
            else:
                for tracked in old:
                    before += [u for u in tracked.writers if u != x]
        self.before.extend(before)
        new.before = before
        new.whole = content != NOTHING
        memory.put(new, old)
        return new

    def _accumulate(self, x: int, unit: int, row: Any) -> None:
        tier, start, nbytes, content = row[:4]
        if self.tier_mode[tier] != _MEMORY:
            return
        memory = self.memory[tier]
        tracked = memory.at.get(start)
        mine = (
            tracked is not None and tracked.stop == start + nbytes and tracked.unit == unit and tracked.value == content
        )
        if tracked is not None and mine:
            if x in tracked.readers:
                self._report_overlap(x, row)
            elif tracked.readers:
                self._report_half_made(x, row, tracked)
            self._wait(tracked.before, tracked.writers)
            tracked.writers.append(x)
            return
        if unit in self.begun:
            first, place = self.begun[unit]
            # An accumulator that moved is reported with its unit.
            if place == row[:4]:
                others = {u for h in memory.overlapping(start, start + nbytes) for u in h.writers}
                others -= {u for u in others if self.plan.unit[u] == unit}
                what = f"but since {self._name(first)} began the sum, {self._names(others)} wrote there"
                self._report_misread(x, "accumulates", row[6], tuple(sorted(others)), what)
        else:
            self.begun[unit] = x, row[:4]
            if (
                tracked is not None
                and tracked.whole
                and tracked.stop == start + nbytes
                and self._is_partial_sum(tracked)
            ):
                self.found.continued.add(tracked.value)
        new = self._write(x, row)
        assert new is not None
        new.unit = unit

    def _is_partial_sum(self, tracked: TrackedRange) -> bool:
        """Return whether a unit's value was reloaded there to be accumulated further."""
        return self.kind[tracked.writers[0]] in TRANSFERS and bool(self.is_unit_content[tracked.value])

    def _report_overlap(self, x: int, row: Any) -> None:
        if self.faults.count(Rule.OVERLAP):
            rows, at = self.plan.write, row[6]
            text = f"{self._name(x)} writes {extent(self.plan, rows, at)}, where it reads or writes something else, too"
            self.faults.add(Rule.OVERLAP, (x,), span(self.plan, rows, at), text)

    def _report_half_made(self, x: int, row: Any, tracked: TrackedRange) -> None:
        for reader in tracked.readers:
            if self.faults.count(Rule.HALF_MADE):
                rows, at = self.plan.write, row[6]
                v = value_name(self.plan, int(rows.value[at]))
                text = (
                    f"{self._name(reader)} reads {v} at {extent(self.plan, rows, at)}, but does not wait for "
                    f"{self._name(x)}, which accumulates into it"
                )
                self.faults.add(Rule.HALF_MADE, (reader, x), span(self.plan, rows, at), text)

    def _name(self, x: int) -> str:
        return op_name(self.plan, x)

    def _names(self, ops: set[int]) -> str:
        return " and ".join(self._name(x) for x in sorted(ops)[:2]) or "others"

    def _id(self, x: int) -> int:
        return int(self.plan.ids[x])


def _dependencies(plan: JudgedPlan, first: int, last: int) -> Iterator[list[int]]:
    """Yield the dependencies of each of the ops ``first`` to ``last``."""
    ends = plan.after_ptr[first : last + 1]
    after = plan.after[ends[0] : ends[-1]].tolist()
    places = (ends - ends[0]).tolist()
    return (after[a:b] for a, b in zip(places, places[1:], strict=False))


def _rows(rows: AccessRows, content: Any, summed: Any, first: int, last: int) -> Iterator[list[Any]]:
    """Yield the rows of each of the ops ``first`` to ``last``."""
    ptr = rows.ptr[first : last + 1]
    part = slice(int(ptr[0]), int(ptr[-1]))
    columns = (rows.tier[part], rows.start[part], rows.nbytes[part], content[rows.value[part]], rows.repeat[part])
    found = list(zip(*(c.tolist() for c in columns), summed[part].tolist(), range(part.start, part.stop), strict=True))
    ends = (ptr - ptr[0]).tolist()
    return (found[a:b] for a, b in zip(ends, ends[1:], strict=False))
