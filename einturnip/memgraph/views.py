"""Array views over the arena: the operands and outputs of kernels, and the boxes of transfers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.core.units import whole_lines
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Box
from einturnip.ir.region import Space
from einturnip.kernels.protocol import CallArguments, Mode
from einturnip.memgraph.types import Lane, MemGraph, Op, OpKind, TierExtent
from einturnip.taskgraph.build import MODES
from einturnip.taskgraph.types import TaskKind, Value, ValueKind
from einturnip.tiling.types import Partitioning, index
from einturnip.tuning.memory import MAX_CACHED_VIEWS

Array = NDArray[Any]


class ArenaMemory(Protocol):
    """The interface of the arena that views need."""

    def array(self, offset: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a C-contiguous array over bytes of the arena."""


ExternalArrays: TypeAlias = Callable[[int], Array | None]
"""Returns the external array of a value (zero-copy), or None if the value is in the arena."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeTile:
    """The common part of the calls of one node and mode whose tiles have one size.

    ``outs``: offset in bytes from the first, shape and dtype of each output. ``operands``: shape and dtype of each.
    """

    node: int
    einsum: Space
    extents: tuple[int, ...]
    mode: Mode
    outs: tuple[tuple[int, tuple[int, ...], np.dtype[Any]], ...]
    operands: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]


class KernelOperands(NamedTuple):
    """One kernel call of a graph."""

    tile: NodeTile
    arguments: CallArguments


class OpViews:
    """Makes the arrays that ops work on when an op starts. Thread-safe.

    Views that many ops use are cached, because a tile in memory is read many times. ``call`` reads the graph's columns
    instead of making an Op, which takes longer than a kernel of some microseconds.
    """

    def __init__(self, graph: MemGraph, memory: ArenaMemory, external: ExternalArrays | None = None) -> None:
        self.graph = graph
        self.memory = memory
        self.external = external
        self.tasks = tasks = graph.taskgraph
        self.d = tasks.decomposition
        self._none = np.empty(0, np.uint8)
        self._values: dict[int, Value] = {}
        self._parts: dict[tuple[int, int, Box], Array] = {}
        self._tiles: dict[tuple[int, int], tuple[Partitioning, dict[tuple[int, ...], NodeTile]]] = {}
        # Reading single elements through memoryviews takes a third of the time of NumPy's indexing.
        self._task, self._read_ptr, self._write_ptr = graph.task.data, graph.read_ptr.data, graph.write_ptr.data
        self._read, self._write = (np.ascontiguousarray(x).reshape(-1).data for x in (graph.read, graph.write))
        self._kind, self._node, self._key_ptr, self._key = (
            x.data for x in (tasks.kind, tasks.node, tasks.key_ptr, tasks.key)
        )
        self._seen_ptr, self._seen, self._box_ptr, self._box = (
            x.data for x in (tasks.read_ptr, tasks.seen, tasks.box_ptr, tasks.box)
        )

    def call(self, i: int, first: bool = True) -> KernelOperands:
        """Return the kernel call of op ``i``, a kernel or an aggregate. ``first``: see CallArguments."""
        task = self._task[i]
        kind, node = self._kind[task], self._node[task]
        known = self._tiles.get((kind, node))
        if known is None:
            known = self._tiles[kind, node] = self.d.partitionings[node], {}
        box = known[0].box(tuple(self._key[self._key_ptr[task] : self._key_ptr[task + 1]]))
        extents = tuple([hi - lo for lo, hi in box])
        tile = known[1].get(extents)
        if tile is None:
            tile = known[1][extents] = self._tile(kind, node, extents)
        array, made, workspace = self.memory.array, 4 * self._write_ptr[i], self._none
        at = self._write[made + 1]
        found = self.external(self._write[made + 3]) if self.external is not None else None
        outs = (found,) if found is not None else tuple([array(at + o, shape, dtype) for o, shape, dtype in tile.outs])
        if 4 * self._write_ptr[i + 1] > made + 4:
            workspace = array(self._write[made + 5], (self._write[made + 6],), np.uint8)
        row = 4 * self._read_ptr[i]
        if tile.mode == "finalize" or tile.mode == "combine":
            operands = self.components(self._read[row + 1], extents, tile.einsum)
        else:
            operands = self._operands(tile, row, self._seen_ptr[task], box)
        return KernelOperands(tile, CallArguments(outs, operands, tuple([lo for lo, _ in box]), first, workspace))

    def _operands(self, tile: NodeTile, row: int, slot: int, box: Box) -> tuple[Array, ...]:
        """Return the operands: whole tiles as new arrays over the memory, others by ``part``."""
        found, e = [], tile.einsum
        for k, (shape, dtype) in enumerate(tile.operands):
            value, offset = self._seen[slot + k], self._read[row + 4 * k + 1]
            access = e.accesses[k]
            if not e.plain or self.external is not None:
                found.append(self.part(offset, value, e.operand_box(k, box)))
                continue
            need = tuple([box[p] for p in access])  # type: ignore[index]
            stored = self._box[self._box_ptr[value] : self._box_ptr[value + 1]].tolist()
            whole = stored == [x for pair in need for x in pair]
            found.append(self.memory.array(offset, shape, dtype) if whole else self.part(offset, value, need))
        return tuple(found)

    def _tile(self, kind: int, node: int, extents: tuple[int, ...]) -> NodeTile:
        found, mode = self.d.graph.nodes[node], MODES[TaskKind(kind)]
        assert isinstance(found, EinsumNode)
        e, offset = found.einsum, 0
        outs: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        for shape, dtype in e.components(extents) if mode in ("accumulate", "combine") else ():
            outs.append((offset, shape, dtype.numpy))
            offset += _aligned_nbytes(shape, dtype)
        reads = [(e.operand_extents(slot, extents), t.numpy) for slot, t in enumerate(e.dtypes)]
        made = (0, extents[: e.n_out], e.dtype.numpy)
        return NodeTile(node, e, extents, mode, tuple(outs) or (made,), tuple(reads))

    def continues(self, unit: int) -> bool:
        """Return whether the unit continues a reloaded partial state; other units start empty."""
        return unit >= self.tasks.n_values

    def _made(self, made: TierExtent, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the array for the value that an op makes."""
        found = None if self.external is None else self.external(made.value)
        return self.memory.array(made.offset, shape, dtype) if found is None else found

    def part(self, offset: int, value: int, need: Box) -> Array:
        """Return the part ``need`` of a value, or of a view of it, whose bytes start at ``offset``."""
        key = offset, value, need
        part = self._parts.get(key)
        if part is None:
            v = self.value(value)
            found = None if self.external is None else self.external(value)
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
            found = self.tasks.get_value(self.graph.unversioned(value))
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
            offset += _aligned_nbytes(shape, dtype)
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
        near, far = (op.writes[0], op.reads[0]) if op.kind.lane == Lane.IN else (op.reads[0], op.writes[0])
        region = self.value(far.value).box
        seen = self.tasks[op.task].seen[0] if op.kind == OpKind.STORE else far.value
        return region, self.part(near.offset, seen, region)


def _aligned_nbytes(shape: tuple[int, ...], dtype: DType) -> int:
    return whole_lines(math.prod(shape) * dtype.itemsize)


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Cache a value; a full cache is cleared."""
    if len(kept) >= MAX_CACHED_VIEWS:
        kept.clear()
    kept[key] = value
