"""Which device makes each tile: few bytes moved, the work of the whole graph in balance.

Calls are placed level by level (nodes that do not wait for each other are one level), the largest first, as many at a
time as there are devices, each on one of its own. Such a group may go wherever the most loaded device then has no more
than if the largest call went to the device with the least work so far; of those choices the one is taken that moves
the fewest bytes. So work that is uneven, or that has fewer calls than devices, is made up for by other nodes' work,
and at no time does one device run ahead by more than that. Then groups are placed again, seeing their readers too, as
long as that moves fewer bytes and loads no device more.

An accumulated tile is summed on each device that has a part of it, cut, and sent to where it is read.

Sources: Graham, Bounds on multiprocessing timing anomalies (1969), for the longest first; Kuhn, The Hungarian method
(1955), in the form of Jonker and Volgenant (1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.tiling.data_flow import Bools, DataFlow, TensorAtoms, data_flow, levels
from einturnip.tiling.types import Decomposition

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# How often all groups are placed again.
PASSES = 2
FORBIDDEN = 1e30


@dataclass(frozen=True)
class DeviceAssignment:
    """For each node the device of each of its calls, and for each tensor the device that holds each atom whole."""

    spread: DataFlow
    devices: int
    of: dict[int, Ints]
    home: dict[int, Ints]

    @property
    def flops(self) -> list[float]:
        """Operations on each device."""
        total = np.zeros(self.devices)
        for i, calls in self.spread.calls.items():
            np.add.at(total, self.of[i], calls.flops)
        found: list[float] = total.tolist()
        return found

    @property
    def moved_nbytes(self) -> int:
        """Bytes that pass from device to device."""
        return int(sum(_cost(self, i) for i in self.spread.tensors))


def place(decomposition: Decomposition, devices: int) -> DeviceAssignment:
    """A decomposition's calls on devices, balanced over the whole graph."""
    return _Assigning(decomposition, devices).run()


def place_by_node(decomposition: Decomposition, devices: int) -> DeviceAssignment:
    """The same, every node balanced by itself: what the above is compared with."""
    return _Assigning(decomposition, devices, by_node=True).run()


class _Assigning:
    """Devices so far. Lives inside ``place``."""

    def __init__(self, decomposition: Decomposition, devices: int, by_node: bool = False) -> None:
        self.spread = data_flow(decomposition)
        self.devices = devices
        self.by_node = by_node
        self.level = levels(decomposition.graph)
        self.load = np.zeros(devices)
        self.found = DeviceAssignment(self.spread, devices, {}, {})
        for i, calls in self.spread.calls.items():
            self.found.of[i] = np.full(len(calls.keys), -1, np.int64)

    def run(self) -> DeviceAssignment:
        """Place every group, then again."""
        groups = self._groups()
        for i, members in groups:
            self._place(i, members)
        for _ in range(0 if self.by_node else PASSES):
            if not sum([self._again(i, members) for i, members in groups]):
                break
        for i in self.spread.tensors:
            self.found.home[i] = homes(self.found, i)
        return self.found

    def _groups(self) -> list[tuple[int, Ints]]:
        """(node, calls) in the order in which they are placed."""
        calls = self.spread.calls
        order = sorted(
            calls, key=lambda i: (i,) if self.by_node else (self.level[i], -calls[i].flops.max(initial=0), i)
        )
        groups = []
        for i in order:
            largest = np.argsort(-calls[i].flops, kind="stable")
            groups += [(i, largest[lo : lo + self.devices]) for lo in range(0, len(largest), self.devices)]
        return groups

    def _place(self, i: int, members: Ints) -> None:
        work = self.spread.calls[i].flops[members]
        if self.by_node and members[0] == np.argmax(self.spread.calls[i].flops):
            self.load[:] = 0
        self.found.of[i][members] = where = assigned(self._into(i, members), work, self.load)
        self.load[where] += work

    def _into(self, i: int, members: Ints) -> Floats:
        """Bytes that each call would have to fetch on each device."""
        costs = np.zeros((len(members), self.devices))
        for u in self.spread.reads[i]:
            tensor = self.spread.tensors[u]
            there = _holders(self.found, u) | readers_of_atoms(self.found, u)
            mine = tensor.needs[tensor.readers.index(i)][members]
            costs += (mine * tensor.nbytes) @ ~there
        return costs

    def _again(self, i: int, members: Ints) -> bool:
        """Place a group anew where that moves fewer bytes; whether it did."""
        of, work = self.found.of[i], self.spread.calls[i].flops[members]
        touched = [*self.spread.reads[i], i]
        before = of[members].copy()
        cost = sum(_cost(self.found, u) for u in touched)
        if not cost:
            return False
        most = self.load.max()
        of[members] = -1
        self.load[before] -= work
        costs = self._into(i, members)
        tensor = self.spread.tensors[i]
        if tensor.readers:
            mine = tensor.tile[None, :] == self.spread.calls[i].tile[members][:, None]
            costs += (mine * tensor.nbytes) @ (
                (n := readers_of_atoms(self.found, i)).sum(1)[:, None] - n.astype(np.float64)
            )
        of[members] = where = assigned(costs, work, self.load)
        better = sum(_cost(self.found, u) for u in touched) < cost
        if better and (self.load[where] + work).max() <= most * (1 + 1e-9):
            self.load[where] += work
            return True
        of[members] = before
        self.load[before] += work
        return False


def _holders(found: DeviceAssignment, i: int) -> Bools:
    """Which devices make a part of each atom."""
    tensor, calls = found.spread.tensors[i], found.spread.calls[i]
    makes = np.zeros((int(calls.tile.max(initial=0)) + 1, found.devices), bool)
    placed = found.of[i] >= 0
    makes[calls.tile[placed], found.of[i][placed]] = True
    rows: Bools = makes[tensor.tile]
    return rows


def readers_of_atoms(found: DeviceAssignment, i: int) -> Bools:
    """Which devices read each atom."""
    tensor = found.spread.tensors[i]
    reads = np.zeros((len(tensor.tile), found.devices), bool)
    for j, needs in zip(tensor.readers, tensor.needs, strict=True):
        for device in np.unique(found.of[j][found.of[j] >= 0]):
            reads[:, device] |= needs[found.of[j] == device].any(0)
    return reads


def homes(found: DeviceAssignment, i: int) -> Ints:
    """The device that holds each atom whole: its maker, or of several that which saves the most bytes."""
    tensor = found.spread.tensors[i]
    holders = _holders(found, i)
    several = holders.sum(1) > 1
    gain = (
        holders * tensor.state_nbytes[:, None]
        + (readers_of_atoms(found, i) * tensor.nbytes[:, None]) * several[:, None]
    )
    gain[holders] += 0.5
    best: Ints = gain.argmax(1)
    return best


def sent(found: DeviceAssignment, i: int, home: Ints) -> tuple[Bools, Bools]:
    """Atoms by device: of which a part goes from there to its home, and which come whole from home to there."""
    away = np.arange(found.devices)[None, :] != home[:, None]
    return _holders(found, i) & away, readers_of_atoms(found, i) & away


def _cost(found: DeviceAssignment, i: int) -> float:
    """Bytes that pass between devices for one tensor."""
    tensor: TensorAtoms = found.spread.tensors[i]
    parts, wholes = sent(found, i, found.home[i] if i in found.home else homes(found, i))
    return float(tensor.state_nbytes @ parts.sum(1) + tensor.nbytes @ wholes.sum(1))


def assigned(costs: Floats, work: Floats, load: Floats) -> Ints:
    """A device of its own for each call, such that the most loaded one is as little loaded as may be; then cheapest.

    Shapes:
        costs: (calls, devices), no more calls than devices. work: of each call, descending. load: of each device.
    """
    least = np.sort(load)[: len(work)] + work
    most = max(float(least.max(initial=0)), float(load.max()))
    allowed = load[None, :] + work[:, None] <= most * (1 + 1e-9)
    bounded = np.where(allowed, costs, FORBIDDEN)
    # Where several devices are as cheap, that with the least work.
    bounded = bounded + load / (load.max() + 1) * 0.25
    first = bounded.argmin(1)
    if len(np.unique(first)) == len(first):
        return np.asarray(first, np.int64)
    return matching(bounded)


def matching(costs: Sequence[Sequence[float]] | Floats) -> Ints:
    """A column of its own for each row, of least sum: shortest augmenting paths."""
    a = np.asarray(costs, np.float64)
    n, m = a.shape
    u, v = np.zeros(n + 1), np.zeros(m + 1)
    row_of = np.full(m + 1, n)
    for i in range(n):
        row_of[m] = i
        j = m
        slack = np.full(m, np.inf)
        via = np.full(m, m)
        used = np.zeros(m + 1, bool)
        while row_of[j] != n:
            used[j] = True
            row = row_of[j]
            here = a[row] - u[row] - v[:m]
            closer = ~used[:m] & (here < slack)
            slack[closer], via[closer] = here[closer], j
            free = np.where(used[:m], np.inf, slack)
            j = int(free.argmin())
            step = free[j]
            u[row_of[used]] += step
            v[used] -= step
            slack[~used[:m]] -= step
        while j != m:
            row_of[j] = row_of[via[j]]
            j = int(via[j])
    found = np.empty(n, np.int64)
    for j in range(m):
        if row_of[j] < n:
            found[row_of[j]] = j
    return found
