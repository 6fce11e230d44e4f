"""Device: interface of devices with an arena, pinned host memory, streams and marks.

Work on one stream runs in the order of submission; several streams run concurrently. A mark is reached when all earlier
work of its stream has ended (a CUDA event). A stream that follows a mark runs nothing further until the mark is
reached. So the device itself keeps the order between ops, and the host only polls marks to learn which ops have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.region import Space
from einturnip.kernels.protocol import Mode

Array = NDArray[Any]


class Stream(IntEnum):
    """The streams that every device has. Compute streams have the numbers COMPUTE, COMPUTE + 1 and so on."""

    IN = 0
    OUT = 1
    ACROSS = 2
    COMPUTE = 3


class StreamMark(Protocol):
    """A point in the work of a stream or of a host thread; see ``Device.mark``."""


class ArenaArrays(Protocol):
    """The arena as arrays.

    If the host cannot access the device's memory, only their addresses can be used.
    """

    def array(self, offset: int, shape: Sequence[int], dtype: Any) -> Array:
        """Return a C-contiguous array over bytes of the arena."""


@dataclass(frozen=True, slots=True)
class DeviceKernelCall:
    """One kernel call, with the arguments of kernels.protocol.HostKernel.

    The arrays are in the device's arena.
    """

    space: Space
    extents: tuple[int, ...]
    mode: Mode
    outs: tuple[Array, ...]
    operands: tuple[Array, ...]
    origins: tuple[int, ...]
    first: bool
    workspace: Array


class Device(Protocol):
    """One arena and its streams.

    ``seconds``: the planned duration of a piece of work, which simulated devices use.
    """

    @property
    def name(self) -> str:
        """``cuda:0``, ``sim:0``."""

    @property
    def places(self) -> ArenaArrays:
        """The arena, allocated when the device is opened."""

    @property
    def pinned(self) -> Array:
        """Pinned bytes of host memory for copies, allocated when the device is opened."""

    @property
    def compute_streams(self) -> int:
        """Number of compute streams."""

    def use(self) -> None:
        """Make this device the current one of the calling thread."""

    def copy_in(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """Copy pinned bytes to the arena."""

    def copy_out(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """Copy bytes of the arena to pinned memory."""

    def copy(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """Copy a tile or a part of a tile within the arena."""

    def fetch(self, stream: int, target: Array, other: Any, source: Array, seconds: float) -> None:
        """Copy a whole tile from the arena of another device of this kind.

        Between a device and the host as a site, the device copies its tiles with ``copy_in`` and ``copy_out``.
        """

    def kernel(self, stream: int, work: DeviceKernelCall, status: int, seconds: float) -> None:
        """Run a kernel. Its flags are stored under the number ``status``, which no other running kernel uses."""

    def fp_flags(self, status: int) -> int:
        """Return the flags INVALID, OVERFLOW, DIVIDE of the kernel with this status number, which has ended.

        Raises:
            OutOfRange: the value of a key is outside the range of its label.
        """

    def fetched(self, tile: Array) -> Array:
        """Return a copy in host memory of contiguous elements of the arena, on which no work is running."""

    def mark(self, stream: int) -> StreamMark:
        """Return a mark that is reached when all work submitted to the stream so far has ended."""

    def follow(self, stream: int, mark: StreamMark) -> None:
        """Make later work of the stream wait for a mark, which can be one of another device of the same kind."""

    def on_host(self, lane: int, work: Callable[[], None], seconds: float) -> StreamMark:
        """Run work on a host thread, in order within its lane. Streams cannot follow the returned mark."""

    def ended(self, mark: StreamMark) -> float | None:
        """Return when the mark was reached, on the clock of ``now``; None if it has not been reached.

        Raises:
            Exception: the work failed with it.
        """

    def idle(self, seconds: float) -> None:
        """Wait at most ``seconds``, because no work has ended since the last check."""

    def now(self) -> float:
        """Return the seconds on the device's clock."""

    def close(self) -> None:
        """Release all resources; may be called again."""


def address(array: Array) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def as_bytes(array: Array) -> Array:
    """Return the bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)
