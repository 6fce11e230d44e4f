"""A memory graph on devices with streams: what lies where in host memory, and the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from einturnip.core.errors import CapacityError
from einturnip.core.limits import available_memory
from einturnip.core.settings import format_size
from einturnip.devices.protocol import Device, Places
from einturnip.memgraph.tiers import keep_on_host
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.device_loop import Arenas, Streams, staging_nbytes, window
from einturnip.runtime.dispatch import Dispatch, double_buffered, fixed
from einturnip.runtime.execute import Transfers
from einturnip.runtime.lanes import lanes
from einturnip.runtime.loop import drive
from einturnip.runtime.policies import Ranks
from einturnip.runtime.state import State
from einturnip.runtime.trace import Trace

PROCESS_NBYTES = 64 << 20
"""What a run adds to the process beside pinned memory: threads, the plan, progress, the report."""


def pinned_limit(host_memory: int | None, resident: int) -> int:
    """Bytes that may be pinned: what ``--host-memory`` leaves beside the process, else a quarter of what is free.

    Raises:
        CapacityError: the process alone takes as much.
    """
    if host_memory is None:
        return available_memory() // 4
    left = host_memory - resident - PROCESS_NBYTES
    if left <= 0:
        needed = resident + PROCESS_NBYTES
        raise CapacityError(
            f"the process alone takes {format_size(needed)} of host memory, and --host-memory allows "
            f"{format_size(host_memory)}",
            needed,
        )
    return left


def with_host_tier(graph: MemGraph, limit: int) -> tuple[MemGraph, tuple[int, int]]:
    """The graph with offloads in host memory where they fit, and pinned bytes for transfers in and out beside them.

    Raises:
        CapacityError: transfers alone need more.
    """
    staging = staging_nbytes(graph, limit)
    return keep_on_host(graph, limit - sum(staging)), staging


def dispatched(graph: MemGraph, name: str, ranks: Ranks) -> Dispatch:
    """How a policy has streams run a graph: freely by ``ranks``, or each lane in the serial order, come what may.

    With ``double-buffering`` a transfer waits besides until the kernel before the one that it serves may start.
    """
    match name:
        case "fixed":
            return fixed(graph, (), {}, 0)
        case "double-buffering":
            return double_buffered(graph, (), {Lane.COMPUTE: 1}, 0)
        case _:
            return Dispatch(graph, ranks, False)


def memory_of(graph: MemGraph, devices: Sequence[Device]) -> Places:
    """The arenas of a run's devices as its ops see them."""
    return devices[0].places if len(devices) == 1 else Arenas(devices, graph.device_nbytes)


def run_on_devices(
    graph: MemGraph,
    devices: Sequence[Device],
    transfers: Transfers,
    staging: tuple[int, int],
    ranks: Ranks,
    tick: Callable[[Trace], None] | None = None,
    stop: threading.Event | None = None,
    in_order: bool = False,
) -> Trace:
    """Run every op; see ``loop.run_ops`` for what is raised."""
    of, slots = lanes(graph, window(devices))
    state = State(graph, ranks, slots, of, in_order)
    return drive(state, Streams(graph, devices, transfers, staging), transfers.describe, 1, tick, stop)
