"""The ops walked in one order they allow: what each byte holds, and which ops must come before which for its sake.

For each range of bytes: the value, who wrote it, who has read it since. A read must come after the writers, a write
after the readers (after the writers, where there are none). Each new access is held only against the last ones: that
those came after the ones before them has been asked already.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from einturnip.verify.names import Names
from einturnip.verify.ranges import HeldRange, TierRanges
from einturnip.verify.types import DROP, TRANSFERS, AccessRows, Faults, Ints, JudgedPlan, Rule, TierRange
from einturnip.verify.words import extent, op_name, value, whole

OPS_AT_ONCE = 1 << 14
NOTHING = -1
_GIVEN, _MEMORY, _OUTPUT = range(3)


@dataclass
class SweepResult:
    """What the walk found. ``misreads``: wrong unless the ops, which share the bytes, are a race already.

    ``continued``: contents that a unit goes on from after a reload.
    """

    misreads: list[tuple[int, tuple[int, ...], TierRange, str]] = field(default_factory=list)
    continued: set[int] = field(default_factory=set)


class PlanSweep:
    """Walks a plan whose dependencies all point back. ``ask`` gets, for some ops on end, who must precede each."""

    def __init__(self, plan: JudgedPlan, names: Names, faults: Faults, ask: Callable[[Ints, Ints], None]) -> None:
        self.plan, self.names, self.faults, self.ask = plan, names, faults, ask
        self.found = SweepResult()
        self.tracked = [{"input": _GIVEN, "output": _OUTPUT}.get(tier.kind, _MEMORY) for tier in plan.tiers]
        self.memory = [TierRanges() for _ in plan.tiers]
        self.stored: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self.begun: dict[int, tuple[int, Any]] = {}  # of each unit its first op, and where that accumulates
        self.before = array("q")
        self.waits: list[int] = []  # what the op that is looked at waits for
        self.kind = plan.kind.tolist()
        self.is_unit_content = np.zeros(len(plan.values), bool)
        known = names.unit_content[names.unit_content >= 0]
        self.is_unit_content[known] = True

    def run(self) -> SweepResult:
        """Walk all ops."""
        n = len(self.plan)
        for first in range(0, n, OPS_AT_ONCE):
            last = min(n, first + OPS_AT_ONCE)
            counts = array("q")
            reads = _rows(self.plan.read, self.names.content, self.names.summed_read, first, last)
            writes = _rows(self.plan.write, self.names.content, self.names.summed_write, first, last)
            units = self.plan.unit[first:last].tolist()
            waits = _dependencies(self.plan, first, last)
            for x, unit, read, write, self.waits in zip(range(first, last), units, reads, writes, waits, strict=True):
                asked = len(self.before)
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
                counts.append(len(self.before) - asked)
            ops = np.repeat(np.arange(first, last), np.frombuffer(counts, np.int64))
            self.ask(ops, np.array(self.before, np.int64))
            self.before = array("q")
        return self.found

    # A row here: tier, start, nbytes, content, repeat, whether it is the op's accumulator, its number.

    def _read(self, x: int, row: Any) -> None:
        tier, start, nbytes, content = row[:4]
        how = self.tracked[tier]
        if how == _MEMORY:
            held = self.memory[tier].at.get(start)
            if held is not None and held.stop == start + nbytes and held.value == content and held.whole:
                self._wait(held.writers, held.readers)
                held.readers.append(x)
            else:
                self._misread(x, row)
        elif how == _OUTPUT:
            stored = self.stored.get((tier, start, nbytes, row[4]))
            if stored is not None:
                self.before.append(stored[0])
            if stored is None or stored[1] != content:
                found = (
                    "which no op has stored so" if stored is None else f"where op {self._id(stored[0])} stored another"
                )
                self._tell_misread(x, "reads", row[6], (stored[0],) if stored else (), found)

    def _wait(self, earlier: list[int], others: list[int]) -> None:
        """The op must come after ``earlier``. ``others`` were asked to as well: after one of those will do."""
        if len(earlier) > 1 and others and others[0] in self.waits:
            return
        self.before.extend(earlier)

    def _misread(self, x: int, row: Any) -> None:
        """The bytes do not hold the value named, or not it alone."""
        tier, start, nbytes, content = row[:4]
        stop = start + nbytes
        ranges = self.memory[tier].overlapping(start, stop)
        others = []
        at = start
        hole: tuple[int, int] | None = None
        for held in ranges:
            if held.start > at and hole is None:
                hole = at, held.start
            at = held.stop
            self.before.extend([u for u in held.writers if u != x])
            held.readers.append(x)
            if held.value != content or not held.whole:
                others.append(held)
        if at < stop and hole is None:
            hole = max(at, start), stop
        name = self.plan.tiers[tier].name
        if others:
            held = others[0]
            which = TierRange(name, max(start, held.start), min(stop, held.stop))
            if held.value == content:
                what = f"but {which} is only a part of it that is left: other bytes of it were written over"
            elif held.value == NOTHING:
                what = f"but op {self._id(held.writers[0])} gave up {which}"
            else:
                what = f"but {which} holds {value(self.plan, held.value)}, written by {self._name(held.writers[-1])}"
            self._tell_misread(x, "reads", row[6], tuple(u for u in held.writers if u != x), what)
        elif hole is not None:
            self._tell_misread(x, "reads", row[6], (), f"but nothing wrote {TierRange(name, *hole)} before")
        else:
            held = ranges[0]
            what = f"but it is at {TierRange(name, held.start, held.stop)}, written by {self._name(held.writers[-1])}"
            self._tell_misread(x, "reads", row[6], tuple(held.writers), what)

    def _tell_misread(self, x: int, verb: str, at: int, others: tuple[int, ...], what: str) -> None:
        """Row ``at`` that op ``x`` reads, or accumulates in, does not hold what it names."""
        rows = self.plan.read if verb == "reads" else self.plan.write
        if len(self.found.misreads) < 4 * self.faults.limit:
            v = value(self.plan, int(rows.value[at]))
            text = f"{self._name(x)} {verb} {v} at {extent(self.plan, rows, at)}, {what}"
            self.found.misreads.append((x, others, whole(self.plan, rows, at), text))
        else:
            self.faults.wants(Rule.WRONG_VALUE)

    def _write(self, x: int, row: Any) -> HeldRange | None:
        tier, start, nbytes, content = row[:4]
        how = self.tracked[tier]
        if how != _MEMORY:
            if how == _OUTPUT:
                self.stored[tier, start, nbytes, row[4]] = x, content
            return None
        memory = self.memory[tier]
        new = HeldRange(start, start + nbytes, content, x)
        old = memory.overlapping(start, new.stop)
        before: list[int] = []
        for held in old:
            # Readers come after writers, so behind a reader the writers need not be asked.
            before += held.readers or held.writers
        if x in before:
            before = [u for u in before if u != x]
            if content != NOTHING:
                self._tell_overlap(x, row)
            else:
                for held in old:
                    before += [u for u in held.writers if u != x]
        self.before.extend(before)
        new.before = before
        new.whole = content != NOTHING
        memory.put(new, old)
        return new

    def _accumulate(self, x: int, unit: int, row: Any) -> None:
        tier, start, nbytes, content = row[:4]
        if self.tracked[tier] != _MEMORY:
            return
        memory = self.memory[tier]
        held = memory.at.get(start)
        mine = held is not None and held.stop == start + nbytes and held.unit == unit and held.value == content
        if held is not None and mine:
            if x in held.readers:
                self._tell_overlap(x, row)
            elif held.readers:
                self._tell_half_made(x, row, held)
            self._wait(held.before, held.writers)
            held.writers.append(x)
            return
        if unit in self.begun:
            first, place = self.begun[unit]
            # Of an accumulator that moved the unit has told.
            if place == row[:4]:
                others = {u for h in memory.overlapping(start, start + nbytes) for u in h.writers}
                others -= {u for u in others if self.plan.unit[u] == unit}
                what = f"but since {self._name(first)} began the sum, {self._names(others)} wrote there"
                self._tell_misread(x, "accumulates", row[6], tuple(sorted(others)), what)
        else:
            self.begun[unit] = x, row[:4]
            if held is not None and held.whole and held.stop == start + nbytes and self._half_made(held):
                self.found.continued.add(held.value)
        new = self._write(x, row)
        assert new is not None
        new.unit = unit

    def _half_made(self, held: HeldRange) -> bool:
        """Whether a unit's value was brought back there, to be gone on with."""
        return self.kind[held.writers[0]] in TRANSFERS and bool(self.is_unit_content[held.value])

    def _tell_overlap(self, x: int, row: Any) -> None:
        if self.faults.wants(Rule.OVERLAP):
            rows, at = self.plan.write, row[6]
            text = f"{self._name(x)} writes {extent(self.plan, rows, at)}, where it reads or writes something else, too"
            self.faults.add(Rule.OVERLAP, (x,), whole(self.plan, rows, at), text)

    def _tell_half_made(self, x: int, row: Any, held: HeldRange) -> None:
        for reader in held.readers:
            if self.faults.wants(Rule.HALF_MADE):
                rows, at = self.plan.write, row[6]
                v = value(self.plan, int(rows.value[at]))
                text = (
                    f"{self._name(reader)} reads {v} at {extent(self.plan, rows, at)}, but does not wait for "
                    f"{self._name(x)}, which accumulates into it"
                )
                self.faults.add(Rule.HALF_MADE, (reader, x), whole(self.plan, rows, at), text)

    def _name(self, x: int) -> str:
        return op_name(self.plan, x)

    def _names(self, ops: set[int]) -> str:
        return " and ".join(self._name(x) for x in sorted(ops)[:2]) or "others"

    def _id(self, x: int) -> int:
        return int(self.plan.ids[x])


def _dependencies(plan: JudgedPlan, first: int, last: int) -> Iterator[list[int]]:
    """What each of the ops ``first`` to ``last`` waits for."""
    ends = plan.after_ptr[first : last + 1]
    after = plan.after[ends[0] : ends[-1]].tolist()
    places = (ends - ends[0]).tolist()
    return (after[a:b] for a, b in zip(places, places[1:], strict=False))


def _rows(rows: AccessRows, content: Any, summed: Any, first: int, last: int) -> Iterator[list[Any]]:
    """The rows of the ops ``first`` to ``last``, a list for each."""
    ptr = rows.ptr[first : last + 1]
    part = slice(int(ptr[0]), int(ptr[-1]))
    columns = (rows.tier[part], rows.start[part], rows.nbytes[part], content[rows.value[part]], rows.repeat[part])
    found = list(zip(*(c.tolist() for c in columns), summed[part].tolist(), range(part.start, part.stop), strict=True))
    ends = (ptr - ptr[0]).tolist()
    return (found[a:b] for a, b in zip(ends, ends[1:], strict=False))
