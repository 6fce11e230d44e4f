"""Decomposition -> TaskGraph: tile tasks in a serial order that reuses what is in memory.

The order is demand-driven: for each stored tile, what it needs, just before it is needed. A node's tiles are made a
block at a time (see decomp.blocks): accumulators of the block stay, aggregated tiles stream past, and every other walk
turns back over what the last one left in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from einturnip.codegen.kernels import Mode, compile_kernel
from einturnip.core.errors import CapacityError
from einturnip.core.machine import Machine
from einturnip.decomp.cost import is_cut, kernel_seconds, state_nbytes
from einturnip.decomp.types import Block, Box, Decomposition, Partitioning
from einturnip.eingraph.types import EinsumNode, InputNode
from einturnip.taskgraph.types import TaskGraph, TaskKind, ValueKind

Key = tuple[int, ...]
MODES: dict[TaskKind, Mode] = {TaskKind.KERNEL: "whole", TaskKind.TOUCH: "touch", TaskKind.FINISH: "finish"}
Demand = Generator["tuple[int, Key]", None, None]


def build(decomposition: Decomposition, machine: Machine, most_tasks: int = 4_000_000) -> TaskGraph:
    """Lower a decomposition.

    Raises:
        CapacityError: more than ``most_tasks`` tasks.
    """
    return _Lowering(decomposition, machine, most_tasks).run()


class _Lowering:
    """Columns under construction, and which tiles exist so far. Lives inside ``build``."""

    def __init__(self, decomposition: Decomposition, machine: Machine, most_tasks: int) -> None:
        self.d = decomposition
        self.graph = decomposition.graph
        self.machine = machine
        self.most_tasks = most_tasks
        self.kind, self.node, self.value = array("B"), array("i"), array("i")
        self.workspace, self.seconds, self.flops = array("q"), array("d"), array("q")
        self.key_ptr, self.key = array("q", [0]), array("i")
        self.read_ptr, self.read = array("q", [0]), array("i")
        self.value_kind, self.value_node, self.value_nbytes = array("B"), array("i"), array("q")
        self.box_ptr, self.box = array("q", [0]), array("q")
        self.tile: dict[tuple[int, Key], int] = {}
        self.boxes: dict[tuple[int, Box], int] = {}
        self.turned = [False] * len(self.graph.nodes)
        self.parts: list[Partitioning] = list(decomposition.partitionings)
        self.outputs = [decomposition.output(i) for i in range(len(self.graph.nodes))]
        self.stores: dict[int, list[int]] = {}
        for number, (_, node) in enumerate(self.graph.outputs):
            self.stores.setdefault(node, []).append(number)
        self.costs: dict[tuple[int, Key, str], tuple[int, float, int]] = {}

    def run(self) -> TaskGraph:
        for _, node in self.graph.outputs:
            for key in self._blocks(node):
                self._settle(node, key)
        return self._freeze()

    def _settle(self, node: int, key: Key) -> None:
        """Make tile ``key`` of ``node`` and, first, all that it needs: depth first, with a stack of our own."""
        if (node, key) in self.tile:
            return
        stack = [self._make(node, key)]
        while stack:
            needed = next(stack[-1], None)
            if needed is None:
                stack.pop()
            elif needed not in self.tile:
                stack.append(self._make(*needed))

    def _make(self, i: int, key: Key) -> Demand:
        """Emit the tasks that make tile ``key`` of node ``i`` with its block; yields the tiles it needs first."""
        node = self.graph.nodes[i]
        match node:
            case InputNode():
                box = self.outputs[i].box(key)
                v = self._new_value(ValueKind.TILE, i, box, node.dtype.itemsize)
                self.tile[i, key] = v
                self._emit(TaskKind.LOAD, i, key, v, ())
            case EinsumNode():
                yield from self._make_block(i, node, key)

    def _make_block(self, i: int, node: EinsumNode, key: Key) -> Demand:
        e, part, block = node.einsum, self.parts[i], self.d.blocks[i]
        assert block is not None
        keys = [k for k in self._block_keys(i, block, key) if (i, k) not in self.tile]
        steps: list[Key] = list(product(*(range(part.counts[p]) for p in e.aggregated)))
        self.turned[i] = not self.turned[i]
        if self.turned[i]:
            steps.reverse()
        if not steps or not is_cut(e, part.tiles):
            # Nothing is carried between kernels; an aggregated label of size 0 has no tile but one kernel all the same.
            inner = (0,) * (len(e.labels) - e.n_out)
            for k in reversed(keys) if self.turned[i] else keys:
                operands = yield from self._operands(i, node, part.box(k + inner))
                self._kernel(TaskKind.KERNEL, i, node, k + inner, operands)
                self._store(i, k)
            return
        states: dict[Key, int] = {}
        for inner in steps:
            for k in keys:
                operands = yield from self._operands(i, node, part.box(k + inner))
                if k not in states:
                    extents = [hi - lo for lo, hi in part.box(k + inner)]
                    states[k] = self._new_value(ValueKind.STATE, i, self.outputs[i].box(k), state_nbytes(e, extents), 1)
                self._kernel(TaskKind.TOUCH, i, node, k + inner, operands, states[k])
            keys = keys[::-1]
        assert e.aggregation is not None
        for k in keys:
            if e.aggregation.finish_is_identity:
                self.tile[i, k] = states[k]
            else:
                self._kernel(TaskKind.FINISH, i, node, k + (0,) * len(e.aggregated), [states[k]])
            self._store(i, k)

    def _block_keys(self, i: int, block: Block, key: Key) -> list[Key]:
        """Keys of the block that holds ``key``: the streamed label outermost, so that its tiles pass once."""
        counts = self.outputs[i].counts
        ranges = [range(k // b * b, min((k // b + 1) * b, c)) for k, b, c in zip(key, block.tiles, counts, strict=True)]
        if block.streamed is None:
            return list(product(*ranges))
        order = [block.streamed, *(p for p in range(len(ranges)) if p != block.streamed)]
        back = sorted(range(len(order)), key=order.__getitem__)
        return [tuple(k[b] for b in back) for k in product(*(ranges[p] for p in order))]

    def _blocks(self, i: int) -> Iterator[Key]:
        """The first key of every block of node ``i``, each line walked back over the one before."""
        counts = self.outputs[i].counts
        block = self.d.blocks[i]
        steps = (1,) * len(counts) if block is None else block.tiles
        yield from serpentine([range(0, c, b) for c, b in zip(counts, steps, strict=True)])

    def _operands(self, i: int, node: EinsumNode, box: Box) -> Generator[tuple[int, Key], None, list[int]]:
        """Values that hold each operand's part for the tile ``box`` of the label space."""
        values = []
        for operand, access in zip(node.operands, node.einsum.accesses, strict=True):
            need: Box = tuple(box[p] for p in access)
            keys = self.outputs[operand].covering(need)
            for key in keys:
                if (operand, key) not in self.tile:
                    yield operand, key
            values.append(self._assemble(operand, need, keys))
        return values

    def _assemble(self, operand: int, need: Box, keys: list[Key]) -> int:
        """The one value that holds box ``need``: a tile (read in place), or a repartition of several."""
        if len(keys) == 1:
            return self.tile[operand, keys[0]]
        if (operand, need) not in self.boxes:
            v = self._new_value(ValueKind.TILE, operand, need, self.graph.nodes[operand].dtype.itemsize)
            self.boxes[operand, need] = v
            self._emit(TaskKind.MOVE, operand, (), v, [self.tile[operand, k] for k in keys])
        return self.boxes[operand, need]

    def _kernel(
        self, kind: TaskKind, i: int, node: EinsumNode, key: Key, operands: Sequence[int], state: int = -1
    ) -> None:
        e, part = node.einsum, self.parts[i]
        extents = tuple(hi - lo for lo, hi in part.box(key))
        mode = MODES[kind]
        known = self.costs.get((i, extents, mode))
        if known is None:
            kernel = compile_kernel(e, extents, mode)
            seconds = kernel_seconds(e, extents, self.machine) if kind != TaskKind.FINISH else self.machine.op_latency
            known = self.costs[i, extents, mode] = (kernel.workspace_nbytes, seconds, kernel.flops)
        if kind == TaskKind.TOUCH:
            v = state
        else:
            k = key[: e.n_out]
            v = self._new_value(ValueKind.TILE, i, self.outputs[i].box(k), e.dtype.itemsize)
            self.tile[i, k] = v
        self._emit(kind, i, key, v, operands, *known)

    def _store(self, i: int, key: Key) -> None:
        for number in self.stores.get(i, ()):
            self._emit(TaskKind.STORE, number, key, self.tile[i, key], [self.tile[i, key]])

    def _new_value(self, kind: ValueKind, i: int, box: Box, itemsize: int, points: int | None = None) -> int:
        v = len(self.value_kind)
        if points is None:
            points = 1
            for lo, hi in box:
                points *= hi - lo
        self.value_kind.append(kind)
        self.value_node.append(i)
        self.value_nbytes.append(points * itemsize)
        for bounds in box:
            self.box.extend(bounds)
        self.box_ptr.append(len(self.box))
        return v

    def _emit(
        self,
        kind: TaskKind,
        i: int,
        key: Key,
        value: int,
        reads: Sequence[int],
        workspace: int = 0,
        seconds: float | None = None,
        flops: int = 0,
    ) -> None:
        if len(self.kind) >= self.most_tasks:
            raise CapacityError(f"the plan needs more than {self.most_tasks:,} tile tasks")
        if seconds is None:
            seconds = self._transfer_seconds(kind, self.value_nbytes[value])
        self.kind.append(kind)
        self.node.append(i)
        self.value.append(value)
        self.key.extend(key)
        self.key_ptr.append(len(self.key))
        self.read.extend(reads)
        self.read_ptr.append(len(self.read))
        self.workspace.append(workspace)
        self.seconds.append(seconds)
        self.flops.append(flops)

    def _transfer_seconds(self, kind: TaskKind, nbytes: int) -> float:
        m = self.machine
        rate = {TaskKind.LOAD: m.read_bandwidth, TaskKind.STORE: m.write_bandwidth}.get(kind, m.memory_bandwidth)
        return m.op_latency + nbytes / rate

    def _freeze(self) -> TaskGraph:
        def column(a: array[int] | array[float], dtype: type) -> Any:
            out: Any = np.array(a, dtype=dtype)
            out.flags.writeable = False
            return out

        return TaskGraph(
            self.d,
            column(self.kind, np.uint8),
            column(self.node, np.int32),
            column(self.value, np.int32),
            column(self.workspace, np.int64),
            column(self.seconds, np.float64),
            column(self.flops, np.int64),
            column(self.key_ptr, np.int64),
            column(self.key, np.int32),
            column(self.read_ptr, np.int64),
            column(self.read, np.int32),
            column(self.value_kind, np.uint8),
            column(self.value_node, np.int32),
            column(self.value_nbytes, np.int64),
            column(self.box_ptr, np.int64),
            column(self.box, np.int64),
        )


def serpentine(ranges: Sequence[range]) -> Iterator[Key]:
    """Every tuple of the ranges' product, each step changing one coordinate to its neighbour (boustrophedon)."""
    if not ranges:
        yield ()
        return
    forward = list(serpentine(ranges[1:]))
    for n, first in enumerate(ranges[0]):
        for rest in forward if n % 2 == 0 else reversed(forward):
            yield (first, *rest)
