"""Rematerialization: inserts second computations of values right before later uses.

A rematerialized value is a new value with the same box. Later readers use the new one, so the first need not be kept in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import gather_rows, take_rows
from einturnip.taskgraph.types import TaskGraph, TaskKind

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rematerialization:
    """The values to recompute, the tasks before which to do so, in order, and the makers of a value."""

    values: Mapping[int, tuple[int, ...]]
    makers: Callable[[int], Sequence[int]]


def rematerialize(tasks: TaskGraph, recomputed: Rematerialization) -> TaskGraph:
    """Return the tasks with these values recomputed, and also their operands that were freed."""
    return _Copies(tasks, recomputed).frozen()


class _Copies:
    """Copies of tasks, by the task that they precede, and the values that they make."""

    def __init__(self, tasks: TaskGraph, recomputed: Rematerialization) -> None:
        self.t, self.recomputed = tasks, recomputed
        self.users = np.repeat(np.arange(len(tasks)), np.diff(tasks.read_ptr))
        self.last = np.full(tasks.n_values, -1, np.int64)
        np.maximum.at(self.last, tasks.read, self.users)
        self.loaded = set(tasks.value[tasks.kind == TaskKind.LOAD].tolist())
        self.of: list[int] = []  # the original of each new value
        self.known: dict[tuple[int, int], int] = {}
        # For each copy: the task that it precedes, the original task, its value, its operands and their views.
        self.before: list[int] = []
        self.task: list[int] = []
        self.value: list[int] = []
        self.read: list[int] = []
        self.seen: list[int] = []
        for v, uses in recomputed.values.items():
            for task in uses:
                self._copy(v, task)

    def _copy(self, v: int, before: int) -> int:
        """Return the copy of ``v`` made right before a task; it is made once."""
        if (v, before) in self.known:
            return self.known[v, before]
        self.of.append(v)
        made = self.known[v, before] = self.t.n_values + len(self.of) - 1
        for i in self.recomputed.makers(v):
            part = slice(self.t.read_ptr[i], self.t.read_ptr[i + 1])
            reads = self.t.read[part].tolist()
            found = [self._operand(u, before) for u in reads]
            self.before.append(before)
            self.task.append(i)
            self.value.append(made)
            self.read += found
            seen = self.t.seen[part].tolist()
            self.seen += [new if s == u else s for s, u, new in zip(seen, reads, found, strict=True)]
        return made

    def _operand(self, u: int, before: int) -> int:
        """Return the value to read for ``u`` right before a task."""
        uses = self.recomputed.values.get(u, ())
        if before in uses or (self.last[u] < before and u not in self.loaded):
            return self._copy(u, before)
        since = [task for task in uses if task < before]
        return self._copy(u, since[-1]) if since else u

    def frozen(self) -> TaskGraph:
        """Return all tasks, each copy right before its task."""
        t, n = self.t, len(self.t)
        value, read, seen = (c.copy() for c in (t.value, t.read, t.seen))
        self._redirect(value, read, seen)
        before = np.array(self.before, np.int64)
        order = np.argsort(np.concatenate([before * 2, np.arange(n) * 2 + 1]), kind="stable")
        rows = np.concatenate([np.array(self.task, np.int64), np.arange(n)])[order]
        counts = np.diff(t.read_ptr)
        copied = np.concatenate([[0], np.cumsum(counts[self.task])]).astype(np.int64)
        begins = np.concatenate([copied[:-1], copied[-1] + t.read_ptr[:-1]])[order]
        reads, seens = np.concatenate([self.read, read]), np.concatenate([self.seen, seen])
        read_ptr, places = gather_rows(begins, counts[rows])
        key_ptr, keys = take_rows(t.key_ptr, rows)
        recomputed = np.array(self.of, np.int64)
        box_ptr, boxes = take_rows(t.box_ptr, np.concatenate([np.arange(t.n_values), recomputed]))
        return replace(
            t,
            kind=_frozen(t.kind[rows]),
            node=_frozen(t.node[rows]),
            value=_frozen(np.concatenate([self.value, value])[order].astype(np.int32)),
            workspace=_frozen(t.workspace[rows]),
            seconds=_frozen(t.seconds[rows]),
            flops=_frozen(t.flops[rows]),
            key_ptr=_frozen(key_ptr),
            key=_frozen(t.key[keys]),
            read_ptr=_frozen(read_ptr),
            read=_frozen(reads[places].astype(np.int32)),
            seen=_frozen(seens[places].astype(np.int32)),
            value_kind=_extended(t.value_kind, recomputed),
            value_node=_extended(t.value_node, recomputed),
            value_nbytes=_extended(t.value_nbytes, recomputed),
            box_ptr=_frozen(box_ptr),
            box=_frozen(t.box[boxes]),
            repeats=t.repeats + len(recomputed),
        )

    def _redirect(self, value: NDArray[Any], read: NDArray[Any], seen: NDArray[Any]) -> None:
        """Let the readers of a value that come after a copy read the copy."""
        places = np.flatnonzero(np.isin(read, list(self.recomputed.values)))
        for place in places.tolist():
            v, user = int(read[place]), int(self.users[place])
            since = [task for task in self.recomputed.values[v] if task <= user]
            if not since:
                continue
            new = self.known[v, since[-1]]
            read[place] = new
            if seen[place] == v:
                seen[place] = new
            if self.t.kind[user] == TaskKind.STORE and value[user] == v:
                value[user] = new


def _extended(column: NDArray[Any], recomputed: Ints) -> NDArray[Any]:
    return _frozen(np.concatenate([column, column[recomputed]]))


def _frozen(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column
