"""Assigns kernel calls to devices: few bytes moved, and the work of the whole graph balanced.

Calls are assigned level by level (nodes that do not depend on each other form one level), the largest first, in groups
of one call per device. A group may be assigned in any way that loads no device more than if the largest call went to
the least loaded device; among these assignments the one that moves the fewest bytes is taken. So work that is uneven,
or has fewer calls than devices, is balanced by other nodes, and no device ever runs ahead by more than one call. Then
groups are reassigned, now knowing their readers, while that moves fewer bytes and loads no device more. Bytes of an
input count once for each device that reads them.

A device may have several shares of the work, by which its load is measured: then a group has one call per share.

In the count of bytes one of the devices that have parts of an accumulated tile receives the others' parts and sends the
total to its readers. Plans combine the parts by trees of as many messages (``tiling.sites``).

Source: Graham, Bounds on multiprocessing timing anomalies (1969), for the order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.core.csr import take_rows
from einturnip.core.distinct import sorted_distinct
from einturnip.tiling.data_flow import DataFlow, TensorAtoms, data_flow, levels
from einturnip.tiling.matching import matching
from einturnip.tiling.types import Decomposition
from einturnip.tuning.sites import ASSIGNMENT_PASSES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FORBIDDEN = 1e30


@dataclass(frozen=True)
class AtomDevices:
    """Some devices of each atom, such as its readers; most atoms have few of many devices.

    Shapes:
        ptr: (atoms + 1,). device: (ptr[-1],), the devices of one atom after the other, ascending.
    """

    ptr: Ints
    device: Ints
    devices: int

    @classmethod
    def of(cls, atom: Ints, device: Ints, atoms: int, devices: int) -> AtomDevices:
        """Return the devices of pairs of an atom and a device, in any order."""
        found, device = np.divmod(sorted_distinct(atom * devices + device), devices)
        return cls(np.searchsorted(found, np.arange(atoms + 1)), device, devices)

    @property
    def atom(self) -> Ints:
        """The atom of each device."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))

    def __or__(self, other: AtomDevices) -> AtomDevices:
        """Return the devices of both."""
        atoms, devices = np.concatenate([self.atom, other.atom]), np.concatenate([self.device, other.device])
        return AtomDevices.of(atoms, devices, len(self.ptr) - 1, self.devices)

    def isin(self, other: AtomDevices) -> NDArray[np.bool_]:
        """Return for each device of each atom whether ``other`` has it."""
        mine, theirs = (some.atom * self.devices + some.device for some in (self, other))
        return np.isin(mine, theirs)

    def total(self, nbytes: Floats) -> float:
        """Return the bytes of all devices' atoms."""
        return float(nbytes @ np.diff(self.ptr))

    def lacking_nbytes(self, call: Ints, atom: Ints, nbytes: Floats, calls: int) -> Floats:
        """Return by call and device the bytes of atoms that the call needs and the device lacks.

        Shapes:
            call, atom: of each need. nbytes: of each atom. result: (calls, devices).
        """
        ptr, at = take_rows(self.ptr, atom)
        each = np.repeat(np.arange(len(atom)), np.diff(ptr))
        place = call[each] * self.devices + self.device[at]
        present = np.bincount(place, nbytes[atom[each]], calls * self.devices).astype(np.float64)
        needed = np.bincount(call, nbytes[atom], calls).astype(np.float64)  # of no atoms the numbers are integers
        return needed[:, None] - present.reshape(calls, self.devices)


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
        self._steps = 0  # attempts to reassign a group
        self._changed: dict[int, int] = {}  # by node, the last step that reassigned some of its calls
        self._tried: dict[int, tuple[int, Floats]] = {}  # by group, its last step, and the loads after it
        for i, calls in self.flow.calls.items():
            self.found.of[i] = np.full(len(calls.keys), -1, np.int64)
            self.share[i] = self.found.of[i].copy()

    def run(self) -> DeviceAssignment:
        """Assign every group, then reassign."""
        groups = self._groups()
        for i, members in groups:
            self._place(i, members)
        for _ in range(0 if self.by_node else ASSIGNMENT_PASSES):
            if not sum([self._reassign_again(k, i, members) for k, (i, members) in enumerate(groups)]):
                break
        for i in self.flow.tensors:
            self.found.owner[i] = owners(self.found, i)
        return self.found

    def _groups(self) -> list[tuple[int, Ints]]:
        """Return (node, calls) in the order of assignment."""
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
            there = _makers(self.found, u) | readers_of_atoms(self.found, u)
            costs += self._lacking_nbytes(self.flow.tensors[u], i, members, there)
        for tensor in self.flow.shared_by_node[i]:
            costs += self._lacking_nbytes(tensor, i, members, reading(self.found, tensor))
        return costs

    def _lacking_nbytes(self, tensor: TensorAtoms, i: int, members: Ints, there: AtomDevices) -> Floats:
        """Return by call and device the bytes that a call reads of a tensor and a device lacks."""
        needs = tensor.needs[tensor.readers.index(i)]
        row = np.full(len(self.found.of[i]), -1, np.int64)
        row[members] = np.arange(len(members))
        mine = row[needs.call] >= 0
        return there.lacking_nbytes(row[needs.call[mine]], needs.atom[mine], tensor.nbytes, len(members))

    def _cost_of(self, i: int) -> float:
        """Return the bytes that move for node ``i``: those it reads and makes, and those shared in inputs."""
        moved = 0.0
        for u in (*self.flow.reads[i], i):
            if u not in self._costs:
                self._costs[u] = _cost(self.found, u)
            moved += self._costs[u]
        return moved + sum(reading(self.found, t).total(t.nbytes) for t in self.flow.shared_by_node[i])

    def _reassign_again(self, k: int, i: int, members: Ints) -> bool:
        """Reassign group ``k``, unless that would repeat its last attempt; return whether it did."""
        step, loads = self._tried.get(k, (-1, self.load))
        near = {i, *self.flow.tensors[i].readers, *self.flow.reads[i]}
        for tensor in (*map(self.flow.tensors.__getitem__, self.flow.reads[i]), *self.flow.shared_by_node[i]):
            near.update(tensor.readers)
        if max(self._changed.get(j, 0) for j in near) <= step and np.array_equal(loads, self.load):
            return False
        self._steps += 1
        better = self._reassign(i, members)
        if better:
            self._changed[i] = self._steps
        self._tried[k] = self._steps - better, self.load.copy()
        return better

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
            ptr, at = take_rows(tensor.tile_ptr, self.flow.calls[i].tile[members])
            call = np.repeat(np.arange(len(members)), np.diff(ptr))
            readers = readers_of_atoms(self.found, i)
            costs += readers.lacking_nbytes(call, tensor.by_tile[at], tensor.nbytes, len(members))
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


def _makers(found: DeviceAssignment, i: int) -> AtomDevices:
    """Return the devices that make a part of each atom."""
    tensor, calls, of = found.flow.tensors[i], found.flow.calls[i], found.of[i]
    placed = of >= 0
    tiles = len(tensor.tile_ptr) - 1
    makes = AtomDevices.of(calls.tile[placed], of[placed], tiles, found.devices)
    ptr, at = take_rows(makes.ptr, tensor.tile)
    return AtomDevices(ptr, makes.device[at], found.devices)


def readers_of_atoms(found: DeviceAssignment, i: int) -> AtomDevices:
    """Return the devices that read each atom of a computed tensor."""
    return reading(found, found.flow.tensors[i])


def reading(found: DeviceAssignment, tensor: TensorAtoms) -> AtomDevices:
    """Return the devices that read each atom."""
    atoms, devices = [], []
    for j, needs in zip(tensor.readers, tensor.needs, strict=True):
        device = found.of[j][needs.call]
        atoms.append(needs.atom[device >= 0])
        devices.append(device[device >= 0])
    nothing = np.empty(0, np.int64)
    return AtomDevices.of(
        np.concatenate([nothing, *atoms]), np.concatenate([nothing, *devices]), len(tensor.tile), found.devices
    )


def owners(found: DeviceAssignment, i: int) -> Ints:
    """Return the owner of each complete atom: its maker, or the one of several that saves the most bytes."""
    tensor, holders = found.flow.tensors[i], _makers(found, i)
    atom = holders.atom
    several = np.diff(holders.ptr)[atom] > 1
    gain = tensor.state_nbytes[atom] + tensor.nbytes[atom] * (several & holders.isin(readers_of_atoms(found, i)))
    best = np.zeros(len(tensor.tile), np.int64)
    order = np.lexsort((-holders.device, gain, atom))  # of equal gains the first device
    best[atom[order]] = holders.device[order]
    return best


def _cost(found: DeviceAssignment, i: int) -> float:
    """Return the bytes of one tensor that pass between devices: states to owners, atoms to readers."""
    tensor = found.flow.tensors[i]
    owner = found.owner[i] if i in found.owner else owners(found, i)
    moved = 0.0
    for some, nbytes in ((_makers(found, i), tensor.state_nbytes), (readers_of_atoms(found, i), tensor.nbytes)):
        moved += float(nbytes[some.atom] @ (some.device != owner[some.atom]))
    return moved


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
