"""Small plans, made ready once and run often: in the caller's thread, in the plan's own order, with nothing to set up.

Threads, a fresh arena and the state machine cost a millisecond; a small plan's kernels take microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.codegen.contraction import ContractionKernel
from einturnip.codegen.kernels import compile_kernel
from einturnip.codegen.protocol import Bindable
from einturnip.core.contraction import contraction
from einturnip.core.einsum import Einsum
from einturnip.devices.host import HostArena
from einturnip.eingraph.types import EinsumNode
from einturnip.memgraph.types import COMPUTE, FILES, Lane, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array, Call, Views
from einturnip.runtime.in_place import InPlace
from einturnip.runtime.trace import Trace
from einturnip.stores.types import slices

# What counts as small. Ops; bytes of arena, which stays allocated between runs; planned seconds of one worker.
MOST_OPS = 64
MOST_NBYTES = 1 << 20
MOST_SECONDS = 2e-3
# Seconds that an op takes to be handed to a thread and back; the most arena of a plan that one thread runs.
HANDED_OVER, MOST_STEP_NBYTES = 50e-6, 16 << 20

Step = Callable[[], int]


def is_small(graph: MemGraph) -> bool:
    """True where a plan is better run in the caller's thread, from arrays to arrays.

    A reproducible one is not: which plans are small hangs on the memory.
    """
    if graph.taskgraph.ordered:
        return False
    if len(graph) > MOST_OPS or graph.spill_nbytes or float(graph.seconds.sum()) > MOST_SECONDS:
        return False
    return 0 < arena_nbytes(graph) <= MOST_NBYTES


def pays_here(graph: MemGraph, workers: int) -> bool:
    """True where a plan, run again and again, takes less in one thread: more save less than handing ops over costs.

    What kernels read is taken to stand in the caller's arrays. Single products are as fast: BLAS divides them.
    """
    made = np.isin(graph.kind, (OpKind.KERNEL, OpKind.AGGREGATE, OpKind.MOVE))
    if not graph.taskgraph.ordered:
        made &= ~_single_products(graph)
    if graph.spill_nbytes or made_nbytes(graph) > MOST_STEP_NBYTES or not arena_nbytes(graph):
        return False
    return float(graph.seconds[made].sum()) * (1 - 1 / workers) <= HANDED_OVER * len(graph)


def _single_products(graph: MemGraph) -> NDArray[np.bool_]:
    """Of each op whether its kernel is one matrix product."""
    nodes = graph.taskgraph.decomposition.graph.nodes
    single = [isinstance(n, EinsumNode) and isinstance(n.einsum, Einsum) and _is_single(n.einsum) for n in nodes]
    node = np.where(graph.task >= 0, graph.taskgraph.node[graph.task], len(nodes))
    found: NDArray[np.bool_] = np.array([*single, False])[node]
    return found


def _is_single(einsum: Einsum) -> bool:
    found = contraction(einsum)
    return found is not None and not found.batch


def arena_nbytes(graph: MemGraph) -> int:
    """The end of the last byte of the arena that is used."""
    rows = np.concatenate([graph.read, graph.write])
    here = rows[rows[:, 0] == COMPUTE]
    return int((here[:, 1] + here[:, 2]).max(initial=0))


def made_nbytes(graph: MemGraph) -> int:
    """The bytes of all that is made in the arena, at most: loads apart."""
    loads = np.flatnonzero(graph.kind == OpKind.LOAD)
    rows = np.delete(graph.write, graph.write_ptr[loads], axis=0)
    here = rows[rows[:, 0] == COMPUTE]
    begun, ended = here[:, 1], here[:, 1] + here[:, 2]
    order = np.argsort(begun)
    reach = np.maximum.accumulate(ended[order])
    before = np.concatenate([begun[order][:1], reach[:-1]])
    return int(np.maximum(0, reach - np.maximum(begun[order], before)).sum())


class SmallRun:
    """A plan with its arena and every op's arguments at hand. For one run at a time.

    ``in_place``: the inputs that are read where they stand, which must be the same in every run.
    """

    def __init__(self, graph: MemGraph, in_place: InPlace | None = None) -> None:
        self.graph = graph
        self._in_place = in_place or InPlace(graph, (), ())
        # BLAS is always there: a reproducible run's bits hang on it. And it divides a step's product among all workers.
        self._by_blas, self._divided = graph.taskgraph.ordered, in_place is not None
        self._views = Views(graph, HostArena(arena_nbytes(graph)), self._in_place)
        self._nodes = len(graph.taskgraph.decomposition.graph.nodes)
        self._files: dict[int, Array] = {}
        self._begun: set[int] = set()
        self._steps = [self._step(op) for op in graph]
        self._lanes = [op.kind.lane for op in graph]
        self._tasks = [op.task for op in graph]

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> tuple[list[int], list[float]]:
        """Run every op: the bits that each kernel gave, and the times between them (one more than ops).

        ``inputs``: the array of each input by node; ``outputs``: that of each output.
        """
        files = self._files
        for i, array in enumerate(inputs):
            if array is not None:
                files[FILES + i] = array
        for o, array in enumerate(outputs):
            files[FILES + self._nodes + o] = array
        clock = time.perf_counter
        times, bits = [clock()], []
        try:
            for step in self._steps:
                bits.append(step())
                times.append(clock())
        finally:
            files.clear()  # the caller's arrays are held no longer than the run
        return bits, times

    def _step(self, op: Op) -> Step:
        match op.kind:
            case OpKind.KERNEL | OpKind.AGGREGATE:
                return self._kernel(op)
            case OpKind.MOVE:
                return self._move(op)
            case OpKind.LOAD if self._in_place.there(op):
                return int
            case OpKind.LOAD | OpKind.RELOAD:
                return self._copy(op, op.reads[0].tier, inward=True)
            case OpKind.OFFLOAD | OpKind.STORE:
                return self._copy(op, op.writes[0].tier, inward=False)

    def _kernel(self, op: Op) -> Step:
        call = self._views.call(op)
        kernel = compile_kernel(call.einsum, call.extents, call.mode, self._by_blas or self._divided)
        if not self._by_blas and isinstance(kernel, ContractionKernel) and _is_several(kernel, call):
            kernel = compile_kernel(call.einsum, call.extents, call.mode)
        first = op.unit >= 0 and op.unit not in self._begun and not self._views.continues(op.unit)
        self._begun.add(op.unit)
        if isinstance(kernel, Bindable):
            return kernel.bound(call.outs, call.operands, call.origins, first, call.workspace)
        return lambda: kernel(call.outs, call.operands, call.origins, first, call.workspace)

    def _move(self, op: Op) -> Step:
        def move() -> int:
            self._views.move(op)
            return 0

        return move

    def _copy(self, op: Op, tier: int, inward: bool) -> Step:
        region, array = self._views.transferred(op)
        window: tuple[Any, ...] = (*slices(region), ...)  # a view even of a scalar
        files = self._files

        def load() -> int:
            np.copyto(array, files[tier][window])
            return 0

        def store() -> int:
            np.copyto(files[tier][window], array)
            return 0

        return load if inward else store

    def trace(self, times: Sequence[float]) -> Trace:
        """The times of a run as a trace."""
        trace = Trace(len(self.graph))
        for op, lane in enumerate(self._lanes):
            trace.ended(op, Lane(lane), 0, times[op] - times[0], times[op + 1] - times[0])
        trace.seconds = times[-1] - times[0]
        return trace

    def happened(self, bits: Sequence[int]) -> dict[int, list[int]]:
        """By node, in how many tiles something invalid, an overflow or a division by zero happened."""
        flags: dict[int, list[int]] = {}
        for op, found in enumerate(bits):
            if found:
                node = int(self.graph.taskgraph.node[self._tasks[op]])
                counts = flags.setdefault(node, [0, 0, 0])
                for k in range(3):
                    counts[k] += found >> k & 1
        return flags


def _is_several(kernel: ContractionKernel, call: Call) -> bool:
    """Whether BLAS would be called many times, for nothing worth dividing: that is one call of machine code."""
    return not kernel.is_vector and kernel.single(call.outs, call.operands, True) is None
