"""Proves a memory graph: acyclic, within capacity, free of races, every output stored once.

Free of races: each read of value v from extent R has a writer of v that precedes it in every order (for a unit, every
op of the unit), and every other op that writes a byte of R comes before that writer or after that reader.

One sweep over the ops keeps, for each byte range, its value and the ops that wrote and read it since. Each new access
must come after the accesses it conflicts with, and so, by induction, after all earlier ones. Ops of one unit commute.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import InternalError
from einturnip.memgraph.reach import dependency_pairs, first_unordered
from einturnip.memgraph.types import COMPUTE, DISK, FILES, HOST, MemGraph, OpKind, output_tier
from einturnip.taskgraph.types import TaskKind
from einturnip.tuning.memory import ROWS_AT_ONCE


def check(graph: MemGraph) -> None:
    """Prove the graph.

    Raises:
        InternalError: naming the ops and bytes at fault.
    """
    _check_acyclic(graph)
    _check_capacity(graph)
    if graph.devices > 1:
        _check_arenas(graph)
    _check_outputs(graph)
    _check_races(graph)


def _check_acyclic(graph: MemGraph) -> None:
    for ops, edges in dependency_pairs(graph.after_ptr, graph.after):
        late = np.flatnonzero(edges >= ops)
        if len(late):
            raise InternalError(f"op {ops[late[0]]} waits for op {edges[late[0]]}, which is not before it")


def _check_capacity(graph: MemGraph) -> None:
    for name, rows in (("read", graph.read), ("write", graph.write)):
        for tier, limit in ((COMPUTE, graph.capacity), (DISK, graph.spill_nbytes), (HOST, graph.host_nbytes)):
            mine = rows[rows[:, 0] == tier]
            if len(mine) and (mine[:, 1].min() < 0 or (mine[:, 1] + mine[:, 2]).max() > limit):
                raise InternalError(f"a {name} leaves the {limit} bytes of tier {tier}")


def _check_arenas(graph: MemGraph) -> None:
    """Check that no access leaves the arena of its device for the range of the next one."""
    limits = np.array(graph.arenas_nbytes, np.int64)
    for name, rows in (("read", graph.read), ("write", graph.write)):
        mine = rows[(rows[:, 0] == COMPUTE) & (rows[:, 2] > 0)]
        device, offset = np.divmod(mine[:, 1], max(1, graph.device_nbytes))
        over = np.flatnonzero(offset + mine[:, 2] > limits[np.minimum(device, len(limits) - 1)])
        if len(over):
            k = int(device[over[0]])
            raise InternalError(f"a {name} leaves the {limits[k]} bytes of device {k}")


def _check_outputs(graph: MemGraph) -> None:
    tasks = graph.taskgraph
    stores = np.flatnonzero(tasks.kind == TaskKind.STORE)
    stored = np.sort(graph.task[graph.kind == OpKind.STORE])
    if not np.array_equal(stored, stores):
        raise InternalError("an output's tile is not stored exactly once")


class _Range:
    """Bytes [start, stop): their value, its writers and readers; ``before``: ops that precede its unit.

    ``successor``: an op that comes after all of them, because it overwrote other bytes that they used (-1: none).
    """

    __slots__ = ("before", "successor", "readers", "start", "stop", "unit", "value", "writers")

    def __init__(self, start: int, stop: int, value: int, writers: list[int]) -> None:
        self.start, self.stop, self.value, self.writers = start, stop, value, writers
        self.readers: list[int] = []
        self.before: list[int] = []
        self.unit = self.successor = -1

    def part(self, start: int, stop: int, successor: int) -> _Range:
        """Return the same record for fewer bytes."""
        found = _Range(start, stop, self.value, list(self.writers))
        found.readers, found.before, found.unit = list(self.readers), list(self.before), self.unit
        found.successor = successor
        return found


class _Tier:
    """The ranges of one tier, disjoint.

    No access crosses from one part of ``part_nbytes`` into the next. ``starts``: by part, sorted; with hundreds of
    arenas, inserting into one list for all would take long.
    """

    def __init__(self, part_nbytes: int) -> None:
        self.part_nbytes = part_nbytes
        self.starts: dict[int, list[int]] = {}
        self.ranges: dict[int, _Range] = {}

    def overlapping(self, start: int, stop: int) -> list[_Range]:
        """Return the ranges that overlap [start, stop)."""
        same = self.ranges.get(start)
        if same is not None and same.stop == stop:
            return [same]
        found, starts = list[_Range](), self.starts.get(start // self.part_nbytes, [])
        for at in range(max(0, bisect_right(starts, start) - 1), len(starts)):
            r = self.ranges[starts[at]]
            if r.start >= stop:
                break
            if r.stop > start:
                found.append(r)
        return found

    def replace(self, new: _Range, old: list[_Range]) -> None:
        """Replace the ranges ``old``, in order, by ``new``, which may cover only a part of them."""
        if len(old) == 1 and old[0].start == new.start and old[0].stop == new.stop:
            self.ranges[new.start] = new
            return
        pieces = [new]
        for r in old:
            if r.start < new.start:
                pieces.insert(0, r.part(r.start, new.start, new.writers[0]))
            if r.stop > new.stop:
                pieces.append(r.part(new.stop, r.stop, new.writers[0]))
        starts = self.starts.setdefault(new.start // self.part_nbytes, [])
        i = bisect_left(starts, old[0].start) if old else bisect_right(starts, new.start)
        for r in old:
            del self.ranges[r.start]
        starts[i : i + len(old)] = [p.start for p in pieces]
        for p in pieces:
            self.ranges[p.start] = p


class _Sweep:
    """Walks the ops in serial order and collects the ops that must precede each op in every order."""

    def __init__(self, graph: MemGraph) -> None:
        self.graph = graph
        self.n_values = graph.taskgraph.n_values
        self.outputs = output_tier(graph.taskgraph.decomposition.graph, 0)
        sizes = {COMPUTE: graph.device_nbytes, DISK: graph.spill_nbytes, HOST: graph.host_nbytes}
        self.tiers = {tier: _Tier(max(1, nbytes)) for tier, nbytes in sizes.items()}
        self.files: dict[tuple[int, int], _Range] = {}
        self.required = array("i")
        self.waits: list[int] = []  # dependencies of the current op
        self.required_ptr = array("q", [0])

    def run(self) -> None:
        """Collect what must come before what.

        Raises:
            InternalError: bytes are read that hold another value or none, or are written twice where once is allowed.
        """
        g, ranges = self.graph, {tier: held.ranges for tier, held in self.tiers.items()}
        for start in range(0, len(g), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(g))
            reads, writes, waits = (
                _rows(ptr, table, start, stop)
                for ptr, table in ((g.read_ptr, g.read), (g.write_ptr, g.write), (g.after_ptr, g.after))
            )
            units = g.unit[start:stop].tolist()
            for x, unit, read, write, self.waits in zip(range(start, stop), units, reads, writes, waits, strict=True):
                for row in read:
                    tier, offset, nbytes, value = row
                    r = ranges[tier].get(offset) if tier < FILES else None
                    if r is not None and r.value == value and r.stop == offset + nbytes:  # nearly always true
                        self.require(x, r.writers, r.readers)
                        r.readers.append(x)
                        r.successor = -1
                    else:
                        self.read(x, row)
                for row in write:
                    tier, offset, nbytes, value = row
                    # An op of a unit writes the unit's value; its workspace is an ordinary write.
                    touched = unit if value == unit else -1
                    r = ranges[tier].get(offset) if tier < FILES and touched < 0 else None
                    if r is not None and r.stop == offset + nbytes:  # exactly the range of the previous value
                        self.require(x, [r.successor] if r.successor in self.waits else r.readers or r.writers, [])
                        ranges[tier][offset] = _Range(offset, r.stop, value, [x])
                    else:
                        self.write(x, row, touched)
                self.required_ptr.append(len(self.required))

    def require(self, x: int, earlier: list[int], others: list[int]) -> None:
        """Require that ``earlier`` precede ``x``. If x waits for one of ``others``, that already implies it."""
        if len(earlier) == 1:
            if earlier[0] != x:
                self.required.append(earlier[0])
        elif not (others and others[0] in self.waits):
            self.required.extend([u for u in earlier if u != x])

    def read(self, x: int, row: list[int]) -> None:
        tier, offset, nbytes, value = row
        if nbytes == 0 or FILES <= tier < self.outputs:
            return
        stop = offset + nbytes
        if tier < FILES:
            found = self.tiers[tier].overlapping(offset, stop)
        else:
            found = [self.files[tier, value]] if (tier, value) in self.files else []
        if sum([min(r.stop, stop) - max(r.start, offset) for r in found]) < nbytes:
            raise InternalError(f"op {x} reads bytes that nothing wrote (value {value}, tier {tier})")
        for r in found:
            if r.value != value:
                raise InternalError(f"op {x} reads value {value} where value {r.value} is (tier {tier})")
            self.require(x, r.writers, r.readers)
            r.readers.append(x)
            r.successor = -1

    def write(self, x: int, row: list[int], unit: int) -> None:
        tier, offset, nbytes, value = row
        if nbytes == 0:
            return
        new = _Range(offset, offset + nbytes, value, [x])
        if tier >= FILES:
            # Boxes of one output do not overlap, so each stored box is a separate place.
            if (tier, value) in self.files:
                raise InternalError(f"op {x} writes value {value} of an output a second time")
            self.files[tier, value] = new
            return
        found = self.tiers[tier].overlapping(offset, offset + nbytes)
        if unit >= 0 and len(found) == 1 and found[0].unit == unit and found[0].value == value:
            r = found[0]
            if (r.start, r.stop) != (offset, offset + nbytes) or r.readers:
                raise InternalError(f"op {x} accumulates into unit {unit} out of its extent or after it was read")
            self.require(x, r.before, r.writers)
            if self.graph.taskgraph.ordered:
                self.required.append(r.writers[-1])
            r.writers.append(x)
            r.successor = -1
            return
        before: list[int] = []
        for r in found:
            # Readers come after writers, so an order after the readers implies one after the writers.
            if unit >= 0:  # another op of the unit may be the first
                new.before += r.readers or r.writers
            before += [r.successor] if r.successor in self.waits else r.readers or r.writers
        self.require(x, before, [])
        if unit >= self.n_values:  # the unit continues a partial state
            state, here = self.graph.unversioned(value), [self.graph.unversioned(r.value) for r in found]
            if here != [state]:
                raise InternalError(f"op {x} continues unit {unit}, whose partial state is not in its extent")
        new.unit = unit
        self.tiers[tier].replace(new, found)


def _rows(ptr: NDArray[np.int64], table: NDArray[Any], start: int, stop: int) -> Iterator[list[Any]]:
    """Yield the rows of ops ``start`` to ``stop``, one list per op."""
    ends = ptr[start : stop + 1]
    rows = table[ends[0] : ends[-1]].tolist()
    places = (ends - ends[0]).tolist()
    return (rows[a:b] for a, b in pairwise(places))


def _check_races(graph: MemGraph) -> None:
    sweep = _Sweep(graph)
    sweep.run()
    required = np.frombuffer(sweep.required, np.int32) if sweep.required else np.empty(0, np.int32)
    required_ptr = np.frombuffer(sweep.required_ptr, np.int64)
    race = first_unordered(graph.after_ptr, graph.after, required_ptr, required)
    if race is not None:
        raise InternalError(f"race: op {race[0]} uses bytes of op {race[1]}, and nothing makes it wait for that op")
