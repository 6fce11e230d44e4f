"""Fast kernel calls: prepares what the tiles of a node share, and looks up addresses per op.

``memgraph.views`` builds an Op, its boxes and its arrays for every call, which takes longer than a kernel of some
microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from einturnip.eingraph.types import EinsumNode
from einturnip.ir.region import Space
from einturnip.kernels.select import HostKernel, Mode, compile_kernel
from einturnip.memgraph.types import MemGraph
from einturnip.memgraph.views import ArenaMemory, Array, OpViews
from einturnip.taskgraph.build import MODES
from einturnip.taskgraph.types import TaskKind
from einturnip.tiling.types import Partitioning

Tiles: TypeAlias = tuple[tuple[int, tuple[int, ...], np.dtype[Any]], ...]
"""Consecutive arrays: offset in bytes from the first one, shape, dtype."""


@dataclass(slots=True)
class _CallTemplate:
    """The part of a kernel call that all tiles of one node and mode share.

    ``sizes``: by the tile's extents, the kernel, the layout of the results, and the shape of each operand.
    """

    node: int
    einsum: Space
    mode: Mode
    partitioning: Partitioning
    dtypes: tuple[np.dtype[Any], ...]
    sizes: dict[tuple[int, ...], tuple[HostKernel, Tiles, tuple[tuple[int, ...], ...]]] = field(default_factory=dict)


class KernelCalls:
    """Runs the kernels of a graph's ops over one memory. Thread-safe.

    Takes the fast path for einsums whose operands are indexed by labels alone, if all values are in the memory;
    otherwise ``views`` makes the call.
    """

    def __init__(self, graph: MemGraph, memory: ArenaMemory, views: OpViews, external: bool) -> None:
        """``external``: some values are in the caller's arrays and not in the memory."""
        self._graph, self._memory, self._views = graph, memory, views
        self._templates: dict[tuple[int, int], _CallTemplate | None] = {}
        self._external = external
        self._by_blas = graph.taskgraph.ordered  # reproducible runs use BLAS, because compiled code may be absent
        self._none = np.empty(0, np.uint8)
        tasks = graph.taskgraph
        # Reading single elements through memoryviews takes a third of the time of NumPy's indexing.
        self._task, self._read_ptr, self._write_ptr = graph.task.data, graph.read_ptr.data, graph.write_ptr.data
        self._read, self._write = (np.ascontiguousarray(x).reshape(-1).data for x in (graph.read, graph.write))
        self._kind, self._node, self._key_ptr, self._key = (
            x.data for x in (tasks.kind, tasks.node, tasks.key_ptr, tasks.key)
        )
        self._seen_ptr, self._seen, self._box_ptr, self._box = (
            x.data for x in (tasks.read_ptr, tasks.seen, tasks.box_ptr, tasks.box)
        )

    def run(self, i: int, first: bool) -> tuple[int, int]:
        """Run the kernel of op ``i``; return its node and the floating-point flags that it raised.

        ``first``: the op initialises its accumulator.
        """
        task = self._task[i]
        kind, node = self._kind[task], self._node[task]
        try:
            template = self._templates[kind, node]
        except KeyError:
            template = self._templates[kind, node] = self._new_template(kind, node)
        if template is None:
            call = self._views.call(self._graph[i])
            kernel = compile_kernel(call.einsum, call.extents, call.mode, self._by_blas)
            return call.node, kernel(call.outs, call.operands, call.origins, first, call.workspace)
        box = template.partitioning.box(tuple(self._key[self._key_ptr[task] : self._key_ptr[task + 1]]))
        extents = tuple([hi - lo for lo, hi in box])
        found = template.sizes.get(extents)
        if found is None:
            found = template.sizes[extents] = self._sizes_of(template, extents)
        kernel, results, shapes = found
        array = self._memory.array
        made = 4 * self._write_ptr[i]
        at = self._write[made + 1]
        outs = tuple([array(at + offset, shape, dtype) for offset, shape, dtype in results])
        workspace = self._none
        if 4 * self._write_ptr[i + 1] > made + 4:
            workspace = array(self._write[made + 5], (self._write[made + 6],), np.uint8)
        operands = self._operands(template, 4 * self._read_ptr[i], self._seen_ptr[task], box, shapes)
        return node, kernel(outs, operands, tuple([lo for lo, _ in box]), first, workspace)

    def _operands(
        self,
        template: _CallTemplate,
        row: int,
        slot: int,
        box: tuple[tuple[int, int], ...],
        shapes: tuple[tuple[int, ...], ...],
    ) -> tuple[Array, ...]:
        """Return the operands: whole tiles as new arrays over the memory, parts of larger tiles by ``views``."""
        found = []
        for access, shape, dtype in zip(template.einsum.accesses, shapes, template.dtypes, strict=True):
            value, offset = self._seen[slot], self._read[row + 1]
            stored = self._box[self._box_ptr[value] : self._box_ptr[value + 1]].tolist()
            need = [box[p] for p in access]  # type: ignore[index]  # labels alone: see _new_template
            if stored == [x for pair in need for x in pair]:
                found.append(self._memory.array(offset, shape, dtype))
            else:
                found.append(self._views.part(offset, value, tuple(need)))
            row, slot = row + 4, slot + 1
        return tuple(found)

    def _new_template(self, kind: int, node: int) -> _CallTemplate | None:
        d, mode = self._graph.taskgraph.decomposition, MODES[TaskKind(kind)]
        found = d.graph.nodes[node]
        assert isinstance(found, EinsumNode)
        if self._external or mode in ("finalize", "combine") or not found.einsum.plain:
            return None
        e = found.einsum
        return _CallTemplate(node, e, mode, d.partitionings[node], tuple(t.numpy for t in e.dtypes))

    def _sizes_of(
        self, template: _CallTemplate, extents: tuple[int, ...]
    ) -> tuple[HostKernel, Tiles, tuple[tuple[int, ...], ...]]:
        e = template.einsum
        results: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        if template.mode == "accumulate":
            offset = 0
            for shape, dtype in e.components(extents):
                results.append((offset, shape, dtype.numpy))
                offset += -(-int(np.prod(shape)) * dtype.itemsize // 64) * 64
        else:
            results.append((0, extents[: e.n_out], e.dtype.numpy))
        shapes = tuple(e.operand_extents(slot, extents) for slot in range(len(e.accesses)))
        return compile_kernel(e, extents, template.mode, self._by_blas), tuple(results), shapes
