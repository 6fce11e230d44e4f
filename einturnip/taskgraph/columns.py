"""Tasks and values as growing columns, frozen into a TaskGraph."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import TooLarge
from einturnip.core.program_limits import checkpoint
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import EinGraph
from einturnip.ir.einsum import Box
from einturnip.taskgraph.types import UNASSIGNED, TaskGraph, TaskKind, ValueKind
from einturnip.tiling.file_layout import FileLayout, layout_of
from einturnip.tiling.types import Decomposition

# More than any run can execute; fits in 64 bits.
MAX_FLOPS = (1 << 63) - 1


class TaskColumns:
    """Appends tasks and values; their ids count from 0."""

    def __init__(self, graph: EinGraph, machine: Machine, max_tasks: int, layouts: Mapping[int, FileLayout]) -> None:
        self.graph, self.machine, self.max_tasks, self.layouts = graph, machine, max_tasks, layouts
        self.moved: dict[tuple[TaskKind, int, tuple[int, ...]], float] = {}
        self.kind, self.node, self.value = array("B"), array("i"), array("i")
        self.workspace, self.seconds, self.flops = array("q"), array("d"), array("q")
        self.key_ptr, self.key = array("q", [0]), array("i")
        self.read_ptr, self.read, self.seen = array("q", [0]), array("i"), array("i")
        self.value_kind, self.value_node, self.value_nbytes = array("B"), array("i"), array("q")
        self.box_ptr, self.box = array("q", [0]), array("q")
        self.devices_of: dict[int, int] = {}  # by value that has one

    def new_value(self, kind: ValueKind, node: int, box: Box, nbytes: int, device: int = UNASSIGNED) -> int:
        """Add a value and return its id. ``device`` makes it; by default it is that of its first reader."""
        self.value_kind.append(kind)
        self.value_node.append(node)
        self.value_nbytes.append(nbytes)
        for bounds in box:
            self.box.extend(bounds)
        self.box_ptr.append(len(self.box))
        if device != UNASSIGNED:
            self.devices_of[len(self.value_kind) - 1] = device
        return len(self.value_kind) - 1

    def box_of(self, value: int) -> Box:
        """Return the box of a value."""
        flat = self.box[self.box_ptr[value] : self.box_ptr[value + 1]]
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    def kernel(
        self,
        kind: TaskKind,
        node: int,
        key: Sequence[int],
        value: int,
        reads: Iterable[int],
        seen: Iterable[int],
        costs: tuple[int, float, int],
    ) -> None:
        """Add a kernel; ``costs``: its workspace in bytes, its seconds, its operations.

        Raises:
            TooLarge: there are too many tasks.
        """
        checkpoint()
        self.kind.append(kind)
        self.node.append(node)
        self.value.append(value)
        self.key.extend(key)
        self.key_ptr.append(len(self.key))
        self.read.extend(reads)
        self.seen.extend(seen)
        self.read_ptr.append(len(self.read))
        workspace, seconds, flops = costs
        self.workspace.append(workspace)
        self.seconds.append(seconds)
        self.flops.append(min(flops, MAX_FLOPS))
        if len(self.kind) > self.max_tasks:
            raise TooLarge(f"the plan needs more than {self.max_tasks:,} tile tasks", len(self.kind), self._calls())

    def _calls(self) -> int:
        """Return the number of kernel calls so far."""
        return sum(self.kind.count(kind) for kind in (TaskKind.KERNEL, TaskKind.ACCUMULATE))

    def transfer(
        self, kind: TaskKind, node: int, key: Sequence[int], value: int, reads: Sequence[int], seen: Sequence[int]
    ) -> None:
        """Add a load, a store or a move."""
        if kind == TaskKind.MOVE:
            moved = min(value, *reads, key=self.value_nbytes.__getitem__) if reads else value
            seconds = self.machine.copy_seconds(self.value_nbytes[moved])
        else:
            seconds = self._file_seconds(kind, node, value)
        self.kernel(kind, node, key, value, reads, seen, (0, seconds, 0))

    def _file_seconds(self, kind: TaskKind, node: int, value: int) -> float:
        """Return the seconds of a load or store, cached by the shape of the box."""
        flat = self.box[self.box_ptr[value] : self.box_ptr[value + 1]]
        extents = tuple([hi - lo for lo, hi in zip(flat[::2], flat[1::2], strict=True)])
        found = self.moved.get((kind, node, extents))
        if found is None:
            stored = node if kind == TaskKind.LOAD else self.graph.outputs[node][1]
            of, layout = self.graph.nodes[stored], layout_of(self.layouts, stored, len(extents))
            seconds = layout.load_seconds if kind == TaskKind.LOAD else layout.store_seconds
            found = self.moved[kind, node, extents] = seconds(of.shape, extents, of.dtype.itemsize, self.machine)
        return found

    def _counts_nbytes(self) -> int:
        """Return the bytes of page counters for files that loads read in parts."""
        largest = dict[int, int]()
        for kind, node, extents in self.moved:
            if kind == TaskKind.LOAD:
                of = self.graph.nodes[node]
                layout = layout_of(self.layouts, node, len(extents))
                largest[node] = max(largest.get(node, 0), layout.counts_nbytes(of.shape, extents, of.dtype.itemsize))
        return sum(largest.values())

    def _device_column(self) -> NDArray[np.uint16]:
        """Return the device of each value, empty if none has one."""
        device = np.full(len(self.value_kind) if self.devices_of else 0, UNASSIGNED, np.uint16)
        device[list(self.devices_of)] = list(self.devices_of.values())
        return device

    def freeze(self, decomposition: Decomposition, ordered: bool = False) -> TaskGraph:
        """Return the graph."""
        read = _column(self.read, np.int32)
        return TaskGraph(
            decomposition,
            _column(self.kind, np.uint8),
            _column(self.node, np.int32),
            _column(self.value, np.int32),
            _column(self.workspace, np.int64),
            _column(self.seconds, np.float64),
            _column(self.flops, np.int64),
            _column(self.key_ptr, np.int64),
            _column(self.key, np.int32),
            _column(self.read_ptr, np.int64),
            read,
            read if self.seen == self.read else _column(self.seen, np.int32),
            _column(self.value_kind, np.uint8),
            _column(self.value_node, np.int32),
            _column(self.value_nbytes, np.int64),
            _column(self.box_ptr, np.int64),
            _column(self.box, np.int64),
            ordered,
            counts_nbytes=self._counts_nbytes(),
            device=self._device_column(),
        )


def _column(a: array[int] | array[float], dtype: type) -> Any:
    out: Any = np.array(a, dtype=dtype)
    out.flags.writeable = False
    return out
