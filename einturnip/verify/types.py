"""A memory graph as read from its JSON, in columns, and the faults found in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import EinturnipError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

KINDS = ("load", "kernel", "move", "aggregate", "offload", "reload", "drop", "store", "send", "notice", "receive")
LOAD, KERNEL, MOVE, AGGREGATE, OFFLOAD, RELOAD, DROP, STORE, SEND, NOTICE, RECEIVE = range(len(KINDS))
ENDS = (SEND, NOTICE, RECEIVE)
"""The kinds of the ends of a transfer between sites, which only plans of sites have."""
TRANSFERS = (LOAD, OFFLOAD, RELOAD, STORE)

TIER_KINDS = ("compute", "host", "store", "input", "output")


class NotAPlan(EinturnipError):
    """The text is not a memory graph in the fixed format; the message holds the path of the bad field."""

    exit_code = 2


class Rule(Enum):
    """The rules of a valid plan. The value is the rule's name in reports."""

    CYCLE = "cycle"
    CAPACITY = "capacity"
    SIZE = "size"
    TRANSFER = "transfer"
    DEVICE = "device"
    MADE_TWICE = "made twice"
    INPUT = "input written"
    UNIT = "unit"
    OVERLAP = "overlap"
    RACE = "race"
    WRONG_VALUE = "wrong value"
    HALF_MADE = "half-made"
    STORED_TWICE = "stored twice"
    NOT_STORED = "not stored"
    LOST = "lost"
    LOCAL = "local"
    WIRE = "wire"

    @property
    def meaning(self) -> str:
        """The rule as a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Rule.CYCLE: "no op waits for itself",
    Rule.CAPACITY: "every extent is within its tier",
    Rule.SIZE: "a value has the same size everywhere",
    Rule.TRANSFER: "a transfer copies one value from one extent to another",
    Rule.DEVICE: "a kernel uses the memory of one device; only moves copy values between two",
    Rule.MADE_TWICE: "a value is made once; every other write of it is a copy",
    Rule.INPUT: "inputs are only read",
    Rule.UNIT: "the ops of a unit accumulate one value in one extent",
    Rule.OVERLAP: "an op's own extents do not share bytes",
    Rule.RACE: "of two ops that share bytes, one of them writing, one waits for the other",
    Rule.WRONG_VALUE: "a read finds the complete value that it names",
    Rule.HALF_MADE: "a unit's value is read only after all ops of the unit",
    Rule.STORED_TWICE: "a byte of an output is stored once",
    Rule.NOT_STORED: "an output has no hole",
    Rule.LOST: "the result of an op is used",
    Rule.LOCAL: "an op waits for ops of its own site, and uses its memory",
    Rule.WIRE: "a receive has one notice, which it waits for, and one send of the same bytes on another site",
}


@dataclass(frozen=True, slots=True)
class Tier:
    """One memory or file.

    ``capacity`` in bytes; None: not stated. ``site``: the site that it belongs to; -1: all.
    """

    name: str
    kind: str
    capacity: int | None
    site: int = -1


@dataclass(frozen=True)
class SiteColumns:
    """The site of each op, and the number of the transfer that it is an end of; -1 for none."""

    site: Ints
    transfer: Ints


@dataclass(frozen=True)
class RunRepeats:
    """Repetition patterns of runs; number 0 is a single run.

    ``axes`` are (count, stride), outermost first; ``times`` is the number of runs.
    """

    axes: tuple[tuple[tuple[int, int], ...], ...]
    times: Ints
    reach: Ints  # distance from the first run to the last one


@dataclass(frozen=True)
class AccessRows:
    """Accesses of all ops, op by op: op ``i`` has rows ``ptr[i]:ptr[i + 1]``. No access is empty."""

    ptr: Ints
    tier: NDArray[np.int32]
    start: Ints
    nbytes: Ints
    value: NDArray[np.int32]
    repeat: NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of accesses."""
        return len(self.start)

    @property
    def op(self) -> Ints:
        """The op of each row."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))

    def take(self, ops: Ints) -> AccessRows:
        """Return the rows of the ops in a new order."""
        ptr, rows = take_rows(self.ptr, ops)
        return AccessRows(
            ptr, self.tier[rows], self.start[rows], self.nbytes[rows], self.value[rows], self.repeat[rows]
        )


def take_rows(ptr: Ints, ops: Ints) -> tuple[Ints, Ints]:
    """Return the new row pointers of ``ops`` in a CSR column, and the indices of their rows."""
    counts = np.diff(ptr)[ops]
    new = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return new, np.arange(new[-1]) - np.repeat(new[:-1] - ptr[:-1][ops], counts)


def unique_dependencies(ops: Ints, after: Ints, n: int) -> tuple[Ints, Ints]:
    """Return the row pointers of ``n`` ops, and their dependencies: sorted, without duplicates."""
    op, single = np.divmod(np.unique(ops * max(1, n) + after), max(1, n))
    return np.concatenate([[0], np.cumsum(np.bincount(op, minlength=n))]).astype(np.int64), single


@dataclass(frozen=True)
class JudgedPlan:
    """A plan as columns by op position; ``ids``, ``values`` and ``units`` hold the JSON's numbers.

    ``after`` are positions, sorted and without duplicates for each op; ``repeated`` counts the duplicates.
    """

    program: str
    tiers: tuple[Tier, ...]
    repeats: RunRepeats
    ids: Ints
    kind: NDArray[np.uint8]
    task: Ints
    unit: NDArray[np.int32]
    read: AccessRows
    write: AccessRows
    after_ptr: Ints
    after: NDArray[np.int32]
    repeated: int
    values: Ints
    units: Ints
    sites: SiteColumns | None = None

    def __len__(self) -> int:
        """Return the number of ops."""
        return len(self.ids)

    def size(self, rows: AccessRows) -> Ints:
        """Return the bytes of each row, all its runs included."""
        return rows.nbytes * self.repeats.times[rows.repeat]

    def stop(self, rows: AccessRows) -> Ints:
        """Return the end of each row: the address after its last byte."""
        return rows.start + rows.nbytes + self.repeats.reach[rows.repeat]

    def stop_of(self, rows: AccessRows, row: int) -> int:
        """Return the end of one row."""
        return int(rows.start[row] + rows.nbytes[row] + self.repeats.reach[rows.repeat[row]])

    def is_tier(self, rows: AccessRows, *kinds: str) -> Bools:
        """Return which rows are in a tier of one of the kinds."""
        found: Bools = np.array([tier.kind in kinds for tier in self.tiers], bool)[rows.tier]
        return found


@dataclass(frozen=True, slots=True)
class TierRange:
    """Bytes [start, stop) of a tier."""

    tier: str
    start: int
    stop: int

    def __str__(self) -> str:
        """Return the tier and the bytes of the range."""
        return f"{self.tier}[{self.start}:{self.stop}]"


@dataclass(frozen=True, slots=True)
class Fault:
    """One violation of a rule: positions of the ops at fault, the bytes, and an explanation."""

    rule: Rule
    ops: tuple[int, ...]
    place: TierRange | None
    text: str


@dataclass
class Faults:
    """Collects faults: the first ``limit`` of each rule with explanations, the others only counted."""

    limit: int
    counts: Counter[Rule] = field(default_factory=Counter)
    reported: list[Fault] = field(default_factory=list)

    def count(self, rule: Rule) -> bool:
        """Count a violation of ``rule``; return whether it should be explained."""
        self.counts[rule] += 1
        return self.counts[rule] <= self.limit

    def add(self, rule: Rule, ops: tuple[int, ...], place: TierRange | None, text: str) -> None:
        """Add an explained fault."""
        self.reported.append(Fault(rule, ops, place, text))


@dataclass(frozen=True, slots=True)
class TierUse:
    """The use of a tier: the end of the highest byte used; for an output the bytes stored."""

    tier: Tier
    nbytes: int


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    ``implied``: the number of dependencies implied by others; None if a cycle prevents an order.
    """

    program: str
    n_ops: int
    n_values: int
    n_dependencies: int
    implied: int | None
    uses: tuple[TierUse, ...]
    faults: tuple[Fault, ...]
    counts: dict[Rule, int]
    ids: Ints
    kind: NDArray[np.uint8]
    task: Ints

    @property
    def valid(self) -> bool:
        """Whether there are no faults."""
        return not self.counts

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        return {
            "schema": "einturnip.verdict/1",
            "program": self.program,
            "valid": self.valid,
            "ops": self.n_ops,
            "values": self.n_values,
            "dependencies": self.n_dependencies,
            "implied": self.implied,
            "tiers": [
                {"id": u.tier.name, "kind": u.tier.kind, "capacity": u.tier.capacity, "nbytes": u.nbytes}
                for u in self.uses
            ],
            "counts": {rule.value: n for rule, n in self.counts.items()},
            "faults": [
                {
                    "rule": fault.rule.value,
                    "ops": [
                        {"id": int(self.ids[x]), "kind": KINDS[self.kind[x]], "task": int(self.task[x])}
                        for x in fault.ops
                    ],
                    "bytes": [fault.place.tier, fault.place.start, fault.place.stop] if fault.place else None,
                    "text": fault.text,
                }
                for fault in self.faults
            ],
        }
