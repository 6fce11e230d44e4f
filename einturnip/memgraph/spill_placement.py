"""Places offloads in host memory while it has space for their lifetime, else in the spill file.

Each device has a part of host memory to itself, in proportion to the bytes that it offloads, as it has a spill file of
its own: no op of one device waits for bytes that another spilled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from einturnip.core.units import PAGE_NBYTES
from einturnip.memgraph.arena import Arena, Segment
from einturnip.memgraph.columns import with_dependencies
from einturnip.memgraph.types import DISK, HOST, Ints, MemGraph
from einturnip.tuning.memory import HOST_SPANS


@dataclass(slots=True)
class _Lifetime:
    """The time that a value spends outside its device.

    It begins with the op that writes it and ends with its last reader. ``written``, ``read``: rows of these ops.
    """

    device: int
    begin: int
    nbytes: int
    readers: list[int] = field(default_factory=list)
    written: int = -1
    read: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.readers[-1] if self.readers else self.begin


def keep_on_host(graph: MemGraph, nbytes: int) -> MemGraph:
    """Move as much of the graph's spill file as possible to ``nbytes`` of host memory, the tier HOST.

    Shorter lifetimes are placed first, so that most offloads go to host memory and the bytes with long lifetimes, for
    which the disk is fast enough, go to the disk. Extents are then allocated in the serial order, as in the device's
    arena: an op that overwrites bytes waits for their last readers.
    """
    lifetimes = _lifetimes(graph)
    spilled = np.zeros(graph.devices, np.int64)
    for lifetime in lifetimes:
        spilled[lifetime.device] += lifetime.nbytes
    read, write = graph.read.copy(), graph.write.copy()
    added: list[tuple[int, int]] = []
    begin = 0
    for device in np.flatnonzero(spilled).tolist():
        part = nbytes * int(spilled[device]) // int(spilled.sum())
        mine = [lifetime for lifetime in lifetimes if lifetime.device == device and 0 < lifetime.nbytes <= part]
        chosen = _chosen(mine, part, len(graph))
        if chosen:
            begin = _place(chosen, Arena(part, min(PAGE_NBYTES, max(1, part // 64)), begin=begin), read, write, added)
    if not begin:
        return graph
    return _compacted(with_dependencies(replace(graph, read=read, write=write, host_nbytes=begin), added))


def _place(chosen: list[_Lifetime], arena: Arena, read: Ints, write: Ints, added: list[tuple[int, int]]) -> int:
    """Place lifetimes in one device's part of host memory; return the end of the bytes that they use."""
    held: list[tuple[_Lifetime, Segment]] = []
    for lifetime in sorted(chosen, key=lambda lifetime: lifetime.begin):
        for other, seg in [h for h in held if h[0].end < lifetime.begin]:
            arena.release(seg, tuple(other.readers) or (other.begin,), True)
        held = [h for h in held if h[0].end >= lifetime.begin]
        place = arena.take(arena.rounded(lifetime.nbytes), lifetime.begin)
        if place is None:  # free but scattered: the value goes to the disk
            continue
        held.append((lifetime, place))
        added += [(lifetime.begin, d) for d in place.deps]
        write[lifetime.written, :2] = HOST, place.offset
        read[lifetime.read, 0], read[lifetime.read, 1] = HOST, place.offset
    return arena.begin + arena.peak


def _lifetimes(graph: MemGraph) -> list[_Lifetime]:
    """Return the lifetimes of all values in the spill file, by their beginning."""
    found: list[_Lifetime] = []
    device = graph.op_devices().tolist()
    last: dict[tuple[int, int], _Lifetime] = {}  # by value and place
    op_of_read = np.repeat(np.arange(len(graph)), np.diff(graph.read_ptr))
    op_of_write = np.repeat(np.arange(len(graph)), np.diff(graph.write_ptr))
    reads, writes = np.flatnonzero(graph.read[:, 0] == DISK), np.flatnonzero(graph.write[:, 0] == DISK)
    events = chain(
        ((int(op_of_write[row]), 0, int(row)) for row in writes), ((int(op_of_read[row]), 1, int(row)) for row in reads)
    )
    for op, reading, row in sorted(events):
        _, offset, nbytes, value = (graph.read if reading else graph.write)[row].tolist()
        if not reading:
            last[value, offset] = _Lifetime(device[op], op, nbytes, written=row)
            found.append(last[value, offset])
        else:
            last[value, offset].readers.append(op)
            last[value, offset].read.append(row)
    return found


def _chosen(lifetimes: list[_Lifetime], nbytes: int, n_ops: int) -> list[_Lifetime]:
    """Return the lifetimes for which host memory has space, choosing the shortest first."""
    span = -(-n_ops // HOST_SPANS) or 1
    available = np.full(n_ops // span + 1, nbytes, np.int64)
    chosen = []
    for lifetime in sorted(lifetimes, key=lambda lifetime: (lifetime.end - lifetime.begin, lifetime.begin)):
        needed = -(-lifetime.nbytes // PAGE_NBYTES) * PAGE_NBYTES if nbytes >= 64 * PAGE_NBYTES else lifetime.nbytes
        during = available[lifetime.begin // span : lifetime.end // span + 1]
        if during.min() >= needed:
            during -= needed
            chosen.append(lifetime)
    return chosen


def _compacted(graph: MemGraph) -> MemGraph:
    """Return the graph without holes in its spill file."""
    rows = np.concatenate([graph.read[graph.read[:, 0] == DISK], graph.write[graph.write[:, 0] == DISK]])
    if not len(rows):
        return replace(graph, spill_nbytes=0)
    begins, ends = _union(rows)
    sizes = -(-(ends - begins) // PAGE_NBYTES) * PAGE_NBYTES
    places = np.concatenate([[0], np.cumsum(sizes)])
    moved = []
    for table in (graph.read.copy(), graph.write.copy()):
        mine = table[:, 0] == DISK
        at = np.searchsorted(begins, table[mine, 1], side="right") - 1
        table[mine, 1] += places[at] - begins[at]
        moved.append(table)
    return replace(graph, read=moved[0], write=moved[1], spill_nbytes=int(places[-1]))


def _union(rows: Ints) -> tuple[Ints, Ints]:
    """Return the beginnings and ends of the maximal intervals that the rows cover."""
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    ends = np.maximum.accumulate(rows[:, 1] + rows[:, 2])
    first = np.concatenate([[True], rows[1:, 1] >= ends[:-1]])
    return rows[first, 1], np.concatenate([ends[:-1][first[1:]], ends[-1:]])
