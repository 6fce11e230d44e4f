"""What stands in the caller's arrays and is worked on there: tiles that are not copied in, results not copied out.

The memory graph gives every tile an extent of the arena, whose pages cost nothing until they are touched. Where a tile
is a plain window of an array that the caller passed, its kernels read it there, and the load only counts. Where one op
makes a whole tile of an array that the caller gave for an output, it writes it there, and the store only counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.cost.working_set import splits_aggregation
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.contraction import contraction
from einturnip.ir.region import Region, Space
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.select import Mode, compile_kernel
from einturnip.memgraph.types import FILES, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array
from einturnip.storage.arrays import ArraySource
from einturnip.storage.types import Sink, Source, slices


class ZeroCopyTiles:
    """The tiles of a graph that stand in the caller's arrays, by value."""

    def __init__(
        self, graph: MemGraph, sources: Sequence[Source | None], sinks: Sequence[Sink], read_only: bool = False
    ) -> None:
        """``read_only``: results are made elsewhere, and copied."""
        self._graph = graph
        first = len(graph.taskgraph.decomposition.graph.nodes)
        inputs = {i: s.array for i, s in enumerate(sources) if isinstance(s, ArraySource)}
        outputs = {first + o: s.array for o, s in enumerate(sinks) if isinstance(s, ArraySource)}
        read = {n: a for n, a in inputs.items() if _apart(n, {n: a} | outputs)}
        apart = {n: a for n, a in outputs.items() if _apart(n, inputs | outputs)}
        self._arrays = {n: a for n, a in (read if read_only else read | apart).items() if _plain(a)}
        self._file = _files(graph, self._arrays, first) if self._arrays else {}
        self._multiplied = _multiplied(graph) & self._file.keys() if self._arrays else frozenset()

    @property
    def empty(self) -> bool:
        """Whether none does."""
        return not self._file

    def __call__(self, value: int) -> Array | None:
        """The window of the caller's array that a value is; None where it has a place of its own."""
        file = self._file.get(value)
        if file is None:
            return None
        index: tuple[Any, ...] = (*slices(self._graph.taskgraph.get_value(value).box), ...)
        window: Array = self._arrays[file][index]
        return window if value not in self._multiplied or _pitched(window) else None

    def file(self, value: int) -> int | None:
        """The input or output (numbered from the nodes on) in whose array a value may stand; None where in none."""
        return self._file.get(value)

    def forget(self) -> None:
        """Hold no array."""
        self._arrays = {}

    def array(self, number: int) -> Array | None:
        """The caller's array that an input, by its node, is read in; None where it is copied."""
        return self._arrays.get(number)

    def there(self, op: Op) -> bool:
        """True where a transfer's bytes are at its far end already."""
        near, far = (op.writes[0], op.reads[0]) if op.kind in _INWARD else (op.reads[0], op.writes[0])
        return self._file.get(near.value) == far.tier - FILES and self(near.value) is not None


_INWARD = (OpKind.LOAD, OpKind.RELOAD)


def _files(graph: MemGraph, arrays: Mapping[int, Array], first: int) -> dict[int, int]:
    """The array that each value is read from or, whole, made for. Arrays from ``first`` on are outputs.

    What is seen as another value, or goes to the spill file, has a place of its own.
    """
    tasks = graph.taskgraph
    barred = np.concatenate([tasks.read[tasks.read != tasks.seen], _values(graph, OpKind.OFFLOAD)[0]])
    found: dict[int, int] = {}
    for kind in (OpKind.LOAD, OpKind.STORE):
        read, written = _values(graph, kind)
        tiers = _tiers(graph, kind) - FILES
        here = np.isin(tiers, [n for n in arrays if (n < first) == (kind == OpKind.LOAD)]) & ~np.isin(read, barred)
        if kind == OpKind.STORE:
            here &= (read == written) & np.isin(read, _made_at_once(graph))
        found.update(zip(read[here].tolist(), tiers[here].tolist(), strict=True))
    return found


def _values(graph: MemGraph, kind: OpKind) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The values that transfers of a kind read and write."""
    ops = np.flatnonzero(graph.kind == kind)
    return graph.read[graph.read_ptr[ops], 3], graph.write[graph.write_ptr[ops], 3]


def _tiers(graph: MemGraph, kind: OpKind) -> NDArray[np.int64]:
    """The far tiers of transfers of a kind."""
    ops = np.flatnonzero(graph.kind == kind)
    side, ptr = (graph.read, graph.read_ptr) if kind == OpKind.LOAD else (graph.write, graph.write_ptr)
    tiers: NDArray[np.int64] = side[ptr[ops], 0]
    return tiers


def _made_at_once(graph: MemGraph) -> NDArray[np.int64]:
    """The values that one op makes: no accumulators, which are read as they grow."""
    makes = np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE, OpKind.MOVE)) & (graph.unit < 0)
    values: NDArray[np.int64] = graph.write[graph.write_ptr[:-1][makes], 3]
    return values


def _multiplied(graph: MemGraph) -> frozenset[int]:
    """The values of products' tiles, which BLAS takes as matrices; other kernels take what lies in any strides."""
    d = graph.taskgraph.decomposition
    nodes = zip(d.graph.nodes, d.partitionings, strict=True)
    product = np.array([isinstance(n, EinsumNode) and _multiplies(n.einsum, cut.tiles) for n, cut in nodes])
    made = np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE))
    made[made] = product[graph.taskgraph.node[graph.task[made]]]
    sides = ((graph.read, graph.read_ptr), (graph.write, graph.write_ptr))
    values = [side[np.repeat(made, np.diff(ptr)), 3] for side, ptr in sides]
    return frozenset(np.unique(np.concatenate(values)).tolist())


def _multiplies(space: Space, tile: tuple[int, ...]) -> bool:
    """Whether a tile's kernel calls BLAS, or may: which of it is machine code may change until it runs."""
    if isinstance(space, Region):
        return True
    mode: Mode = "accumulate" if splits_aggregation(space, tile) else "full"
    return contraction(space) is not None and isinstance(compile_kernel(space, tile, mode), ContractionKernel)


def _plain(array: Array) -> bool:
    """Elements as kernels take them, rows in C's order with no two elements at one place."""
    if not (array.dtype.isnative and array.flags.aligned):
        return False
    step = array.itemsize
    for n, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if n > 1:
            if stride < step or (step == array.itemsize and stride != step):
                return False
            step = stride * n
    return True


def _pitched(window: Array) -> bool:
    """True where it is rows a constant way apart: what a matrix in memory may be."""
    breaks, step = 0, window.itemsize
    for n, stride in zip(reversed(window.shape), reversed(window.strides), strict=True):
        if n > 1:
            breaks += stride != step
            step = stride * n
    return breaks <= 1


def _apart(number: int, arrays: Mapping[int, Array]) -> bool:
    """True where none of the others may share its memory: what is read there has not been written meanwhile."""
    return not any(np.may_share_memory(arrays[number], a) for n, a in arrays.items() if n != number)
