"""Prepared plans that run in the caller's thread, in serial order: for small plans that run often.

Threads, a new arena and the state machine cost a millisecond; the kernels of a small plan take microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from einturnip.devices.host import blas_threads
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import kind_of
from einturnip.kernels.protocol import CallArguments, HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import Lane, MemGraph
from einturnip.memgraph.views import Array, NodeTile
from einturnip.runtime.host.command_lists import EXECUTOR, CommandListResult, OpCommandList
from einturnip.runtime.host.driver_choice import DIVIDED_FLOPS
from einturnip.runtime.host.prepared_ops import PreparedOps, numeric_events
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.trace import RunTrace

_Call: TypeAlias = Callable[[], int | CommandListResult]


class InlineResult(NamedTuple):
    """The raw result of a run.

    ``bits``: what each call returned. ``times``: the clock before the first call and after each call.

    A call executes one op or a command list.
    """

    bits: list[int | CommandListResult]
    times: list[float]


class InlinePlan:
    """A plan with its own arena and with prepared ops. For one run at a time.

    ``zero_copy``: the tiles of the caller's arrays that are used without a copy. ``fixed``: every run has the same
    arrays.
    """

    def __init__(self, graph: MemGraph, zero_copy: ZeroCopyTiles | None = None, fixed: bool = False) -> None:
        self._graph = graph
        # Reproducible runs use BLAS for products, because compiled code may be absent. Plans for repeated steps use it
        # because it divides a product among all workers.
        self._by_blas, self._divided = graph.taskgraph.ordered, fixed
        zero_copy = zero_copy or ZeroCopyTiles(graph, (), ())
        self._products = list[int]()  # operations of each
        self._prepared = PreparedOps(graph, zero_copy, fixed or zero_copy.empty, self._kernel, graph)
        self._calls, self.n_recordable = self._group_calls()
        if not fixed:
            zero_copy.forget()
        self._one_blas_thread = not fixed and 0 < max(self._products, default=0) < DIVIDED_FLOPS
        self._lanes = [Lane(op.kind.lane) for op in graph]

    def _group_calls(self) -> tuple[list[tuple[tuple[int, ...], _Call]], int]:
        """Group the ops into calls.

        Consecutive ops that can be recorded become a command list, other ops one call each.

        Transfers without a copy need no call. Also returns the number of ops that a command list can contain.
        """
        prepared, calls = self._prepared, self._prepared.calls
        rows = [i for i, call in enumerate(calls) if call is not int]
        recordable = {i for i, call in prepared.kernel_calls.items() if call.scratch < 0 and kind_of(call) is not None}
        grouped, has_executor = list[tuple[tuple[int, ...], _Call]](), code_cache.find(EXECUTOR) is not None
        for is_recordable, group in groupby(rows, recordable.__contains__):
            members = tuple(group)
            if is_recordable and has_executor and len(members) > 1:
                commands = OpCommandList([prepared.kernel_calls[i] for i in members])
                for i, begin in zip(members, commands.begins, strict=True):
                    prepared.relocate(i, commands.memory, begin)
                grouped.append((members, commands))
            else:
                grouped += [((i,), calls[i]) for i in members]
        return grouped, len(recordable)

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> InlineResult:
        """Run every op. ``inputs``: the array of each input by node. ``outputs``: the array of each output."""
        if not self._one_blas_thread:
            return self._run(inputs, outputs)
        with blas_threads(1):
            return self._run(inputs, outputs)

    def _run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> InlineResult:
        clock = time.perf_counter
        self._prepared.begin(inputs, outputs)
        times, bits = [clock()], list[int | CommandListResult]()
        try:
            for _, call in self._calls:
                bits.append(call())
                times.append(clock())
        finally:
            self._prepared.end()
        return InlineResult(bits, times)

    def _kernel(self, tile: NodeTile, arguments: CallArguments) -> HostKernel:
        kernel = compile_kernel(tile.einsum, tile.extents, tile.mode, self._by_blas or self._divided)
        if not self._by_blas and isinstance(kernel, ContractionKernel):
            # BLAS needs several calls for some small products; machine code needs one.
            several = not kernel.is_vector and kernel.prepare(arguments).function is None
            kernel = compile_kernel(tile.einsum, tile.extents, tile.mode) if several else kernel
        if isinstance(kernel, ContractionKernel):
            self._products.append(kernel.flops)
        return kernel

    def report(self, result: InlineResult) -> tuple[dict[int, list[int]], RunTrace]:
        """Return the numeric events of a run by node (see ``numeric_events``), and its trace."""
        trace, begin = RunTrace(len(self._graph)), result.times[0]
        bits, ended = dict[int, int](), dict[int, float]()
        for (ops, _), found, (start, end) in zip(self._calls, result.bits, pairwise(result.times), strict=True):
            if isinstance(found, CommandListResult):
                bits |= {ops[k]: flags for k, flags in found.bits.items()}
                ended |= zip(ops, found.ends(start, end), strict=True)
            else:
                bits[ops[0]], ended[ops[0]] = found, end
        now = begin
        for op, lane in enumerate(self._lanes):
            before, now = now, ended.get(op, now)
            trace.ended(op, lane, 0, before - begin, now - begin)
        trace.seconds = result.times[-1] - begin
        return numeric_events(self._graph, bits), trace
