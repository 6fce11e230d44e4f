"""A device's streams as an engine: ops are issued in the order the host chooses, and wait for each other by marks.

An op is issued when all it depends on was: its stream follows the marks of those that have not ended. The host waits
for nothing but room in the window (the state machine's slots), so what runs next is chosen late, and a dependency costs
no round trip. A file's bytes pass through pinned memory: read there, then copied in; copied out there, then written.
Several devices are streams of one engine: an op runs on the device whose bytes it writes, and follows marks of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from einturnip.core.errors import CapacityError, InternalError
from einturnip.core.units import format_size
from einturnip.devices.protocol import Device, DeviceKernelCall, Stream, StreamMark, address
from einturnip.memgraph.arena import Arena, Segment
from einturnip.memgraph.types import DISK, HOST, Lane, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array
from einturnip.runtime.host.event_loop import OpEnded, OpIssued
from einturnip.runtime.host.executor import TransferEnds

STAGED_IN, STAGED_OUT = 3, 2
"""Transfers by way of pinned memory that may be under way at once, if all were as large as the largest."""
STAGING_GRANULE = 4096


def window(devices: Sequence[Device]) -> dict[Lane, int]:
    """How many ops a device computes at once, and how many transfers all of them hold: no stream is to run dry."""
    n = len(devices)
    return {Lane.COMPUTE: 2 * devices[0].compute_streams, Lane.IN: 2 * STAGED_IN * n, Lane.OUT: 2 * STAGED_OUT * n}


class DeviceArenas:
    """The arenas of several devices, counted on from one to the next."""

    def __init__(self, devices: Sequence[Device], nbytes: int) -> None:
        self._places = [device.places for device in devices]
        self._nbytes = nbytes

    def array(self, offset: int, shape: Sequence[int], dtype: Any) -> Array:
        """See Places."""
        device, place = divmod(offset, self._nbytes)
        return self._places[device].array(place, shape, dtype)


def staging_nbytes(graph: MemGraph, most: int) -> tuple[int, int]:
    """Pinned bytes for transfers on their way in and out, if ``most`` may be taken.

    Raises:
        CapacityError: the largest transfers alone need more.
    """
    largest = [_largest(graph, lane) for lane in (Lane.IN, Lane.OUT)]
    if sum(largest) > most:
        raise CapacityError(
            f"transfers pass through {format_size(sum(largest))} of host memory and {format_size(most)} are left for "
            f"them. help: --host-memory {format_size(sum(largest))} or more",
            sum(largest),
        )
    wanted = STAGED_IN * largest[0], STAGED_OUT * largest[1]
    return wanted if sum(wanted) <= most else (most - largest[1], largest[1])


def _largest(graph: MemGraph, lane: Lane) -> int:
    """Bytes of the largest transfer between the arena and a file."""
    mine = np.array([kind.lane for kind in OpKind])[graph.kind] == lane
    ptr, rows = (graph.read_ptr, graph.read) if lane == Lane.IN else (graph.write_ptr, graph.write)
    held_ptr, held = (graph.write_ptr, graph.write) if lane == Lane.IN else (graph.read_ptr, graph.read)
    ops = np.flatnonzero(mine)
    ops = ops[rows[ptr[ops], 0] != HOST]
    largest = int(held[held_ptr[ops], 2].max(initial=0))
    return -(-largest // STAGING_GRANULE) * STAGING_GRANULE


@dataclass(slots=True)
class _OpInFlight:
    """An op on its way. ``end``: of its work on the stream; ``far``: of its work with a file."""

    op: Op
    number: int
    device: int
    stream: int = -1
    begin: StreamMark | None = None
    end: StreamMark | None = None
    far: StreamMark | None = None
    began: float = 0.0
    status: int = -1
    node: int = -1
    room: Segment | None = None
    array: Array | None = None  # in pinned memory


class StreamEngine:
    """See loop.Engine. The first ``host_nbytes`` of the first device's pinned bytes are the graph's tier HOST.

    That device also keeps the time, and its threads work with files for all.
    """

    def __init__(
        self, graph: MemGraph, devices: Sequence[Device], transfers: TransferEnds, staging: tuple[int, int]
    ) -> None:
        self.graph = graph
        self.devices = devices
        self.device = devices[0]
        self._in_use = 0
        self.device.use()
        self._ahead = [self.device.now() - device.now() for device in devices]  # of each device's clock
        self._of = graph.op_devices()
        self._between = graph.between_devices()
        self.transfers = transfers
        self._news: deque[OpEnded | OpIssued] = deque()
        self._flights: dict[int, _OpInFlight] = {}
        self._numbers = count()
        self._order: dict[tuple[int, int], deque[_OpInFlight]] = {}  # by stream, what it was given and has not ended
        self._touched: dict[int, int] = {}  # by unit, the last op that accumulated into it
        self._staging = [Arena(nbytes, STAGING_GRANULE) for nbytes in staging]
        self._begins = [graph.host_nbytes, graph.host_nbytes + staging[0]]
        self._to_read: deque[_OpInFlight] = deque()
        self._reading: deque[_OpInFlight] = deque()
        self._to_issue: deque[_OpInFlight] = deque()
        self._writing: deque[_OpInFlight] = deque()
        self._free = [list(range(2 * window(devices)[Lane.COMPUTE])) for _ in devices]

    # --- what the loop asks ---

    def start(self, op: int) -> None:
        """See Engine."""
        flight = _OpInFlight(self.graph[op], next(self._numbers), int(self._of[op]))
        self._flights[op] = flight
        kind = flight.op.kind
        if kind.lane == Lane.COMPUTE:
            self._compute(flight)
        elif kind.lane == Lane.IN and flight.op.reads[0].tier == HOST:
            self._copy_in(flight, self._spilled(flight.op.reads[0].offset, flight.op.reads[0].nbytes))
        elif kind.lane == Lane.OUT and flight.op.writes[0].tier == HOST:
            self._copy_out(flight, self._spilled(flight.op.writes[0].offset, flight.op.writes[0].nbytes))
        else:
            (self._to_read if kind.lane == Lane.IN else self._to_issue).append(flight)
            self._go_on()

    def wait(self, timeout: float) -> OpEnded | OpIssued | None:
        """See Engine."""
        until = self.device.now() + timeout
        while not self._news:
            self._poll()
            if self._news:
                break
            if not self._flights:
                raise InternalError("the device has nothing to do")
            if self.device.now() > until:
                return None
            self.device.idle(timeout)
        return self._news.popleft()

    def now(self) -> float:
        """See Engine."""
        return self.device.now()

    def close(self) -> None:
        """See Engine. The devices are their owner's to close."""

    def _on(self, device: int) -> Device:
        """A device to give work to."""
        if device != self._in_use:
            self._in_use = device
            self.devices[device].use()
        return self.devices[device]

    # --- work on streams ---

    def _compute(self, flight: _OpInFlight) -> None:
        op, device = flight.op, self._on(flight.device)
        if op.kind == OpKind.MOVE:
            self._begin(flight, Stream.ACROSS)
            for target, source in self.transfers.views.moved(op):
                if self._between[op.id]:
                    other = self.devices[op.reads[0].offset // self.graph.device_nbytes]
                    device.fetch(flight.stream, target, other, source, op.seconds)
                else:
                    device.copy(flight.stream, target, source, op.seconds)
        else:
            call = self.transfers.views.call(op)
            self._begin(flight, self._quietest(flight))
            flight.status, flight.node = self._free[flight.device].pop(), call.node
            work = DeviceKernelCall(
                call.einsum,
                call.extents,
                call.mode,
                call.outs,
                call.operands,
                call.origins,
                self.transfers.first(op.unit),
                call.workspace,
            )
            device.kernel(flight.stream, work, flight.status, op.seconds)
        self._issued(flight)

    def _copy_in(self, flight: _OpInFlight, source: Array) -> None:
        held = flight.op.writes[0]
        self._begin(flight, Stream.IN)
        place = self.transfers.views.bytes(held.offset, held.nbytes)
        self._on(flight.device).copy_in(flight.stream, place, source, flight.op.seconds)
        self._issued(flight)

    def _copy_out(self, flight: _OpInFlight, target: Array) -> None:
        held = flight.op.reads[0]
        self._begin(flight, Stream.OUT)
        place = self.transfers.views.bytes(held.offset, held.nbytes)
        self._on(flight.device).copy_out(flight.stream, target, place, flight.op.seconds)
        self._issued(flight)

    def _begin(self, flight: _OpInFlight, stream: int) -> None:
        """Have a stream wait for all that the op depends on, and mark where the op begins."""
        op, device = flight.op, self._on(flight.device)
        before = list(op.after)
        if op.unit >= 0:  # ops of a unit exclude each other: they run in the order in which they are issued
            before.append(self._touched.get(op.unit, -1))
            self._touched[op.unit] = op.id
        last: dict[tuple[int, int], _OpInFlight] = {}
        for d in before:
            other = self._flights.get(d)
            if other is None or other.end is None or (other.device, other.stream) == (flight.device, stream):
                continue
            known = last.get((other.device, other.stream))
            if known is None or known.number < other.number:
                last[other.device, other.stream] = other
        for other in last.values():
            assert other.end is not None
            device.follow(stream, other.end)
        flight.stream = stream
        flight.begin = device.mark(stream)

    def _issued(self, flight: _OpInFlight) -> None:
        flight.number = next(self._numbers)
        flight.end = self._on(flight.device).mark(flight.stream)
        self._order.setdefault((flight.device, flight.stream), deque()).append(flight)
        self._news.append(OpIssued(flight.op.id))

    def _quietest(self, flight: _OpInFlight) -> int:
        """The compute stream to run on: one that ends with what the op waits for, else the one with the least to do."""
        k = flight.device
        streams = [Stream.COMPUTE + n for n in range(self.devices[k].compute_streams)]
        for stream in streams:
            given = self._order.get((k, stream))
            if given and given[-1].op.id in flight.op.after:
                return stream
        return min(streams, key=lambda stream: len(self._order.get((k, stream), ())))

    # --- by way of pinned memory ---

    def _go_on(self) -> None:
        """Begin what waited for room in pinned memory, or for bytes to be written."""
        for _ in range(len(self._to_read)):
            flight = self._to_read.popleft()
            if self._is_being_written(flight.op) or not self._take_room(flight):
                self._to_read.append(flight)
                continue
            op, array = flight.op, self._staged(flight)
            flight.began = self.device.now()
            flight.far = self._on(0).on_host(Lane.IN, partial(self.transfers.read, op, array), op.seconds)
            self._reading.append(flight)
        while self._to_issue and self._take_room(self._to_issue[0]):
            flight = self._to_issue.popleft()
            assert flight.array is not None
            self._copy_out(flight, flight.array)

    def _take_room(self, flight: _OpInFlight) -> bool:
        """Pinned bytes for what the op moves; False where there are none free."""
        op, way = flight.op, flight.op.kind.lane - Lane.IN
        nbytes = (op.writes[0] if way == 0 else op.reads[0]).nbytes
        arena = self._staging[way]
        flight.room = arena.take(arena.rounded(nbytes), op.id) if nbytes else None
        if nbytes and flight.room is None:
            return False
        start = self._begins[way] + (flight.room.offset if flight.room else 0)
        flight.array = self.device.pinned[start : start + nbytes]
        return True

    def _staged(self, flight: _OpInFlight) -> Array:
        """What the file's side of a transfer sees of the pinned bytes: an array that lies in them as in the arena."""
        assert flight.array is not None
        op = flight.op
        near = self.transfers.near(op)
        held = op.writes[0] if op.kind.lane == Lane.IN else op.reads[0]
        if not near.size:
            return np.empty(near.shape, near.dtype)
        start = address(near) - address(self.transfers.views.bytes(held.offset, held.nbytes))
        return np.ndarray(near.shape, near.dtype, flight.array, start, near.strides)

    def _is_being_written(self, op: Op) -> bool:
        """True where the bytes that a load or reload would read are still on their way to the file."""
        far = op.reads[0]
        for other in self._flights.values():
            if other.op.kind.lane != Lane.OUT:
                continue
            to = other.op.writes[0]
            if to.tier != far.tier:
                continue
            if far.tier != DISK and to.value == far.value:
                return True
            if far.tier == DISK and to.offset < far.offset + far.nbytes and far.offset < to.offset + to.nbytes:
                return True
        return False

    # --- what has ended ---

    def _poll(self) -> None:
        while self._reading and self._far_ended(self._reading[0]):
            flight = self._reading.popleft()
            if flight.op.id in self._flights:
                assert flight.array is not None
                self._copy_in(flight, flight.array)
        for given in self._order.values():
            while given and self._stream_ended(given[0]):
                given.popleft()
        while self._writing and self._far_ended(self._writing[0]):
            flight = self._writing.popleft()
            if flight.op.id in self._flights:
                self._end(flight, None)

    def _far_ended(self, flight: _OpInFlight) -> bool:
        """True where the op's work with a file has ended; it has failed where the op is over too."""
        assert flight.far is not None
        try:
            return self._on(0).ended(flight.far) is not None
        except Exception as error:
            self._end(flight, error)
            return True

    def _stream_ended(self, flight: _OpInFlight) -> bool:
        """True where the op's work on its stream has ended; whatever comes after it is begun."""
        assert flight.begin is not None and flight.end is not None
        device, ahead = self._on(flight.device), self._ahead[flight.device]
        try:
            ended = device.ended(flight.end)
            if ended is None:
                return False
            ended += ahead
            if flight.far is None:
                flight.began = (device.ended(flight.begin) or 0.0) + ahead
            if flight.status >= 0:
                self.transfers.met(flight.node, device.met(flight.status))
        except Exception as error:
            self._end(flight, error)
            return True
        op = flight.op
        if op.kind.lane == Lane.OUT and op.writes[0].tier != HOST:
            array = self._staged(flight)
            flight.far = self._on(0).on_host(Lane.OUT, partial(self.transfers.write, op, array), op.seconds)
            self._writing.append(flight)
        else:
            if self._between[op.id]:
                self.transfers.count("across", op.reads[0].nbytes)
            elif op.kind.lane != Lane.COMPUTE and (HOST in (op.reads[0].tier, op.writes[0].tier)):
                self.transfers.count("host in" if op.kind.lane == Lane.IN else "host out", op.reads[0].nbytes)
            self._end(flight, None, ended)
        return True

    def _end(self, flight: _OpInFlight, error: BaseException | None, ended: float | None = None) -> None:
        """An op is over."""
        del self._flights[flight.op.id]
        if flight.status >= 0:
            self._free[flight.device].append(flight.status)
        if flight.room is not None:
            self._staging[flight.op.kind.lane - Lane.IN].release(flight.room, (), True)
        self.transfers.name_sources(flight.op.id, error)
        thread = flight.stream - Stream.COMPUTE if flight.stream >= Stream.COMPUTE else 0
        self._news.append(
            OpEnded(flight.op.id, thread, flight.began, self.device.now() if ended is None else ended, error)
        )
        self._go_on()

    def _spilled(self, offset: int, nbytes: int) -> Array:
        """Bytes of the graph's tier HOST."""
        return self.device.pinned[offset : offset + nbytes]
