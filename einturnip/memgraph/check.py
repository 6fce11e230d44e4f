"""Proves a memory graph: acyclic, within capacity, race-free, every output stored once.

Race-free: each read of value v from extent R has a writer of v that comes before it in every order (for a unit's value
every touch), and every other op that writes a byte of R comes before that writer or after that reader. One sweep over
the ops keeps, for each byte range, what it holds and who wrote and read it since; each new access must come after
those it conflicts with, and by induction after all earlier ones. Touches of one unit commute with each other.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.memgraph.reach import Ancestry, Vector
from einturnip.memgraph.types import COMPUTE, DISK, FILES, MemGraph, OpKind
from einturnip.taskgraph.types import TaskKind


def check(graph: MemGraph) -> None:
    """Prove the graph.

    Raises:
        InternalError: naming the ops and bytes at fault.
    """
    _check_acyclic(graph)
    _check_capacity(graph)
    _check_outputs(graph)
    _check_races(graph)


def _check_acyclic(graph: MemGraph) -> None:
    op_of_edge = np.repeat(np.arange(len(graph)), np.diff(graph.after_ptr))
    late = np.flatnonzero(graph.after >= op_of_edge)
    if len(late):
        x = int(op_of_edge[late[0]])
        raise InternalError(f"op {x} waits for op {int(graph.after[late[0]])}, which is not before it")


def _check_capacity(graph: MemGraph) -> None:
    for name, rows in (("read", graph.read), ("write", graph.write)):
        for tier, limit in ((COMPUTE, graph.capacity), (DISK, graph.spill_nbytes)):
            mine = rows[rows[:, 0] == tier]
            if len(mine) and (mine[:, 1].min() < 0 or (mine[:, 1] + mine[:, 2]).max() > limit):
                raise InternalError(f"a {name} leaves the {limit} bytes of tier {tier}")


def _check_outputs(graph: MemGraph) -> None:
    tasks = graph.taskgraph
    stores = np.flatnonzero(tasks.kind == TaskKind.STORE)
    stored = np.sort(graph.task[graph.kind == OpKind.STORE])
    if not np.array_equal(stored, stores):
        raise InternalError("an output's tile is not stored exactly once")


@dataclass(slots=True)
class _Range:
    """Bytes [start, stop): what they hold, who wrote and who read it; ``before``: who had to end before its unit."""

    start: int
    stop: int
    value: int
    writers: list[int]
    readers: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    unit: int = -1

    def part(self, start: int, stop: int) -> _Range:
        return _Range(start, stop, self.value, list(self.writers), list(self.readers), list(self.before), self.unit)


class _Tier:
    """The ranges of one tier, sorted, disjoint."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ranges: list[_Range] = []

    def overlapping(self, start: int, stop: int) -> list[_Range]:
        """The ranges that meet [start, stop)."""
        i = max(0, bisect_right(self.starts, start) - 1)
        out = []
        while i < len(self.ranges) and self.ranges[i].start < stop:
            if self.ranges[i].stop > start:
                out.append(self.ranges[i])
            i += 1
        return out

    def replace(self, new: _Range) -> None:
        """Put ``new`` in place of whatever stood on its bytes."""
        old = self.overlapping(new.start, new.stop)
        pieces = [new]
        for r in old:
            if r.start < new.start:
                pieces.insert(0, r.part(r.start, new.start))
            if r.stop > new.stop:
                pieces.append(r.part(new.stop, r.stop))
        i = bisect_right(self.starts, old[0].start) - 1 if old else bisect_right(self.starts, new.start)
        self.ranges[i : i + len(old)] = pieces
        self.starts[i : i + len(old)] = [p.start for p in pieces]


class _Sweep:
    def __init__(self, graph: MemGraph, ancestry: Ancestry) -> None:
        self.graph = graph
        self.ancestry = ancestry
        self.tiers: dict[int, _Tier] = {}

    def ordered(self, x: int, reach: Vector, earlier: list[int], what: str) -> None:
        for u in earlier:
            if u != x and not self.ancestry.reaches(u, reach):
                raise InternalError(f"race: op {x} {what} bytes of op {u}, and nothing makes it wait for that op")

    def read(self, x: int, reach: Vector, row: list[int]) -> None:
        tier, offset, nbytes, value = row
        if nbytes == 0 or (tier >= FILES and not self._is_output(tier)):
            return
        key = value if tier >= FILES else -1
        place = self.tiers.get(tier if key < 0 else self._file(tier, key))
        found = place.overlapping(offset, offset + nbytes) if place else []
        if sum(min(r.stop, offset + nbytes) - max(r.start, offset) for r in found) < nbytes:
            raise InternalError(f"op {x} reads bytes that nothing wrote (value {value}, tier {tier})")
        for r in found:
            if r.value != value:
                raise InternalError(f"op {x} reads value {value} where value {r.value} stands (tier {tier})")
            self.ordered(x, reach, r.writers, "reads")
            r.readers.append(x)

    def write(self, x: int, reach: Vector, row: list[int], unit: int) -> None:
        tier, offset, nbytes, value = row
        if nbytes == 0:
            return
        where = self._file(tier, value) if tier >= FILES else tier
        place = self.tiers.setdefault(where, _Tier())
        found = place.overlapping(offset, offset + nbytes)
        if tier >= FILES and found:
            raise InternalError(f"op {x} writes value {value} of an output a second time")
        if unit >= 0 and len(found) == 1 and found[0].unit == unit and found[0].value == value:
            r = found[0]
            if (r.start, r.stop) != (offset, offset + nbytes) or r.readers:
                raise InternalError(f"op {x} touches unit {unit} out of its extent or after it was read")
            self.ordered(x, reach, r.before, "touches")
            r.writers.append(x)
            return
        before: list[int] = []
        for r in found:
            # Readers come after writers, so behind a reader the writers need not be asked.
            earlier = r.readers or r.writers
            self.ordered(x, reach, earlier, "overwrites")
            before += earlier
        continues = unit >= self.graph.taskgraph.n_values
        if continues and not (len(found) == 1 and self.graph.base(found[0].value) == self.graph.base(value)):
            raise InternalError(f"op {x} continues unit {unit}, whose half-made state is not in its extent")
        place.replace(_Range(offset, offset + nbytes, value, [x], [], before, unit))

    def _is_output(self, tier: int) -> bool:
        return tier >= FILES + len(self.graph.taskgraph.decomposition.graph.nodes)

    def _file(self, tier: int, value: int) -> int:
        """A stored tile is a place of its own: tiles of one tensor never overlap."""
        return -(tier * (self.graph.taskgraph.n_values + len(self.graph.origin)) + value) - 1


def _check_races(graph: MemGraph) -> None:
    ancestry = Ancestry(graph.after_ptr, graph.after)
    sweep = _Sweep(graph, ancestry)
    read_ptr, write_ptr = graph.read_ptr.tolist(), graph.write_ptr.tolist()
    units = graph.unit.tolist()
    for x, reach, _ in ancestry:
        for row in graph.read[read_ptr[x] : read_ptr[x + 1]].tolist():
            sweep.read(x, reach, row)
        for row in graph.write[write_ptr[x] : write_ptr[x + 1]].tolist():
            # A touch writes its unit's value; its workspace is a write like any other.
            sweep.write(x, reach, row, units[x] if row[3] == units[x] else -1)
