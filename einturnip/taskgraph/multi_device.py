"""Places every value of a task graph on a device, and inserts the moves between devices.

Tiles and states have the device that tiling.sites gave their kernels; loaded tiles and copied boxes are where they are
first read. A tile that another device reads is moved there once, just before its first use. A tile of an input is moved
if the device that has it used it recently, and the move takes less time than reading the file again; otherwise each
device loads it. All devices share one disk, while each link carries the moves to some of them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import gather_rows, take_rows
from einturnip.cost.machine import Machine
from einturnip.cost.transfer_time import reload_seconds
from einturnip.taskgraph.build import build
from einturnip.taskgraph.types import UNASSIGNED, TaskGraph, TaskKind
from einturnip.tiling.sites import Sites
from einturnip.tuning.memory import RECENT_TASKS

Ints = NDArray[np.int64]
Places = NDArray[np.uint16]

_COMPUTING = (TaskKind.KERNEL, TaskKind.ACCUMULATE, TaskKind.COMBINE, TaskKind.FINALIZE)


def on_devices(tasks: TaskGraph, devices: int, machine: Machine, sent: Container[int] = ()) -> TaskGraph:
    """Return the graph on ``devices`` devices: each value has a device, and tasks read local values.

    ``sent``: the inputs whose tiles are moved whatever their files cost (see ``FileLayout.shared``).
    """
    if devices == 1:
        return tasks
    moving = _Moving(tasks, devices, machine, sent)
    found = _MoveInsertion(tasks, _balanced_loads(tasks, devices_of_values(tasks), moving), moving).run()
    return _at_rates(found, machine.rates) if machine.rates else found


def _at_rates(tasks: TaskGraph, rates: Sequence[float]) -> TaskGraph:
    """Return the tasks with the seconds of kernels at the rate of their device."""
    computing = np.isin(tasks.kind, _COMPUTING)
    of_device = np.where(computing, tasks.device[tasks.value], 0)
    seconds = np.where(computing, tasks.seconds / np.array(rates)[of_device], tasks.seconds)
    return replace(tasks, seconds=seconds.astype(tasks.seconds.dtype))


def tasks_of_calls(sites: Sites, machine: Machine) -> TaskGraph:
    """Return EinDecomp's calls as tasks on the devices that make them, without memory limits."""
    return on_devices(build(sites.decomposition, machine, sites=sites), sites.count, machine)


def moved_nbytes(tasks: TaskGraph) -> NDArray[np.int64]:
    """Return the bytes that are moved from each device to each other one.

    Shapes:
        result: (devices, devices), sources first.
    """
    found = np.zeros((tasks.devices, tasks.devices), np.int64)
    moves = np.flatnonzero(moves_between(tasks))
    source, value = tasks.read[tasks.read_ptr[moves]], tasks.value[moves]
    np.add.at(found, (tasks.device[source], tasks.device[value]), tasks.value_nbytes[value])
    return found


def moves_between(tasks: TaskGraph) -> NDArray[np.bool_]:
    """Return for each task whether it moves a value from another device."""
    found = np.zeros(len(tasks), bool)
    if tasks.devices > 1:
        moves = np.flatnonzero((tasks.kind == TaskKind.MOVE) & (np.diff(tasks.read_ptr) > 0))
        source, value = tasks.read[tasks.read_ptr[moves]], tasks.value[moves]
        found[moves] = tasks.device[source] != tasks.device[value]
    return found


def devices_of_values(tasks: TaskGraph) -> Places:
    """Return the device of each value; of one without, that of its first reader other than a store."""
    device = tasks.device.copy() if len(tasks.device) else np.full(tasks.n_values, UNASSIGNED, np.uint16)
    readers = np.repeat(np.arange(len(tasks)), np.diff(tasks.read_ptr))
    computing = tasks.kind[readers] != TaskKind.STORE
    values, first = np.unique(tasks.read[computing], return_index=True)
    task_of = np.full(tasks.n_values, -1, np.int64)
    task_of[values] = readers[computing][first]
    free = np.flatnonzero((device == UNASSIGNED) & (task_of >= 0))
    for v in free[np.argsort(-task_of[free], kind="stable")].tolist():  # a reader is placed before what it reads
        device[v] = device[tasks.value[task_of[v]]]
    device[device == UNASSIGNED] = 0  # stored without being read
    return device


def _reads(tasks: TaskGraph) -> Iterator[list[int]]:
    flat, ends = tasks.read.tolist(), tasks.read_ptr.tolist()
    return (flat[a:b] for a, b in pairwise(ends))


# --- moves ---


class _Moving:
    """Decides which tiles of inputs are sent between devices, and which each loads. Units: seconds."""

    def __init__(self, tasks: TaskGraph, devices: int, machine: Machine, sent: Container[int]) -> None:
        self.tasks, self.devices, self.machine, self.sent = tasks, devices, machine, sent
        self.recent = RECENT_TASKS * devices  # the tasks of all devices are between two of one
        self.links = len(set(machine.hosts)) or devices

    def seconds(self, v: int) -> float:
        """Return the seconds of a move of value ``v``."""
        return self.machine.move_seconds(int(self.tasks.value_nbytes[v]))

    def is_faster(self, v: int, loading: float) -> bool:
        """Return whether a tile of an input is sent, if loading it takes ``loading`` seconds."""
        return int(self.tasks.value_node[v]) in self.sent or self.seconds(v) / self.links < loading


def _balanced_loads(tasks: TaskGraph, device: Places, moving: _Moving) -> Places:
    """Return the devices of values, such that devices load the same number of bytes of shared inputs.

    Each tile is loaded by one of the devices that soon read it: the one that has loaded the fewest bytes so far.
    """
    readers = np.repeat(np.arange(len(tasks)), np.diff(tasks.read_ptr))
    order = np.argsort(tasks.read, kind="stable")
    ptr = np.searchsorted(tasks.read[order], np.arange(tasks.n_values + 1))
    of_task, found, loaded = device[tasks.value], device.copy(), np.zeros(moving.devices, np.int64)
    for i in np.flatnonzero(tasks.kind == TaskKind.LOAD).tolist():
        v = int(tasks.value[i])
        reading = readers[order[ptr[v] : ptr[v + 1]]]
        soon = reading[(reading - i <= moving.recent) & (tasks.kind[reading] != TaskKind.STORE)]
        devices = list(dict.fromkeys(of_task[soon].tolist()))
        if len(devices) > 1 and moving.is_faster(v, float(tasks.seconds[i])):
            found[v] = min(devices, key=loaded.__getitem__)
        loaded[found[v]] += tasks.value_nbytes[v]
    return found


class _MoveInsertion:
    """The rows of the graph with moves between devices inserted."""

    def __init__(self, tasks: TaskGraph, device: Places, moving: _Moving) -> None:
        self.tasks, self.moving = tasks, moving
        self.device = device.tolist()
        self.original = list(range(tasks.n_values))
        self.copies: dict[tuple[int, int], int] = {}
        self.load_of = {int(tasks.value[i]): i for i in np.flatnonzero(tasks.kind == TaskKind.LOAD).tolist()}
        self.used: dict[int, int] = {}  # for each tile of an input and each copy, the last task that used it there
        self.holders: dict[int, list[int]] = {}  # for each tile of an input that was sent, the tile and its copies
        self.sent_nbytes = [0] * moving.devices
        # The new graph's tasks: rows of the old one, or added tasks (kind, old value, copy) with negative numbers.
        self.rows = array("q")
        self.added_rows: list[tuple[int, int, int]] = []
        self.added_seconds = array("d")
        self.reads = array("i")
        self.seen = array("i")
        self.ends = array("q", [0])

    def run(self) -> TaskGraph:
        """Return the graph of the rows so far, with the device of each value."""
        t = self.tasks
        kinds, values, seen = t.kind.tolist(), t.value.tolist(), t.seen.tolist()
        at = 0
        for i, read in enumerate(_reads(t)):
            views, at = seen[at : at + len(read)], at + len(read)
            kind = kinds[i]
            if kind == TaskKind.LOAD:
                self.used[values[i]] = i
            here = self.device[read[0] if kind == TaskKind.STORE else values[i]]
            found = [self._local(v, here, i) for v in read]
            self._append(i, found, [there if s == v else s for v, s, there in zip(read, views, found, strict=True)])
        return self._frozen()

    def _local(self, v: int, here: int, i: int) -> int:
        """Return value ``v`` on device ``here``.

        Adds a move or load if task ``i`` is the first to read it there.
        """
        found = v if self.device[v] == here else self.copies.get((v, here))
        if v in self.load_of and found is not None:
            self.used[found] = i
        if found is None:
            found = self.copies[v, here] = len(self.original)
            self.original.append(v)
            self.device.append(here)
            loading = self._load_seconds(v, here, i)
            moves = v not in self.load_of or (self._is_used(v, i) and self.moving.is_faster(v, loading))
            self.added_seconds.append(self.moving.seconds(v) if moves else loading)
            self.added_rows.append((TaskKind.MOVE if moves else TaskKind.LOAD, v, found))
            read = [] if not moves else [self._sender(v, i, found) if v in self.load_of else v]
            self._append(-len(self.added_rows), read, read)
        return found

    def _sender(self, v: int, i: int, copy: int) -> int:
        """Return the copy of a tile of an input that is sent to make a new ``copy``.

        It is the loaded tile, unless its device has sent many more bytes than others: few tiles that many devices
        read. Then copies are sent on along a binary tree.
        """
        holders, nbytes = self.holders.setdefault(v, [v]), int(self.tasks.value_nbytes[v])
        parent = holders[(len(holders) - 1) // 2]
        much = self.sent_nbytes[self.device[v]] >= self.sent_nbytes[self.device[parent]] + 2 * nbytes
        source = parent if much and i - self.used[parent] <= self.moving.recent else v
        holders.append(copy)
        self.used[copy] = i
        self.sent_nbytes[self.device[source]] += nbytes
        return source

    def _is_used(self, v: int, i: int) -> bool:
        """Return whether the device of a loaded tile used it shortly before task ``i``."""
        return i - self.used[v] <= self.moving.recent

    def _load_seconds(self, v: int, here: int, i: int) -> float:
        """Return the seconds of reading a tile of an input on a further device; infinite for a computed value.

        If a device of the same machine has just read it, it is in that machine's page cache.
        """
        if v not in self.load_of:
            return math.inf
        machine = self.moving.machine
        seconds, hosts = float(self.tasks.seconds[self.load_of[v]]), machine.hosts
        if hosts and hosts[here] == hosts[self.device[v]] and self._is_used(v, i):
            return reload_seconds(int(self.tasks.value_nbytes[v]), False, seconds, machine)
        return seconds

    def _append(self, row: int, reads: Sequence[int], seen: Sequence[int]) -> None:
        self.rows.append(row)
        self.reads.extend(reads)
        self.seen.extend(seen)
        self.ends.append(len(self.reads))

    def _frozen(self) -> TaskGraph:
        t = self.tasks
        rows, originals = np.array(self.rows, np.int64), np.array(self.original, np.int64)
        kind, old, copy = np.array(self.added_rows, np.int64).reshape(-1, 3).T
        place = np.where(rows < 0, len(t) - 1 - rows, rows)  # among the tasks of the old graph and the added ones
        # The key of an added move is the box of its value, that of an added load the key of the first load.
        moves, loads = kind == TaskKind.MOVE, np.array([self.load_of.get(v, -1) for v in old.tolist()], np.int64)
        begins = np.where(moves, len(t.key) + t.box_ptr[old], t.key_ptr[loads])
        counts = np.where(moves, np.diff(t.box_ptr)[old], np.diff(t.key_ptr)[loads])
        key_ptr, at = gather_rows(
            np.concatenate([t.key_ptr[:-1], begins])[place], np.concatenate([np.diff(t.key_ptr), counts])[place]
        )
        box_ptr, boxes = take_rows(t.box_ptr, originals)
        nothing = np.zeros(len(old), np.int64)
        added_rows: dict[str, NDArray[Any]] = {
            "kind": kind,
            "node": t.value_node[old],
            "value": copy,
            "workspace": nothing,
            "seconds": np.array(self.added_seconds),
            "flops": nothing,
        }
        columns: dict[str, Any] = {}
        for name, added in added_rows.items():
            column = getattr(t, name)
            columns[name] = np.concatenate([column, added.astype(column.dtype)])[place]
        return replace(
            t,
            **columns,
            key_ptr=key_ptr,
            key=np.concatenate([t.key, t.box])[at].astype(t.key.dtype),
            read_ptr=np.array(self.ends, np.int64),
            read=np.array(self.reads, np.int32),
            seen=np.array(self.seen, np.int32),
            value_kind=t.value_kind[originals],
            value_node=t.value_node[originals],
            value_nbytes=t.value_nbytes[originals],
            box_ptr=box_ptr,
            box=t.box[boxes],
            devices=self.moving.devices,
            device=np.array(self.device, np.uint16),
            original=originals.astype(np.int32),
        )
