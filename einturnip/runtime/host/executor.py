"""Executes single ops: a kernel on views of the arena, or a transfer between the arena and a file."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import OutOfRange
from einturnip.kernels.protocol import HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import COMPUTE, DISK, FILES, Lane, MemGraph, Op, OpKind
from einturnip.memgraph.views import ArenaMemory, Array, NodeTile, OpViews
from einturnip.runtime.host.index_origin import locate_index, statement_of
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.numeric_events import NumericEvents, host_parts
from einturnip.storage.arrays import ArraySource
from einturnip.storage.device_arrays import DeviceArray
from einturnip.storage.types import Sink, Source
from einturnip.taskgraph.types import TaskKind, ValueKind


class SpillAccess(Protocol):
    """The spill file as ops see it."""

    def write(self, offset: int, buffer: Any) -> int:
        """Write the buffer at the offset; return the bytes written."""

    def read(self, offset: int, buffer: Any) -> int:
        """Fill the buffer from the offset; return the bytes read."""


class TransferEnds:
    """Transfers of a graph's ops to and from files and the spill file, with numeric events.

    ``begun``: units whose state is initialised. ``moved``: bytes moved by direction. ``kept``: nodes whose files other
    processes read too, so that their pages stay in the page cache.
    """

    def __init__(
        self,
        graph: MemGraph,
        memory: ArenaMemory,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        spill: SpillAccess | None,
    ) -> None:
        self.graph = graph
        self.tasks = graph.taskgraph
        self.eingraph = self.tasks.decomposition.graph
        self.nodes = self.eingraph.nodes
        self.views = OpViews(graph, memory)
        self.sources = sources
        self.sinks = sinks
        self.spill = spill
        self.begun: set[int] = set()
        self.kept: frozenset[int] = frozenset()
        self.lock = threading.Lock()
        self.moved = {"in": 0, "out": 0}
        self.in_place: ZeroCopyTiles | None = None
        self.events = NumericEvents(graph)
        brought = graph.read[(graph.read[:, 0] >= FILES) & (graph.read[:, 0] < FILES + len(self.nodes))]
        n_versions = self.tasks.n_values + len(graph.origin)
        self._uses_left: list[int] = np.bincount(brought[:, 3], minlength=n_versions).tolist()
        self._announce_whole_reads(brought)

    def use_arrays_on_device(self) -> None:
        """Let kernels read inputs that are in the memory of the run's device where they are."""
        self.in_place = self.views.external = ZeroCopyTiles(self.graph, self.sources, (), on_device=True)

    def is_on_device(self, op: Op) -> bool:
        """Return whether a transfer reads or writes an array of the caller in the memory of the run's device."""
        if self.in_place is None or op.kind.lane == Lane.COMPUTE:
            return False
        far = op.reads[0] if op.kind.lane == Lane.IN else op.writes[0]
        return far.tier >= FILES and isinstance(self._file(far.tier), DeviceArray)

    def copy_on_device(self, op: Op) -> tuple[Array, ...] | None:
        """Return target and source of a transfer on the device, () without a copy; None for others."""
        if self.in_place is None or not self.is_on_device(op):
            return None
        if self.in_place.needs_no_copy(op):
            return ()
        inward = op.kind.lane == Lane.IN
        far = op.reads[0] if inward else op.writes[0]
        array, (region, tile) = self._file(far.tier), self.views.transferred(op)
        assert isinstance(array, DeviceArray)
        return (tile, array.window(region)) if inward else (array.window(region), tile)

    def _announce_whole_reads(self, brought: NDArray[np.int64]) -> None:
        """Notify each source whose tiles the graph reads completely."""
        for number, source in enumerate(self.sources):
            read_whole = getattr(source, "read_whole", None)
            if source is None or read_whole is None:
                continue
            mine = brought[brought[:, 0] == FILES + number]
            each = np.zeros(int(mine[:, 3].max(initial=0)) + 1, np.int64)
            each[mine[:, 3]] = mine[:, 2]
            if each.sum() >= math.prod(source.shape) * source.dtype.itemsize:
                read_whole()

    def first(self, unit: int) -> bool:
        """Return whether this is the first op of a unit to run, which then initialises its state."""
        if unit < 0 or unit in self.begun:
            return False
        self.begun.add(unit)
        return not self.views.continues(unit)

    def read(self, op: Op, array: Array) -> None:
        """Fill ``array`` from the source of a load or reload: bytes of the spill file, or a region of a file."""
        source = op.reads[0]
        if source.tier == DISK:
            assert self.spill is not None
            self.spill.read(source.offset, array)
            self.count("in", source.nbytes)
            return
        store = self._file(source.tier)
        region = self.views.value(source.value).box
        nbytes = store.read(region, array)
        with self.lock:
            self._uses_left[source.value] -= 1
            last = self._uses_left[source.value] == 0
        # No later op reads the region, so its pages can leave the page cache.
        if last and source.tier - FILES not in self.kept:
            store.release(region)
        self.count("in", nbytes)

    def write(self, op: Op, array: Array) -> None:
        """Write ``array`` to the target of an offload or store: the spill file, or a region of a file."""
        near, to = op.reads[0], op.writes[0]
        assert near.tier == COMPUTE
        if to.tier == DISK:
            assert self.spill is not None
            self.spill.write(to.offset, array)
            self.count("out", near.nbytes)
            return
        region = self.views.value(to.value).box
        self.count("out", self._sink(to.tier).write(region, array))

    def arena_side(self, op: Op) -> Array:
        """Return the view of the arena that a transfer reads or writes."""
        near, far = (op.writes[0], op.reads[0]) if op.kind.lane == Lane.IN else (op.reads[0], op.writes[0])
        if far.tier <= DISK:
            return self.views.bytes(near.offset, near.nbytes)
        return self.views.transferred(op)[1]

    def count(self, direction: str, nbytes: int) -> None:
        """Add to the bytes moved in a direction."""
        with self.lock:
            self.moved[direction] = self.moved.get(direction, 0) + nbytes

    def _file(self, tier: int) -> Source:
        number = tier - FILES
        if number >= len(self.nodes):
            return self._sink(tier)
        source = self.sources[number]
        assert source is not None
        return source

    def _sink(self, tier: int) -> Sink:
        return self.sinks[tier - FILES - len(self.nodes)]

    def describe(self, i: int) -> str:
        """Return a description of op ``i`` in the program's words, for error messages."""
        op = self.graph[i]
        if op.task >= 0:
            task = self.tasks[op.task]
            if task.kind == TaskKind.STORE:
                return f"storing output {self.eingraph.outputs[task.node][0]!r}"
            node = self.nodes[task.node]
            if task.kind == TaskKind.LOAD:
                return f"reading {node.name!r}"
            return statement_of(self.graph, i)
        value = self.views.value(op.reads[0].value)
        state = " (partial result)" if value.kind == ValueKind.STATE else ""
        return f"{op.kind.name.lower()}ing a tile of {self.nodes[value.node].name!r}{state}"


_KERNELS = frozenset({OpKind.KERNEL, OpKind.AGGREGATE})
_TRANSFERS = frozenset({OpKind.LOAD, OpKind.RELOAD, OpKind.STORE})


class OpExecutor(TransferEnds):
    """Runs ops of one memory graph on the host. Several threads can call ``run``, once for each op.

    Tiles of the caller's arrays are read and written without a copy (zero-copy) where possible.
    """

    def __init__(
        self,
        graph: MemGraph,
        memory: ArenaMemory,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        spill: SpillAccess | None,
    ) -> None:
        super().__init__(graph, memory, sources, sinks, spill)
        arrays = any(isinstance(end, ArraySource) for end in (*sources, *sinks))
        tiles = ZeroCopyTiles(graph, sources, sinks) if arrays else None
        self._zero_copy = self.views.external = None if tiles is None or tiles.empty else tiles
        self._kernels: dict[NodeTile, HostKernel] = {}
        self._by_blas = self.tasks.ordered  # reproducible runs use BLAS, because compiled code may be absent
        self._kind, self._unit = graph.kind.data, graph.unit.data

    def is_zero_copy(self, i: int) -> bool:
        """Return whether op ``i`` is a transfer that needs no copy, so that it only counts its bytes."""
        tiles = self._zero_copy
        return tiles is not None and self._kind[i] in _TRANSFERS and tiles.needs_no_copy(self.graph[i])

    def run(self, i: int) -> None:
        """Execute op ``i``."""
        if self._kind[i] in _KERNELS:
            # The state machine holds the unit's lock while the op runs, so no other op initialises it at the same time.
            try:
                tile, arguments = self.views.call(i, self.first(self._unit[i]))
                kernel = self._kernels.get(tile)
                if kernel is None:
                    kernel = compile_kernel(tile.einsum, tile.extents, tile.mode, self._by_blas)
                    self._kernels[tile] = kernel
                bits = kernel.prepare(arguments).run()
                if bits:
                    self.events.record(i, bits, arguments.outs[0], arguments.origins, host_parts)
            except OutOfRange as error:
                locate_index(self.graph, i, error)
                raise
            return
        op = self.graph[i]
        if op.kind == OpKind.MOVE:
            self.views.move(op)
        elif self._zero_copy is not None and op.kind in _TRANSFERS and self._zero_copy.needs_no_copy(op):
            self.count("out" if op.kind == OpKind.STORE else "in", op.reads[0].nbytes)
        elif op.kind.lane == Lane.IN:
            self.read(op, self.arena_side(op))
        else:
            self.write(op, self.arena_side(op))
