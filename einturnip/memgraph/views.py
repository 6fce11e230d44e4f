"""Array views over the arena: the operands and outputs of kernels, and the boxes of transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.eingraph.types import EinsumNode
from einturnip.ir.region import Space
from einturnip.kernels.select import Mode
from einturnip.memgraph.types import Lane, MemGraph, Op, OpKind, TierExtent
from einturnip.taskgraph.build import MODES
from einturnip.taskgraph.types import TaskKind, Value, ValueKind
from einturnip.tiling.types import Box, index

Array = NDArray[Any]
MAX_CACHED = 4096


class ArenaMemory(Protocol):
    """The interface of the arena that views need."""

    def array(self, offset: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a C-contiguous array over bytes of the arena."""


Elsewhere: TypeAlias = Callable[[int], Array | None]
"""Returns the external array of a value (zero-copy), or None if the value is in the arena."""


@dataclass(frozen=True, slots=True)
class KernelOperands:
    """Arguments of one kernel call; kernels.select.HostKernel describes them."""

    node: int
    einsum: Space
    extents: tuple[int, ...]
    mode: Mode
    outs: tuple[Array, ...]
    operands: tuple[Array, ...]
    origins: tuple[int, ...]
    workspace: Array


class OpViews:
    """Makes the arrays that ops work on when an op starts. Thread-safe.

    Views that many ops use are cached, because a tile in memory is read many times.
    """

    def __init__(self, graph: MemGraph, memory: ArenaMemory, elsewhere: Elsewhere = lambda value: None) -> None:
        self.graph = graph
        self.memory = memory
        self.elsewhere = elsewhere
        self.tasks = graph.taskgraph
        self.d = self.tasks.decomposition
        self._none = np.empty(0, np.uint8)
        self._values: dict[int, Value] = {}
        self._parts: dict[tuple[int, int, Box], Array] = {}

    def call(self, op: Op) -> KernelOperands:
        """Return the kernel call of a kernel or aggregate op."""
        task = self.tasks[op.task]
        node = self.d.graph.nodes[task.node]
        assert isinstance(node, EinsumNode)
        e = node.einsum
        box = self.d.partitionings[task.node].box(task.key)
        extents = tuple(hi - lo for lo, hi in box)
        shape = extents[: e.n_out]
        made = op.writes[0]
        scratch = op.writes[1] if len(op.writes) > 1 else None
        operands: tuple[Array, ...]
        if task.kind in (TaskKind.FINALIZE, TaskKind.COMBINE):
            operands = self.components(op.reads[0].offset, extents, e)
        else:
            operands = tuple(
                self.part(access.offset, seen, e.operand_box(slot, box))
                for slot, (access, seen) in enumerate(zip(op.reads, task.seen, strict=True))
            )
        return KernelOperands(
            node=task.node,
            einsum=e,
            extents=extents,
            mode=MODES[task.kind],
            outs=self.components(made.offset, extents, e)
            if task.kind in (TaskKind.ACCUMULATE, TaskKind.COMBINE)
            else (self._made(made, shape, e.dtype.numpy),),
            operands=operands,
            origins=tuple(lo for lo, _ in box),
            workspace=self._none if scratch is None else self.bytes(scratch.offset, scratch.nbytes),
        )

    def continues(self, unit: int) -> bool:
        """Return whether the unit continues a reloaded partial state; other units start empty."""
        return unit >= self.tasks.n_values

    def _made(self, made: TierExtent, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the array for the value that an op makes."""
        found = self.elsewhere(made.value)
        return self.memory.array(made.offset, shape, dtype) if found is None else found

    def part(self, offset: int, value: int, need: Box) -> Array:
        """Return the part ``need`` of a value, or of a view of it, whose bytes start at ``offset``."""
        key = offset, value, need
        part = self._parts.get(key)
        if part is None:
            v = self.value(value)
            found = self.elsewhere(value)
            part = self.array(offset, v) if found is None else found
            if v.box != need:
                part = part[index(need, v.box)]
            _keep(self._parts, key, part)
        return part

    def forget(self) -> None:
        """Drop all cached arrays."""
        self._parts.clear()

    def value(self, value: int) -> Value:
        """Return the task graph's value that ``value`` is a version of."""
        found = self._values.get(value)
        if found is None:
            found = self.tasks.get_value(self.graph.base(value))
            _keep(self._values, value, found)
        return found

    def array(self, offset: int, v: Value) -> Array:
        """Return the tile at ``offset``."""
        return self.memory.array(offset, tuple(hi - lo for lo, hi in v.box), self._dtype(v))

    def _dtype(self, v: Value) -> np.dtype[Any]:
        return self.d.graph.nodes[v.node].dtype.numpy

    def components(self, offset: int, extents: tuple[int, ...], einsum: Space) -> tuple[Array, ...]:
        """Return a state's components for a tile of ``extents``, consecutive, each aligned to 64 bytes."""
        arrays: list[Array] = []
        for shape, dtype in einsum.components(extents):
            arrays.append(self.memory.array(offset, shape, dtype.numpy))
            offset += -(-arrays[-1].nbytes // 64) * 64
        return tuple(arrays)

    def bytes(self, offset: int, nbytes: int) -> Array:
        """Return bytes of the arena as an array."""
        return self.memory.array(offset, (nbytes,), np.uint8)

    def move(self, op: Op) -> None:
        """Run a move: copy the visible part of each value that it reads."""
        for target, source in self.moved(op):
            target[...] = source

    def moved(self, op: Op) -> Iterator[tuple[Array, Array]]:
        """Yield pairs (target, source) of the copies that make up a move."""
        task = self.tasks[op.task]
        out = self.value(op.writes[0].value)
        if out.kind == ValueKind.STATE:  # to another device, all its components
            (read,), (write,) = op.reads, op.writes
            yield self.bytes(write.offset, write.nbytes), self.bytes(read.offset, read.nbytes)
            return
        made = self._made(op.writes[0], tuple(hi - lo for lo, hi in out.box), self._dtype(out))
        for access, seen, box in zip(op.reads, task.seen, self.tasks.copied(task), strict=True):
            yield made[index(box, out.box)], self.part(access.offset, seen, box)

    def transferred(self, op: Op) -> tuple[Box, Array]:
        """Return the file's region of a transfer between the arena and a file, and the array in the arena."""
        held, far = (op.writes[0], op.reads[0]) if op.kind.lane == Lane.IN else (op.reads[0], op.writes[0])
        region = self.value(far.value).box
        seen = self.tasks[op.task].seen[0] if op.kind == OpKind.STORE else far.value
        return region, self.part(held.offset, seen, region)


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Cache a value; a full cache is cleared."""
    if len(kept) >= MAX_CACHED:
        kept.clear()
    kept[key] = value
