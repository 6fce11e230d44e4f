"""Predicts the seconds of ops on a described machine: rooflines for kernels, rates of links.

A kernel takes the longer of the time of its operations and the time of its bytes (Williams et al., 2009).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import BindError
from einturnip.core.units import format_size
from einturnip.cost.described_machines import DescribedMachine
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import contraction
from einturnip.ir.region import Region
from einturnip.memgraph.types import DISK, HOST, Lane, MemGraph, OpKind
from einturnip.taskgraph.types import TaskGraph, TaskKind

Floats = NDArray[np.float64]


def task_seconds(tasks: TaskGraph, machine: DescribedMachine) -> Floats:
    """Return the seconds of each task's kernel on ``machine``; for a host, the task graph's own."""
    kernels = machine.kernels
    if kernels is None:
        return tasks.seconds
    rate = np.where(products(tasks), kernels.product_flops, kernels.scalar_flops)
    moved = tasks.value_nbytes[tasks.value].astype(np.float64)
    task = np.repeat(np.arange(len(tasks)), np.diff(tasks.read_ptr))
    np.add.at(moved, task, tasks.value_nbytes[tasks.read])
    seconds: Floats = kernels.latency + np.maximum(tasks.flops / rate, moved / kernels.bandwidth)
    return seconds


def products(tasks: TaskGraph) -> NDArray[np.bool_]:
    """Return, for each task, whether its kernel is or contains a matrix product."""
    nodes = tasks.decomposition.graph.nodes
    found = np.array([*(isinstance(node, EinsumNode) and _has_product(node) for node in nodes), False])
    multiplying: NDArray[np.bool_] = found[np.where(tasks.kind != TaskKind.STORE, tasks.node, -1)]
    return multiplying


def _has_product(node: EinsumNode) -> bool:
    e = node.einsum
    if isinstance(e, Region):
        return any(contraction(step.einsum) is not None for step in e.steps)
    return contraction(e) is not None


def priced(graph: MemGraph, machine: DescribedMachine) -> MemGraph:
    """Return the graph with the seconds of its ops on ``machine``.

    It spills to host memory if that is large enough, and to disk if there is none.

    Raises:
        BindError: the machine has fewer devices than the graph, or one has less memory than its part of the plan.
    """
    if graph.devices > machine.devices:
        raise BindError(f"the plan is for {graph.devices} devices; {machine.name} has {machine.devices}")
    _require_memory(graph, machine)
    if 0 < graph.spill_nbytes <= machine.memory["host"] and not graph.host_nbytes:
        graph = replace(_spilling(graph, DISK, HOST), host_nbytes=graph.spill_nbytes, spill_nbytes=0)
    elif graph.host_nbytes and not machine.memory["host"]:
        graph = replace(
            _spilling(graph, HOST, DISK), host_nbytes=0, spill_nbytes=graph.spill_nbytes + graph.host_nbytes
        )
    op_lanes = np.array([kind.lane for kind in OpKind])[graph.kind]
    seconds = np.where(graph.task >= 0, task_seconds(graph.taskgraph, machine)[graph.task], 0.0)
    if machine.rates and machine.kernels is not None:
        seconds = seconds / np.array(machine.rates)[graph.op_devices()]
    for direction, rows, ptr in ((Lane.IN, graph.read, graph.read_ptr), (Lane.OUT, graph.write, graph.write_ptr)):
        ops = np.flatnonzero(op_lanes == direction)
        for tier, nbytes, op in zip(rows[ptr[ops], 0].tolist(), rows[ptr[ops], 2].tolist(), ops.tolist(), strict=True):
            far = far_memory(tier, machine)
            link = machine.link(far, "device") if direction == Lane.IN else machine.link("device", far)
            seconds[op] = link.seconds(nbytes)
    between = np.flatnonzero(graph.between_devices())
    if len(between):
        peer = machine.link("device", "device")
        seconds[between] = peer.latency + graph.read[graph.read_ptr[between], 2] / peer.bandwidth
    return replace(graph, seconds=seconds)


def _require_memory(graph: MemGraph, machine: DescribedMachine) -> None:
    """Refuse a plan with a device that uses more memory than the machine's has."""
    for device, (used, memory) in enumerate(zip(graph.used_nbytes().tolist(), machine.device_memory, strict=False)):
        if used > memory:
            raise BindError(
                f"the plan uses {format_size(used)} on device {device}, and device {device} of {machine.name} has "
                f"{format_size(memory)}. help: --arena {memory}, or a size for each device"
            )


def _spilling(graph: MemGraph, tier: int, to: int) -> MemGraph:
    """Return the graph with what it spills to one tier behind what it spills to the other."""
    read, write = graph.read.copy(), graph.write.copy()
    for rows in (read, write):
        moved = rows[:, 0] == tier
        rows[moved, 0] = to
        rows[moved, 1] += graph.spill_nbytes if to == DISK else 0
    return replace(graph, read=read, write=write)


def far_memory(tier: int, machine: DescribedMachine) -> str:
    """Return the name of the machine's memory that holds a tier other than the device's arena."""
    return {HOST: "host", DISK: "disk"}.get(tier, machine.inputs)
