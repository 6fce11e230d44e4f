"""A simulated device: runs the host's kernels on streams of a virtual clock, with random delays."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from einturnip.core.errors import InternalError
from einturnip.devices.host import HostArena
from einturnip.devices.host_site import ArenaBytes
from einturnip.devices.kind import DeviceChoice, DeviceKind
from einturnip.devices.protocol import Array, Device, DeviceKernelCall, Stream, StreamMark
from einturnip.devices.streams import Pace, VirtualEvent, VirtualStreams
from einturnip.kernels.select import compile_kernel

if TYPE_CHECKING:
    from einturnip.cost.machine import Machine

COMPUTE_STREAMS = 4
SIGMA = 0.5
"""Standard deviation of the logarithm of the delays."""
HOST_LANES = 1 << 8
"""Stream numbers from this one on represent threads of the host."""
STREAMS = 1 << 9
"""Stream numbers of one device, host threads included."""


def random_delays(seed: int | str) -> Pace:
    """Return a function that multiplies planned seconds by a log-normal factor with median 1."""
    numbers = random.Random(seed)
    return lambda seconds: (seconds + 1e-6) * math.exp(SIGMA * numbers.gauss(0, 1))


class SimulatedDevice:
    """A Device whose work the calling thread does when the virtual clock reaches its end.

    ``pace``: the delays of its streams, or streams that it shares with other devices. ``number``: the device's number
    among the devices that share them.
    """

    def __init__(
        self, name: str, arena_nbytes: int, pinned_nbytes: int, pace: Pace | VirtualStreams, number: int = 0
    ) -> None:
        self.name = name
        self.places: HostArena | ArenaBytes = HostArena(max(1, arena_nbytes))
        self._pinned = HostArena(max(1, pinned_nbytes))
        self.pinned = self._pinned.view(0, pinned_nbytes)
        self.compute_streams = COMPUTE_STREAMS
        self.streams = pace if isinstance(pace, VirtualStreams) else VirtualStreams(pace)
        self._first = number * STREAMS
        self._bits: dict[int, int] = {}

    def copy_in(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """See Device."""
        self.streams.submit(self._first + stream, partial(np.copyto, target, source), seconds)

    copy_out = copy = copy_in

    def fetch(self, stream: int, target: Array, other: object, source: Array, seconds: float) -> None:
        """See Device."""
        self.copy(stream, target, source, seconds)

    def use(self) -> None:
        """See Device."""

    def kernel(self, stream: int, work: DeviceKernelCall, status: int, seconds: float) -> None:
        """See Device."""

        def run() -> None:
            # Products by BLAS: whether there is machine code depends on earlier plans, and results must not.
            kernel = compile_kernel(work.space, work.extents, work.mode, by_blas=True)
            self._bits[status] = kernel(work.outs, work.operands, work.origins, work.first, work.workspace)

        self._bits[status] = 0
        self.streams.submit(self._first + stream, run, seconds)

    def fp_flags(self, status: int) -> int:
        """See Device."""
        return self._bits[status]

    def fetched(self, tile: Array) -> Array:
        """See Device."""
        return tile.copy()

    def mark(self, stream: int) -> StreamMark:
        """See Device."""
        event = VirtualEvent()
        self.streams.record(self._first + stream, event)
        return event

    def follow(self, stream: int, mark: StreamMark) -> None:
        """See Device."""
        assert isinstance(mark, VirtualEvent)
        self.streams.wait(self._first + stream, mark)

    def on_host(self, lane: int, work: Callable[[], None], seconds: float) -> StreamMark:
        """See Device."""
        self.streams.submit(self._first + HOST_LANES + lane, work, seconds)
        return self.mark(HOST_LANES + lane)

    def ended(self, mark: StreamMark) -> float | None:
        """See Device."""
        assert isinstance(mark, VirtualEvent)
        if mark.error is not None:
            raise mark.error
        return mark.time

    def idle(self, seconds: float) -> None:
        """See Device."""
        self.streams.advance()

    def now(self) -> float:
        """See Device."""
        return self.streams.clock

    def close(self) -> None:
        """See Device."""
        self.pinned = np.empty(0, np.uint8)
        self.places.close()
        self._pinned.close()


class SimulatedHost(SimulatedDevice):
    """The host as a site of a simulated run. ``arena``: its bytes. ``workers``: its compute threads."""

    def __init__(self, name: str, arena: Array, workers: int, streams: VirtualStreams, number: int) -> None:
        super().__init__(name, 0, 0, streams, number)
        self.places.close()
        self.places = ArenaBytes(arena)
        self.compute_streams = min(workers, HOST_LANES - Stream.COMPUTE)

    def follow(self, stream: int, mark: StreamMark) -> None:
        """See HostSite."""
        raise InternalError("a thread of the host would wait for a stream")


class SimulatedKind(DeviceKind):
    """Simulated devices; their numbers are the seed of their delays."""

    name = "sim"
    max_devices = 1024
    host_kernels = True

    def product_flops(self, chosen: DeviceChoice, host: Machine) -> Sequence[float]:
        """See DeviceKind."""
        return [host.gemm_flops * host.workers] * len(chosen.numbers)

    def reported_numbers(self, numbers: Sequence[int]) -> Sequence[int]:
        """See DeviceKind."""
        return range(len(numbers))

    def open(self, chosen: DeviceChoice, arenas: Sequence[int], pinned: int) -> Sequence[Device]:
        """See DeviceKind."""
        seed = ",".join(map(str, chosen.numbers)) if chosen.further else chosen.number
        streams = VirtualStreams(random_delays(seed))
        named = enumerate(zip(chosen.names, arenas, strict=True))
        return [SimulatedDevice(name, arena, 0 if k else pinned, streams, k) for k, (name, arena) in named]

    def open_host(self, devices: Sequence[Device], name: str, arena: Array, workers: int) -> Device:
        """Return the simulated host, on the clock of the devices."""
        first = devices[0]
        assert isinstance(first, SimulatedDevice)
        return SimulatedHost(name, arena, workers, first.streams, len(devices))


SIM = SimulatedKind()
