"""Small plans, made ready once and run often: in the caller's thread, in the plan's own order, with nothing to set up.

Threads, a fresh arena and the state machine cost a millisecond; a small plan's kernels take microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from einturnip.devices.host import blas_threads
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.contraction import contraction
from einturnip.ir.einsum import Einsum
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.protocol import HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import COMPUTE, Lane, MemGraph, OpKind
from einturnip.memgraph.views import Array, KernelOperands
from einturnip.runtime.host.command_lists import PLAYER, CommandListResult, OpCommandList
from einturnip.runtime.host.prepared_ops import PreparedOps, arena_nbytes, numeric_events
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.trace import RunTrace

_KERNELS = (OpKind.KERNEL, OpKind.AGGREGATE)
# What counts as small. Ops; bytes of arena, which stays allocated between runs; planned seconds of one worker.
MOST_OPS = 64
MOST_NBYTES = 1 << 20
MOST_SECONDS = 2e-3
# Operations of a product up to which waking BLAS's threads takes as long as they save.
WORTH_DIVIDING = 4e6
# Seconds that an op takes to be handed to a thread and back; the most arena of a plan that one thread runs.
HANDED_OVER, MOST_STEP_NBYTES = 50e-6, 16 << 20


class TurnTimes(NamedTuple):
    """A run: what each of its turns gave, and the times between them (one more than turns)."""

    bits: list[int | CommandListResult]
    at: list[float]


def is_small(graph: MemGraph) -> bool:
    """True where a plan is better run in the caller's thread, from arrays to arrays.

    A reproducible one is not: which plans are small hangs on the memory.
    """
    if graph.taskgraph.ordered:
        return False
    if len(graph) > MOST_OPS or graph.spill_nbytes or float(graph.seconds.sum()) > MOST_SECONDS:
        return False
    return 0 < arena_nbytes(graph) <= MOST_NBYTES


def pays_inline(graph: MemGraph, workers: int) -> bool:
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


class InlinePlan:
    """A plan with its arena and every op's arguments at hand. For one run at a time.

    ``in_place``: the arrays that are worked on where they stand; with ``fixed`` they are the same in every run.
    """

    def __init__(self, graph: MemGraph, in_place: ZeroCopyTiles | None = None, fixed: bool = False) -> None:
        self._graph = graph
        # BLAS is always there: a reproducible run's bits hang on it. And it divides a step's product among all workers.
        self._by_blas, self._divided = graph.taskgraph.ordered, fixed
        in_place = in_place or ZeroCopyTiles(graph, (), ())
        self._products = list[int]()  # operations of each
        self._steps = PreparedOps(graph, in_place, fixed or in_place.empty, self._kernel, graph)
        self._turns, self.taped = self._in_turn()
        if not fixed:
            in_place.forget()
        self._alone = not fixed and 0 < max(self._products, default=0) < WORTH_DIVIDING
        self._lanes = [Lane(op.kind.lane) for op in graph]

    def _in_turn(self) -> tuple[list[tuple[tuple[int, ...], Callable[[], int | CommandListResult]]], int]:
        """The ops that something is done for, those together that one call makes; and how many could be made so."""
        made, steps = self._steps.made, self._steps
        rows = [i for i, step in enumerate(made) if step is not int]
        kernels = [self._graph[i] for i in rows]
        found = [steps.taped(op) if op.kind in _KERNELS else None for op in kernels]
        turns, plays = (
            list[tuple[tuple[int, ...], Callable[[], int | CommandListResult]]](),
            code_cache.find(PLAYER) is not None,
        )
        for together, group in groupby(range(len(rows)), lambda k: found[k] is not None):
            members = list(group)
            if together and plays and len(members) > 1:
                taped = [t for k in members if (t := found[k]) is not None]
                tape = OpCommandList(taped, [made[rows[k]] for k in members], steps.addresses)
                turns.append((tuple(rows[k] for k in members), tape))
            else:
                turns += [((rows[k],), made[rows[k]]) for k in members]
        return turns, sum(taped is not None for taped in found)

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> TurnTimes:
        """Run every op. ``inputs``: the array of each input by node; ``outputs``: that of each output."""
        if not self._alone:
            return self._run(inputs, outputs)
        with blas_threads(1):
            return self._run(inputs, outputs)

    def _run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> TurnTimes:
        clock = time.perf_counter
        self._steps.begin(inputs, outputs)
        times, bits = [clock()], list[int | CommandListResult]()
        try:
            for _, turn in self._turns:
                bits.append(turn())
                times.append(clock())
        finally:
            self._steps.end()
        return TurnTimes(bits, times)

    def _kernel(self, call: KernelOperands) -> HostKernel:
        kernel = compile_kernel(call.einsum, call.extents, call.mode, self._by_blas or self._divided)
        if not self._by_blas and isinstance(kernel, ContractionKernel) and _is_several(kernel, call):
            kernel = compile_kernel(call.einsum, call.extents, call.mode)
        if isinstance(kernel, ContractionKernel):
            self._products.append(kernel.flops)
        return kernel

    def told(self, times: TurnTimes) -> tuple[dict[int, list[int]], RunTrace]:
        """What a run met, by node (see ``numeric_events``), and when."""
        trace, begin = RunTrace(len(self._graph)), times.at[0]
        bits, ended = dict[int, int](), dict[int, float]()
        for (ops, _), found, (start, end) in zip(self._turns, times.bits, pairwise(times.at), strict=True):
            if isinstance(found, CommandListResult):
                bits |= {ops[k]: met for k, met in found.bits.items()}
                ended |= zip(ops, found.ends(start, end), strict=True)
            else:
                bits[ops[0]], ended[ops[0]] = found, end
        now = begin
        for op, lane in enumerate(self._lanes):
            before, now = now, ended.get(op, now)
            trace.ended(op, lane, 0, before - begin, now - begin)
        trace.seconds = times.at[-1] - begin
        return numeric_events(self._graph, bits), trace


def _is_several(kernel: ContractionKernel, call: KernelOperands) -> bool:
    """Whether BLAS would be called many times, for nothing worth dividing: that is one call of machine code."""
    return not kernel.is_vector and kernel.single(call.outs, call.operands, True) is None
