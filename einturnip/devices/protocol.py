"""What a device with streams is to the run loop: one arena, pinned host memory, work in order on streams, marks.

Work on one stream runs in the order given; streams run beside each other. A mark stands behind the work that its
stream was given before it, and a stream that follows a mark runs nothing further until that work has ended. So the
order between ops is kept on the device itself, and the host only looks at marks to learn what has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from einturnip.ir.region import Space
from einturnip.kernels.select import Mode

Array = NDArray[Any]


class Stream(IntEnum):
    """The streams that every device has; those that compute are COMPUTE, COMPUTE + 1 and so on."""

    IN = 0
    OUT = 1
    ACROSS = 2
    COMPUTE = 3


class StreamMark(Protocol):
    """Stands for the end of some work; see ``Device.mark``."""


class ArenaArrays(Protocol):
    """The arena as arrays: where tiles lie. On a device that the host cannot read, they are only to be pointed at."""

    def array(self, offset: int, shape: Sequence[int], dtype: Any) -> Array:
        """A C-contiguous array over the arena's bytes."""


@dataclass(frozen=True, slots=True)
class DeviceKernelCall:
    """One kernel call, as kernels.protocol.HostKernel has it; arrays are the device's places."""

    space: Space
    extents: tuple[int, ...]
    mode: Mode
    outs: tuple[Array, ...]
    operands: tuple[Array, ...]
    origins: tuple[int, ...]
    first: bool
    workspace: Array


class Device(Protocol):
    """One arena and its streams. ``seconds`` is what the plan expects of a piece of work."""

    @property
    def name(self) -> str:
        """``cuda:0``, ``sim:0``."""

    @property
    def places(self) -> ArenaArrays:
        """The arena, all of it taken when the device was opened."""

    @property
    def pinned(self) -> Array:
        """Bytes of host memory that the streams copy from and to; taken once as well."""

    @property
    def compute_streams(self) -> int:
        """How many streams compute."""

    def use(self) -> None:
        """Of several devices, what is asked from now on is asked of this one."""

    def copy_in(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """Copy pinned bytes to as many of the arena."""

    def copy_out(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """Copy bytes of the arena to as many pinned ones."""

    def copy(self, stream: int, target: Array, source: Array, seconds: float) -> None:
        """Copy a tile, or a part of one, within the arena."""

    def fetch(self, stream: int, target: Array, other: Any, source: Array, seconds: float) -> None:
        """Copy a whole tile from the arena of another device of this kind."""

    def kernel(self, stream: int, work: DeviceKernelCall, status: int, seconds: float) -> None:
        """Run a kernel; what it meets is kept under the number ``status``, which no other work has meanwhile."""

    def fp_flags(self, status: int) -> int:
        """The bits INVALID, OVERFLOW, DIVIDE that the kernel of that number met; it has ended.

        Raises:
            OutOfRange: a key's value is no index of its label.
        """

    def mark(self, stream: int) -> StreamMark:
        """A mark behind all that the stream was given so far."""

    def follow(self, stream: int, mark: StreamMark) -> None:
        """Whatever the stream is given from now on waits for the mark, be it another device's of this kind."""

    def on_host(self, lane: int, work: Callable[[], None], seconds: float) -> StreamMark:
        """Have a thread of the host do some work, in order within its lane; streams cannot follow that mark."""

    def ended(self, mark: StreamMark) -> float | None:
        """When the work before the mark ended, by ``now``'s clock; None where it has not.

        Raises:
            Exception: what went wrong in it.
        """

    def idle(self, seconds: float) -> None:
        """Nothing has ended: let time pass, at most ``seconds`` of it."""

    def now(self) -> float:
        """Seconds on the device's clock."""

    def close(self) -> None:
        """Give everything back; twice is allowed."""


def address(array: Array) -> int:
    """Where an array's first byte lies."""
    return int(array.__array_interface__["data"][0])


def as_bytes(array: Array) -> Array:
    """A C-contiguous array's bytes."""
    return array.reshape(-1).view(np.uint8)
