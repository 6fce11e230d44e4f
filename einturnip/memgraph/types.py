"""MemGraph: ops with addresses, and the dependencies that make every order they allow correct."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import EinGraph
from einturnip.taskgraph.types import TaskGraph, TaskKind

Ints = NDArray[np.int64]


class OpKind(IntEnum):
    """The kinds of op."""

    LOAD = 0
    KERNEL = 1
    MOVE = 2
    AGGREGATE = 3
    OFFLOAD = 4
    RELOAD = 5
    STORE = 6

    @property
    def lane(self) -> Lane:
        """The lane that runs ops of this kind."""
        return _LANES[self]


class Lane(IntEnum):
    """A resource that ops share. Ops of different lanes overlap: kernels, bytes in, bytes out."""

    COMPUTE = 0
    IN = 1
    OUT = 2


_LANES = (Lane.IN, Lane.COMPUTE, Lane.COMPUTE, Lane.COMPUTE, Lane.OUT, Lane.IN, Lane.OUT)

_KINDS = tuple(OpKind)

# Tiers: compute memory, the spill file, then a tier for each node and each output, of which only inputs and outputs are
# used; a device also spills to the host.
HOST, COMPUTE, DISK, FILES = -1, 0, 1, 2


def output_tier(graph: EinGraph, output: int) -> int:
    """The tier of an output, by its number."""
    return FILES + len(graph.nodes) + output


class TierExtent(NamedTuple):
    """Bytes [offset, offset + nbytes) of a tier, holding ``value``.

    In a file the value's box gives the place.
    """

    tier: int
    offset: int
    nbytes: int
    value: int

    def overlaps(self, other: TierExtent) -> bool:
        """Return whether two extents of tiers counted in bytes share any."""
        starts_before = self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        return self.tier == other.tier and starts_before


_access = TierExtent._make


class Op(NamedTuple):
    """One op of a memory graph.

    ``after`` lists the ops that must end before it starts: data and memory dependencies together.

    Ops of one ``unit`` (-1: none) accumulate into one extent, in any order, under one lock. The first of them
    initialises the extent, unless the unit continues a partial state that was reloaded.
    """

    id: int
    kind: OpKind
    task: int
    unit: int
    reads: tuple[TierExtent, ...]
    writes: tuple[TierExtent, ...]
    after: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class MemGraph:
    """Ops in the simulated serial order (one of many that ``after`` allows), as read-only columns.

    Rows of ``read`` and ``write`` are (tier, offset, nbytes, value). Values below taskgraph.n_values are the task
    graph's. Higher ones are later versions of a partial state: ``origin[v - n_values]`` is the state that v continues.

    The arenas of several devices share one address range, ``capacity / devices`` bytes each, one after the other. A
    copy of a value on another device has the value's number. ``peak_nbytes`` is the peak of the fullest device.
    ``arenas``: the bytes that each device uses of its range, if these differ.
    """

    taskgraph: TaskGraph
    capacity: int
    spill_nbytes: int
    peak_nbytes: int
    kind: NDArray[np.uint8]
    task: NDArray[np.int32]
    unit: NDArray[np.int32]
    seconds: NDArray[np.float64]
    read_ptr: Ints
    read: Ints
    write_ptr: Ints
    write: Ints
    after_ptr: Ints
    after: NDArray[np.int32]
    origin: NDArray[np.int32]
    host_nbytes: int = 0
    arenas: tuple[int, ...] = ()

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.taskgraph.devices

    @property
    def device_nbytes(self) -> int:
        """Bytes of each device's arena; of the largest, if they differ."""
        return self.capacity // self.devices

    @property
    def arenas_nbytes(self) -> tuple[int, ...]:
        """Bytes of the arena of each device."""
        return self.arenas or (self.device_nbytes,) * self.devices

    def used_nbytes(self) -> Ints:
        """Return the end of the last bytes that the ops of each device write in its arena."""
        offset, nbytes = self.write[self.write[:, 0] == COMPUTE][:, 1:3].T
        found, each = np.zeros(self.devices, np.int64), max(1, self.device_nbytes)
        np.maximum.at(found, offset // each, offset % each + nbytes)
        return found

    def op_devices(self) -> NDArray[np.uint16]:
        """The device that each op writes, or else reads; the first device for ops that touch no arena."""
        found = np.zeros(len(self), np.uint16)
        for ptr, rows in ((self.read_ptr, self.read), (self.write_ptr, self.write)):
            here = np.flatnonzero(rows[:, 0] == COMPUTE)
            ops = np.searchsorted(ptr, here, side="right") - 1
            found[ops] = rows[here, 1] // max(1, self.device_nbytes)
        return found

    def __len__(self) -> int:
        """Return the number of ops."""
        return len(self.kind)

    def __getitem__(self, i: int) -> Op:
        """Return an op as a record; columns are faster for many."""
        return Op(
            i,
            _KINDS[self.kind[i]],
            int(self.task[i]),
            int(self.unit[i]),
            tuple(map(_access, self.read[self.read_ptr[i] : self.read_ptr[i + 1]].tolist())),
            tuple(map(_access, self.write[self.write_ptr[i] : self.write_ptr[i + 1]].tolist())),
            tuple(self.after[self.after_ptr[i] : self.after_ptr[i + 1]].tolist()),
            float(self.seconds[i]),
        )

    def __iter__(self) -> Any:
        """Return all ops as records."""
        return (self[i] for i in range(len(self)))

    def unversioned(self, value: int) -> int:
        """The task graph's value that ``value`` is a version of."""
        n = self.taskgraph.n_values
        return value if value < n else int(self.origin[value - n])

    def all_unversioned(self, values: Ints) -> Ints:
        """The task graph's value of which each is a version; negative numbers stay."""
        later = values >= self.taskgraph.n_values
        found = values.copy()
        found[later] = self.origin[values[later] - self.taskgraph.n_values]
        return found

    def source_devices(self) -> NDArray[np.uint16]:
        """The device that each op reads; another than ``op_devices`` for moves from one device to another."""
        found = self.op_devices()
        moves = np.flatnonzero(self.kind == OpKind.MOVE) if self.devices > 1 else np.empty(0, np.int64)
        moves = moves[self.read_ptr[moves] < self.read_ptr[moves + 1]]
        found[moves] = self.read[self.read_ptr[moves], 1] // max(1, self.device_nbytes)
        return found

    def between_devices(self) -> NDArray[np.bool_]:
        """True for each op that moves bytes from one device to another."""
        found: NDArray[np.bool_] = self.source_devices() != self.op_devices()
        return found

    def nbytes_by_link(self) -> dict[str, int]:
        """Bytes that loads, reloads, offloads and stores move, as ``disk->cpu:0`` and ``cpu:0->disk``."""
        lanes, nbytes = np.array([k.lane for k in OpKind])[self.kind], self.moved_nbytes()
        return {
            "disk->cpu:0": int(nbytes[lanes == Lane.IN].sum()),
            "cpu:0->disk": int(nbytes[lanes == Lane.OUT].sum()),
        }

    def nbytes_by_direction(self) -> dict[str, int]:
        """Bytes that transfers move, by the directions of ``DeviceChoice.link_bytes``."""
        nbytes, lanes = self.moved_nbytes(), np.array([k.lane for k in OpKind])[self.kind]
        on_host = np.zeros(len(self), np.bool_)
        for ptr, rows in ((self.read_ptr, self.read), (self.write_ptr, self.write)):
            on_host[np.searchsorted(ptr, np.flatnonzero(rows[:, 0] == HOST), side="right") - 1] = True
        found = {
            f"{'host ' * host}{name}": int(nbytes[(lanes == lane) & (on_host == bool(host))].sum())
            for host in (0, 1)
            for name, lane in (("in", Lane.IN), ("out", Lane.OUT))
        }
        between = np.flatnonzero(self.between_devices()) if self.devices > 1 else np.zeros(0, np.int64)
        return found | {"across": int(self.read[self.read_ptr[between], 2].sum())}

    def moved_nbytes(self) -> Ints:
        """The bytes that each transfer moves; 0 for kernels."""
        moving = (np.array([k.lane for k in OpKind]) != Lane.COMPUTE)[self.kind]
        nbytes = np.zeros(len(self), dtype=np.int64)
        nbytes[moving] = self.read[self.read_ptr[:-1][moving], 2]
        # A state is stored without the padding of its extent.
        stored = self.kind == OpKind.STORE
        nbytes[stored] = _stored_nbytes(self.taskgraph, self.task[stored])
        return nbytes


def _stored_nbytes(tasks: TaskGraph, stores: NDArray[np.int32]) -> Ints:
    """Bytes of the boxes that store tasks write."""
    graph = tasks.decomposition.graph
    sizes = np.array([graph.nodes[i].dtype.itemsize for _, i in graph.outputs] or [1])
    extents = np.append(tasks.box[1::2] - tasks.box[::2], 1)
    first, last = tasks.box_ptr[tasks.value[stores]] // 2, tasks.box_ptr[tasks.value[stores] + 1] // 2
    found = sizes[tasks.node[stores]].astype(np.int64)
    for axis in range(int((last - first).max(initial=0))):
        found *= np.where(first + axis < last, extents[np.minimum(first + axis, len(extents) - 1)], 1)
    return found


def op_kind(kind: TaskKind) -> OpKind:
    """The kind of op that runs a task of ``kind``."""
    return {
        TaskKind.LOAD: OpKind.LOAD,
        TaskKind.KERNEL: OpKind.KERNEL,
        TaskKind.ACCUMULATE: OpKind.KERNEL,
        TaskKind.FINALIZE: OpKind.AGGREGATE,
        TaskKind.COMBINE: OpKind.AGGREGATE,
        TaskKind.MOVE: OpKind.MOVE,
        TaskKind.STORE: OpKind.STORE,
    }[kind]
