"""CudaDevice: a GPU with an arena and pinned memory allocated once, streams, events, and kernels.

Kernels are generated CUDA C++, or cuBLAS's products where it can take the tiles as they are.

Device memory, in this order: the arena; STATUSES + 1 status records, into which kernels write their floating-point
flags and the first index out of range; the workspace of cuBLAS. Pinned memory: the bytes for copies, then a copy of the
status records. The last record is for kernels whose status nobody reads.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError, OutOfRange
from einturnip.devices.cuda.calls import CudaCalls
from einturnip.devices.cuda.products import (
    copying,
    cublas_calls,
    packed_operands,
    packed_result,
    product_plan,
    product_sides,
    view,
)
from einturnip.devices.protocol import Array, DeviceKernelCall, Stream, StreamMark, address
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Space
from einturnip.kernels.cuda.gemm import Gemm
from einturnip.kernels.cuda.generate import generate, layout
from einturnip.kernels.cuda.types import NOWHERE, STATUS_NBYTES, CudaKernel

COMPUTE_STREAMS = 4
STATUSES = 64
MAX_EVENT_SECONDS = 1.0  # between two events whose distance is measured
POLL_SECONDS = 2e-5  # between checks of the events while no work ends
WORKSPACE_ALIGNMENT = 256


class ArenaAddresses:
    """The device's arena as arrays over host addresses that are reserved and never accessed.

    An array's offset from ``base`` is its offset in the device's arena. So tiles on the device have shapes, strides and
    addresses like tiles on the host.
    """

    def __init__(self, nbytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self._bytes = np.frombuffer(mmap.mmap(-1, nbytes, flags=flags, prot=mmap.PROT_READ), np.uint8)
        self.base, self.nbytes = address(self._bytes), nbytes

    def array(self, offset: int, shape: Any, dtype: Any) -> Array:
        """See ArenaArrays."""
        return np.ndarray(shape, dtype, self._bytes, offset)


@dataclass(slots=True)
class _StatusSource:
    """The kernel and the tile to which a status record belongs."""

    space: Space
    extents: tuple[int, ...]
    origins: tuple[int, ...]
    stream: int


class CudaDevice:
    """A GPU as a Device. ``library``: bytes of workspace for cuBLAS, divided among the compute streams."""

    def __init__(self, name: str, calls: CudaCalls, arena: int, pinned: int, library: int = 0) -> None:
        self.name, self.compute_streams = name, COMPUTE_STREAMS
        self._calls = calls
        status_nbytes = (STATUSES + 1) * STATUS_NBYTES
        self._statuses = -(-arena // 512) * 512  # offset of the status records in device memory
        self._pinned_statuses = -(-max(1, pinned) // 512) * 512  # and in pinned memory
        workspace = -(-(self._statuses + status_nbytes) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        self._device, self._host, self._closed = 0, 0, False
        self._threads = {lane: ThreadPoolExecutor(1, f"einturnip-file-{lane}") for lane in (1, 2)}
        self._events: list[int] = []
        self._streams: list[int] = []
        try:
            self._open(arena, pinned, workspace, library)
        except BaseException:
            self.close()
            raise

    def _open(self, arena: int, pinned: int, workspace: int, library: int) -> None:
        """Allocate the memory, create the streams, and reset the status records."""
        calls, status_nbytes = self._calls, (STATUSES + 1) * STATUS_NBYTES
        self._device = calls.malloc(workspace + library)
        self._host = calls.host_alloc(self._pinned_statuses + status_nbytes)
        self.places = ArenaAddresses(max(1, arena))
        whole = (ctypes.c_uint8 * (self._pinned_statuses + status_nbytes)).from_address(self._host)
        self._pinned = np.ctypeslib.as_array(whole)
        self.pinned = self._pinned[:pinned]
        self._words = self._pinned[self._pinned_statuses :].view(np.int64).reshape(STATUSES + 1, -1)
        self._words[:] = NOWHERE
        self._words[:, 0] = 0
        for _ in range(Stream.COMPUTE + COMPUTE_STREAMS):
            self._streams.append(calls.stream())
        part = library // COMPUTE_STREAMS // WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT
        for k, one in enumerate(self._streams[Stream.COMPUTE :]):
            calls.workspace(one, self._device + workspace + k * part if part else 0, part)
        self._status_sources: dict[int, _StatusSource] = {}
        self._functions: dict[tuple[str, str], object] = {}
        self._modules: dict[str, object] = {}
        records = self._host + self._pinned_statuses
        calls.copy(self._device + self._statuses, records, status_nbytes, self._streams[0])
        calls.synchronize(self._streams[0])
        self._base = _Event(self, calls.event())  # event times count from it
        calls.record(self._base.event, self._streams[0])
        calls.synchronize(self._streams[0])
        self._base.time, self._zero = 0.0, time.perf_counter()

    def use(self) -> None:
        """See Device."""
        self._calls.use()

    # --- copies ---

    def copy_in(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """See Device."""
        if source.nbytes:
            self._calls.copy(self._at(target), address(source), source.nbytes, self._streams[stream])

    def copy_out(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """See Device."""
        if source.nbytes:
            self._calls.copy(address(target), self._at(source), source.nbytes, self._streams[stream])

    def copy(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """See Device. Tiles that are not contiguous are copied by a generated kernel."""
        if not source.size:
            return
        if target.flags.c_contiguous and source.flags.c_contiguous:
            self._calls.copy(self._at(target), self._at(source), source.nbytes, self._streams[stream])
            return
        self._generated(stream, copying(target, source), 0, STATUSES)

    def fetch(self, stream: int, target: Array, other: Any, source: Array, seconds: float) -> None:
        """See Device. Without direct access between the two GPUs, the driver copies through the host."""
        if source.size:
            self._calls.copy(self._at(target), other._at(source), source.nbytes, self._streams[stream])

    # --- kernels ---

    def kernel(self, stream: int, work: DeviceKernelCall, status: int, seconds: float) -> None:
        """See Device."""
        self._status_sources[status] = _StatusSource(work.space, work.extents, work.origins, stream)
        if not all(x.size for x in work.outs):
            return
        place = address(work.workspace) if work.workspace.size else self.places.base
        workspace = -(-(self._device + place - self.places.base) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        end = self._device + place - self.places.base + work.workspace.nbytes
        plan = product_plan(work, end - workspace)
        if plan is not None:
            self._multiply(stream, work, plan, workspace)
            return
        self._generated(stream, work, workspace, status)
        pinned = self._host + self._pinned_statuses + status * STATUS_NBYTES
        self._calls.copy(pinned, self._status_address(status), STATUS_NBYTES, self._streams[stream])

    def _generated(self, stream: int, work: DeviceKernelCall, workspace: int, status: int) -> None:
        """Launch a generated kernel. ``workspace``: its aligned address on the device."""
        operands, outs = [view(x) for x in work.operands], [view(x) for x in work.outs]
        kernel = _kernel(work.space, work.mode, layout(work.space, work.mode, work.extents, operands, outs))
        nbytes = kernel.workspace_nbytes(work.extents)
        if nbytes and nbytes > self._at(work.workspace) + work.workspace.nbytes - workspace:
            raise InternalError(f"a kernel on the GPU needs {nbytes} bytes of workspace, more than were planned")
        launches = kernel.launches(work.extents, operands, outs)
        head = kernel.head(
            work.extents,
            [self._at(x) for x in work.outs],
            [self._at(x) for x in work.operands],
            work.origins,
            work.first,
            workspace,
            self._status_address(status),
        )
        explained = kernel.explained(launches)
        for one in (*launches, *([explained] if explained is not None else [])):
            function = self._function(kernel, one.entry)
            stream_of = self._streams[stream]
            self._calls.launch(function, one.grid, one.block, one.shared_nbytes, head, one.fixed, stream_of)

    def _function(self, kernel: CudaKernel, entry: str) -> object:
        found = self._functions.get((kernel.name, entry))
        if found is None:
            if kernel.name not in self._modules:
                self._modules[kernel.name] = self._calls.module(kernel)
            found = self._functions[kernel.name, entry] = self._calls.function(self._modules[kernel.name], entry)
        return found

    def _multiply(self, stream: int, work: DeviceKernelCall, plan: Gemm, workspace: int) -> None:
        """Submit a product to cuBLAS, between copies of the tiles that it cannot use in place."""
        e = work.space
        assert isinstance(e, Einsum)
        left, right = product_sides(e)
        places = [self._at(work.operands[left]), self._at(work.operands[right]), self._at(work.outs[0])]
        adds = work.mode != "full" and not work.first

        def packed(shape: tuple[int, ...], dtype: DType, offset: int) -> Array:
            return self.places.array(workspace - self._device + offset, shape, dtype.numpy)

        for n, source in enumerate(packed_operands(work, plan)):
            if source is not None:
                copy = packed(source.shape, plan.product, (plan.left, plan.right)[n].offset)
                places[n] = self._at(copy)
                self._generated(stream, copying(copy, source), 0, STATUSES)
        target = packed_result(work, plan)
        if target is not None:
            made = packed(target.shape, plan.result, plan.out.offset)
            places[2] = self._at(made)
        for call in cublas_calls(plan, places, 1.0 if adds and target is None else 0.0):
            self._calls.multiply(call, self._streams[stream])
        if target is not None:
            self._generated(stream, copying(target, made, adds), 0, STATUSES)

    def fp_flags(self, status: int) -> int:
        """See Device."""
        flags, place, key, value = (int(word) for word in self._words[status])
        if not flags and place == NOWHERE:
            return 0
        # Kernels only add to a record, so reset it on the device and in pinned memory before its next use.
        source = self._status_sources[status]
        stream = self._streams[source.stream]
        empty = self._host + self._pinned_statuses + STATUSES * STATUS_NBYTES
        self._calls.copy(self._status_address(status), empty, STATUS_NBYTES, stream)
        self._calls.synchronize(stream)
        self._words[status] = self._words[STATUSES]
        if place == NOWHERE:
            return flags
        raise _out_of_range(source, place, key, value)

    def fetched(self, tile: Array) -> Array:
        """See Device."""
        copied, stream = np.empty(tile.shape, tile.dtype), self._streams[Stream.OUT]
        self._calls.copy(address(copied), self._at(tile), tile.nbytes, stream)
        self._calls.synchronize(stream)
        return copied

    def _status_address(self, status: int) -> int:
        """Return the device address of a status record."""
        return self._device + self._statuses + status * STATUS_NBYTES

    # --- order ---

    def mark(self, stream: int) -> StreamMark:
        """See Device."""
        event = self._events.pop() if self._events else self._calls.event()
        self._calls.record(event, self._streams[stream])
        return _Event(self, event)

    def follow(self, stream: int, mark: StreamMark) -> None:
        """See Device."""
        assert isinstance(mark, _Event)
        self._calls.wait(self._streams[stream], mark.event)

    def join_streams(self, callers: Iterable[int]) -> None:
        """Make all later work wait for the work that was submitted to streams of the caller so far."""
        self.use()
        for caller in sorted(callers):
            event = self._calls.event()
            self._calls.record(event, caller)
            for stream in self._streams:
                self._calls.wait(stream, event)

    def on_host(self, lane: int, work: Callable[[], None], seconds: float) -> StreamMark:
        """See Device."""

        def timed() -> float:
            work()
            return self.now()

        return self._threads[lane].submit(timed)

    def ended(self, mark: StreamMark) -> float | None:
        """See Device."""
        if isinstance(mark, Future):
            return float(mark.result()) if mark.done() else None
        assert isinstance(mark, _Event)
        if mark.time is None and self._calls.reached(mark.event):
            assert self._base.time is not None
            seconds = self._calls.seconds_between(self._base.event, mark.event)
            mark.time = self._base.time + seconds
            if seconds > MAX_EVENT_SECONDS:  # the driver counts in f32
                self._base = mark
        return mark.time

    def reuse(self, event: int) -> None:
        """Keep an event that no mark uses any more for a later mark."""
        self._events.append(event)

    def idle(self, seconds: float) -> None:
        """See Device."""
        time.sleep(min(POLL_SECONDS, seconds))

    def now(self) -> float:
        """See Device."""
        return time.perf_counter() - self._zero

    def close(self) -> None:
        """See Device. An error here is that of work which has failed before, and was raised then."""
        if self._closed:
            return
        self._closed = True
        for threads in self._threads.values():
            threads.shutdown()
        with suppress(RuntimeError):
            self.use()
            for stream in self._streams:
                self._calls.synchronize(stream)
        self.pinned = self._pinned = np.empty(0, np.uint8)
        self._words = np.empty((0, 0), np.int64)
        self._calls.close()
        for memory, free in ((self._device, self._calls.free), (self._host, self._calls.host_free)):
            if memory:
                with suppress(RuntimeError):
                    free(memory)

    def _at(self, array: Array) -> int:
        """Return the device address of an array of the arena, or of an array of the caller on this GPU."""
        place = address(array)
        offset = place - self.places.base
        return self._device + offset if 0 <= offset <= self.places.nbytes else place


class _Event:
    """A mark. Its event is reused when the mark is deleted."""

    __slots__ = ("_device", "event", "time")

    def __init__(self, device: CudaDevice, event: int) -> None:
        self._device, self.event = device, event
        self.time: float | None = None

    def __del__(self) -> None:
        self._device.reuse(self.event)


_kernel = lru_cache(maxsize=1024)(generate)


def _out_of_range(source: _StatusSource, place: int, key: int, value: int) -> OutOfRange:
    space = source.space
    assert isinstance(space, Einsum)
    label = space.keys[key].label
    at = np.unravel_index(place, [max(1, n) for n in source.extents])
    point = [(space.labels[p], source.origins[p] + int(at[p])) for p in sorted(space.labels_of(space.keys[key].value))]
    return OutOfRange(value, space.bounds[label], space.labels[label], point)
