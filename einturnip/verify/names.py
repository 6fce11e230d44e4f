"""Checks that need no order of the ops: units and their extents, sizes, origins, copies.

The plan names the value in every extent; these names must be consistent.
"""

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
from einturnip.verify.words import extent, op_name, span, value_name

# Accumulators are padded to multiples of this many bytes in memory, but not in files.
PADDING = 64


@dataclass(frozen=True)
class Names:
    """``content[v]``: a number for the content of value ``v``; values that a store renames share it.

    ``summed_read``, ``summed_write``: rows that are the accumulator of their op; ``copies``: ops that only copy bytes;
    ``unit_content``: the content that each unit makes, -1 if unknown.
    """

    content: NDArray[np.int32]
    summed_read: Bools
    summed_write: Bools
    copies: Bools
    unit_content: NDArray[np.int32]


def names(plan: JudgedPlan, faults: Faults) -> Names:
    """Return the contents and accumulators of a plan, and report names that contradict each other."""
    summed_read, summed_write, unit_value = _accumulators(plan, faults)
    _check_sizes(plan, faults)
    copies = _copies(plan, faults)
    content = _contents(plan, copies, faults)
    found = Names(content, summed_read, summed_write, copies, _take(content, unit_value))
    _check_inputs(plan, faults)
    _check_second_names(plan, content, faults)
    _check_origins(plan, found, faults)
    return found


def _accumulators(plan: JudgedPlan, faults: Faults) -> tuple[Bools, Bools, NDArray[np.int32]]:
    """Return the rows of accumulators in reads and writes, and each unit's value."""
    n = max(1, len(plan.values))
    r, w = plan.read, plan.write
    read_op, write_op = r.op, w.op
    reads = np.flatnonzero(plan.unit[read_op] >= 0)
    writes = np.flatnonzero(plan.unit[write_op] >= 0)
    both = writes[np.isin(write_op[writes] * n + w.value[writes], read_op[reads] * n + r.value[reads])]
    row_of = np.full(len(plan), -1, np.int64)  # for each op of a unit the row of its (first) accumulator
    row_of[write_op[both][::-1]] = both[::-1]
    summed_write = np.zeros(len(w), bool)
    summed_write[row_of[row_of >= 0]] = True
    # The read of an accumulator is the row with the same extent.
    at = row_of[read_op[reads]]
    same = at >= 0
    for mine, its in ((r.value, w.value), (r.tier, w.tier), (r.start, w.start), (r.nbytes, w.nbytes)):
        same &= mine[reads] == _take(its, at)
    summed_read = np.zeros(len(r), bool)
    summed_read[reads[same]] = True
    units = _Units(plan, row_of, np.bincount(write_op[both], minlength=len(plan)), faults)
    units.check(np.bincount(read_op[reads[same]], minlength=len(plan)) == 0)
    return summed_read, summed_write, units.values()


def _take(column: Any, rows: Any) -> Any:
    """Return the entries of a column; -1 for row -1."""
    return np.append(column, -1)[rows]


class _Units:
    """The row of the accumulator of each op of a unit, and the number of such rows."""

    def __init__(self, plan: JudgedPlan, row_of: Ints, n_accumulators: Ints, faults: Faults) -> None:
        self.plan, self.row_of, self.n_accumulators, self.faults = plan, row_of, n_accumulators, faults
        self.ops = np.flatnonzero(plan.unit >= 0)
        having = self.ops[row_of[self.ops] >= 0][::-1]
        self.first = np.full(len(plan.units), -1, np.int64)  # for each unit the first op that accumulates
        self.first[plan.unit[having]] = having

    def values(self) -> NDArray[np.int32]:
        """Return each unit's value, -1 if none of its ops accumulates."""
        found: NDArray[np.int32] = _take(self.plan.write.value, _take(self.row_of, self.first)).astype(np.int32)
        return found

    def check(self, unread: Bools) -> None:
        """Check that all ops of a unit accumulate in one and the same extent.

        ``unread``: ops that do not read their accumulator.
        """
        plan, w, ops = self.plan, self.plan.write, self.ops
        mine, leads = self.row_of[ops], _take(self.row_of, self.first[plan.unit[ops]])
        wrong = (mine < 0) | unread[ops] | (self.n_accumulators[ops] > 1) | np.isin(plan.kind[ops], (*TRANSFERS, DROP))
        for column in (w.tier, w.start, w.nbytes, w.value):
            wrong |= _take(column, mine) != _take(column, leads)
        wrong |= _take(plan.is_tier(w, "input", "output"), mine) == 1
        for i in np.flatnonzero(wrong).tolist():
            if self.faults.count(Rule.UNIT):
                x, row = int(ops[i]), int(mine[i])
                text, other = self._explain(x, row, bool(unread[x]))
                place = span(plan, w, row) if row >= 0 else None
                self.faults.add(Rule.UNIT, (x,) if other is None else (other, x), place, text)

    def _explain(self, x: int, row: int, unread: bool) -> tuple[str, int | None]:
        """Return the fault of an op of a unit, and the other op that it contradicts."""
        plan, w = self.plan, self.plan.write
        name, unit = op_name(plan, x), int(plan.units[plan.unit[x]])
        if plan.kind[x] in (*TRANSFERS, DROP):
            return f"{name} is of unit {unit}, but only kernels, aggregates and moves accumulate", None
        if row < 0:
            return f"{name} is of unit {unit}, but reads and writes no extent with one value: nothing is summed", None
        if self.n_accumulators[x] > 1:
            return f"{name} accumulates in {self.n_accumulators[x]} extents; an op of a unit has one", None
        mine = f"{name} accumulates {value_name(plan, int(w.value[row]))} in {extent(plan, w, row)}"
        if unread:
            return f"{mine}, but reads it from other bytes", None
        if plan.tiers[w.tier[row]].kind in ("input", "output"):
            return f"{mine}, which is a file", None
        other = int(self.first[plan.unit[x]])
        its = int(self.row_of[other])
        return (
            f"{mine}, but {op_name(plan, other)} of the same unit {unit} {value_name(plan, int(w.value[its]))} "
            f"in {extent(plan, w, its)}",
            other,
        )


def _check_sizes(plan: JudgedPlan, faults: Faults) -> None:
    """Check that a value has one size everywhere, except for bytes that its file omits."""
    sizes: Ints = np.full(len(plan.values), -1, np.int64)
    sides = (("writes", plan.write), ("reads", plan.read))
    files = [(plan.is_tier(side, "input"), plan.is_tier(side, "output")) for _, side in sides]
    # In order of increasing priority: the size written to memory comes last and overrides the others.
    for in_file in (True, False):
        for (_, side), (given, stored) in zip(sides[::-1], files[::-1], strict=True):
            mine = np.flatnonzero((given | stored) == in_file)[::-1]
            sizes[side.value[mine]] = plan.size(side)[mine]
    for (verb, side), (given, stored) in zip(sides, files, strict=True):
        size, expected, ops = plan.size(side), sizes[side.value], side.op
        wrong = (size != expected) & ~(given & _is_broadcast(size, expected)) & ~(stored & _is_padded(size, expected))
        for row in np.flatnonzero(wrong).tolist():
            if faults.count(Rule.SIZE):
                v = int(side.value[row])
                faults.add(
                    Rule.SIZE,
                    (int(ops[row]),),
                    span(plan, side, row),
                    f"{op_name(plan, int(ops[row]))} {verb} {size[row]} bytes of {value_name(plan, v)} at "
                    f"{extent(plan, side, row)}; elsewhere it has {expected[row]} bytes",
                )


def _is_broadcast(size: Ints, filled: Ints) -> Bools:
    """Return whether a stored size fills a size in memory; axes of stride 0 are stored once."""
    found: Bools = (size <= filled) & (filled % np.maximum(size, 1) == 0)
    return found


def _is_padded(size: Ints, in_memory: Ints) -> Bools:
    """Return whether an output's bytes are a complete value in memory, where accumulators are padded."""
    found: Bools = (size == in_memory) | (-(-size // PADDING) * PADDING == in_memory)
    return found


def _copies(plan: JudgedPlan, faults: Faults) -> Bools:
    """Return the ops that copy a value byte for byte; report transfers that cannot."""
    n_reads, n_writes = np.diff(plan.read.ptr), np.diff(plan.write.ptr)
    single = (n_reads == 1) & (n_writes == 1) & (plan.unit < 0)
    ops = np.flatnonzero(single)
    read, write = plan.read.ptr[ops], plan.write.ptr[ops]
    read_size, write_size = plan.size(plan.read)[read], plan.size(plan.write)[write]
    equal = read_size == write_size
    equal |= plan.is_tier(plan.read, "input")[read] & _is_broadcast(read_size, write_size)
    equal |= plan.is_tier(plan.read, "output")[read] & _is_padded(read_size, write_size)
    equal |= plan.is_tier(plan.write, "output")[write] & _is_padded(write_size, read_size)
    carrying = np.isin(plan.kind[ops], TRANSFERS)
    moving = (plan.kind[ops] == MOVE) & (plan.read.value[read] == plan.write.value[write])
    copies = np.zeros(len(plan), bool)
    copies[ops[equal & (carrying | moving)]] = True
    larger = np.zeros(len(plan), bool)
    larger[ops[write_size > read_size]] = True
    bare = (n_reads == 0) & (n_writes == 0)
    wrong = np.isin(plan.kind, (LOAD, OFFLOAD, RELOAD)) & ~copies & ~bare
    # A store may write a part of the value that it reads, or nothing if that part is empty.
    wrong |= (plan.kind == STORE) & ~copies & ((n_reads > 1) | (n_writes > n_reads) | larger)
    elsewhere = plan.write.op[~plan.is_tier(plan.write, "output")]
    wrong[elsewhere[plan.kind[elsewhere] == STORE]] = True
    wrong |= (plan.kind == DROP) & (n_writes > 0)
    wrong &= plan.unit < 0  # ops of units are checked with their unit
    for x in np.flatnonzero(wrong).tolist():
        if faults.count(Rule.TRANSFER):
            faults.add(Rule.TRANSFER, (x,), None, _explain_transfer(plan, x, bool(single[x])))
    return copies


def _explain_transfer(plan: JudgedPlan, x: int, single: bool) -> str:
    """Return why an op is not a transfer."""
    (r, r_end), (w, w_end) = plan.read.ptr[x : x + 2].tolist(), plan.write.ptr[x : x + 2].tolist()
    if plan.kind[x] == DROP:
        return f"{op_name(plan, x)} writes; a drop only frees the bytes that it reads"
    if single and plan.kind[x] == STORE and plan.tiers[plan.write.tier[w]].kind != "output":
        return f"{op_name(plan, x)} stores at {extent(plan, plan.write, w)}, which is no output"
    if not single:
        return f"{op_name(plan, x)} has {r_end - r} reads and {w_end - w} writes; a transfer has one of each"
    return (
        f"{op_name(plan, x)} reads {plan.size(plan.read)[r]} bytes at {extent(plan, plan.read, r)} "
        f"and writes {plan.size(plan.write)[w]} at {extent(plan, plan.write, w)}"
    )


def _contents(plan: JudgedPlan, copies: Bools, faults: Faults) -> NDArray[np.int32]:
    """Return content numbers. A store may rename the bytes that it stores; other transfers must not."""
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
        if faults.count(Rule.TRANSFER):
            x, row = int(ops[i]), int(write[i])
            text = f"{op_name(plan, x)} copies {value_name(plan, int(a[i]))} as {value_name(plan, int(b[i]))}"
            faults.add(Rule.TRANSFER, (x,), span(plan, plan.write, row), text)
    return parent


def _check_second_names(plan: JudgedPlan, content: NDArray[np.int32], faults: Faults) -> None:
    """Check that a renamed value is read only if an op writes it under that name."""
    known = np.zeros(len(plan.values), bool)
    known[plan.write.value] = True
    known[plan.read.value[plan.is_tier(plan.read, "input")]] = True
    shared = np.bincount(content, minlength=len(content))[content] > 1
    known |= ~shared
    ops = plan.read.op
    for row in np.flatnonzero(~known[plan.read.value]).tolist():
        if faults.count(Rule.WRONG_VALUE):
            x, v = int(ops[row]), int(plan.read.value[row])
            place = extent(plan, plan.read, row)
            text = f"{op_name(plan, x)} reads {value_name(plan, v)} at {place}, which no op writes"
            faults.add(Rule.WRONG_VALUE, (x,), span(plan, plan.read, row), text)


def _check_inputs(plan: JudgedPlan, faults: Faults) -> None:
    ops = plan.write.op
    for row in np.flatnonzero(plan.is_tier(plan.write, "input")).tolist():
        if faults.count(Rule.INPUT):
            x = int(ops[row])
            text = f"{op_name(plan, x)} writes {extent(plan, plan.write, row)}, an input"
            faults.add(Rule.INPUT, (x,), span(plan, plan.write, row), text)


def _check_origins(plan: JudgedPlan, names: Names, faults: Faults) -> None:
    """Check that each value comes from one input, one op or one unit."""
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
    # An origin: the content, the op that makes it and, for inputs, the row with its location.
    made_content = np.concatenate([content[r.value[given]], content[w.value[made]], names.unit_content[units]])
    maker = np.concatenate([read_op[given], write_op[made], first_of_unit[units]])
    row = np.concatenate([given, np.full(len(made) + len(units), -1)])
    order = np.lexsort((maker, made_content))
    made_content, maker, row = made_content[order], maker[order], row[order]
    repeated = (
        np.flatnonzero(
            (made_content[1:] == made_content[:-1]) & ((maker[1:] != maker[:-1]) | (row[1:] >= 0) | (row[:-1] >= 0))
        )
        + 1
    )
    for i in repeated.tolist():
        if faults.count(Rule.MADE_TWICE):
            stories = [_origin(plan, int(maker[j]), int(row[j])) for j in (i - 1, i)]
            text = f"{value_name(plan, int(made_content[i]))} {stories[0]} and {stories[1]}"
            faults.add(Rule.MADE_TWICE, (int(maker[i - 1]), int(maker[i])), None, text)


def _origin(plan: JudgedPlan, x: int, row: int) -> str:
    if row >= 0:
        return f"is in the input {extent(plan, plan.read, row)} (read by {op_name(plan, x)})"
    if plan.unit[x] >= 0:
        return f"is made by unit {plan.units[plan.unit[x]]} ({op_name(plan, x)} and others)"
    return f"is made by {op_name(plan, x)}"
