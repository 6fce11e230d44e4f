"""The traffic of a program in segments that are planned separately, some for several equal layers.

A segment's plan stores the tensors that later segments read, and loads those that it reads itself. Here a stored box
stays on the site that stores it, and a load receives from each other site the part that this one stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.machine import Machine
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.report.sites import SiteTraffic, site_traffic
from einturnip.sites.input_traffic import InputTraffic
from einturnip.tiling.graph_segments import GraphSegment
from einturnip.tuning.search import VALUES_AT_ONCE

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SegmentPlan:
    """A segment and its plan."""

    segment: GraphSegment
    graph: MemGraph


@dataclass(frozen=True)
class _Boxes:
    """Boxes of one tensor, and the site of each.

    Shapes:
        box: (boxes, axes, 2). site: (boxes,).
    """

    box: Ints
    site: Ints
    itemsize: int

    @property
    def nbytes(self) -> Ints:
        """The bytes of each box."""
        found: Ints = np.diff(self.box, axis=2)[..., 0].prod(1) * self.itemsize
        return found


def joined_traffic(parts: Sequence[SegmentPlan], machine: Machine) -> SiteTraffic:
    """Count the traffic of all segments, and of the tensors that they pass to each other."""
    n = parts[0].graph.devices
    between, reads, seconds, receiving = np.zeros((n, n), np.int64), np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
    stored: dict[str, _Boxes] = {}
    inputs: dict[str, InputTraffic] = {}
    for part in parts:
        own, loads, stores = site_traffic(part.graph), dict(_loads(part)), dict(_stores(part.graph))
        between += part.segment.times * own.between
        reads += part.segment.times * own.first_reads
        seconds += part.segment.times * own.kernel_seconds
        receiving += part.segment.times * own.receive_seconds
        for x in own.inputs:
            if x.name not in part.segment.values:
                inputs[x.name] = x.repeated(part.segment.times, inputs.get(x.name))
        for name, loaded in loads.items():
            np.add.at(reads, loaded.site, -part.segment.times * loaded.nbytes)
            # A layer receives what the layer before it passed on; the first one, what was computed before.
            again = part.segment.times - 1 if name in stores else 0
            for times, held in ((part.segment.times - again, stored[name]), (again, stores.get(name))):
                if times and held is not None:
                    moved, received = _received(held, loaded, n, machine)
                    between += times * moved
                    receiving += times * received
        stored |= stores
    return SiteTraffic(between, reads, seconds, receiving, tuple(inputs.values()))


def value_nbytes(parts: Sequence[SegmentPlan]) -> dict[str, int]:
    """Return the bytes of the loads and stores of tensors that stay on sites, by link."""
    values = frozenset[str]().union(*(part.segment.values for part in parts))
    read = sum(part.segment.times * int(boxes.nbytes.sum()) for part in parts for _, boxes in _loads(part))
    written = sum(
        part.segment.times * int(boxes.nbytes.sum())
        for part in parts
        for name, boxes in _stores(part.graph)
        if name in values
    )
    return {"disk->cpu:0": read, "cpu:0->disk": written}


def _loads(part: SegmentPlan) -> Iterator[tuple[str, _Boxes]]:
    """Yield the boxes of each tensor of another segment that the ops of this one load."""
    graph, tasks = part.graph, part.graph.taskgraph
    ops = np.flatnonzero(graph.kind == OpKind.LOAD)
    nodes, sites = tasks.node[graph.task[ops]], graph.op_devices()[ops].astype(np.int64)
    for i, node in enumerate(tasks.decomposition.graph.nodes):
        if isinstance(node, InputNode) and node.name in part.segment.values:
            mine = nodes == i
            boxes = tasks.boxes(tasks.value[graph.task[ops[mine]]], len(node.shape))
            yield node.name, _Boxes(boxes, sites[mine], node.dtype.itemsize)


def _stores(graph: MemGraph) -> Iterator[tuple[str, _Boxes]]:
    """Yield the boxes of each output that the ops of a plan store."""
    tasks, program = graph.taskgraph, graph.taskgraph.decomposition.graph
    ops = np.flatnonzero(graph.kind == OpKind.STORE)
    numbers, sites = tasks.node[graph.task[ops]], graph.op_devices()[ops].astype(np.int64)
    for number, (name, i) in enumerate(program.outputs):
        mine, node = numbers == number, program.nodes[i]
        boxes = tasks.boxes(tasks.value[graph.task[ops[mine]]], len(node.shape))
        yield name, _Boxes(boxes, sites[mine], node.dtype.itemsize)


def _received(held: _Boxes, loaded: _Boxes, n: int, machine: Machine) -> tuple[Ints, NDArray[np.float64]]:
    """Return the bytes between sites, sources first, and the seconds that each site receives."""
    between, seconds = np.zeros((n, n), np.int64), np.zeros(n)
    at_once = max(1, VALUES_AT_ONCE // max(1, len(held.site)))
    for first in range(0, len(loaded.site), at_once):
        some = slice(first, first + at_once)
        common = np.full((len(loaded.site[some]), len(held.site)), held.itemsize, np.int64)
        for axis in range(held.box.shape[1]):
            (lo, hi), (lo_held, hi_held) = loaded.box[some, axis].T, held.box[:, axis].T
            common *= np.maximum(0, np.minimum(hi[:, None], hi_held) - np.maximum(lo[:, None], lo_held))
        common[loaded.site[some, None] == held.site] = 0
        row, column = np.nonzero(common)
        nbytes, target = common[row, column], loaded.site[some][row]
        np.add.at(between, (held.site[column], target), nbytes)
        sizes, of = np.unique(nbytes, return_inverse=True)
        np.add.at(seconds, target, np.array([machine.move_seconds(int(size)) for size in sizes])[of])
    return between, seconds
