"""Prepared plans that worker threads run repeatedly on the caller's arrays.

Tiles that kernels access in the caller's arrays need no load or store, so most plans consist of kernels alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from einturnip.devices.host import blas_threads
from einturnip.ir.dtypes import from_numpy
from einturnip.kernels.protocol import CallArguments, HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import COMPUTE, Lane, MemGraph, OpKind
from einturnip.memgraph.views import Array, NodeTile
from einturnip.runtime.host.driver_choice import INLINE_ARENA_NBYTES, SEPARATE_NBYTES, produced_nbytes
from einturnip.runtime.host.event_loop import located_error, run_ops
from einturnip.runtime.host.parallel_kernels import ParallelOp, ParallelOps, available, max_chunks, parallel_groups
from einturnip.runtime.host.prepared_ops import PreparedOps, numeric_events
from einturnip.runtime.host.worker_pool import WorkerPool
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.policies import critical_path
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.storage.arrays import array_sink, array_source

ALIGNMENT = 64
"""Alignment in bytes of the values of an arena in which no two values share bytes."""

ThreadedResult: TypeAlias = tuple[Mapping[int, int], RunTrace | list[float]]
"""The raw result of a run: flags by op, and the trace; for a sequential run the begin of each row, and the end."""


@dataclass(frozen=True)
class OpSubset:
    """Some ops of a memory graph, with the columns of ScheduledOps.

    Dependencies through omitted ops become direct ones.
    """

    ops: tuple[int, ...]
    kind: NDArray[np.uint8]
    unit: NDArray[np.int32]
    seconds: NDArray[np.float64]
    after_ptr: NDArray[np.int64]
    after: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ops)


def without_ops(graph: MemGraph, omitted: Sequence[bool], is_external: Callable[[int], bool]) -> OpSubset:
    """Return the graph without the ``omitted`` ops, with new dependencies.

    ``is_external``: tells whether a value is outside the arena in this run. Ops no longer wait for bytes of the arena
    that are not used.
    """
    stays = [i for i, out in enumerate(omitted) if not out]
    touches = TouchedBytes(graph, stays, is_external)
    # Transitive reduction: an op waits for a conflicting earlier op unless another dependency already implies it.
    before: list[int] = []  # for each op, a bit mask of the ops that have ended when it starts
    ptr, after = [0], list[int]()
    for k in range(len(stays)):
        waits, ended = [], 0
        for p in touches.conflicts(k)[::-1].tolist():
            if not ended >> p & 1:
                waits.append(p)
                ended |= before[p] | 1 << p
        before.append(ended)
        after += waits[::-1]
        ptr.append(len(after))
    ops = np.array(stays, np.int64)
    return OpSubset(
        tuple(stays),
        graph.kind[ops],
        graph.unit[ops],
        graph.seconds[ops],
        np.array(ptr, np.int64),
        np.array(after, np.int32),
    )


def merge_parallel_ops(
    found: OpSubset, groups: Sequence[Sequence[int]], workers: int
) -> tuple[OpSubset, list[tuple[int, ...]]]:
    """Merge each group of ops with equal dependencies into one op that all workers run.

    Returns the merged ops, and for each of them the rows of ``found`` that it contains.
    """
    by_first = {group[0]: tuple(group) for group in groups}
    merged = {k for group in groups for k in group[1:]}
    rows = [by_first.get(k, (k,)) for k in range(len(found)) if k not in merged]
    place = {k: new for new, members in enumerate(rows) for k in members}
    ptr, after = [0], list[int]()
    for members in rows:
        k = members[0]
        after += dict.fromkeys(place[p] for p in found.after[found.after_ptr[k] : found.after_ptr[k + 1]].tolist())
        ptr.append(len(after))
    first = np.array([members[0] for members in rows], np.int64)
    seconds = [found.seconds[list(m)].sum() / (workers if m[0] in by_first else 1) for m in rows]
    ops = tuple(found.ops[k] for k in first.tolist())
    columns = np.array(seconds, np.float64), np.array(ptr, np.int64), np.array(after, np.int32)
    return OpSubset(ops, found.kind[first], found.unit[first], *columns), rows


def separate_values(graph: MemGraph, is_external: Callable[[int], bool]) -> MemGraph:
    """Return the graph with separate bytes for every value and workspace, if their total is small.

    Reused bytes make ops wait for each other that could run at the same time. When most values are outside the arena,
    no reuse is needed.
    """
    place, total = dict[int, int](), 0
    columns = graph.read.copy(), graph.write.copy()
    for column in columns:
        for row in np.flatnonzero(column[:, 0] == COMPUTE).tolist():
            _, _, nbytes, value = column[row].tolist()
            if value >= 0 and is_external(value):
                column[row, 1] = 0
                continue
            if value < 0 or value not in place:
                place[value], total = total, total + -(-nbytes // ALIGNMENT) * ALIGNMENT
            column[row, 1] = place[value]
    if total > SEPARATE_NBYTES:
        return graph
    return replace(graph, read=columns[0], write=columns[1])


def is_sequential(found: OpSubset, parallel: Container[int]) -> bool:
    """Return whether no two rows can run at the same time.

    Rows in ``parallel`` are exempt: they use all workers.
    """
    ended = list[int]()  # for each row, a bit mask of the rows that have ended when it starts
    single = 0  # bit mask of the rows that one worker runs
    for k in range(len(found)):
        before = 0
        for p in found.after[found.after_ptr[k] : found.after_ptr[k + 1]].tolist():
            before |= ended[p] | 1 << p
        ended.append(before)
        if k not in parallel:
            if single & ~before:
                return False
            single |= 1 << k
    return True


class TouchedBytes:
    """The byte intervals that some ops read and write in the arena and in the caller's arrays."""

    def __init__(self, graph: MemGraph, ops: Sequence[int], is_external: Callable[[int], bool]) -> None:
        def bytes_of(offset: int, nbytes: int, value: int) -> tuple[int, int]:
            # An external value has an interval of its own below 0, which overlaps only with itself.
            return (-1 - value, -value) if is_external(value) else (offset, offset + nbytes)

        rows = [
            (k, *bytes_of(offset, nbytes, value), writes)
            for k, i in enumerate(ops)
            for writes, ptr, side in ((False, graph.read_ptr, graph.read), (True, graph.write_ptr, graph.write))
            for tier, offset, nbytes, value in side[ptr[i] : ptr[i + 1]].tolist()
            if tier == COMPUTE and nbytes
        ]
        self._rows = np.array(rows, np.int64).reshape(-1, 4)
        self._begin = np.searchsorted(self._rows[:, 0], np.arange(len(ops) + 1))
        self._unit = graph.unit[np.array(ops, np.int64)]

    def conflicts(self, k: int) -> NDArray[np.int64]:
        """Return the earlier ops that op ``k`` has to wait for: one of both writes bytes the other uses.

        Ops of one unit are left out: the unit's lock separates them, in any order.
        """
        mine = self._rows[self._begin[k] : self._begin[k + 1]]
        op, begin, end, writes = self._rows[: self._begin[k]].T
        overlaps = np.zeros(len(op), np.bool_)
        for _, low, high, write in mine.tolist():
            overlaps |= (begin < high) & (low < end) & ((writes != 0) | bool(write))
        found = np.unique(op[overlaps])
        unit = self._unit[k]
        return found if unit < 0 else found[self._unit[found] != unit]


class ThreadedPlan:
    """A plan with prepared ops, run by worker threads on the arrays of each run. For one run at a time.

    ``inputs``, ``outputs``: as in ``run``; each run must have arrays with the same shapes, strides and dtypes. The plan
    keeps no reference to them.
    """

    def __init__(
        self, graph: MemGraph, inputs: Sequence[Array | None], outputs: Sequence[Array], threads: dict[Lane, int]
    ) -> None:
        self._graph, self._threads = graph, threads
        zero_copy = zero_copy_tiles(graph, inputs, outputs)

        def is_external(value: int) -> bool:
            return zero_copy(value) is not None

        graph = separate_values(graph, is_external)
        ops = list(graph)
        omitted = [op.kind in _TRANSFERS and zero_copy.needs_no_copy(op) for op in ops]
        found = without_ops(graph, omitted, is_external)
        self._prepared = PreparedOps(graph, zero_copy, False, _kernel, [ops[i] for i in found.ops])
        parallel = self._parallel_groups(graph, found)
        zero_copy.forget()
        groups = [group for group, _ in parallel]
        self._merged, rows = merge_parallel_ops(found, groups, threads[Lane.COMPUTE])
        self._parallel = {rows.index(group): ops for group, ops in parallel}
        self._rows = [tuple(found.ops[k] for k in members) for members in rows]
        self._calls = [self._prepared.calls[members[0]] for members in rows]
        ranks = critical_path(graph)
        self._ranks = [min(ranks[op] for op in members) for members in self._rows]
        self._keeps_arena = produced_nbytes(graph) <= INLINE_ARENA_NBYTES
        self._is_sequential = is_sequential(self._merged, self._parallel)

    def _parallel_groups(self, graph: MemGraph, found: OpSubset) -> list[tuple[tuple[int, ...], ParallelOps]]:
        """Return groups of rows with equal dependencies that can be divided into chunks for all workers."""
        workers = self._threads[Lane.COMPUTE]
        if not available(workers):
            return []
        calls = self._prepared.kernel_calls
        waits = [found.after[a:b].tolist() for a, b in pairwise(found.after_ptr.tolist())]
        node = graph.taskgraph.node[graph.task[np.array(found.ops, np.int64)]].tolist()
        divided = []
        for group in parallel_groups(found.kind.tolist(), waits, node.__getitem__):
            parallel = []
            for k in group:
                call, chunks = calls.get(k), max_chunks(float(found.seconds[k]), len(group), workers)
                if call is None or call.divide is None:
                    break
                parallel.append(ParallelOp(found.ops[k], call, call.divide(chunks)))
            if len(parallel) == len(group) and sum(len(one.words) for one in parallel) > 1:
                divided.append((group, ParallelOps(parallel)))
                for k, places in zip(group, divided[-1][1].places, strict=True):
                    self._prepared.relocate(k, divided[-1][1].memory, places)
        return divided

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> ThreadedResult:
        """Run every op.

        ``inputs``: the array of each input by node. ``outputs``: the array of each output.

        Raises:
            RunError, EinturnipError: a kernel failed; the error does not name the statement.
        """
        bits = dict[int, int]()
        pool = WorkerPool.acquire(self._threads)
        self._prepared.begin(inputs, outputs)
        try:
            trace = self._run_sequentially(pool, bits) if self._is_sequential else self._run_concurrently(pool, bits)
        except BaseException:
            pool.close()
            raise
        finally:
            self._prepared.end()
        pool.release()
        if not self._keeps_arena:
            self._prepared.arena.forget()
        return bits, trace

    def _execute(self, i: int, pool: WorkerPool, bits: dict[int, int]) -> None:
        if i in self._parallel:
            bits.update(self._parallel[i].run(pool, self._threads[Lane.COMPUTE] - 1))
        elif found := self._calls[i]():
            bits[self._merged.ops[i]] = found

    def _run_concurrently(self, pool: WorkerPool, bits: dict[int, int]) -> RunTrace:
        """Run each op as soon as its dependencies have ended."""
        found, threads = self._merged, self._threads
        state = SchedulerState(found, self._ranks, threads)
        with blas_threads(1):
            execute = partial(self._execute, pool=pool, bits=bits)
            return run_ops(found, state, execute, lambda op: _NO_PLACE, threads, pool=pool, joins=True)

    def _run_sequentially(self, pool: WorkerPool, bits: dict[int, int]) -> list[float]:
        """Run one op after the other; return when each began, and the end."""
        if len(self._parallel) < len(self._calls):
            with blas_threads(1):
                return self._timed(pool, bits)
        return self._timed(pool, bits)

    def _timed(self, pool: WorkerPool, bits: dict[int, int]) -> list[float]:
        clock = time.perf_counter
        times = [clock()]
        try:
            for i in range(len(self._calls)):
                self._execute(i, pool, bits)
                times.append(clock())
        except Exception as error:
            raise located_error(error, _NO_PLACE) from error
        return times

    def report(self, result: ThreadedResult) -> tuple[dict[int, list[int]], RunTrace]:
        """Return the numeric events of a run by node, and its trace over all ops of the memory graph.

        An omitted transfer appears in the trace at the moment when its dependencies had ended.
        """
        bits, times = result
        mine = times if isinstance(times, RunTrace) else self._traced(times)
        trace, graph = RunTrace(len(self._graph)), self._graph
        end = np.zeros(len(graph))
        number = {op: (k, n) for k, row in enumerate(self._rows) for n, op in enumerate(row)}
        lanes = [Lane(OpKind(kind).lane) for kind in graph.kind.tolist()]
        rows: list[tuple[float, int, float, int]] = []
        for op in range(len(graph)):
            place = number.get(op)
            if place is None:
                before = graph.after[graph.after_ptr[op] : graph.after_ptr[op + 1]]
                begin, end[op], thread = *(2 * (float(end[before].max(initial=0.0)),)), 0
            else:
                begin, end[op], thread = self._interval(mine, *place)
            rows.append((float(end[op]), op, begin, thread))
        for ended, op, begin, thread in sorted(rows):
            trace.ended(op, lanes[op], thread, begin, ended)
        trace.seconds, trace.stalls = mine.seconds, self._stalls(mine)
        return numeric_events(graph, bits), trace

    def _traced(self, times: Sequence[float]) -> RunTrace:
        """Return the trace of a sequential run, in which one worker runs and the others are idle."""
        trace, others = RunTrace(len(self._calls)), self._threads[Lane.COMPUTE] - 1
        for row, (begin, end) in enumerate(pairwise(times)):
            lane = Lane(OpKind(int(self._merged.kind[row])).lane)
            trace.ended(row, lane, 0, begin - times[0], end - times[0])
            trace.stalls["memory"] += others * (end - begin)
        trace.seconds = times[-1] - times[0]
        return trace

    def _stalls(self, mine: RunTrace) -> dict[str, float]:
        """Return the idle seconds by cause, without the time of parallel ops, which use all workers.

        The trace counts such an op as the work of one worker.
        """
        busy = sum(float(mine.timeline.end[row] - mine.timeline.begin[row]) for row in self._parallel)
        excess, stalls = busy * (self._threads[Lane.COMPUTE] - 1), dict(mine.stalls)
        for cause, seconds in sorted(stalls.items()):
            stalls[cause] = max(0.0, seconds - excess)
            excess -= seconds - stalls[cause]
        return stalls

    def _interval(self, mine: RunTrace, row: int, n: int) -> tuple[float, float, int]:
        """Return begin, end and thread of the ``n``-th op of a row.

        Ops of a parallel row appear as if each had one thread.
        """
        begin, end = float(mine.timeline.begin[row]), float(mine.timeline.end[row])
        if row not in self._parallel:
            return begin, end, int(mine.timeline.thread[row])
        workers = self._threads[Lane.COMPUTE]
        round_, thread = divmod(n, workers)
        each = (end - begin) / -(-len(self._rows[row]) // workers)
        return begin + round_ * each, begin + (round_ + 1) * each, thread


def zero_copy_tiles(
    graph: MemGraph, inputs: Sequence[Array | None], outputs: Sequence[Array], min_nbytes: int = 0
) -> ZeroCopyTiles:
    """Return the tiles of a run's arrays that need no copy. Arrays below ``min_nbytes`` are always copied.

    If one output is below ``min_nbytes``, all outputs are copied.
    """
    sources = [None if a is None or a.nbytes < min_nbytes else array_source(a, "") for a in inputs]
    sinks = [array_sink(a, "", a.shape, from_numpy(a.dtype)) for a in outputs]
    return ZeroCopyTiles(graph, sources, sinks, read_only=any(a.nbytes < min_nbytes for a in outputs))


_TRANSFERS = frozenset({OpKind.LOAD, OpKind.STORE})
_NO_PLACE = ""  # the caller repeats a failed run without preparation, whose error names the statement


def _kernel(tile: NodeTile, _: CallArguments) -> HostKernel:
    return compile_kernel(tile.einsum, tile.extents, tile.mode)
