"""Simulates a memory graph on a described machine: makespan, bytes of each link, stalls by cause.

Durations may have random noise, so that dispatch orders can be compared under uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.described_machines import PEER_LINK, DescribedMachine
from einturnip.memgraph.types import COMPUTE, DISK, FILES, HOST, Lane, MemGraph, OpKind
from einturnip.runtime.simulate.dispatch import Dispatcher, DispatchPlan, free_order
from einturnip.runtime.simulate.machine_prices import far_memory
from einturnip.runtime.simulate.virtual_clock import VirtualTimeline, run
from einturnip.taskgraph.types import TaskGraph

CAUSES = ("transfer", "memory", "dependency", "idle")
"""Causes of stalls; see Simulation."""


@dataclass(frozen=True, slots=True)
class TimingNoise:
    """Multiplies durations by exp(s N - s²/2) for standard normal N, which keeps their mean.

    ``transfers``, ``kernels``: s for these ops. A kernel gets the same noise in every graph of its program, a transfer
    gets the same noise under every dispatch order of its graph.
    """

    transfers: float = 0.0
    kernels: float = 0.0
    seed: int = 0

    def applied(self, graph: MemGraph) -> NDArray[np.float64]:
        """Return the seconds of the graph's ops with noise."""
        drawn = np.random.default_rng([self.seed, 0]).standard_normal(len(graph.taskgraph))
        normal = np.random.default_rng([self.seed, 1]).standard_normal(len(graph))
        running = (graph.task >= 0) & (graph.kind != OpKind.LOAD) & (graph.kind != OpKind.RELOAD)
        normal[running] = drawn[_ranked(graph.taskgraph)[graph.task[running]]]
        compute = np.array([kind.lane == Lane.COMPUTE for kind in OpKind])[graph.kind]
        sigma = np.where(compute, self.kernels, self.transfers)
        noisy: NDArray[np.float64] = graph.seconds * np.exp(sigma * normal - sigma**2 / 2)
        return noisy


def _ranked(tasks: TaskGraph) -> NDArray[np.int64]:
    """Return each task's rank by kind, node and key, which does not depend on the tasks' order."""
    keys = [tuple(tasks.key[a:b].tolist()) for a, b in pairwise(tasks.key_ptr.tolist())]
    names = list(zip(tasks.kind.tolist(), tasks.node.tolist(), keys, range(len(tasks)), strict=True))
    place = np.empty(len(tasks), np.int64)
    place[[name[3] for name in sorted(names)]] = np.arange(len(tasks))
    return place


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of a run on the virtual clock. Units: seconds, bytes.

    ``busy``: seconds of all kernels. ``links``: bytes moved and busy seconds of each link, as the sum and the mean over
    devices. ``stalls``: idle seconds of compute slots by cause: a read had not ended (transfer), bytes of the arena
    were not yet free (memory), another kernel had not ended (dependency), no kernel was left (idle).
    """

    makespan: float
    busy: float
    links: dict[str, tuple[int, float]]
    stalls: dict[str, float]
    ran: VirtualTimeline


def simulate_on(
    graph: MemGraph, machine: DescribedMachine, dispatcher: Dispatcher = free_order, noise: TimingNoise | None = None
) -> Simulation:
    """Simulate ``graph`` on ``machine``.

    Ops take the graph's own seconds, so ``priced`` should have set them.
    """
    names, lanes = lanes_of(graph, machine)
    slots = slots_of(names, machine)
    of = lanes.tolist()
    noise = noise or TimingNoise()
    dispatch = dispatcher(graph, of, slots, noise.seed)
    seconds = noise.applied(graph)
    ran = run(dispatch.graph, dispatch.ranks, slots, seconds.tolist(), of, dispatch.in_order)
    nbytes = np.bincount(lanes, _moved_nbytes(graph), len(names))
    busy = np.bincount(lanes, seconds, len(names))
    links = {}
    for name in dict.fromkeys(names[graph.devices :]):
        same = [lane for lane, other in enumerate(names) if other == name]
        links[name] = int(nbytes[same].sum()), float(busy[same].mean())
    stalls = _stalls(dispatch, of, slots, ran, graph.devices)
    return Simulation(ran.makespan, float(busy[: graph.devices].sum()), links, stalls, ran)


def lanes_of(graph: MemGraph, machine: DescribedMachine) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the lanes, and the lane of each op.

    The first lanes compute, one for each device. Each link that the graph uses has its own lane, one for each device
    that uses it unless they share it; a transfer between devices takes the receiver's.
    """
    device = graph.op_devices().astype(np.int64)
    names, lanes, known = ["compute"] * graph.devices, device.copy(), dict[tuple[str, int], int]()
    op_lanes = np.array([kind.lane for kind in OpKind])[graph.kind]

    def assign(ops: NDArray[np.int64], link: str, far: str) -> None:
        for k in [0] if far in machine.shared and len(ops) else np.unique(device[ops]).tolist():
            if (link, k) not in known:
                known[link, k] = len(names)
                names.append(link)
            lanes[ops if far in machine.shared else ops[device[ops] == k]] = known[link, k]

    for direction, rows, ptr in ((Lane.IN, graph.read, graph.read_ptr), (Lane.OUT, graph.write, graph.write_ptr)):
        ops = np.flatnonzero(op_lanes == direction)
        tiers = rows[ptr[ops], 0]
        for tier in (HOST, DISK, FILES):
            mine, far = ops[(tiers == tier) if tier != FILES else (tiers >= FILES)], far_memory(tier, machine)
            assign(mine, f"{far}->device" if direction == Lane.IN else f"device->{far}", far)
    assign(np.flatnonzero(graph.between_devices()), PEER_LINK, "device")
    return names, lanes


def slots_of(names: list[str], machine: DescribedMachine) -> dict[int, int]:
    """Return the number of ops that each lane runs at once."""
    return {lane: machine.workers if name == "compute" else 1 for lane, name in enumerate(names)}


def _moved_nbytes(graph: MemGraph) -> NDArray[np.int64]:
    moved: NDArray[np.int64] = graph.read[np.minimum(graph.read_ptr[:-1], max(0, len(graph.read) - 1)), 2]
    return moved


def _stalls(
    dispatch: DispatchPlan, lanes: list[int], slots: Mapping[int, int], ran: VirtualTimeline, devices: int
) -> dict[str, float]:
    """Return the idle seconds of compute slots by cause; each gap before a kernel is traced back in time."""
    back = _CriticalPath(dispatch, lanes, ran, devices)
    stalls = dict.fromkeys(CAUSES, 0.0)
    kernels = sorted((x for x, lane in enumerate(lanes) if lane < devices), key=ran.begin.__getitem__)
    free_since = [[0.0] * slots[lane] for lane in range(devices)]
    for x in kernels:
        free = free_since[lanes[x]]
        slot = max((s for s, t in enumerate(free) if t <= ran.begin[x] + 1e-15), key=free.__getitem__)
        if ran.begin[x] > free[slot]:
            back.blame(x, free[slot], stalls)
        free[slot] = ran.end[x]
    stalls["idle"] += sum(ran.makespan - t for free in free_since for t in free)
    return stalls


class _CriticalPath:
    """Traces the begin of an op back through the ops that it waited for."""

    def __init__(self, dispatch: DispatchPlan, lanes: list[int], ran: VirtualTimeline, devices: int) -> None:
        graph = dispatch.graph
        self.devices = devices
        self.ran = ran
        self.lanes = lanes
        self.ptr, self.after = graph.after_ptr.tolist(), graph.after.tolist()
        self.kind = graph.kind.tolist()
        self.ends: dict[tuple[int, float], int] = {(lanes[x], t): x for x, t in enumerate(ran.end)}
        self.reads, self.writes = _values(graph.read_ptr, graph.read), _values(graph.write_ptr, graph.write)

    def blame(self, x: int, since: float, stalls: dict[str, float]) -> None:
        """Distribute the time from ``since`` to the begin of ``x`` over the causes."""
        upto = self.ran.begin[x]
        memory = False  # once an op waited for free bytes, all that happened earlier counts as that wait too
        while upto > since:
            waited = self._binding(x)
            if waited < 0:
                stalls["idle"] += upto - since
                return
            lane = self.lanes[waited]
            memory = memory or not (self.writes[waited] & self.reads[x])
            cause = "memory" if memory else "dependency" if lane < self.devices else "transfer"
            begin = max(since, self.ran.begin[waited])
            stalls[cause] += max(0.0, upto - begin)
            x, upto = waited, begin

    def _binding(self, x: int) -> int:
        """Return the op whose end let ``x`` begin.

        This is its last dependency to end, or the op before it in its lane.
        """
        begin, end = self.ran.begin[x], self.ran.end
        last = max(self.after[self.ptr[x] : self.ptr[x + 1]], key=end.__getitem__, default=-1)
        if last >= 0 and end[last] >= begin:
            return last
        before = self.ends.get((self.lanes[x], begin), -1)
        return before if before >= 0 and before != x else last


def _values(ptr: NDArray[np.int64], rows: NDArray[np.int64]) -> list[frozenset[int]]:
    """Return, for each op, the values that it accesses in the device's memory."""
    starts = ptr.tolist()
    table = rows[:, [0, 3]].tolist()
    return [
        frozenset(value for tier, value in table[a:b] if tier == COMPUTE)
        for a, b in zip(starts[:-1], starts[1:], strict=True)
    ]
