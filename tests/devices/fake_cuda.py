"""The few calls of CuPy that a run makes, on host memory: work runs when its time on a virtual clock has come.

What is checked as it is recorded: no default stream, no allocation once work was given, an event is recorded before it
is waited for, and whatever touches bytes that another work writes is ordered with it by streams, events, or the host.
Of several devices, each is asked while it is the current one, and its kernels touch its own memory only.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from einturnip.core.errors import OutOfRange
from einturnip.devices.cuda.cublas import CublasProduct
from einturnip.devices.cuda.device import CudaDevice
from einturnip.devices.streams import Pace, VirtualEvent, VirtualStreams
from einturnip.kernels.cuda.types import NOWHERE, STATUS_NBYTES, CudaKernel, Dim3, Launch
from einturnip.kernels.select import compile_kernel
from tests.kernels.cuda.emulation import LaunchExecutor

DTYPES = {"f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"}
Clock = dict[int, int]


@dataclass
class _Marked:
    event: VirtualEvent = field(default_factory=VirtualEvent)
    clock: Clock | None = None


@dataclass
class _Access:
    start: int
    stop: int
    writes: bool
    stream: int
    number: int


def merge(one: Clock, other: Clock) -> None:
    for stream, number in other.items():
        one[stream] = max(one.get(stream, 0), number)


class FakeCalls:
    """See einturnip.devices.cuda.calls.Calls. ``beside``: another device of the same run.

    ``source``: what runs the generated sources; without it, the last launch of a call runs the host's kernel.
    """

    callers: set[int] = set()
    """Streams of the caller, on which events are recorded."""
    arrays: list[tuple[int, int]] = []
    """The bytes of the caller's arrays on the device."""

    def __init__(self, pace: Pace, beside: FakeCalls | None = None, source: LaunchExecutor | None = None) -> None:
        self.source = source
        self.streams: VirtualStreams = beside.streams if beside else VirtualStreams(pace)
        self.counts: Counter[str] = beside.counts if beside else Counter()
        self.memory: dict[int, np.ndarray] = {}
        self.events: dict[int, _Marked] = beside.events if beside else {}
        self.clocks: dict[int, Clock] = beside.clocks if beside else {}
        self.own: set[int] = set()  # its streams
        self.host: Clock = beside.host if beside else {}
        self.room_of: dict[int, tuple[int, int]] = {}  # by stream, where cuBLAS may work
        self.accesses: list[list[_Access]] = beside.accesses if beside else [[]]
        self.numbers: Counter[int] = beside.numbers if beside else Counter()
        self.started = False
        self.closed = False
        self.current: list[FakeCalls] = beside.current if beside else [self]
        self.use()

    def use(self) -> None:
        self.current[0] = self

    def _is_current(self) -> None:
        assert self.current[0] is self, "asked while another device is the current one"

    # --- memory ---

    def malloc(self, nbytes: int) -> int:
        assert not self.started, "memory is taken before work is given, and once"
        self.counts["malloc"] += 1
        self._is_current()
        room = np.full(nbytes + 512, 0xA5, np.uint8)
        at = -(-room.ctypes.data // 256) * 256
        self.memory[at] = room
        return at

    host_alloc = malloc

    def free(self, address: int) -> None:
        del self.memory[address]

    host_free = free

    # --- order ---

    def stream(self) -> int:
        self._is_current()
        self.clocks[len(self.clocks) + 1] = {}
        self.own.add(len(self.clocks))
        return len(self.clocks)

    def event(self) -> int:
        self._is_current()
        self.events[len(self.events) + 1] = _Marked()
        return len(self.events)

    def record(self, event: int, stream: int) -> None:
        if stream not in self.callers:
            self._not_default(stream)
        marked = self.events[event] = _Marked(VirtualEvent(), dict(self.clocks.setdefault(stream, {})))
        self.streams.record(stream, marked.event)

    def wait(self, stream: int, event: int) -> None:
        self._not_default(stream)
        self.counts["wait"] += 1
        marked = self.events[event]
        assert marked.clock is not None, "an event is waited for that nothing recorded: the wait would do nothing"
        merge(self.clocks[stream], marked.clock)
        self.streams.wait(stream, marked.event)

    def reached(self, event: int) -> bool:
        marked = self.events[event]
        assert marked.clock is not None, "an event is asked about that nothing recorded: it would seem reached"
        if marked.event.time is None and self.streams._running:
            self.streams.advance()
        if marked.event.time is None:
            return False
        merge(self.host, marked.clock)
        if marked.event.error is not None:
            raise marked.event.error
        return True

    def seconds_between(self, first: int, second: int) -> float:
        """As the driver counts: milliseconds in f32."""
        seconds = (self.events[second].event.time or 0.0) - (self.events[first].event.time or 0.0)
        return float(np.float32(seconds * 1e3)) / 1e3

    def synchronize(self, stream: int) -> None:
        event = VirtualEvent()
        self.streams.record(stream, event)
        while event.time is None:
            self.streams.advance()
        merge(self.host, self.clocks[stream])

    # --- work ---

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.counts["copy"] += 1
        work = lambda: ctypes.memmove(target, source, nbytes)  # noqa: E731
        self._submit(stream, work, [(source, source + nbytes, False), (target, target + nbytes, True)])

    def module(self, kernel: CudaKernel) -> object:
        self.counts["module"] += 1
        return kernel

    def function(self, module: object, entry: str) -> object:
        assert isinstance(module, CudaKernel) and entry in module.entries
        return module, entry

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared: int, head: bytes, fixed: bytes, stream: int
    ) -> None:
        assert isinstance(function, tuple)
        self.counts["launch"] += 1
        kernel, entry = function
        assert all(0 < n <= 1024 for n in block) and np.prod(block) <= 1024 and block[2] <= 64
        assert 0 < grid[0] < 2**31 and all(0 < n < 2**16 for n in grid[1:])
        call = _Call(kernel, head, fixed)
        if self.source is not None:
            nbytes = kernel.workspace_nbytes(tuple(call.extents))
            work = self.source.prepared(kernel, Launch(entry, grid, block, shared, fixed), call, stream)
            accesses = [*call.accesses, (call.workspace, call.workspace + nbytes, True)]
            self._all_here(accesses)
            self._submit(stream, work, accesses)
        elif entry == kernel.explain:
            self._submit(stream, call.explain, call.accesses)
        elif call.is_last(entry, fixed):
            self._all_here(call.accesses)
            self._submit(stream, call.run, call.accesses)

    def multiply(self, product: CublasProduct, stream: int) -> None:
        self.counts["multiply"] += 1
        p = product
        dtype, result = (_dtype(p.dtypes[k]) for k in (0, 2))

        def matrix(at: int, rows: int, columns: int, leading: int, step: int, dtype: np.dtype) -> np.ndarray:
            """Columns first."""
            shape, strides = (p.batch, rows, columns), (step * dtype.itemsize, dtype.itemsize, leading * dtype.itemsize)
            assert leading >= rows
            return _at(at, shape, strides, dtype)

        def operand(side: tuple[int, bool, int, int], rows: int, columns: int) -> np.ndarray:
            at, transposed, leading, step = side
            if transposed:
                return matrix(at, columns, rows, leading, step, dtype).swapaxes(1, 2)
            return matrix(at, rows, columns, leading, step, dtype)

        a, b = operand(p.a, p.m, p.k), operand(p.b, p.k, p.n)
        c = matrix(p.c[0], p.m, p.n, p.c[1], p.c[2], result)

        def work() -> None:
            sums = _dtype(p.dtypes[1])
            alpha = p.alpha if sums.kind == "c" else p.alpha.real
            made = (np.matmul(a.astype(sums), b.astype(sums)) * sums.type(alpha)).astype(result)
            c[...] = made if p.beta == 0 else c + made

        place, nbytes = self.room_of[stream]
        accesses = [(*_span(a), False), (*_span(b), False), (*_span(c), True), (place, place + nbytes, True)]
        self._all_here(accesses)
        self._submit(stream, work, accesses)

    def workspace(self, stream: int, address: int, nbytes: int) -> None:
        held = [(at, at + len(memory) - 512) for at, memory in self.memory.items()]
        assert not nbytes or any(at <= address and address + nbytes <= end for at, end in held), "not of the arena"
        assert not address % 256, "cuBLAS asks for so much"
        self.room_of[stream] = address, nbytes

    def close(self) -> None:
        self.closed = True

    def _not_default(self, stream: int) -> None:
        self._is_current()
        assert stream in self.own, "work on a stream that was not made, such as the default one"

    def _all_here(self, accesses: Sequence[tuple[int, int, bool]]) -> None:
        held = [*self.arrays, *((at, at + len(memory)) for at, memory in self.memory.items())]
        for start, stop, _ in accesses:
            assert start == stop or any(a <= start and stop <= b for a, b in held), "bytes of another device"

    def _submit(self, stream: int, work: Callable[[], object], accesses: Sequence[tuple[int, int, bool]]) -> None:
        self._not_default(stream)
        self.started = True
        clock = self.clocks[stream]
        merge(clock, self.host)
        self.numbers[stream] += 1
        clock[stream] = number = self.numbers[stream]
        kept = []
        for a in self.accesses[0]:
            meets = [w for start, stop, w in accesses if start < a.stop and a.start < stop]
            ordered = clock.get(a.stream, 0) >= a.number
            assert ordered or not meets or not (a.writes or any(meets)), "bytes are used again without an order"
            over = any(w and start <= a.start and a.stop <= stop for start, stop, w in accesses)
            if not (over and ordered):
                kept.append(a)
        self.accesses[0] = kept + [
            _Access(start, stop, w, stream, number) for start, stop, w in accesses if start < stop
        ]
        self.streams.submit(stream, lambda: work() and None, 1e-6)


def _dtype(name: str) -> np.dtype:
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(DTYPES[name])


def _at(address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array over memory as it is."""
    spans = [(n - 1) * s for n, s in zip(shape, strides, strict=True)] if all(shape) else []
    low = sum(min(0, span) for span in spans)
    nbytes = sum(max(0, span) for span in spans) - low + dtype.itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(address + low)
    return np.ndarray(tuple(shape), dtype, memory, -low, tuple(strides))


def _span(array: np.ndarray) -> tuple[int, int]:
    return np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)


class _Call:
    """A kernel's call, read back from the bytes of its arguments and run by the host's kernel."""

    def __init__(self, kernel: CudaKernel, head: bytes, fixed: bytes) -> None:
        self.kernel, self.head = kernel, head
        space, mode = kernel.space, kernel.mode
        words = struct.unpack(f"{len(fixed) // 8}q", fixed)
        given = struct.unpack(f"{len(head) // 8}q", head)
        n = len(space.bounds)
        self.extents = extents = words[:n]
        assert words[n : 2 * n] == tuple(space.bounds)
        state = [(tuple(shape), np.dtype(dtype.numpy)) for shape, dtype in space.components(extents)]
        outs = (
            state
            if mode in ("accumulate", "combine")
            else [(tuple(extents[: space.n_out]), np.dtype(space.dtype.numpy))]
        )
        of_states = mode in ("finalize", "combine")
        n_operands = len(state) if of_states else len(space.accesses)
        self.workspace_word = len(outs) + n_operands
        self.workspace, status, first, *rest = given[self.workspace_word :]
        self.first, self.origins = bool(first), tuple(rest[:n])
        box = [(o, o + e) for o, e in zip(self.origins, extents, strict=True)]
        operands = state
        if not of_states:
            boxes = [space.operand_box(slot, box) for slot in range(n_operands)]
            operands = [
                (tuple(hi - lo for lo, hi in b), np.dtype(d.numpy)) for b, d in zip(boxes, space.dtypes, strict=True)
            ]
        arrays, at = [], 2 * n
        for address, (shape, dtype) in zip(given, [*outs, *operands], strict=False):
            arrays.append(_at(address, shape, words[at : at + len(shape)], dtype))
            at += len(shape)
        self.outs, self.operands = arrays[: len(outs)], arrays[len(outs) :]
        self.status = _at(status, (STATUS_NBYTES // 8,), (8,), np.dtype(np.int64))
        self.accesses = [(*_span(x), False) for x in self.operands]
        self.accesses += [(*_span(x), True) for x in self.outs] + [(*_span(self.status), True)]

    def is_last(self, entry: str, fixed: bytes) -> bool:
        last = self.kernel.grids(tuple(self.extents))[-1]
        tail = struct.pack(f"{len(last.params)}q", *last.params)
        return entry == last.entry and fixed.endswith(tail)

    def run(self) -> None:
        kernel = compile_kernel(self.kernel.space, tuple(self.extents), self.kernel.mode)
        room = np.empty(kernel.workspace_nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64
        space = room[start : start + kernel.workspace_nbytes]
        try:
            bits = kernel(tuple(self.outs), tuple(self.operands), self.origins, self.first, space)
            self.status[0] |= bits
        except OutOfRange as error:
            einsum, at = self.kernel.space, [0] * len(self.extents)
            for name, index in error.point:
                label = einsum.labels.index(name)
                at[label] = index - self.origins[label]
            self.status[1] = np.ravel_multi_index(at, [max(1, n) for n in self.extents])
            self.status[2] = next(k for k, key in enumerate(einsum.keys) if einsum.labels[key.label] == error.label)
            self.status[3] = error.value

    def explain(self) -> None:
        assert (self.status[1] != NOWHERE) == (self.status[2] != NOWHERE)


class FakedDevice(CudaDevice):
    """The GPU's device over the fake. Kernels that differ in sizes alone share code; the fake tells them apart."""

    def _function(self, kernel: CudaKernel, entry: str) -> object:
        super()._function(kernel, entry)
        return kernel, entry
