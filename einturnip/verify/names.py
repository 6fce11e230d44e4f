"""What the names say without any order: units and their extents, one size a value, one origin a value, copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.verify.types import (
    DROP,
    LOAD,
    MOVE,
    OFFLOAD,
    RELOAD,
    STORE,
    TRANSFERS,
    Bools,
    Faults,
    Ints,
    JudgedPlan,
    Rule,
)
from einturnip.verify.words import extent, op_name, value, whole

# Accumulators end at a multiple of so many bytes in memory; a file has none of the padding.
PADDING = 64


@dataclass(frozen=True)
class Names:
    """``content[v]``: a number for what ``v`` is; values that a store gives two names share it.

    ``summed_read``, ``summed_write``: rows that are an op's own accumulator; ``copies``: ops that only carry bytes;
    ``unit_content``: what each unit makes, -1 where it is not known.
    """

    content: NDArray[np.int32]
    summed_read: Bools
    summed_write: Bools
    copies: Bools
    unit_content: NDArray[np.int32]


def names(plan: JudgedPlan, faults: Faults) -> Names:
    """Read the names, and tell where they contradict each other."""
    summed_read, summed_write, unit_value = _accumulators(plan, faults)
    _check_sizes(plan, faults)
    copies = _copies(plan, faults)
    content = _contents(plan, copies, faults)
    found = Names(content, summed_read, summed_write, copies, _picked(content, unit_value))
    _check_inputs(plan, faults)
    _check_made(plan, content, faults)
    _check_origins(plan, found, faults)
    return found


def _accumulators(plan: JudgedPlan, faults: Faults) -> tuple[Bools, Bools, NDArray[np.int32]]:
    """The rows of accumulators, and each unit's value."""
    n = max(1, len(plan.values))
    r, w = plan.read, plan.write
    read_op, write_op = r.op, w.op
    reads = np.flatnonzero(plan.unit[read_op] >= 0)
    writes = np.flatnonzero(plan.unit[write_op] >= 0)
    both = writes[np.isin(write_op[writes] * n + w.value[writes], read_op[reads] * n + r.value[reads])]
    row_of = np.full(len(plan), -1, np.int64)  # the accumulator's row of each op of a unit: the first, if it has more
    row_of[write_op[both][::-1]] = both[::-1]
    summed_write = np.zeros(len(w), bool)
    summed_write[row_of[row_of >= 0]] = True
    # Where it is read, it is the same extent.
    at = row_of[read_op[reads]]
    same = at >= 0
    for mine, its in ((r.value, w.value), (r.tier, w.tier), (r.start, w.start), (r.nbytes, w.nbytes)):
        same &= mine[reads] == _picked(its, at)
    summed_read = np.zeros(len(r), bool)
    summed_read[reads[same]] = True
    units = _Units(plan, row_of, np.bincount(write_op[both], minlength=len(plan)), faults)
    units.check(np.bincount(read_op[reads[same]], minlength=len(plan)) == 0)
    return summed_read, summed_write, units.values()


def _picked(column: Any, rows: Any) -> Any:
    """The entries of a column; -1 for row -1."""
    return np.append(column, -1)[rows]


class _Units:
    """Of each op of a unit the row of its accumulator, and how many it has."""

    def __init__(self, plan: JudgedPlan, row_of: Ints, many: Ints, faults: Faults) -> None:
        self.plan, self.row_of, self.many, self.faults = plan, row_of, many, faults
        self.ops = np.flatnonzero(plan.unit >= 0)
        having = self.ops[row_of[self.ops] >= 0][::-1]
        self.first = np.full(len(plan.units), -1, np.int64)  # of each unit the first op that accumulates
        self.first[plan.unit[having]] = having

    def values(self) -> NDArray[np.int32]:
        """Each unit's value, -1 where no op of it accumulates."""
        found: NDArray[np.int32] = _picked(self.plan.write.value, _picked(self.row_of, self.first)).astype(np.int32)
        return found

    def check(self, alone: Bools) -> None:
        """Each op of a unit accumulates in one extent, the same one for all. ``alone``: ops that do not read theirs."""
        plan, w, ops = self.plan, self.plan.write, self.ops
        mine, leads = self.row_of[ops], _picked(self.row_of, self.first[plan.unit[ops]])
        wrong = (mine < 0) | alone[ops] | (self.many[ops] > 1) | np.isin(plan.kind[ops], (*TRANSFERS, DROP))
        for column in (w.tier, w.start, w.nbytes, w.value):
            wrong |= _picked(column, mine) != _picked(column, leads)
        wrong |= _picked(plan.is_tier(w, "input", "output"), mine) == 1
        for i in np.flatnonzero(wrong).tolist():
            if self.faults.wants(Rule.UNIT):
                x, row = int(ops[i]), int(mine[i])
                text, other = self._why(x, row, bool(alone[x]))
                place = whole(plan, w, row) if row >= 0 else None
                self.faults.add(Rule.UNIT, (x,) if other is None else (other, x), place, text)

    def _why(self, x: int, row: int, alone: bool) -> tuple[str, int | None]:
        """What is wrong with an op of a unit, and with which other op it disagrees."""
        plan, w = self.plan, self.plan.write
        name, unit = op_name(plan, x), int(plan.units[plan.unit[x]])
        if plan.kind[x] in (*TRANSFERS, DROP):
            return f"{name} is of unit {unit}, but only kernels, aggregates and moves accumulate", None
        if row < 0:
            return f"{name} is of unit {unit}, but reads and writes no extent with one value: nothing is summed", None
        if self.many[x] > 1:
            return f"{name} accumulates in {self.many[x]} extents; an op of a unit has one", None
        mine = f"{name} accumulates {value(plan, int(w.value[row]))} in {extent(plan, w, row)}"
        if alone:
            return f"{mine}, but reads it from other bytes", None
        if plan.tiers[w.tier[row]].kind in ("input", "output"):
            return f"{mine}, which is a file", None
        other = int(self.first[plan.unit[x]])
        its = int(self.row_of[other])
        return (
            f"{mine}, but {op_name(plan, other)} of the same unit {unit} {value(plan, int(w.value[its]))} "
            f"in {extent(plan, w, its)}",
            other,
        )


def _check_sizes(plan: JudgedPlan, faults: Faults) -> None:
    """One size a value, but for what its bytes in a file leave out."""
    sizes: Ints = np.full(len(plan.values), -1, np.int64)
    sides = (("writes", plan.write), ("reads", plan.read))
    files = [(plan.is_tier(side, "input"), plan.is_tier(side, "output")) for _, side in sides]
    # What counts first comes last here: the size in memory, as it is written there.
    for in_file in (True, False):
        for (_, side), (given, stored) in zip(sides[::-1], files[::-1], strict=True):
            mine = np.flatnonzero((given | stored) == in_file)[::-1]
            sizes[side.value[mine]] = plan.size(side)[mine]
    for (verb, side), (given, stored) in zip(sides, files, strict=True):
        size, wanted, ops = plan.size(side), sizes[side.value], side.op
        wrong = (size != wanted) & ~(given & _shown(size, wanted)) & ~(stored & _padded(size, wanted))
        for row in np.flatnonzero(wrong).tolist():
            if faults.wants(Rule.SIZE):
                v = int(side.value[row])
                faults.add(
                    Rule.SIZE,
                    (int(ops[row]),),
                    whole(plan, side, row),
                    f"{op_name(plan, int(ops[row]))} {verb} {size[row]} bytes of {value(plan, v)} at "
                    f"{extent(plan, side, row)}; elsewhere it has {wanted[row]} bytes",
                )


def _shown(size: Ints, filled: Ints) -> Bools:
    """Whether so many bytes of an input fill so many in memory: axes of stride 0 are stored once."""
    found: Bools = (size <= filled) & (filled % np.maximum(size, 1) == 0)
    return found


def _padded(size: Ints, held: Ints) -> Bools:
    """Whether so many bytes of an output are all of a value in memory, where accumulators are padded."""
    found: Bools = (size == held) | (-(-size // PADDING) * PADDING == held)
    return found


def _copies(plan: JudgedPlan, faults: Faults) -> Bools:
    """The ops that carry a value, byte for byte; transfers that cannot are told."""
    n_reads, n_writes = np.diff(plan.read.ptr), np.diff(plan.write.ptr)
    single = (n_reads == 1) & (n_writes == 1) & (plan.unit < 0)
    ops = np.flatnonzero(single)
    read, write = plan.read.ptr[ops], plan.write.ptr[ops]
    read_size, write_size = plan.size(plan.read)[read], plan.size(plan.write)[write]
    equal = read_size == write_size
    equal |= plan.is_tier(plan.read, "input")[read] & _shown(read_size, write_size)
    equal |= plan.is_tier(plan.read, "output")[read] & _padded(read_size, write_size)
    equal |= plan.is_tier(plan.write, "output")[write] & _padded(write_size, read_size)
    carrying = np.isin(plan.kind[ops], TRANSFERS)
    moving = (plan.kind[ops] == MOVE) & (plan.read.value[read] == plan.write.value[write])
    copies = np.zeros(len(plan), bool)
    copies[ops[equal & (carrying | moving)]] = True
    larger = np.zeros(len(plan), bool)
    larger[ops[write_size > read_size]] = True
    bare = (n_reads == 0) & (n_writes == 0)
    wrong = np.isin(plan.kind, (LOAD, OFFLOAD, RELOAD)) & ~copies & ~bare
    # A store may write a part of what it reads, or nothing where that part is empty.
    wrong |= (plan.kind == STORE) & ~copies & ((n_reads > 1) | (n_writes > n_reads) | larger)
    elsewhere = plan.write.op[~plan.is_tier(plan.write, "output")]
    wrong[elsewhere[plan.kind[elsewhere] == STORE]] = True
    wrong |= (plan.kind == DROP) & (n_writes > 0)
    wrong &= plan.unit < 0  # of others their unit tells
    for x in np.flatnonzero(wrong).tolist():
        if faults.wants(Rule.TRANSFER):
            faults.add(Rule.TRANSFER, (x,), None, _no_transfer(plan, x, bool(single[x])))
    return copies


def _no_transfer(plan: JudgedPlan, x: int, single: bool) -> str:
    """Why an op carries no value."""
    (r, r_end), (w, w_end) = plan.read.ptr[x : x + 2].tolist(), plan.write.ptr[x : x + 2].tolist()
    if plan.kind[x] == DROP:
        return f"{op_name(plan, x)} writes; a drop only gives up what it reads"
    if single and plan.kind[x] == STORE and plan.tiers[plan.write.tier[w]].kind != "output":
        return f"{op_name(plan, x)} stores at {extent(plan, plan.write, w)}, which is no output"
    if not single:
        return f"{op_name(plan, x)} has {r_end - r} reads and {w_end - w} writes; a transfer has one of each"
    return (
        f"{op_name(plan, x)} reads {plan.size(plan.read)[r]} bytes at {extent(plan, plan.read, r)} "
        f"and writes {plan.size(plan.write)[w]} at {extent(plan, plan.write, w)}"
    )


def _contents(plan: JudgedPlan, copies: Bools, faults: Faults) -> NDArray[np.int32]:
    """A store may give the bytes that it stores a name of their own; any other transfer keeps the name."""
    parent = np.arange(len(plan.values), dtype=np.int32)
    ops = np.flatnonzero(copies)
    write = plan.write.ptr[ops]
    a, b = plan.read.value[plan.read.ptr[ops]], plan.write.value[write]
    named = (a != b) & plan.is_tier(plan.write, "output")[write]

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = int(parent[v])
        return v

    for one, two in zip(a[named].tolist(), b[named].tolist(), strict=True):
        parent[max(root(one), root(two))] = min(root(one), root(two))
    while (parent[parent] != parent).any():
        parent = parent[parent]
    for i in np.flatnonzero(parent[a] != parent[b]).tolist():
        if faults.wants(Rule.TRANSFER):
            x, row = int(ops[i]), int(write[i])
            text = f"{op_name(plan, x)} carries {value(plan, int(a[i]))} but calls it {value(plan, int(b[i]))}"
            faults.add(Rule.TRANSFER, (x,), whole(plan, plan.write, row), text)
    return parent


def _check_made(plan: JudgedPlan, content: NDArray[np.int32], faults: Faults) -> None:
    """A second name of some bytes is read only if an op writes it; of bytes with one name the walk tells."""
    known = np.zeros(len(plan.values), bool)
    known[plan.write.value] = True
    known[plan.read.value[plan.is_tier(plan.read, "input")]] = True
    shared = np.bincount(content, minlength=len(content))[content] > 1
    known |= ~shared
    ops = plan.read.op
    for row in np.flatnonzero(~known[plan.read.value]).tolist():
        if faults.wants(Rule.WRONG_VALUE):
            x, v = int(ops[row]), int(plan.read.value[row])
            text = f"{op_name(plan, x)} reads {value(plan, v)} at {extent(plan, plan.read, row)}, which no op writes"
            faults.add(Rule.WRONG_VALUE, (x,), whole(plan, plan.read, row), text)


def _check_inputs(plan: JudgedPlan, faults: Faults) -> None:
    ops = plan.write.op
    for row in np.flatnonzero(plan.is_tier(plan.write, "input")).tolist():
        if faults.wants(Rule.INPUT):
            x = int(ops[row])
            text = f"{op_name(plan, x)} writes {extent(plan, plan.write, row)}, an input"
            faults.add(Rule.INPUT, (x,), whole(plan, plan.write, row), text)


def _check_origins(plan: JudgedPlan, names: Names, faults: Faults) -> None:
    """A value is given by an input, made by one op or made by one unit."""
    content, w, r = names.content, plan.write, plan.read
    write_op, read_op = w.op, r.op
    made = np.flatnonzero(~names.summed_write & ~names.copies[write_op])
    given = np.flatnonzero(plan.is_tier(r, "input"))
    order = given[
        np.lexsort((r.repeat[given], r.nbytes[given], r.start[given], r.tier[given], content[r.value[given]]))
    ]
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.any(
        [np.diff(column[order]) != 0 for column in (r.tier, r.start, r.nbytes, r.repeat, content[r.value])], axis=0
    )
    given = order[fresh]
    units = np.flatnonzero(names.unit_content >= 0)
    first_of_unit = np.full(len(plan.units), -1, np.int64)
    summing = np.flatnonzero(names.summed_write)[::-1]
    first_of_unit[plan.unit[write_op[summing]]] = write_op[summing]
    # An origin: what it makes, who makes it; for inputs, which row says where it lies.
    what = np.concatenate([content[r.value[given]], content[w.value[made]], names.unit_content[units]])
    who = np.concatenate([read_op[given], write_op[made], first_of_unit[units]])
    row = np.concatenate([given, np.full(len(made) + len(units), -1)])
    order = np.lexsort((who, what))
    what, who, row = what[order], who[order], row[order]
    again = np.flatnonzero((what[1:] == what[:-1]) & ((who[1:] != who[:-1]) | (row[1:] >= 0) | (row[:-1] >= 0))) + 1
    for i in again.tolist():
        if faults.wants(Rule.MADE_TWICE):
            stories = [_origin(plan, int(who[j]), int(row[j])) for j in (i - 1, i)]
            text = f"{value(plan, int(what[i]))} {stories[0]} and {stories[1]}"
            faults.add(Rule.MADE_TWICE, (int(who[i - 1]), int(who[i])), None, text)


def _origin(plan: JudgedPlan, x: int, row: int) -> str:
    if row >= 0:
        return f"lies in the input {extent(plan, plan.read, row)} (read by {op_name(plan, x)})"
    if plan.unit[x] >= 0:
        return f"is made by unit {plan.units[plan.unit[x]]} ({op_name(plan, x)} and others)"
    return f"is made by {op_name(plan, x)}"
