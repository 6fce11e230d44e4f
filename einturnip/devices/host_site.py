"""HostSite: the CPU as a site of a run on GPUs, with threads in the place of streams.

The streams of the other devices cannot wait for a thread, nor a thread for them without blocking. So ops of this site
start when everything that they depend on has ended, and ops that depend on them start when they have ended
(``runtime.stream.host_border``). Values between this site and a device are copied by the streams of that device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.devices.protocol import Array, DeviceKernelCall, StreamMark
from einturnip.kernels.select import compile_kernel

POLL_SECONDS = 2e-5  # between checks of the threads while no work ends


class ArenaBytes:
    """Bytes of another device's memory as the arena of the host."""

    def __init__(self, nbytes: Array) -> None:
        self._bytes = nbytes

    def array(self, offset: int, shape: Sequence[int], dtype: Any) -> Array:
        """See ArenaArrays."""
        return np.ndarray(shape, dtype, self._bytes, offset)

    def close(self) -> None:
        """Drop the bytes, which the other device releases."""
        self._bytes = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class _ThreadMark:
    """A point in the work of a thread: after ``last``, and not before the time at which it was made."""

    made: float
    last: Future[float] | None


class HostSite:
    """The host as a Device: each stream is a thread, and kernels are those of runs on the host.

    ``arena``: its bytes, pinned by another device. ``workers``: number of compute streams.
    """

    def __init__(self, name: str, arena: Array, workers: int) -> None:
        self.name, self.compute_streams = name, workers
        self.places, self.pinned = ArenaBytes(arena), np.empty(0, np.uint8)
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._last: dict[int, Future[float]] = {}
        self._flags: dict[int, int] = {}

    def use(self) -> None:
        """See Device."""

    def copy_in(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """See Device."""
        self._submit(stream, lambda: np.copyto(target, source))

    copy_out = copy = copy_in

    def fetch(self, stream: int, target: Array, other: object, source: Array, seconds: float) -> None:
        """Refuse: the stream of the other device copies."""
        raise InternalError(f"{self.name} cannot read the memory of a device")

    def kernel(self, stream: int, work: DeviceKernelCall, status: int, seconds: float) -> None:
        """See Device."""

        def run() -> None:
            kernel = compile_kernel(work.space, work.extents, work.mode)
            self._flags[status] = kernel(work.outs, work.operands, work.origins, work.first, work.workspace)

        self._flags[status] = 0
        self._submit(stream, run)

    def fp_flags(self, status: int) -> int:
        """See Device. An index out of range is an error of the kernel's mark."""
        return self._flags[status]

    def fetched(self, tile: Array) -> Array:
        """See Device."""
        return tile.copy()

    def mark(self, stream: int) -> StreamMark:
        """See Device."""
        return _ThreadMark(self.now(), self._last.get(stream))

    def follow(self, stream: int, mark: StreamMark) -> None:
        """Refuse: a thread of the host would wait for a stream."""
        raise InternalError(f"an op of {self.name} started before those that it depends on had ended")

    def on_host(self, lane: int, work: Callable[[], None], seconds: float) -> StreamMark:
        """See Device."""
        self._submit(lane, work)
        return self.mark(lane)

    def ended(self, mark: StreamMark) -> float | None:
        """See Device."""
        assert isinstance(mark, _ThreadMark)
        if mark.last is None:
            return mark.made
        return max(mark.made, mark.last.result()) if mark.last.done() else None

    def idle(self, seconds: float) -> None:
        """See Device."""
        time.sleep(min(POLL_SECONDS, seconds))

    def now(self) -> float:
        """See Device."""
        return time.perf_counter()

    def close(self) -> None:
        """See Device."""
        while self._threads:
            self._threads.popitem()[1].shutdown()
        self.places.close()

    def _submit(self, stream: int, work: Callable[[], None]) -> None:
        """Queue work on the thread of a stream."""

        def timed() -> float:
            work()
            return time.perf_counter()

        if stream not in self._threads:
            self._threads[stream] = ThreadPoolExecutor(1, f"einturnip-{self.name}-{stream}")
        self._last[stream] = self._threads[stream].submit(timed)
