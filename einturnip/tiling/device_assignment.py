"""Assigns kernel calls to devices: few bytes moved, and the work of the whole graph balanced.

Calls are assigned level by level (nodes that do not depend on each other form one level), the largest first, in groups
of one call per device. A group may be assigned in any way that loads no device more than if the largest call went to
the least loaded device; among these assignments the one that moves the fewest bytes is taken. So work that is uneven,
or has fewer calls than devices, is balanced by other nodes, and no device ever runs ahead by more than one call. Then
groups are reassigned, now knowing their readers, while that moves fewer bytes and loads no device more. Bytes of an
input count once for each device that reads them.

A device may have several shares of the work, by which its load is measured: then a group has one call per share.

An accumulated tile is summed on each device that has a part of it, split, and sent to its readers.

Source: Graham, Bounds on multiprocessing timing anomalies (1969), for the order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.tiling.data_flow import Bools, DataFlow, TensorAtoms, data_flow, levels
from einturnip.tiling.matching import matching
from einturnip.tiling.types import Decomposition
from einturnip.tuning.search import ASSIGNMENT_PASSES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FORBIDDEN = 1e30


@dataclass(frozen=True)
class DeviceAssignment:
    """The device of each call of each node, and for each tensor the owner of each complete atom."""

    flow: DataFlow
    devices: int
    of: dict[int, Ints]
    owner: dict[int, Ints]

    @property
    def input_nbytes(self) -> int:
        """Return the bytes of inputs that devices read; each device reads the same part once."""
        graph = self.flow.decomposition.graph
        parts = {
            (device, operand, box)
            for i, calls in self.flow.calls.items()
            for device, reads in zip(self.of[i].tolist(), calls.reads, strict=True)
            for operand, box in reads
            if operand not in self.flow.calls
        }
        return sum(math.prod(hi - lo for lo, hi in box) * graph.nodes[o].dtype.itemsize for _, o, box in parts)

    @property
    def flops(self) -> list[float]:
        """Return the operations on each device."""
        total = np.zeros(self.devices)
        for i, calls in self.flow.calls.items():
            np.add.at(total, self.of[i], calls.flops)
        found: list[float] = total.tolist()
        return found

    @property
    def moved_nbytes(self) -> int:
        """Return the bytes that pass between devices."""
        return int(sum(_cost(self, i) for i in self.flow.tensors))


def assign_calls(decomposition: Decomposition, devices: int, shares: Sequence[int] | None = None) -> DeviceAssignment:
    """Assign a decomposition's calls to devices, balanced over the whole graph.

    ``shares``: the device of each share of the work; by default each device has one.
    """
    return _Assigner(decomposition, devices, shares).run()


def assign_calls_by_node(decomposition: Decomposition, devices: int) -> DeviceAssignment:
    """Assign calls with every node balanced separately; a baseline for ``assign_calls``."""
    return _Assigner(decomposition, devices, by_node=True).run()


class _Assigner:
    """A partial assignment, with the load of each share of the work."""

    def __init__(
        self, decomposition: Decomposition, devices: int, shares: Sequence[int] | None = None, by_node: bool = False
    ) -> None:
        self.flow = data_flow(decomposition)
        self.devices = devices
        self.by_node = by_node
        self.level = levels(decomposition.graph)
        self.device = np.array(range(devices) if shares is None else shares, np.int64)  # of each share
        self.load = np.zeros(len(self.device))
        self.share: dict[int, Ints] = {}  # of each call of a node
        self.found = DeviceAssignment(self.flow, devices, {}, {})
        self._costs: dict[int, float] = {}  # of tensors whose makers and readers have not changed since
        for i, calls in self.flow.calls.items():
            self.found.of[i] = np.full(len(calls.keys), -1, np.int64)
            self.share[i] = self.found.of[i].copy()

    def run(self) -> DeviceAssignment:
        """Assign every group, then reassign."""
        groups = self._groups()
        for i, members in groups:
            self._place(i, members)
        for _ in range(0 if self.by_node else ASSIGNMENT_PASSES):
            if not sum([self._reassign(i, members) for i, members in groups]):
                break
        for i in self.flow.tensors:
            self.found.owner[i] = owners(self.found, i)
        return self.found

    def _groups(self) -> list[tuple[int, Ints]]:
        """Yield (node, calls) in the order of assignment."""
        calls = self.flow.calls
        order = sorted(
            calls, key=lambda i: (i,) if self.by_node else (self.level[i], -calls[i].flops.max(initial=0), i)
        )
        groups, n = [], len(self.device)
        for i in order:
            largest = np.argsort(-calls[i].flops, kind="stable")
            groups += [(i, largest[lo : lo + n]) for lo in range(0, len(largest), n)]
        return groups

    def _place(self, i: int, members: Ints) -> None:
        work = self.flow.calls[i].flops[members]
        if self.by_node and members[0] == np.argmax(self.flow.calls[i].flops):
            self.load[:] = 0
        where = assigned(self._fetch_costs(i, members)[:, self.device], work, self.load)
        self._assign(i, members, where)
        self.load[where] += work

    def _assign(self, i: int, members: Ints, shares: Ints) -> None:
        self.share[i][members] = shares
        self.found.of[i][members] = self.device[shares]

    def _fetch_costs(self, i: int, members: Ints) -> Floats:
        """Return the bytes that each call would fetch on each device."""
        costs = np.zeros((len(members), self.devices))
        for u in self.flow.reads[i]:
            tensor = self.flow.tensors[u]
            there = _makers(self.found, u) | readers_of_atoms(self.found, u)
            costs += _lacking_nbytes(tensor.needs[tensor.readers.index(i)][members], there, tensor.nbytes)
        for tensor in self.flow.shared_by_node[i]:
            there = reading(self.found, tensor)
            costs += _lacking_nbytes(tensor.needs[tensor.readers.index(i)][members], there, tensor.nbytes)
        return costs

    def _cost_of(self, i: int) -> float:
        """Return the bytes that move for node ``i``: those it reads and makes, and those shared in inputs."""
        moved = 0.0
        for u in (*self.flow.reads[i], i):
            if u not in self._costs:
                self._costs[u] = _cost(self.found, u)
            moved += self._costs[u]
        return moved + sum(float(t.nbytes @ reading(self.found, t).sum(1)) for t in self.flow.shared_by_node[i])

    def _reassign(self, i: int, members: Ints) -> bool:
        """Reassign a group if that moves fewer bytes; return whether it did."""
        of, work = self.found.of[i], self.flow.calls[i].flops[members]
        before = self.share[i][members].copy()
        cost = self._cost_of(i)
        if not cost:
            return False
        max_load = self.load.max()
        of[members] = -1
        self.load[before] -= work
        costs = self._fetch_costs(i, members)
        tensor = self.flow.tensors[i]
        if tensor.readers:
            mine = tensor.tile[None, :] == self.flow.calls[i].tile[members][:, None]
            costs += (mine * tensor.nbytes) @ (
                (n := readers_of_atoms(self.found, i)).sum(1)[:, None] - n.astype(np.float64)
            )
        costs, known = costs[:, self.device], self._costs
        if (
            costs[np.arange(len(members)), before].sum() > costs.min(1).sum()
        ):  # another device may be cheaper for a call
            where = assigned(costs, work, self.load)
            self._assign(i, members, where)
            changed = {*self.flow.reads[i], i}
            self._costs = {u: nbytes for u, nbytes in known.items() if u not in changed}
            better = self._cost_of(i) < cost
            if better and (self.load[where] + work).max() <= max_load * (1 + 1e-9):
                self.load[where] += work
                return True
        self._assign(i, members, before)
        self.load[before] += work
        self._costs = known
        return False


def _lacking_nbytes(needs: Bools, there: Bools, nbytes: Floats) -> Floats:
    """Return for each call and device the bytes of atoms that the call needs and the device lacks.

    Both matrices are mostly false with many devices, so only pairs of a call and a device that has one of its atoms are
    visited.

    Shapes:
        needs: (calls, atoms). there: (atoms, devices). nbytes: of each atom. result: (calls, devices).
    """
    call, atom = np.nonzero(needs)
    holder, device = np.nonzero(there)
    first, last = (np.searchsorted(holder, atom, side=side) for side in ("left", "right"))
    count = last - first
    pair = np.repeat(np.arange(len(atom)), count)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count) + first[pair]
    present = np.zeros(needs.shape[0] * there.shape[1])
    np.add.at(present, call[pair] * there.shape[1] + device[place], nbytes[atom[pair]])
    found: Floats = (needs @ nbytes)[:, None] - present.reshape(needs.shape[0], there.shape[1])
    return found


def _makers(found: DeviceAssignment, i: int) -> Bools:
    """Return the devices that make a part of each atom."""
    tensor, calls = found.flow.tensors[i], found.flow.calls[i]
    makes = np.zeros((int(calls.tile.max(initial=0)) + 1, found.devices), bool)
    placed = found.of[i] >= 0
    makes[calls.tile[placed], found.of[i][placed]] = True
    rows: Bools = makes[tensor.tile]
    return rows


def readers_of_atoms(found: DeviceAssignment, i: int) -> Bools:
    """Return the devices that read each atom of a computed tensor."""
    return reading(found, found.flow.tensors[i])


def reading(found: DeviceAssignment, tensor: TensorAtoms) -> Bools:
    """Return the devices that read each atom."""
    reads = np.zeros((len(tensor.tile), found.devices), bool)
    for j, needs in zip(tensor.readers, tensor.needs, strict=True):
        device = found.of[j]
        order = np.argsort(device, kind="stable")[np.count_nonzero(device < 0) :]
        if len(order):
            devices, first = np.unique(device[order], return_index=True)
            one_each = len(devices) == len(order)
            some = needs[order] if one_each else np.logical_or.reduceat(needs[order], first, axis=0)
            reads[:, devices] |= some.T
    return reads


def owners(found: DeviceAssignment, i: int) -> Ints:
    """Return the owner of each complete atom: its maker, or the one of several that saves the most bytes."""
    tensor = found.flow.tensors[i]
    holders = _makers(found, i)
    several = holders.sum(1) > 1
    gain = (
        holders * tensor.state_nbytes[:, None]
        + (readers_of_atoms(found, i) * tensor.nbytes[:, None]) * several[:, None]
    )
    gain[holders] += 0.5
    best: Ints = gain.argmax(1)
    return best


def transfers(found: DeviceAssignment, i: int, owner: Ints) -> tuple[Bools, Bools]:
    """Return by device the atoms whose parts it sends to their owner, and those that owners send to it."""
    away = np.arange(found.devices)[None, :] != owner[:, None]
    return _makers(found, i) & away, readers_of_atoms(found, i) & away


def _cost(found: DeviceAssignment, i: int) -> float:
    """Return the bytes of one tensor that pass between devices."""
    tensor: TensorAtoms = found.flow.tensors[i]
    parts, wholes = transfers(found, i, found.owner[i] if i in found.owner else owners(found, i))
    return float(tensor.state_nbytes @ parts.sum(1) + tensor.nbytes @ wholes.sum(1))


def assigned(costs: Floats, work: Floats, load: Floats) -> Ints:
    """Return a distinct device for each call: minimal maximum load first, then minimal cost.

    Shapes:
        costs: (calls, devices), no more calls than devices. work: of each call, descending. load: of each device.
    """
    greedy_loads = np.sort(load)[: len(work)] + work
    max_load = max(float(greedy_loads.max(initial=0)), float(load.max()))
    allowed = load[None, :] + work[:, None] <= max_load * (1 + 1e-9)
    bounded = np.where(allowed, costs, FORBIDDEN)
    if len(work) < len(load):  # among equally cheap devices, prefer the one with the lowest load
        bounded = bounded + load / (load.max() + 1) * 0.25
    first = bounded.argmin(1)
    if len(np.unique(first)) == len(first):
        return np.asarray(first, np.int64)
    return matching(bounded)
