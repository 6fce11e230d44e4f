"""Runs a memory graph on devices; divides pinned host memory between spill and transfers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import available_memory
from einturnip.core.units import format_size
from einturnip.devices.protocol import ArenaArrays, Device
from einturnip.memgraph.spill_placement import keep_on_host
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.runtime.host.event_loop import drive
from einturnip.runtime.host.executor import TransferEnds
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.runtime.scheduler.state_machine import Schedule, SchedulerState, lanes
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.runtime.simulate.dispatch import DispatchPlan, double_buffered, fixed
from einturnip.runtime.stream.driver import DeviceArenas, StreamEngine, staging_nbytes, window
from einturnip.tuning.memory import STREAM_PROCESS_NBYTES


def pinned_limit(host_memory: int | None, resident: int) -> int:
    """Return the bytes that a run can pin.

    That is ``host_memory`` less the process's own memory, or a quarter of the free memory.

    ``host_memory``: the option ``--host-memory``; None if it is not given. ``resident``: bytes that the process uses.

    Raises:
        CapacityError: the process alone needs all of ``host_memory``.
    """
    if host_memory is None:
        return available_memory() // 4
    available = host_memory - resident - STREAM_PROCESS_NBYTES
    if available <= 0:
        needed = resident + STREAM_PROCESS_NBYTES
        raise CapacityError(
            f"the process alone takes {format_size(needed)} of host memory, and --host-memory allows "
            f"{format_size(host_memory)}",
            needed,
        )
    return available


def with_host_tier(graph: MemGraph, limit: int) -> tuple[MemGraph, tuple[int, int]]:
    """Move spilled values to host memory as far as they fit; return also the buffers for transfers.

    ``limit``: pinned bytes for values and buffers together. The buffers are the bytes for transfers in, and for
    transfers out.

    Raises:
        CapacityError: transfers alone need more than ``limit``.
    """
    staging = staging_nbytes(graph, limit)
    return keep_on_host(graph, limit - sum(staging)), staging


def dispatched(graph: MemGraph, name: str, ranks: Ranks) -> DispatchPlan:
    """Return the dispatch plan of the policy ``name`` for streams.

    ``fixed`` and ``double-buffering`` run each lane in the serial order; the latter also delays each load until the
    kernel before the one that reads it can start. Any other policy runs ready ops by ``ranks``.
    """
    match name:
        case "fixed":
            return fixed(graph, (), {}, 0)
        case "double-buffering":
            return double_buffered(graph, (), {Lane.COMPUTE: 1}, 0)
        case _:
            return DispatchPlan(graph, ranks, False)


def memory_of(graph: MemGraph, devices: Sequence[Device]) -> ArenaArrays:
    """Return the arenas of a run's devices as one address space."""
    return devices[0].places if len(devices) == 1 else DeviceArenas(devices, graph.device_nbytes)


def one_schedule(run: DispatchPlan, devices: Sequence[Device]) -> SchedulerState:
    """Return a schedule that decides for all devices."""
    of, slots = lanes(run.graph, window(devices))
    return SchedulerState(run.graph, run.ranks, slots, of, run.in_order)


def run_on_devices(
    graph: MemGraph,
    schedule: Schedule,
    devices: Sequence[Device],
    transfers: TransferEnds,
    staging: tuple[int, int],
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
) -> RunTrace:
    """Run every op; raises as ``event_loop.run_ops`` does."""
    return drive(schedule, StreamEngine(graph, devices, transfers, staging), transfers.describe, 1, tick, stop)
