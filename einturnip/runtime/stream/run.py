"""Runs a memory graph on devices; divides pinned host memory between spill and transfers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import available_memory
from einturnip.core.units import PAGE_NBYTES, format_minimum, format_size
from einturnip.devices.protocol import ArenaArrays, Device
from einturnip.memgraph.spill_placement import keep_on_host
from einturnip.memgraph.types import HOST, Lane, MemGraph, OpKind
from einturnip.memgraph.views import Array
from einturnip.runtime.host.event_loop import drive
from einturnip.runtime.host.executor import TransferEnds
from einturnip.runtime.scheduler.policies import Ranks
from einturnip.runtime.scheduler.state_machine import Schedule, SchedulerState, lanes
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.runtime.simulate.dispatch import DispatchPlan, double_buffered, fixed
from einturnip.runtime.stream.driver import StreamEngine, window
from einturnip.tuning.memory import STAGED_IN, STAGED_OUT, STREAM_PROCESS_NBYTES


def pinned_limit(host_memory: int | None, resident: int, arena: int = 0) -> int:
    """Return the bytes that a run can pin for transfers and offloads.

    That is ``host_memory`` less the process's own memory, or a quarter of the free memory.

    ``host_memory``: the option ``--host-memory``; None if it is not given. ``resident``: bytes that the process uses.
    ``arena``: bytes of the host's arena, if it is a site.

    Raises:
        CapacityError: the process alone needs all of ``host_memory``.
    """
    if host_memory is None:
        return available_memory() // 4
    needed = resident + STREAM_PROCESS_NBYTES + arena
    available = host_memory - needed
    if available <= 0:
        arenas = f" with the {format_size(arena)} of the site cpu" if arena else " alone"
        raise CapacityError(
            f"the process{arenas} takes {format_minimum(needed)} of host memory, and --host-memory allows "
            f"{format_size(host_memory)}",
            needed,
        )
    return available


def with_host_tier(
    graph: MemGraph, limit: int, direct: frozenset[int] = frozenset()
) -> tuple[MemGraph, tuple[int, int]]:
    """Move spilled values to host memory as far as they fit; return also the buffers for transfers.

    ``limit``: pinned bytes for values and buffers together. The buffers are the bytes for transfers in, and for
    transfers out. ``direct``: tiers whose transfers need no buffer, since they are on the device.

    Raises:
        CapacityError: transfers alone need more than ``limit``.
    """
    staging = staging_nbytes(graph, limit, direct)
    return keep_on_host(graph, limit - sum(staging)), staging


def staging_nbytes(graph: MemGraph, available: int, direct: frozenset[int] = frozenset()) -> tuple[int, int]:
    """Return the pinned bytes for transfers in and for transfers out; together at most ``available``.

    Raises:
        CapacityError: one transfer of the largest size in each direction needs more.
    """
    largest = [_largest(graph, lane, direct) for lane in (Lane.IN, Lane.OUT)]
    if sum(largest) > available:
        raise CapacityError(
            f"transfers need {format_size(sum(largest))} of host memory as buffers, and {format_size(available)} are "
            f"available. help: --host-memory {format_minimum(sum(largest))} or more",
            sum(largest),
        )
    preferred = STAGED_IN * largest[0], STAGED_OUT * largest[1]
    return preferred if sum(preferred) <= available else (available - largest[1], largest[1])


def _largest(graph: MemGraph, lane: Lane, direct: frozenset[int]) -> int:
    """Return the bytes of the largest transfer between the arena and a file, in granules."""
    mine = np.array([kind.lane for kind in OpKind])[graph.kind] == lane
    ptr, rows = (graph.read_ptr, graph.read) if lane == Lane.IN else (graph.write_ptr, graph.write)
    near_ptr, near = (graph.write_ptr, graph.write) if lane == Lane.IN else (graph.read_ptr, graph.read)
    ops = np.flatnonzero(mine)
    ops = ops[~np.isin(rows[ptr[ops], 0], [HOST, *direct])]
    largest = int(near[near_ptr[ops], 2].max(initial=0))
    return -(-largest // PAGE_NBYTES) * PAGE_NBYTES


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


class DeviceArenas:
    """The arenas of several devices as one address space: device ``k`` begins at byte ``k * nbytes``."""

    def __init__(self, devices: Sequence[Device], nbytes: int) -> None:
        self._places = [device.places for device in devices]
        self._nbytes = nbytes

    def array(self, offset: int, shape: Sequence[int], dtype: Any) -> Array:
        """See ArenaArrays."""
        device, place = divmod(offset, self._nbytes)
        return self._places[device].array(place, shape, dtype)


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
    host: int | None = None,
    tick: Callable[[RunTrace], None] | None = None,
    stop: threading.Event | None = None,
) -> RunTrace:
    """Run every op; raises as ``event_loop.run_ops`` does. ``host``: see StreamEngine."""
    return drive(schedule, StreamEngine(graph, devices, transfers, staging, host), transfers.describe, 1, tick, stop)
