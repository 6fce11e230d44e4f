"""Ops as growing columns, frozen into a MemGraph."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import TooLarge
from einturnip.memgraph.reach import reduced
from einturnip.memgraph.types import FILES, Lane, MemGraph, OpKind
from einturnip.taskgraph.types import TaskGraph

Ints = NDArray[np.int64]
Ops = NDArray[np.int32]
# Dependencies that are gathered, some of them doubtful, before it is seen which hold; rows of ops that are compared
# then at once. Planning a graph of any size takes no more memory for them.
EDGES_AT_ONCE = 1 << 13
PAIRS_AT_ONCE = 1 << 15
# Of dependencies that hold, those that others imply are dropped once there are so many for each op, and so many in all.
MOST_AN_OP, FEWEST_REDUCED = 8, 1 << 17


MOVES = np.array([kind.lane != Lane.COMPUTE for kind in OpKind])


class PlanLimits(NamedTuple):
    """What a plan that is of use has at most: ops, and bytes over all links. None: any number."""

    ops: int | None = None
    nbytes: int | None = None


ANY = PlanLimits()


class OpColumns:
    """Appends ops; their ids count from 0 and dependencies point to lower ids only.

    Raises:
        TooLarge: there are clearly more than ``most``.
    """

    def __init__(self, most: PlanLimits = ANY) -> None:
        self.most, self.moved = most, 0
        self.kind, self.task, self.unit, self.seconds = array("B"), array("i"), array("i"), array("d")
        self.read_ptr, self.read = array("q", [0]), array("q")
        self.write_ptr, self.write = array("q", [0]), array("q")
        # Of the last ops, what is said; of those before, what was found to hold.
        self.after_ptr, self.after = array("q", [0]), array("i")
        self.doubtful_ptr, self.doubtful = array("q", [0]), array("i")
        self.found_ptr, self.found = array("q", [0]), array("i")
        self.said, self.left = 0, 0
        self.close(0, 0, 0, [])

    def append(
        self,
        kind: OpKind,
        task: int,
        unit: int,
        seconds: float,
        reads: Sequence[int],
        writes: Sequence[int],
        after: Iterable[int],
        doubtful: Iterable[int] = (),
    ) -> int:
        """Add one op; returns its id. ``reads`` and ``writes``: (tier, offset, nbytes, value), one after the other.

        ``after``: ops that share bytes with it and end before it starts; ``doubtful``: those that may share some.
        """
        self.kind.append(kind)
        self.task.append(task)
        self.unit.append(unit)
        self.seconds.append(seconds)
        self.read.extend(reads)
        self.read_ptr.append(len(self.read) // 4)
        self.write.extend(writes)
        self.write_ptr.append(len(self.write) // 4)
        certain = {*after}
        self.after.extend(certain)
        self.after_ptr.append(len(self.after))
        if doubtful:
            self.doubtful.extend({*doubtful} - certain)
        self.doubtful_ptr.append(len(self.doubtful))
        if len(self.after) + len(self.doubtful) >= EDGES_AT_ONCE:
            self._settle()
        return len(self.kind) - 1

    def close(self, capacity: int, spill: int, peak: int, origin: Iterable[int]) -> None:
        """Say what the ops took: bytes of the arena, of the spill file, the most held; and states' later versions."""
        self.capacity, self.spill, self.peak, self.origin = capacity, spill, peak, origin

    def freeze(self, tasks: TaskGraph) -> MemGraph:
        """The graph, without the dependencies that other paths imply; the columns become its own."""
        self._settle()
        after_ptr, after = self._reduced()
        del self.found_ptr, self.found
        return MemGraph(
            tasks,
            self.capacity,
            self.spill,
            self.peak,
            _column(self.kind, np.uint8),
            _column(self.task, np.int32),
            _column(self.unit, np.int32),
            _column(self.seconds, np.float64),
            _column(self.read_ptr, np.int64),
            _column(self.read, np.int64).reshape(-1, 4),
            _column(self.write_ptr, np.int64),
            _column(self.write, np.int64).reshape(-1, 4),
            after_ptr,
            after,
            _column(array("i", self.origin), np.int32),
            self.said - len(after),
        )

    def _settle(self) -> None:
        """Of what the last ops are said to wait for, keep what they share bytes with, one of the two writing; in order.

        The arena's segments are coarser than what ops touch: padding, and the rest of a run that was merged.
        """
        done, n = len(self.found_ptr) - 1, len(self.kind)
        if self.most.ops is not None and n > self.most.ops:
            done = 1 + max(self.task)
            raise TooLarge(f"a plan of more than {self.most.ops} ops takes more memory than there is", n, done)
        self.moved += self._moved_since(done)
        if self.most.nbytes is not None and self.moved > self.most.nbytes:
            raise TooLarge(f"a plan that moves more than {self.most.nbytes} bytes is of no use")
        after, ops = _edges(self.after_ptr, self.after, done)
        u, x = _edges(self.doubtful_ptr, self.doubtful, done)
        reads, writes = _Touched(self.read_ptr, self.read), _Touched(self.write_ptr, self.write)
        kept = writes.meet(u, writes, x) | writes.meet(u, reads, x) | reads.meet(u, writes, x)
        after, ops = np.concatenate([after, u[kept]]), np.concatenate([ops, x[kept]])
        order = np.lexsort((after, ops))
        ends = len(self.found) + np.cumsum(np.bincount(ops - done, minlength=n - done))
        self.said += len(self.after) + len(self.doubtful)
        self.found.frombytes(after[order].astype(np.int32).tobytes())
        self.found_ptr.frombytes(ends.astype(np.int64).tobytes())
        self.after_ptr, self.after = array("q", [0]), array("i")
        self.doubtful_ptr, self.doubtful = array("q", [0]), array("i")
        if len(self.found) > max(2 * self.left, FEWEST_REDUCED, MOST_AN_OP * n):
            ptr, left = self._reduced()
            self.left = len(left)
            self.found_ptr, self.found = array("q", ptr.tobytes()), array("i", left.tobytes())

    def _moved_since(self, first: int) -> int:
        """Bytes that transfers from op ``first`` on move."""
        kinds, begins = np.frombuffer(self.kind, np.uint8)[first:], np.frombuffer(self.read_ptr, np.int64)[first:-1]
        return int(np.frombuffer(self.read, np.int64)[4 * begins[MOVES[kinds]] + 2].sum())

    def _reduced(self) -> tuple[Ints, Ops]:
        """What was found, without what other paths imply."""
        return reduced(np.frombuffer(self.found_ptr, np.int64), _column(self.found, np.int32))


def _edges(ptr: array[int], after: array[int], first: int) -> tuple[Ops, Ops]:
    """What ops from ``first`` on wait for, and which of them waits."""
    counts: Ints = np.diff(_column(ptr, np.int64))
    waiting = np.arange(first, first + len(counts), dtype=np.int32)
    return _column(after, np.int32), np.repeat(waiting, counts)


class _Touched:
    """For each op the (tier, start, stop) that it reads, or writes; a stored box is a place of its own."""

    def __init__(self, ptr: array[int], rows: array[int]) -> None:
        self.rows = np.frombuffer(rows, np.int64).reshape(-1, 4)
        self.ptr = np.frombuffer(ptr, np.int64)

    def meet(self, u: Ops, other: _Touched, x: Ops) -> NDArray[np.bool_]:
        """For each pair of ops whether a row of ``u`` here shares bytes with a row of ``x`` in the other."""
        pairs = np.cumsum((self.ptr[u + 1] - self.ptr[u]) * (other.ptr[x + 1] - other.ptr[x]))
        found = np.empty(len(u), np.bool_)
        start = 0
        while start < len(u):  # an op that gathers from many tiles has many rows
            most = PAIRS_AT_ONCE + (pairs[start - 1] if start else 0)
            stop = max(start + 1, int(np.searchsorted(pairs, most, "right")))
            found[start:stop] = self._meet(u[start:stop], other, x[start:stop])
            start = stop
        return found

    def _meet(self, u: Ops, other: _Touched, x: Ops) -> NDArray[np.bool_]:
        count = other.ptr[x + 1] - other.ptr[x]
        pairs = (self.ptr[u + 1] - self.ptr[u]) * count
        pair = np.repeat(np.arange(len(u)), pairs)
        at = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        tier, start, stop = self._places(self.ptr[u][pair] + at // np.maximum(1, count)[pair])
        tier2, start2, stop2 = other._places(other.ptr[x][pair] + at % np.maximum(1, count)[pair])
        shared = (tier == tier2) & (start < stop2) & (start2 < stop)
        return np.bincount(pair[shared], minlength=len(u)) > 0

    def _places(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        tier, offset, nbytes, value = self.rows[rows].T
        start = np.where(tier >= FILES, value, offset)
        return tier, start, start + np.where(tier >= FILES, 1, nbytes)


def _column(a: array[int] | array[float], dtype: type) -> Any:
    out: Any = np.frombuffer(a, dtype) if len(a) else np.empty(0, dtype)
    out.flags.writeable = False
    return out
