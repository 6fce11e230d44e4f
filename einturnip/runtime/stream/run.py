"""A memory graph on devices with streams: what lies where in host memory, and the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from einturnip.core.errors import CapacityError
from einturnip.core.process_limits import available_memory
from einturnip.core.units import format_size
from einturnip.devices.protocol import ArenaArrays, Device
from einturnip.memgraph.spill_placement import keep_on_host
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.host.event_loop import drive
from einturnip.runtime.host.executor import TransferEnds
from einturnip.runtime.scheduler.lanes import lanes
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.runtime.simulate.dispatch import DispatchPlan, double_buffered, fixed
from einturnip.runtime.stream.driver import DeviceArenas, StreamEngine, staging_nbytes, window

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


def dispatched(graph: MemGraph, name: str, ranks: Ranks) -> DispatchPlan:
    """How a policy has streams run a graph: freely by ``ranks``, or each lane in the serial order, come what may.

    With ``double-buffering`` a transfer waits besides until the kernel before the one that it serves may start.
    """
    match name:
        case "fixed":
            return fixed(graph, (), {}, 0)
        case "double-buffering":
            return double_buffered(graph, (), {Lane.COMPUTE: 1}, 0)
        case _:
            return DispatchPlan(graph, ranks, False)


def memory_of(graph: MemGraph, devices: Sequence[Device]) -> ArenaArrays:
    """The arenas of a run's devices as its ops see them."""
    return devices[0].places if len(devices) == 1 else DeviceArenas(devices, graph.device_nbytes)


def run_on_devices(
    graph: MemGraph,
    devices: Sequence[Device],
    transfers: TransferEnds,
    staging: tuple[int, int],
    ranks: Ranks,
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
    in_order: bool = False,
) -> RunTrace:
    """Run every op; see ``loop.run_ops`` for what is raised."""
    of, slots = lanes(graph, window(devices))
    state = SchedulerState(graph, ranks, slots, of, in_order)
    return drive(state, StreamEngine(graph, devices, transfers, staging), transfers.describe, 1, tick, stop)
