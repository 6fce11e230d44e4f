"""Zero-copy tiles: tiles that kernels read and write in the caller's arrays instead of the arena.

The memory graph assigns every tile bytes of the arena, which cost nothing until they are touched. If a tile is a
strided window of an input array, kernels read it there, and the load copies nothing. If one op produces a whole tile of
an output array, it writes it there, and the store copies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.core.distinct import sorted_distinct
from einturnip.cost.machine import Machine
from einturnip.cost.working_set import splits_aggregation
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.dtypes import from_numpy
from einturnip.ir.einsum import Box, Einsum, contraction
from einturnip.ir.region import Region, Space
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import FILES, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array
from einturnip.storage.arrays import ArraySource, array_sink, array_source
from einturnip.storage.device_arrays import DeviceArray
from einturnip.storage.types import Sink, Source, slices
from einturnip.tuning.memory import WAKE_SECONDS

Window: TypeAlias = tuple[int, tuple[Any, ...]]
"""A region of a caller's array: the array's tier and the index."""


class ZeroCopyTiles:
    """The values of a graph that are used in the caller's arrays."""

    def __init__(
        self,
        graph: MemGraph,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        read_only: bool = False,
        on_device: bool = False,
    ) -> None:
        """``read_only``: outputs are made in the arena and copied.

        ``on_device``: the arrays are on the run's device, whose kernels read any strides; outputs are copied.
        """
        self._graph = graph
        if on_device:
            self._arrays = {i: s.array for i, s in enumerate(sources) if isinstance(s, DeviceArray)}
            self._array_of = _files(graph, self._arrays, len(graph.taskgraph.decomposition.graph.nodes))
            self._multiplied: frozenset[int] = frozenset()
            return
        first = len(graph.taskgraph.decomposition.graph.nodes)
        inputs = {i: s.array for i, s in enumerate(sources) if isinstance(s, ArraySource)}
        outputs = {first + o: s.array for o, s in enumerate(sinks) if isinstance(s, ArraySource)}
        # An array whose memory may overlap with an output is copied, since its bytes could change during the run.
        read = {n: a for n, a in inputs.items() if _is_disjoint(n, {n: a} | outputs)}
        written = {n: a for n, a in outputs.items() if _is_disjoint(n, inputs | outputs)}
        self._arrays = {n: a for n, a in (read if read_only else read | written).items() if _is_usable(a)}
        self._array_of = _files(graph, self._arrays, first) if self._arrays else {}
        self._multiplied = _multiplied(graph) & self._array_of.keys() if self._arrays else frozenset()

    @classmethod
    def of_arrays(
        cls, graph: MemGraph, inputs: Sequence[Array | None], outputs: Sequence[Array], min_nbytes: int = 0
    ) -> ZeroCopyTiles:
        """Return the tiles of a run's arrays. Arrays below ``min_nbytes`` are always copied.

        If one output is below ``min_nbytes``, all outputs are copied.
        """
        sources = [None if a is None or a.nbytes < min_nbytes else array_source(a, "") for a in inputs]
        sinks = [array_sink(a, "", a.shape, from_numpy(a.dtype)) for a in outputs]
        return cls(graph, sources, sinks, read_only=any(a.nbytes < min_nbytes for a in outputs))

    @property
    def empty(self) -> bool:
        """Whether no value is used in a caller's array."""
        return not self._array_of

    def window(self, value: int, box: Box | None = None) -> Window | None:
        """Return where a value, or its part ``box``, is in a caller's array; None if in the arena."""
        number = self._array_of.get(value)
        if number is None:
            return None
        whole: tuple[Any, ...] = (*slices(self._graph.taskgraph.get_value(value).box), ...)
        if value in self._multiplied and not _is_matrix(self._arrays[number][whole]):
            return None
        return FILES + number, whole if box is None else (*slices(box), ...)

    def __call__(self, value: int) -> Array | None:
        """Return the window of the caller's array that holds a value; None if the value is in the arena."""
        found = self.window(value)
        if found is None:
            return None
        tier, index = found
        array: Array = self._arrays[tier - FILES][index]
        return array

    def forget(self) -> None:
        """Drop all arrays."""
        self._arrays = {}

    def array(self, number: int) -> Array | None:
        """Return the caller's array of an input node or output; None if it is copied."""
        return self._arrays.get(number)

    def needs_no_copy(self, op: Op) -> bool:
        """Return whether a transfer is between a caller's array and itself."""
        near, far = (op.writes[0], op.reads[0]) if op.kind in _INWARD else (op.reads[0], op.writes[0])
        found = self.window(near.value)
        return found is not None and found[0] == far.tier


_INWARD = (OpKind.LOAD, OpKind.RELOAD)


def _files(graph: MemGraph, arrays: Mapping[int, Array], first: int) -> dict[int, int]:
    """Return, by value, the array that it is loaded from, or stored to as a whole.

    Arrays from ``first`` on are outputs.

    Values that kernels read as a view of another value, and values that are spilled, stay in the arena.
    """
    tasks = graph.taskgraph
    excluded = np.concatenate([tasks.read[tasks.read != tasks.seen], _values(graph, OpKind.OFFLOAD)[0]])
    found: dict[int, int] = {}
    for kind in (OpKind.LOAD, OpKind.STORE):
        read, written = _values(graph, kind)
        tiers = _tiers(graph, kind) - FILES
        usable = np.isin(tiers, [n for n in arrays if (n < first) == (kind == OpKind.LOAD)]) & ~np.isin(read, excluded)
        if kind == OpKind.STORE:
            usable &= (read == written) & np.isin(read, _made_by_one_op(graph))
        found.update(zip(read[usable].tolist(), tiers[usable].tolist(), strict=True))
    return found


def _values(graph: MemGraph, kind: OpKind) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values that transfers of a kind read and write."""
    ops = np.flatnonzero(graph.kind == kind)
    return graph.read[graph.read_ptr[ops], 3], graph.write[graph.write_ptr[ops], 3]


def _tiers(graph: MemGraph, kind: OpKind) -> NDArray[np.int64]:
    """Return the tier outside the arena of transfers of a kind."""
    ops = np.flatnonzero(graph.kind == kind)
    side, ptr = (graph.read, graph.read_ptr) if kind == OpKind.LOAD else (graph.write, graph.write_ptr)
    tiers: NDArray[np.int64] = side[ptr[ops], 0]
    return tiers


def _made_by_one_op(graph: MemGraph) -> NDArray[np.int64]:
    """Return the values that one op produces; accumulators are excluded, since several ops update them."""
    makes = np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE, OpKind.MOVE)) & (graph.unit < 0)
    values: NDArray[np.int64] = graph.write[graph.write_ptr[:-1][makes], 3]
    return values


def _multiplied(graph: MemGraph) -> frozenset[int]:
    """Return the values that products read or write, which BLAS needs as matrices.

    Other kernels take any strides.
    """
    d = graph.taskgraph.decomposition
    nodes = zip(d.graph.nodes, d.partitionings, strict=True)
    product = np.array([isinstance(n, EinsumNode) and _multiplies(n.einsum, part.tiles) for n, part in nodes])
    made = np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE))
    made[made] = product[graph.taskgraph.node[graph.task[made]]]
    sides = ((graph.read, graph.read_ptr), (graph.write, graph.write_ptr))
    values = [side[np.repeat(made, np.diff(ptr)), 3] for side, ptr in sides]
    return frozenset(sorted_distinct(np.concatenate(values)).tolist())


def _multiplies(space: Space, tile: tuple[int, ...]) -> bool:
    """Return whether a tile's kernel calls BLAS, or may call it.

    Compiled code for parts of a region may be absent at the run.
    """
    if isinstance(space, Region):
        return True
    mode: Mode = "accumulate" if splits_aggregation(space, tile) else "full"
    return contraction(space) is not None and isinstance(compile_kernel(space, tile, mode), ContractionKernel)


def _is_usable(array: Array) -> bool:
    """Return whether kernels can use the array: native, aligned, C order, elements do not overlap."""
    if not (array.dtype.isnative and array.flags.aligned):
        return False
    step = array.itemsize
    for n, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if n > 1:
            if stride < step or (step == array.itemsize and stride != step):
                return False
            step = stride * n
    return True


def _is_matrix(window: Array) -> bool:
    """Return whether the window is a matrix to BLAS: contiguous rows at a constant distance."""
    breaks, step = 0, window.itemsize
    for n, stride in zip(reversed(window.shape), reversed(window.strides), strict=True):
        if n > 1:
            breaks += stride != step
            step = stride * n
    return breaks <= 1


def _is_disjoint(number: int, arrays: Mapping[int, Array]) -> bool:
    """Return whether no other array can share memory with this one."""
    return not any(np.may_share_memory(arrays[number], a) for n, a in arrays.items() if n != number)


def zero_copy_machine(machine: Machine, graph: EinGraph) -> Machine:
    """Return the machine with nearly free transfers, for a graph that reads and writes only arrays.

    With free transfers the planner chooses tiles just small enough to balance the workers. Graphs with matrix products
    by BLAS keep the rates of files, which lead to smaller tiles whose panels fit the cache.
    """
    if not machine.compiled and _has_product(graph):
        return machine
    rate, run = 10 * machine.memory_bandwidth, 1e-3 * machine.run_latency
    return replace(
        machine,
        read_bandwidth=rate,
        cached_bandwidth=rate,
        near_bandwidth=rate,
        write_bandwidth=rate,
        run_latency=run,
        cold_run_latency=run,
        page_latency=run,
        op_latency=max(machine.op_latency, WAKE_SECONDS),
        fault=0.1 * machine.fault,
    )


def _has_product(graph: EinGraph) -> bool:
    """Return whether any node is a matrix-matrix product.

    A matrix-vector product uses each element of the matrix only once.
    """
    einsums = (node.einsum for node in graph.nodes if isinstance(node, EinsumNode))
    products = (contraction(e) for e in einsums if isinstance(e, Einsum))
    return any(c is not None and c.m and c.n and c.k for c in products)
