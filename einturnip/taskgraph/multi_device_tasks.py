"""Lowers a device assignment to the tasks of P devices.

Loads, kernels, moves, aggregations and stores. A task reads local values. Only a move reads from another device, and it
brings all parts that one tile needs there at once. Partial sums of a tile are combined where they are made, split, and
sent to the devices that own each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.kernel_time import kernel_seconds
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinsumNode, InputNode
from einturnip.ir.region import Region
from einturnip.tiling.data_flow import NodeCalls
from einturnip.tiling.device_assignment import DeviceAssignment, transfers
from einturnip.tiling.pieces import points
from einturnip.tiling.types import Box

Groups = Mapping[tuple[int, ...], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class DeviceTask:
    """One task of one device. ``kind``: load, kernel, move, aggregate or store.

    A move comes from ``source``.
    """

    id: int
    kind: str
    node: int
    key: tuple[int, ...]
    device: int
    source: int
    inputs: tuple[int, ...]
    nbytes: int
    flops: float
    seconds: float


def placed_tasks(placement: DeviceAssignment, machine: Machine) -> list[DeviceTask]:
    """Return the tasks, operands before readers."""
    return _Lowering(placement, machine).run()


class _Lowering:
    """Tasks so far, and the tasks that bring each atom to each device."""

    def __init__(self, placement: DeviceAssignment, machine: Machine) -> None:
        self.p = placement
        self.d = placement.flow.decomposition
        self.machine = machine
        self.tasks: list[DeviceTask] = []
        self.loads: dict[tuple[int, Box, int], int] = {}
        self.seconds: dict[tuple[int, tuple[int, ...]], float] = {}
        # The task that brings atom a of node i to device d: at[i][a, d].
        self.at: dict[int, NDArray[np.int64]] = {}

    def run(self) -> list[DeviceTask]:
        for i, calls in self.p.flow.calls.items():
            made = [self._kernel(i, calls, c) for c in range(len(calls.keys))]
            self._distribute(i, calls, made)
        for number, (_, i) in enumerate(self.d.graph.outputs):
            self._store(number, i)
        return self.tasks

    def _add(
        self,
        kind: str,
        node: int,
        key: Iterable[int],
        device: int,
        inputs: Iterable[int],
        nbytes: float,
        source: int = -1,
    ) -> int:
        rates = {"load": self.machine.read_bandwidth, "store": self.machine.write_bandwidth}
        seconds = self.machine.op_latency + nbytes / rates.get(kind, self.machine.memory_bandwidth)
        own = tuple(sorted(set(inputs)))
        task = DeviceTask(len(self.tasks), kind, node, tuple(key), device, source, own, int(nbytes), 0.0, seconds)
        self.tasks.append(task)
        return task.id

    def _kernel(self, i: int, calls: NodeCalls, c: int) -> int:
        """Emit one call with the loads that it needs."""
        device, inputs = int(self.p.of[i][c]), []
        for operand, box in calls.reads[c]:
            if isinstance(self.d.graph.nodes[operand], InputNode):
                inputs.append(self._load(operand, box, device))
        for u in self.p.flow.reads[i]:
            tensor = self.p.flow.tensors[u]
            mine = tensor.needs[tensor.readers.index(i)][c]
            inputs += np.unique(self.at[u][mine, device]).tolist()
        key = calls.keys[c]
        box = self.d.output(i).box(key[: len(self.d.output(i).bounds)])
        nbytes = points(box) * self.d.graph.nodes[i].dtype.itemsize
        number = self._add("kernel", i, key, device, inputs, nbytes)
        taken = self._seconds(i, key) or self.tasks[number].seconds
        self.tasks[number] = replace(self.tasks[number], flops=float(calls.flops[c]), seconds=taken)
        return number

    def _seconds(self, i: int, key: tuple[int, ...]) -> float:
        """Return the predicted seconds of one call; 0 for a concatenation, which costs a copy."""
        node = self.d.graph.nodes[i]
        if not isinstance(node, EinsumNode):
            return 0.0
        extents = tuple(hi - lo for lo, hi in self.d.partitionings[i].box(key))
        known = self.seconds.get((id(node.einsum), extents))
        if known is None:
            known = self.seconds[id(node.einsum), extents] = kernel_seconds(node.einsum, extents, self.machine)
        return known

    def _load(self, i: int, box: Box, device: int) -> int:
        known = self.loads.get((i, box, device))
        if known is None:
            key = (lo for lo, _ in box)
            nbytes = points(box) * self.d.graph.nodes[i].dtype.itemsize
            known = self.loads[i, box, device] = self._add("load", i, key, device, (), nbytes)
        return known

    def _distribute(self, i: int, calls: NodeCalls, made: list[int]) -> None:
        """Combine the results of several calls and send every atom to its readers."""
        tensor, owner = self.p.flow.tensors[i], self.p.owner[i]
        parts, wholes = transfers(self.p, i, owner)
        at = self.at[i] = np.full(wholes.shape, -1, np.int64)
        makers: dict[tuple[int, int], list[int]] = {}
        for task, tile in zip(made, calls.tile.tolist(), strict=True):
            makers.setdefault((tile, self.tasks[task].device), []).append(task)
        keys = list(self.d.output(i).each())
        for (tile, where), atoms in _groups(tensor.tile, owner).items():
            key = keys[tile]
            inputs = list(makers.get((tile, where), ()))
            for device in np.flatnonzero(parts[atoms[0]]).tolist():
                nbytes = tensor.state_nbytes[atoms].sum()
                inputs.append(self._add("move", i, key, where, makers[tile, device], nbytes, device))
            if len(inputs) > 1 or self._finished(i):
                whole = self._add("aggregate", i, key, where, inputs, tensor.nbytes[atoms].sum())
            else:
                (whole,) = inputs
            at[atoms, where] = whole
            for device in np.flatnonzero(wholes[atoms].any(0)).tolist():
                some = atoms[wholes[atoms, device]]
                at[some, device] = self._add("move", i, key, device, [whole], tensor.nbytes[some].sum(), where)

    def _finished(self, i: int) -> bool:
        """Return whether accumulated states need a finalizing step."""
        node = self.d.graph.nodes[i]
        if not isinstance(node, EinsumNode) or isinstance(node.einsum, Region):
            return False
        e, cut = node.einsum, self.d.partitionings[i].counts
        summed = any(cut[p] > 1 for p in e.aggregated)
        return summed and e.aggregation is not None and not e.aggregation.finalize_is_identity

    def _store(self, number: int, i: int) -> None:
        node = self.d.graph.nodes[i]
        if isinstance(node, InputNode):
            whole: Box = tuple((0, n) for n in node.shape)
            nbytes = points(whole) * node.dtype.itemsize
            self._add("store", i, (), 0, [self._load(i, whole, 0)], nbytes)
            return
        tensor, owner = self.p.flow.tensors[i], self.p.owner[i]
        keys = list(self.d.output(i).each())
        for (tile, where), atoms in _groups(tensor.tile, owner).items():
            whole_of = np.unique(self.at[i][atoms, where]).tolist()
            self._add("store", i, keys[tile], where, whole_of, tensor.nbytes[atoms].sum())


def _groups(tile: NDArray[np.int64], owner: NDArray[np.int64]) -> Groups:
    """Group atoms by tile and by the device that owns them."""
    found: dict[tuple[int, ...], list[int]] = {}
    for a, pair in enumerate(zip(tile.tolist(), owner.tolist(), strict=True)):
        found.setdefault(pair, []).append(a)
    return {pair: np.array(atoms, np.int64) for pair, atoms in found.items()}
