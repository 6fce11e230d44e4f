"""Kernel calls made quickly: what the tiles of a node share is found once, and an op only says where its bytes are.

For kernels of microseconds: an op as a tuple, its boxes and windows by ``memgraph.views``, take longer than they do.
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
"""Of arrays that lie one after the other: bytes from the first one's place, shape, dtype."""


@dataclass(slots=True)
class _CallForm:
    """What the tiles of a node share that are computed alike. ``sizes``: kernel, results and operands by extents."""

    node: int
    einsum: Space
    mode: Mode
    cut: Partitioning
    dtypes: tuple[np.dtype[Any], ...]
    sizes: dict[tuple[int, ...], tuple[HostKernel, Tiles, tuple[tuple[int, ...], ...]]] = field(default_factory=dict)


class KernelCalls:
    """The kernel calls of a graph over one memory; several threads may ask.

    Those of einsums whose operands are read by labels alone are made here, the others by ``views``.
    """

    def __init__(self, graph: MemGraph, memory: ArenaMemory, views: OpViews, elsewhere: bool) -> None:
        """``elsewhere``: some values are not in the memory."""
        self._graph, self._memory, self._views = graph, memory, views
        self._forms: dict[tuple[int, int], _CallForm | None] = {}
        self._every = elsewhere
        self._by_blas = graph.taskgraph.ordered  # a reproducible run's bits hang on what is always there
        self._none = np.empty(0, np.uint8)
        tasks = graph.taskgraph
        # Single elements are read through these in a third of the time.
        self._task, self._read_ptr, self._write_ptr = graph.task.data, graph.read_ptr.data, graph.write_ptr.data
        self._read, self._write = (np.ascontiguousarray(x).reshape(-1).data for x in (graph.read, graph.write))
        self._kind, self._node, self._key_ptr, self._key = (
            x.data for x in (tasks.kind, tasks.node, tasks.key_ptr, tasks.key)
        )
        self._seen_ptr, self._seen, self._box_ptr, self._box = (
            x.data for x in (tasks.read_ptr, tasks.seen, tasks.box_ptr, tasks.box)
        )

    def run(self, i: int, first: bool) -> tuple[int, int]:
        """Run the kernel of op ``i``; the node it is of, and the bits of what happened."""
        task = self._task[i]
        kind, node = self._kind[task], self._node[task]
        try:
            form = self._forms[kind, node]
        except KeyError:
            form = self._forms[kind, node] = self._form(kind, node)
        if form is None:
            call = self._views.call(self._graph[i])
            kernel = compile_kernel(call.einsum, call.extents, call.mode, self._by_blas)
            return call.node, kernel(call.outs, call.operands, call.origins, first, call.workspace)
        box = form.cut.box(tuple(self._key[self._key_ptr[task] : self._key_ptr[task + 1]]))
        extents = tuple([hi - lo for lo, hi in box])
        found = form.sizes.get(extents)
        if found is None:
            found = form.sizes[extents] = self._sized(form, extents)
        kernel, results, shapes = found
        array = self._memory.array
        made = 4 * self._write_ptr[i]
        at = self._write[made + 1]
        outs = tuple([array(at + offset, shape, dtype) for offset, shape, dtype in results])
        workspace = self._none
        if 4 * self._write_ptr[i + 1] > made + 4:
            workspace = array(self._write[made + 5], (self._write[made + 6],), np.uint8)
        operands = self._operands(form, 4 * self._read_ptr[i], self._seen_ptr[task], box, shapes)
        return node, kernel(outs, operands, tuple([lo for lo, _ in box]), first, workspace)

    def _operands(
        self,
        form: _CallForm,
        row: int,
        slot: int,
        box: tuple[tuple[int, int], ...],
        shapes: tuple[tuple[int, ...], ...],
    ) -> tuple[Array, ...]:
        """What the kernel reads: whole tiles as they lie, parts of larger ones."""
        found = []
        for access, shape, dtype in zip(form.einsum.accesses, shapes, form.dtypes, strict=True):
            value, offset = self._seen[slot], self._read[row + 1]
            lies = self._box[self._box_ptr[value] : self._box_ptr[value + 1]].tolist()
            need = [box[p] for p in access]  # type: ignore[index]  # labels alone: see _form
            if lies == [x for pair in need for x in pair]:
                found.append(self._memory.array(offset, shape, dtype))
            else:
                found.append(self._views.part(offset, value, tuple(need)))
            row, slot = row + 4, slot + 1
        return tuple(found)

    def _form(self, kind: int, node: int) -> _CallForm | None:
        d, mode = self._graph.taskgraph.decomposition, MODES[TaskKind(kind)]
        found = d.graph.nodes[node]
        assert isinstance(found, EinsumNode)
        if self._every or mode in ("finalize", "combine") or not found.einsum.plain:
            return None
        e = found.einsum
        return _CallForm(node, e, mode, d.partitionings[node], tuple(t.numpy for t in e.dtypes))

    def _sized(
        self, form: _CallForm, extents: tuple[int, ...]
    ) -> tuple[HostKernel, Tiles, tuple[tuple[int, ...], ...]]:
        e = form.einsum
        results: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        if form.mode == "accumulate":
            offset = 0
            for shape, dtype in e.components(extents):
                results.append((offset, shape, dtype.numpy))
                offset += -(-int(np.prod(shape)) * dtype.itemsize // 64) * 64
        else:
            results.append((0, extents[: e.n_out], e.dtype.numpy))
        shapes = tuple(e.operand_extents(slot, extents) for slot in range(len(e.accesses)))
        return compile_kernel(e, extents, form.mode, self._by_blas), tuple(results), shapes
