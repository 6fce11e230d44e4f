"""StreamEngine: issues ops to the streams of devices; ops wait for each other by marks (CUDA events).

An op is issued as soon as all of its dependencies have been issued: its stream waits for the marks of the dependencies
that still run. So a dependency costs no round trip to the host. The host only waits for a free slot of the state
machine, which bounds the number of issued ops; therefore the order is decided late.

Bytes of files pass through pinned host memory: a load reads into it, then copies to the device; a store copies from
the device, then writes. With several devices, an op runs on the device whose bytes it writes, and its stream waits for
the marks of other devices.

The host can be one of the devices (``HostSite``). A value that moves between it and another device is copied by a
stream of the other one, and ops start when those of the host that they depend on have ended (``host_border``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.core.units import PAGE_NBYTES
from einturnip.devices.protocol import Device, DeviceKernelCall, Stream, StreamMark, address
from einturnip.memgraph.arena import Arena, Segment
from einturnip.memgraph.types import DISK, HOST, Lane, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array
from einturnip.runtime.host.event_loop import OpEnded, OpIssued, located_error
from einturnip.runtime.host.executor import TransferEnds
from einturnip.runtime.host.index_origin import locate_index
from einturnip.runtime.numeric_events import fetched_parts
from einturnip.runtime.stream.host_border import released_at_end, running_devices
from einturnip.tuning.memory import STAGED_IN, STAGED_OUT


def window(devices: Sequence[Device]) -> dict[Lane, int]:
    """Return the slots of each lane: twice as many ops as can run at once, so that no stream becomes idle."""
    n = len(devices)
    return {Lane.COMPUTE: 2 * devices[0].compute_streams, Lane.IN: 2 * STAGED_IN * n, Lane.OUT: 2 * STAGED_OUT * n}


@dataclass(slots=True)
class _OpInFlight:
    """An op that was started and has not ended.

    ``begin``, ``end``: marks before and after its work on the stream. ``file_mark``: mark of its work with a file.
    ``status``: number of the kernel's flag word on the device; -1 for none. ``staging``, ``array``: its bytes of pinned
    memory.
    """

    op: Op
    number: int
    device: int
    stream: int = -1
    begin: StreamMark | None = None
    end: StreamMark | None = None
    file_mark: StreamMark | None = None
    began: float = 0.0
    status: int = -1
    staging: Segment | None = None
    array: Array | None = None


class StreamEngine:
    """The streams of one or more devices as an Engine.

    The first ``host_nbytes`` pinned bytes of the first device are the graph's tier HOST; the buffers for transfers in
    and out follow. The first device's clock is the engine's clock, and its threads access files for all devices.
    ``host``: the device that is the host, if one is.
    """

    def __init__(
        self,
        graph: MemGraph,
        devices: Sequence[Device],
        transfers: TransferEnds,
        staging: tuple[int, int],
        host: int | None = None,
    ) -> None:
        self.graph = graph
        self.devices = devices
        self.device = devices[0]
        self._in_use = 0
        self.device.use()
        self._ahead = [self.device.now() - device.now() for device in devices]  # engine's clock less device's clock
        self._host, self._of = host, running_devices(graph, host)
        self._between, self._released_at_end = graph.between_devices(), released_at_end(graph, host)
        self.transfers = transfers
        self._events: deque[OpEnded | OpIssued] = deque()
        self._flights: dict[int, _OpInFlight] = {}
        self._outgoing: dict[int, Op] = {}  # of the ops in flight, those that write a file or pinned memory
        self._polled = list[_OpInFlight]()  # at the begin of the poll
        self._numbers = count()
        self._order: dict[tuple[int, int], deque[_OpInFlight]] = {}  # by stream: issued ops that have not ended
        self._last_of_unit: dict[int, int] = {}  # by unit: the last op that accumulated into it
        self._staging = [Arena(nbytes, PAGE_NBYTES) for nbytes in staging]
        self._begins = [graph.host_nbytes, graph.host_nbytes + staging[0]]
        # A load passes from _to_read (waits for a buffer) through _reading (file) to a copy on its stream; a store from
        # _to_issue (waits for a buffer) through a copy on its stream to _writing (file).
        self._to_read: deque[_OpInFlight] = deque()
        self._reading: deque[_OpInFlight] = deque()
        self._to_issue: deque[_OpInFlight] = deque()
        self._writing: deque[_OpInFlight] = deque()
        most = max(devices[0].compute_streams, devices[-1].compute_streams)  # the host may have more
        self._free = [list(range(4 * (most if k == host else devices[0].compute_streams))) for k in range(len(devices))]

    # --- the Engine interface ---

    def start(self, op: int) -> None:
        """See Engine."""
        flight = _OpInFlight(self.graph[op], next(self._numbers), int(self._of[op]))
        self._flights[op] = flight
        kind = flight.op.kind
        if kind.lane == Lane.OUT:
            self._outgoing[op] = flight.op
        if kind.lane == Lane.COMPUTE:
            self._compute(flight)
        elif (copied := self.transfers.copy_on_device(flight.op)) is not None:
            self._copy_on_device(flight, copied)
        elif kind.lane == Lane.IN and flight.op.reads[0].tier == HOST:
            self._copy_in(flight, self._spilled(flight.op.reads[0].offset, flight.op.reads[0].nbytes))
        elif kind.lane == Lane.OUT and flight.op.writes[0].tier == HOST:
            self._copy_out(flight, self._spilled(flight.op.writes[0].offset, flight.op.writes[0].nbytes))
        else:
            (self._to_read if kind.lane == Lane.IN else self._to_issue).append(flight)
            self._begin_waiting()

    def wait(self, timeout: float) -> OpEnded | OpIssued | None:
        """See Engine."""
        until = self.device.now() + timeout
        while not self._events:
            self._poll()
            if self._events:
                break
            if not self._flights:
                raise InternalError("the device has nothing to do")
            if self.device.now() > until:
                return None
            self.device.idle(timeout)
        return self._events.popleft()

    def now(self) -> float:
        """See Engine."""
        return self.device.now()

    def close(self) -> None:
        """See Engine. The caller closes the devices."""

    def _on(self, device: int) -> Device:
        """Make a device current and return it."""
        if device != self._in_use:
            self._in_use = device
            self.devices[device].use()
        return self.devices[device]

    # --- work on streams ---

    def _compute(self, flight: _OpInFlight) -> None:
        op = flight.op
        if op.kind == OpKind.MOVE:
            self._submit(flight, Stream.ACROSS, partial(self._move, op))
            return
        tile, arguments = self.transfers.views.call(op.id, self.transfers.first(op.unit))
        stream, status = self._compute_stream(flight), self._free[flight.device].pop()
        flight.status = status
        work = DeviceKernelCall(tile.einsum, tile.extents, tile.mode, *arguments)
        self._submit(flight, stream, lambda device: device.kernel(stream, work, status, op.seconds))

    def _move(self, op: Op, device: Device) -> None:
        for target, source in self.transfers.views.moved(op):
            if self._between[op.id]:
                self._move_between(op, device, target, source)
            else:
                device.copy(Stream.ACROSS, target, source, op.seconds)

    def _move_between(self, op: Op, device: Device, target: Array, source: Array) -> None:
        """Copy a tile from another device, or between ``device`` and the host."""
        here, there = (row.offset // self.graph.device_nbytes for row in (op.writes[0], op.reads[0]))
        if there == self._host:
            device.copy_in(Stream.ACROSS, target, source, op.seconds)
        elif here == self._host:
            device.copy_out(Stream.ACROSS, target, source, op.seconds)
        else:
            device.fetch(Stream.ACROSS, target, self.devices[there], source, op.seconds)

    def _copy_in(self, flight: _OpInFlight, source: Array) -> None:
        near, seconds = flight.op.writes[0], flight.op.seconds
        place = self.transfers.views.bytes(near.offset, near.nbytes)
        self._submit(flight, Stream.IN, lambda device: device.copy_in(Stream.IN, place, source, seconds))

    def _copy_out(self, flight: _OpInFlight, target: Array) -> None:
        near, seconds = flight.op.reads[0], flight.op.seconds
        place = self.transfers.views.bytes(near.offset, near.nbytes)
        self._submit(flight, Stream.OUT, lambda device: device.copy_out(Stream.OUT, target, place, seconds))

    def _copy_on_device(self, flight: _OpInFlight, copied: tuple[Array, ...]) -> None:
        """Copy a tile to or from an array of the caller on the device. ``copied``: target and source."""
        op, stream = flight.op, Stream.IN if flight.op.kind.lane == Lane.IN else Stream.OUT
        self._submit(flight, stream, lambda on: on.copy(stream, copied[0], copied[1], op.seconds) if copied else None)

    def _submit(self, flight: _OpInFlight, stream: int, work: Callable[[Device], None]) -> None:
        """Submit an op's work to a stream of its device, after its dependencies and between two marks.

        Raises:
            RunError: the device refuses it, as it does after a fault of earlier work; names the statement.
        """
        try:
            self._begin(flight, stream)
            work(self._on(flight.device))
            flight.number = next(self._numbers)
            flight.end = self._on(flight.device).mark(stream)
        except Exception as error:
            failure = located_error(error, self.transfers.describe(flight.op.id))
            raise failure from (None if failure is error else error)
        self._order.setdefault((flight.device, stream), deque()).append(flight)
        if not self._released_at_end[flight.op.id]:
            self._events.append(OpIssued(flight.op.id))

    def _begin(self, flight: _OpInFlight, stream: int) -> None:
        """Make a stream wait for the op's dependencies on other streams, and mark the begin of the op."""
        op, device = flight.op, self._on(flight.device)
        before = list(op.after)
        if op.unit >= 0:  # ops of a unit exclude each other: they run in the order in which they are issued
            before.append(self._last_of_unit.get(op.unit, -1))
            self._last_of_unit[op.unit] = op.id
        last: dict[tuple[int, int], _OpInFlight] = {}  # by stream, the last dependency: it ends after the others there
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

    def _compute_stream(self, flight: _OpInFlight) -> int:
        """Choose a stream whose last op the kernel depends on, else the compute stream with the fewest ops."""
        k = flight.device
        streams = [Stream.COMPUTE + n for n in range(self.devices[k].compute_streams)]
        for stream in streams:
            issued = self._order.get((k, stream))
            if issued and issued[-1].op.id in flight.op.after:
                return stream
        return min(streams, key=lambda stream: len(self._order.get((k, stream), ())))

    # --- transfers through pinned memory ---

    def _begin_waiting(self) -> None:
        """Begin transfers that waited for a buffer, or for another op to write the bytes they read."""
        for _ in range(len(self._to_read)):
            flight = self._to_read.popleft()
            if self._is_being_written(flight.op) or not self._take_buffer(flight):
                self._to_read.append(flight)
                continue
            op, array = flight.op, self._staged(flight)
            flight.began = self.device.now()
            flight.file_mark = self._on(0).on_host(Lane.IN, partial(self.transfers.read, op, array), op.seconds)
            self._reading.append(flight)
        while self._to_issue and self._take_buffer(self._to_issue[0]):
            flight = self._to_issue.popleft()
            assert flight.array is not None
            self._copy_out(flight, flight.array)

    def _take_buffer(self, flight: _OpInFlight) -> bool:
        """Allocate pinned bytes for a transfer; return False if too few are free."""
        op, direction = flight.op, flight.op.kind.lane - Lane.IN
        nbytes = (op.writes[0] if direction == 0 else op.reads[0]).nbytes
        arena = self._staging[direction]
        flight.staging = arena.take(arena.rounded(nbytes), op.id) if nbytes else None
        if nbytes and flight.staging is None:
            return False
        start = self._begins[direction] + (flight.staging.offset if flight.staging else 0)
        flight.array = self.device.pinned[start : start + nbytes]
        return True

    def _staged(self, flight: _OpInFlight) -> Array:
        """Return the tile in pinned memory, with the strides and the offset that it has in the arena."""
        assert flight.array is not None
        op = flight.op
        tile = self.transfers.arena_side(op)
        near = op.writes[0] if op.kind.lane == Lane.IN else op.reads[0]
        if not tile.size:
            return np.empty(tile.shape, tile.dtype)
        start = address(tile) - address(self.transfers.views.bytes(near.offset, near.nbytes))
        return np.ndarray(tile.shape, tile.dtype, flight.array, start, tile.strides)

    def _is_being_written(self, op: Op) -> bool:
        """Return whether an op in flight still has to write the file bytes that a load or reload reads."""
        far = op.reads[0]
        for other in self._outgoing.values():
            to = other.writes[0]
            if to.tier != far.tier:
                continue
            if far.tier != DISK and to.value == far.value:
                return True
            if far.tier == DISK and to.offset < far.offset + far.nbytes and far.offset < to.offset + to.nbytes:
                return True
        return False

    # --- ops that end ---

    def _poll(self) -> None:
        """Advance all ops whose present work has ended. Streams and file threads finish their work in order."""
        self._polled = list(self._flights.values())
        while self._reading and self._file_work_ended(self._reading[0]):
            flight = self._reading.popleft()
            if flight.op.id in self._flights:
                assert flight.array is not None
                self._copy_in(flight, flight.array)
        for issued in self._order.values():
            while issued and self._stream_work_ended(issued[0]):
                issued.popleft()
        while self._writing and self._file_work_ended(self._writing[0]):
            flight = self._writing.popleft()
            if flight.op.id in self._flights:
                self._end(flight, None)

    def _file_work_ended(self, flight: _OpInFlight) -> bool:
        """Return whether the op's work with a file has ended.

        If it failed, the op is ended here with the error.
        """
        assert flight.file_mark is not None
        try:
            return self._on(0).ended(flight.file_mark) is not None
        except Exception as error:
            self._end(flight, error)
            return True

    def _stream_work_ended(self, flight: _OpInFlight) -> bool:
        """Return whether the op's work on its stream has ended. Then end the op, or begin writing to its file."""
        assert flight.begin is not None and flight.end is not None
        device, ahead = self._on(flight.device), self._ahead[flight.device]
        try:
            ended = device.ended(flight.end)
            if ended is None:
                return False
            ended += ahead
            if flight.file_mark is None:
                flight.began = (device.ended(flight.begin) or 0.0) + ahead
            if flight.status >= 0 and (bits := device.fp_flags(flight.status)):
                self._record_events(flight, bits)
        except Exception as error:
            self._end(flight, error)
            return True
        op = flight.op
        if op.kind.lane == Lane.OUT and op.writes[0].tier != HOST and not self.transfers.is_on_device(op):
            array = self._staged(flight)
            flight.file_mark = self._on(0).on_host(Lane.OUT, partial(self.transfers.write, op, array), op.seconds)
            self._writing.append(flight)
        else:
            if self._between[op.id]:
                self.transfers.count("across", op.reads[0].nbytes)
            elif op.kind.lane != Lane.COMPUTE and (HOST in (op.reads[0].tier, op.writes[0].tier)):
                self.transfers.count("host in" if op.kind.lane == Lane.IN else "host out", op.reads[0].nbytes)
            self._end(flight, None, ended)
        return True

    def _record_events(self, flight: _OpInFlight, bits: int) -> None:
        """Record the flags that a kernel raised; search its result unless a later op may have overwritten it."""
        made, unit, device = flight.op.writes[0], flight.op.unit, self._on(flight.device)
        later = [f.op for f in self._polled if f.number > flight.number and (unit < 0 or f.op.unit != unit)]
        intact = not any(made.overlaps(row) for op in later for row in op.writes)
        _, arguments = self.transfers.views.call(flight.op.id)
        result = arguments.outs[0] if intact else None
        self.transfers.events.record(flight.op.id, bits, result, arguments.origins, partial(fetched_parts, device))

    def _end(self, flight: _OpInFlight, error: BaseException | None, ended: float | None = None) -> None:
        """End an op: release its flag word and its buffer, and queue the event."""
        del self._flights[flight.op.id]
        self._outgoing.pop(flight.op.id, None)
        if flight.status >= 0:
            self._free[flight.device].append(flight.status)
        if flight.staging is not None:
            self._staging[flight.op.kind.lane - Lane.IN].release(flight.staging, (), True)
        locate_index(self.graph, flight.op.id, error)
        thread = flight.stream - Stream.COMPUTE if flight.stream >= Stream.COMPUTE else 0
        self._events.append(
            OpEnded(flight.op.id, thread, flight.began, self.device.now() if ended is None else ended, error)
        )
        self._begin_waiting()

    def _spilled(self, offset: int, nbytes: int) -> Array:
        """Return bytes of the graph's tier HOST, where values are offloaded to pinned memory."""
        return self.device.pinned[offset : offset + nbytes]
