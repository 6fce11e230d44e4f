"""What an op does on the host: its kernel over views of the arena, or its transfer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from einturnip.codegen.kernels import Mode, compile_kernel
from einturnip.decomp.types import Box
from einturnip.eingraph.types import EinsumNode
from einturnip.memgraph.types import COMPUTE, DISK, FILES, MemGraph, Op, OpKind
from einturnip.stores.types import Sink, Source
from einturnip.taskgraph.types import Task, TaskKind, Value, ValueKind

Array = NDArray[Any]
MODES: dict[TaskKind, Mode] = {TaskKind.KERNEL: "whole", TaskKind.TOUCH: "touch", TaskKind.FINISH: "finish"}


class Memory(Protocol):
    """The arena as ops see it."""

    def array(self, offset: int, shape: Sequence[int], dtype: Any) -> Array:
        """A C-contiguous array over the arena's bytes."""


class Spill(Protocol):
    """The spill file as ops see it."""

    def write(self, offset: int, buffer: Any) -> int:
        """Write the buffer at the offset."""

    def read(self, offset: int, buffer: Any) -> int:
        """Fill the buffer from the offset."""


class HostExecutor:
    """Runs ops of one memory graph; ``run`` may be called from several threads, each op once."""

    def __init__(
        self,
        graph: MemGraph,
        memory: Memory,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        spill: Spill | None,
    ) -> None:
        self.graph = graph
        self.tasks = graph.taskgraph
        self.d = self.tasks.decomposition
        self.nodes = self.d.graph.nodes
        self.memory = memory
        self.sources = sources
        self.sinks = sinks
        self.spill = spill
        self.begun: set[int] = set()
        self.lock = threading.Lock()
        self.moved = {"in": 0, "out": 0}
        self.flags: dict[int, list[int]] = {}
        self._empty = np.empty(0, np.uint8)
        brought = graph.read[(graph.read[:, 0] >= FILES) & (graph.read[:, 0] < FILES + len(self.nodes)), 3]
        self._uses_left: list[int] = np.bincount(brought, minlength=self.tasks.n_values).tolist()

    def run(self, i: int) -> None:
        """Do what op ``i`` says."""
        op = self.graph[i]
        match op.kind:
            case OpKind.KERNEL | OpKind.AGGREGATE:
                self._kernel(op)
            case OpKind.MOVE:
                self._move(op)
            case OpKind.LOAD | OpKind.RELOAD:
                self._count("in", self._bring_in(op))
            case OpKind.OFFLOAD | OpKind.STORE:
                self._count("out", self._take_out(op))

    # Kernels

    def _kernel(self, op: Op) -> None:
        task = self.tasks[op.task]
        node = self.nodes[task.node]
        assert isinstance(node, EinsumNode)
        e, part = node.einsum, self.d.partitionings[task.node]
        box = part.box(task.key)
        extents = tuple(hi - lo for lo, hi in box)
        kernel = compile_kernel(e, extents, MODES[task.kind])
        made = op.writes[0]
        scratch = op.writes[1] if len(op.writes) > 1 else None
        space = self._empty if scratch is None else self.memory.array(scratch.offset, (scratch.nbytes,), np.uint8)
        shape = extents[: e.n_out]
        if task.kind == TaskKind.TOUCH:
            outs = self._components(made.offset, shape, node)
        else:
            outs = (self.memory.array(made.offset, shape, e.dtype.numpy),)
        if task.kind == TaskKind.FINISH:
            operands = self._components(op.reads[0].offset, shape, node)
        else:
            operands = tuple(
                self._operand(access.offset, access.value, tuple(box[p] for p in labels))
                for access, labels in zip(op.reads, e.accesses, strict=True)
            )
        # A unit that continues a reloaded state has a value past the task graph's; every other starts from nothing.
        first = op.unit >= 0 and op.unit < self.tasks.n_values and op.unit not in self.begun
        bits = kernel(outs, operands, tuple(lo for lo, _ in box), first, space)
        if op.unit >= 0:
            self.begun.add(op.unit)
        if bits:
            with self.lock:
                counts = self.flags.setdefault(task.node, [0, 0, 0])
                for k in range(3):
                    counts[k] += bits >> k & 1

    def _operand(self, offset: int, value: int, need: Box) -> Array:
        """The part ``need`` of a value that lies at ``offset``."""
        v = self.tasks.get_value(self.graph.base(value))
        whole = self._value_array(offset, v)
        if v.box == need:
            return whole
        return whole[tuple(slice(lo - a, hi - a) for (lo, hi), (a, _) in zip(need, v.box, strict=True))]

    def _value_array(self, offset: int, v: Value) -> Array:
        node = self.nodes[v.node]
        return self.memory.array(offset, tuple(hi - lo for lo, hi in v.box), node.dtype.numpy)

    def _components(self, offset: int, shape: tuple[int, ...], node: EinsumNode) -> tuple[Array, ...]:
        """The state's components, one after the other, each from a multiple of 64 bytes."""
        arrays = []
        for dtype in node.einsum.state_dtypes:
            arrays.append(self.memory.array(offset, shape, dtype.numpy))
            offset += -(-arrays[-1].nbytes // 64) * 64
        return tuple(arrays)

    def _move(self, op: Op) -> None:
        out = self.tasks.get_value(op.writes[0].value)
        made = self._value_array(op.writes[0].offset, out)
        for access in op.reads:
            v = self.tasks.get_value(self.graph.base(access.value))
            box = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(v.box, out.box, strict=True))
            part = self._operand(access.offset, access.value, box)
            made[tuple(slice(lo - a, hi - a) for (lo, hi), (a, _) in zip(box, out.box, strict=True))] = part

    # Transfers

    def _bytes(self, offset: int, nbytes: int) -> Array:
        return self.memory.array(offset, (nbytes,), np.uint8)

    def _bring_in(self, op: Op) -> int:
        source, made = op.reads[0], op.writes[0]
        if source.tier == DISK:
            assert self.spill is not None
            self.spill.read(source.offset, self._bytes(made.offset, made.nbytes))
            return made.nbytes
        v = self.tasks.get_value(self.graph.base(made.value))
        store = self._file(source.tier)
        nbytes = store.read(v.box, self._value_array(made.offset, v))
        with self.lock:
            self._uses_left[v.id] -= 1
            last = self._uses_left[v.id] == 0
        if last:  # its pages leave the page cache now, not earlier
            store.release(v.box)
        return nbytes

    def _take_out(self, op: Op) -> int:
        held, to = op.reads[0], op.writes[0]
        assert held.tier == COMPUTE
        if to.tier == DISK:
            assert self.spill is not None
            self.spill.write(to.offset, self._bytes(held.offset, held.nbytes))
            return held.nbytes
        v = self.tasks.get_value(self.graph.base(held.value))
        return self._sink(to.tier).write(v.box, self._value_array(held.offset, v))

    def _file(self, tier: int) -> Source:
        number = tier - FILES
        if number >= len(self.nodes):
            return self._sink(tier)
        source = self.sources[number]
        assert source is not None
        return source

    def _sink(self, tier: int) -> Sink:
        return self.sinks[tier - FILES - len(self.nodes)]

    def _count(self, way: str, nbytes: int) -> None:
        with self.lock:
            self.moved[way] += nbytes

    def describe(self, i: int) -> str:
        """What op ``i`` works on, in the program's words."""
        op = self.graph[i]
        if op.task >= 0:
            task: Task = self.tasks[op.task]
            if task.kind == TaskKind.STORE:
                return f"storing output {self.d.graph.outputs[task.node][0]!r}"
            node = self.nodes[task.node]
            if task.kind == TaskKind.LOAD:
                return f"reading {node.name!r}"
            return f"line {node.line}: {self.d.graph.statement(node.line)}"
        value = self.tasks.get_value(self.graph.base(op.reads[0].value))
        state = " (half made)" if value.kind == ValueKind.STATE else ""
        return f"{op.kind.name.lower()}ing a tile of {self.nodes[value.node].name!r}{state}"
