"""Ops as arrays over the arena: what a kernel reads and writes, where a value's box lies."""

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
from einturnip.taskgraph.types import TaskKind, Value
from einturnip.tiling.types import Box, index

Array = NDArray[Any]
MOST_KEPT = 4096


class ArenaMemory(Protocol):
    """The arena as ops see it."""

    def array(self, offset: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """A C-contiguous array over the arena's bytes."""


Elsewhere: TypeAlias = Callable[[int], Array | None]
"""The array that a value is, where that is not in the arena."""


@dataclass(frozen=True, slots=True)
class KernelOperands:
    """One kernel call: see kernels.select.HostKernel for what its arguments hold."""

    node: int
    einsum: Space
    extents: tuple[int, ...]
    mode: Mode
    outs: tuple[Array, ...]
    operands: tuple[Array, ...]
    origins: tuple[int, ...]
    workspace: Array


class OpViews:
    """The arrays that the ops of a graph work on, made when an op starts; several threads may ask.

    What many ops use is kept for a while: a tile in memory is read again and again.
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
        """The kernel call that a kernel or aggregate op is."""
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
        if task.kind in (TaskKind.FINISH, TaskKind.JOIN):
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
            if task.kind in (TaskKind.TOUCH, TaskKind.JOIN)
            else (self._made(made, shape, e.dtype.numpy),),
            operands=operands,
            origins=tuple(lo for lo, _ in box),
            workspace=self._none if scratch is None else self.bytes(scratch.offset, scratch.nbytes),
        )

    def continues(self, unit: int) -> bool:
        """True where the unit adds to a state that was reloaded; every other starts from nothing."""
        return unit >= self.tasks.n_values

    def _made(self, made: TierExtent, shape: tuple[int, ...], dtype: Any) -> Array:
        """Where an op leaves the one value that it makes."""
        found = self.elsewhere(made.value)
        return self.memory.array(made.offset, shape, dtype) if found is None else found

    def part(self, offset: int, value: int, need: Box) -> Array:
        """The part ``need`` of a value, or of a view of it, that lies at ``offset``."""
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
        """Hold no arrays."""
        self._parts.clear()

    def value(self, value: int) -> Value:
        """The task graph's value that ``value`` is a version of."""
        found = self._values.get(value)
        if found is None:
            found = self.tasks.get_value(self.graph.base(value))
            _keep(self._values, value, found)
        return found

    def array(self, offset: int, v: Value) -> Array:
        """A tile that lies at ``offset``."""
        return self.memory.array(offset, tuple(hi - lo for lo, hi in v.box), self._dtype(v))

    def _dtype(self, v: Value) -> np.dtype[Any]:
        return self.d.graph.nodes[v.node].dtype.numpy

    def components(self, offset: int, extents: tuple[int, ...], einsum: Space) -> tuple[Array, ...]:
        """A state's components for a tile of ``extents``, one after the other, each from a multiple of 64 bytes."""
        arrays: list[Array] = []
        for shape, dtype in einsum.components(extents):
            arrays.append(self.memory.array(offset, shape, dtype.numpy))
            offset += -(-arrays[-1].nbytes // 64) * 64
        return tuple(arrays)

    def bytes(self, offset: int, nbytes: int) -> Array:
        """Bytes of the arena."""
        return self.memory.array(offset, (nbytes,), np.uint8)

    def move(self, op: Op) -> None:
        """Do a move: copy what shows of each value that it reads."""
        for target, source in self.moved(op):
            target[...] = source

    def moved(self, op: Op) -> Iterator[tuple[Array, Array]]:
        """What a move copies: pairs of target and source."""
        task = self.tasks[op.task]
        out = self.value(op.writes[0].value)
        made = self._made(op.writes[0], tuple(hi - lo for lo, hi in out.box), self._dtype(out))
        for access, seen, box in zip(op.reads, task.seen, self.tasks.copied(task), strict=True):
            yield made[index(box, out.box)], self.part(access.offset, seen, box)

    def transferred(self, op: Op) -> tuple[Box, Array]:
        """What a transfer between the arena and a file moves: the file's region, and the array here."""
        held, far = (op.writes[0], op.reads[0]) if op.kind.lane == Lane.IN else (op.reads[0], op.writes[0])
        region = self.value(far.value).box
        seen = self.tasks[op.task].seen[0] if op.kind == OpKind.STORE else far.value
        return region, self.part(held.offset, seen, region)


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep what may be asked for again; where that is too much, all is forgotten."""
    if len(kept) >= MOST_KEPT:
        kept.clear()
    kept[key] = value
