"""Tasks with some values made a second time, right before they are wanted again.

A value that is made again is another value with the same box: what reads it from there on reads the new one, and the
first need not be kept in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.taskgraph.types import TaskGraph, TaskKind

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rematerialization:
    """Which values are made again, right before which tasks (in order), and by which tasks a value is made."""

    values: Mapping[int, tuple[int, ...]]
    makers: Callable[[int], Sequence[int]]


def rematerialize(tasks: TaskGraph, again: Rematerialization) -> TaskGraph:
    """The tasks with these values made again; operands that nothing reads any more are made again for them."""
    return _Copies(tasks, again).frozen()


class _Copies:
    """Copies of tasks, by the task before which they stand, and the values that they make."""

    def __init__(self, tasks: TaskGraph, again: Rematerialization) -> None:
        self.t, self.again = tasks, again
        self.users = np.repeat(np.arange(len(tasks)), np.diff(tasks.read_ptr))
        self.last = np.full(tasks.n_values, -1, np.int64)
        np.maximum.at(self.last, tasks.read, self.users)
        self.loaded = set(tasks.value[tasks.kind == TaskKind.LOAD].tolist())
        self.of: list[int] = []  # of each new value, which it is again
        self.known: dict[tuple[int, int], int] = {}
        # Of each copy: the task that it stands before, the task that it is again, what it makes, what it reads as what.
        self.before: list[int] = []
        self.task: list[int] = []
        self.value: list[int] = []
        self.read: list[int] = []
        self.seen: list[int] = []
        for v, wanted in again.values.items():
            for task in wanted:
                self._copy(v, task)

    def _copy(self, v: int, before: int) -> int:
        """Value ``v`` made again right before a task; once, however many ask."""
        if (v, before) in self.known:
            return self.known[v, before]
        self.of.append(v)
        made = self.known[v, before] = self.t.n_values + len(self.of) - 1
        for i in self.again.makers(v):
            part = slice(self.t.read_ptr[i], self.t.read_ptr[i + 1])
            reads = self.t.read[part].tolist()
            found = [self._at_hand(u, before) for u in reads]
            self.before.append(before)
            self.task.append(i)
            self.value.append(made)
            self.read += found
            seen = self.t.seen[part].tolist()
            self.seen += [new if s == u else s for s, u, new in zip(seen, reads, found, strict=True)]
        return made

    def _at_hand(self, u: int, before: int) -> int:
        """What is to be read for ``u`` right before a task."""
        wanted = self.again.values.get(u, ())
        if before in wanted or (self.last[u] < before and u not in self.loaded):
            return self._copy(u, before)
        since = [task for task in wanted if task < before]
        return self._copy(u, since[-1]) if since else u

    def frozen(self) -> TaskGraph:
        """All tasks, each copy right before its task."""
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
        read_ptr, places = _rows(begins, counts[rows])
        key_ptr, keys = _rows(t.key_ptr[rows], np.diff(t.key_ptr)[rows])
        again = np.array(self.of, np.int64)
        box_ptr, boxes = _rows(
            np.concatenate([t.box_ptr[:-1], t.box_ptr[again]]),
            np.concatenate([np.diff(t.box_ptr), np.diff(t.box_ptr)[again]]),
        )
        return replace(
            t,
            kind=_kept(t.kind[rows]),
            node=_kept(t.node[rows]),
            value=_kept(np.concatenate([self.value, value])[order].astype(np.int32)),
            workspace=_kept(t.workspace[rows]),
            seconds=_kept(t.seconds[rows]),
            flops=_kept(t.flops[rows]),
            key_ptr=_kept(key_ptr),
            key=_kept(t.key[keys]),
            read_ptr=_kept(read_ptr),
            read=_kept(reads[places].astype(np.int32)),
            seen=_kept(seens[places].astype(np.int32)),
            value_kind=_followed(t.value_kind, again),
            value_node=_followed(t.value_node, again),
            value_nbytes=_followed(t.value_nbytes, again),
            box_ptr=_kept(box_ptr),
            box=_kept(t.box[boxes]),
            repeats=t.repeats + len(again),
        )

    def _redirect(self, value: NDArray[Any], read: NDArray[Any], seen: NDArray[Any]) -> None:
        """What reads a value after it was made again reads the new one."""
        places = np.flatnonzero(np.isin(read, list(self.again.values)))
        for place in places.tolist():
            v, user = int(read[place]), int(self.users[place])
            since = [task for task in self.again.values[v] if task <= user]
            if not since:
                continue
            new = self.known[v, since[-1]]
            read[place] = new
            if seen[place] == v:
                seen[place] = new
            if self.t.kind[user] == TaskKind.STORE and value[user] == v:
                value[user] = new


def _rows(begins: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Row pointers of rows of these lengths, and where the entries of rows that began there stand."""
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ptr, np.repeat(begins - ptr[:-1], counts) + np.arange(ptr[-1])


def _followed(column: NDArray[Any], again: Ints) -> NDArray[Any]:
    return _kept(np.concatenate([column, column[again]]))


def _kept(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column
