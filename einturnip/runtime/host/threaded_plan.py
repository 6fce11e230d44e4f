"""Plans on the caller's arrays that threads run again and again, each op made ready once.

Tiles that are read, and results that are made, where they stand need no op: what is left of most plans is kernels.
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
from einturnip.kernels.protocol import HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import COMPUTE, FILES, Lane, MemGraph, OpKind
from einturnip.memgraph.views import Array, KernelOperands
from einturnip.runtime.host.event_loop import named, run_ops
from einturnip.runtime.host.inline_plan import MOST_NBYTES, made_nbytes
from einturnip.runtime.host.parallel_kernels import ParallelOp, ParallelOps, available, max_chunks, parallel_groups
from einturnip.runtime.host.prepared_ops import PreparedOps, numeric_events
from einturnip.runtime.host.worker_pool import WorkerPool
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.policies import critical_path
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.storage.arrays import array_sink, array_source

# Ops of a plan from which on what each takes outweighs what a run takes beside them.
MOST_OPS = 512
# Bytes of arena up to which nothing shares any.
MOST_SPREAD_NBYTES, ALIGNED = 16 << 20, 64


Ran: TypeAlias = tuple[Mapping[int, int], RunTrace | list[float]]
"""A run: the bits that kernels gave, by op; what ran when, or when each row began and the last ended."""


@dataclass(frozen=True)
class OpGroup:
    """Some ops of a memory graph, as the state machine sees one: each waits for those that it hangs on by others."""

    ops: tuple[int, ...]
    kind: NDArray[np.uint8]
    unit: NDArray[np.int32]
    seconds: NDArray[np.float64]
    after_ptr: NDArray[np.int64]
    after: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ops)


def without_ops(graph: MemGraph, left_out: Sequence[bool], elsewhere: Callable[[int], bool]) -> OpGroup:
    """The graph without some of its ops. ``elsewhere``: of a value whether it lies outside the arena, in this run.

    What waited for bytes of the arena that are not used now waits no more.
    """
    stays = [i for i, out in enumerate(left_out) if not out]
    touches = TouchedBytes(graph, stays, elsewhere)
    before: list[int] = []  # of each op, those that have ended when it starts, as bits
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
    return OpGroup(
        tuple(stays),
        graph.kind[ops],
        graph.unit[ops],
        graph.seconds[ops],
        np.array(ptr, np.int64),
        np.array(after, np.int32),
    )


def merge_parallel_ops(
    found: OpGroup, groups: Sequence[Sequence[int]], workers: int
) -> tuple[OpGroup, list[tuple[int, ...]]]:
    """Groups of rows that wait for the same ones, each as one op of all workers; and the rows of each op."""
    led = {group[0]: tuple(group) for group in groups}
    behind = {k for group in groups for k in group[1:]}
    rows = [led.get(k, (k,)) for k in range(len(found)) if k not in behind]
    place = {k: new for new, members in enumerate(rows) for k in members}
    ptr, after = [0], list[int]()
    for members in rows:
        k = members[0]
        after += dict.fromkeys(place[p] for p in found.after[found.after_ptr[k] : found.after_ptr[k + 1]].tolist())
        ptr.append(len(after))
    first = np.array([members[0] for members in rows], np.int64)
    seconds = [found.seconds[list(m)].sum() / (workers if m[0] in led else 1) for m in rows]
    ops = tuple(found.ops[k] for k in first.tolist())
    columns = np.array(seconds, np.float64), np.array(ptr, np.int64), np.array(after, np.int32)
    return OpGroup(ops, found.kind[first], found.unit[first], *columns), rows


def spread_values(graph: MemGraph, elsewhere: Callable[[int], bool]) -> MemGraph:
    """The graph with every value, and every op's workspace, in bytes of its own where all of them are little.

    The bytes that a plan gives to one after the other keep ops apart that could run together; where most of what is
    read and made is not in the arena, there are enough for all.
    """
    place, total = dict[int, int](), 0
    columns = graph.read.copy(), graph.write.copy()
    for column in columns:
        for row in np.flatnonzero(column[:, 0] == COMPUTE).tolist():
            _, _, nbytes, value = column[row].tolist()
            if value >= 0 and elsewhere(value):
                column[row, 1] = 0
                continue
            if value < 0 or value not in place:
                place[value], total = total, total + -(-nbytes // ALIGNED) * ALIGNED
            column[row, 1] = place[value]
    if total > MOST_SPREAD_NBYTES:
        return graph
    return replace(graph, read=columns[0], write=columns[1])


def is_sequential(found: OpGroup, shared: Container[int]) -> bool:
    """Whether no two rows could run at the same time: all but those that every worker shares wait for one another."""
    ended = list[int]()  # of each row, those that have ended when it starts, as bits
    alone = 0
    for k in range(len(found)):
        before = 0
        for p in found.after[found.after_ptr[k] : found.after_ptr[k + 1]].tolist():
            before |= ended[p] | 1 << p
        ended.append(before)
        if k not in shared:
            if alone & ~before:
                return False
            alone |= 1 << k
    return True


class TouchedBytes:
    """Which bytes some ops read and write: of the arena, and of results that are made where they stand."""

    def __init__(self, graph: MemGraph, ops: Sequence[int], elsewhere: Callable[[int], bool]) -> None:
        def bytes_of(offset: int, nbytes: int, value: int) -> tuple[int, int]:
            return (-1 - value, -value) if elsewhere(value) else (offset, offset + nbytes)

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
        """The earlier ops that op ``k`` has to wait for: one of both writes what the other touches.

        What adds to one accumulator keeps apart by itself, in any order.
        """
        mine = self._rows[self._begin[k] : self._begin[k + 1]]
        op, begin, end, writes = self._rows[: self._begin[k]].T
        meets = np.zeros(len(op), np.bool_)
        for _, low, high, write in mine.tolist():
            meets |= (begin < high) & (low < end) & ((writes != 0) | bool(write))
        found = np.unique(op[meets])
        unit = self._unit[k]
        return found if unit < 0 else found[self._unit[found] != unit]


def gains_by_preparing(graph: MemGraph) -> bool:
    """Whether a plan from arrays to arrays gains by being made ready once. A reproducible one keeps to its own way."""
    if len(graph) > MOST_OPS or graph.spill_nbytes or graph.taskgraph.ordered or graph.devices > 1:
        return False
    inputs = len(graph.taskgraph.decomposition.graph.nodes)
    loads = graph.read_ptr[:-1][graph.kind == OpKind.LOAD]
    return bool((graph.read[loads, 0] < FILES + inputs).all())  # no output is read back


class ThreadedPlan:
    """A plan with every op's arguments at hand but for the arrays. For one run at a time.

    ``inputs``, ``outputs``: as in ``run``, of the shapes, strides and dtypes that each run will have. None is held.
    """

    def __init__(
        self, graph: MemGraph, inputs: Sequence[Array | None], outputs: Sequence[Array], threads: dict[Lane, int]
    ) -> None:
        self._graph, self._threads = graph, threads
        in_place = zero_copy_tiles(graph, inputs, outputs)

        def elsewhere(value: int) -> bool:
            return in_place(value) is not None

        graph = spread_values(graph, elsewhere)
        ops = list(graph)
        left_out = [op.kind in _TRANSFERS and in_place.there(op) for op in ops]
        found = without_ops(graph, left_out, elsewhere)
        self._steps = PreparedOps(graph, in_place, False, _kernel, [ops[i] for i in found.ops])
        shared = self._sharing(graph, found)
        in_place.forget()
        groups = [group for group, _ in shared]
        self._part, rows = merge_parallel_ops(found, groups, threads[Lane.COMPUTE])
        self._shared = {rows.index(group): s for group, s in shared}
        self._rows = [tuple(found.ops[k] for k in members) for members in rows]
        self._made = [self._steps.made[members[0]] for members in rows]
        ranks = critical_path(graph)
        self._ranks = [min(ranks[op] for op in members) for members in self._rows]
        self._keeps = made_nbytes(graph) <= MOST_NBYTES
        self._in_turn = is_sequential(self._part, self._shared)

    def _sharing(self, graph: MemGraph, found: OpGroup) -> list[tuple[tuple[int, ...], ParallelOps]]:
        """Groups of rows whose parts threads share."""
        workers = self._threads[Lane.COMPUTE]
        if not available(workers):
            return []
        steps = self._steps
        waits = [found.after[a:b].tolist() for a, b in pairwise(found.after_ptr.tolist())]
        node = graph.taskgraph.node[graph.task[np.array(found.ops, np.int64)]].tolist()
        made = []
        for group in parallel_groups(found.kind.tolist(), waits, node.__getitem__):
            shares = []
            for k in group:
                cut = steps.parts(graph[found.ops[k]], max_chunks(float(found.seconds[k]), len(group), workers))
                if cut is None:
                    break
                shares.append(ParallelOp(found.ops[k], *cut, steps.made[k]))
            if len(shares) == len(group) and sum(len(share.parts.words) for share in shares) > 1:
                made.append((group, ParallelOps(shares, steps.addresses)))
        steps.forget()
        return made

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Ran:
        """Run every op.

        ``inputs``: the array of each input by node; ``outputs``: that of each output.

        Raises:
            RunError, EinturnipError: a kernel failed, in no statement's name.
        """
        bits = dict[int, int]()
        crew = WorkerPool.waiting(self._threads)
        self._steps.begin(inputs, outputs)
        try:
            trace = self._turns(crew, bits) if self._in_turn else self._free(crew, bits)
        except BaseException:
            crew.close()
            raise
        finally:
            self._steps.end()
        crew.leave()
        if not self._keeps:
            self._steps.arena.forget()
        return bits, trace

    def _execute(self, i: int, crew: WorkerPool, bits: dict[int, int]) -> None:
        if i in self._shared:
            bits.update(self._shared[i].run(self._steps.addresses, crew, self._threads[Lane.COMPUTE] - 1))
        elif found := self._made[i]():
            bits[self._part.ops[i]] = found

    def _free(self, crew: WorkerPool, bits: dict[int, int]) -> RunTrace:
        """Each op as soon as it may start."""
        found, threads = self._part, self._threads
        state = SchedulerState(found, self._ranks, threads)
        with blas_threads(1):
            execute = partial(self._execute, crew=crew, bits=bits)
            return run_ops(found, state, execute, lambda op: _NAMELESS, threads, crew=crew, joins=True)

    def _turns(self, crew: WorkerPool, bits: dict[int, int]) -> list[float]:
        """One op after the other; gives when each began, and the end."""
        if len(self._shared) < len(self._made):
            with blas_threads(1):
                return self._timed(crew, bits)
        return self._timed(crew, bits)

    def _timed(self, crew: WorkerPool, bits: dict[int, int]) -> list[float]:
        clock = time.perf_counter
        times = [clock()]
        try:
            for i in range(len(self._made)):
                self._execute(i, crew, bits)
                times.append(clock())
        except Exception as error:
            raise named(error, _NAMELESS) from error
        return times

    def told(self, ran: Ran) -> tuple[dict[int, list[int]], RunTrace]:
        """What a run met, by node, and when; what was left out took place as soon as it could."""
        bits, mine = ran[0], ran[1] if isinstance(ran[1], RunTrace) else self._traced(ran[1])
        trace, graph = RunTrace(len(self._graph)), self._graph
        end = np.zeros(len(graph))
        number = {op: (k, n) for k, row in enumerate(self._rows) for n, op in enumerate(row)}
        lanes = [Lane(OpKind(kind).lane) for kind in graph.kind.tolist()]
        times: list[tuple[float, int, float, int]] = []
        for op in range(len(graph)):
            here = number.get(op)
            if here is None:
                before = graph.after[graph.after_ptr[op] : graph.after_ptr[op + 1]]
                begin, end[op], thread = *(2 * (float(end[before].max(initial=0.0)),)), 0
            else:
                begin, end[op], thread = self._when(mine, *here)
            times.append((float(end[op]), op, begin, thread))
        for ended, op, begin, thread in sorted(times):
            trace.ended(op, lanes[op], thread, begin, ended)
        trace.seconds, trace.stalls = mine.seconds, self._stalls(mine)
        return numeric_events(graph, bits), trace

    def _traced(self, times: Sequence[float]) -> RunTrace:
        """What ran one after the other, as of a run whose ops start when they may."""
        trace, others = RunTrace(len(self._made)), self._threads[Lane.COMPUTE] - 1
        for row, (begin, end) in enumerate(pairwise(times)):
            lane = Lane(OpKind(int(self._part.kind[row])).lane)
            trace.ended(row, lane, 0, begin - times[0], end - times[0])
            trace.stalls["memory"] += others * (end - begin)
        trace.seconds = times[-1] - times[0]
        return trace

    def _stalls(self, mine: RunTrace) -> dict[str, float]:
        """How long workers stood still: not while they shared an op, which was counted as one worker's."""
        busy = sum(float(mine.timeline.end[row] - mine.timeline.begin[row]) for row in self._shared)
        left, stalls = busy * (self._threads[Lane.COMPUTE] - 1), dict(mine.stalls)
        for cause, seconds in sorted(stalls.items()):
            stalls[cause] = max(0.0, seconds - left)
            left -= seconds - stalls[cause]
        return stalls

    def _when(self, mine: RunTrace, row: int, n: int) -> tuple[float, float, int]:
        """When an op began and ended, on which thread; of what was shared as if each thread had ops of its own."""
        begin, end = float(mine.timeline.begin[row]), float(mine.timeline.end[row])
        if row not in self._shared:
            return begin, end, int(mine.timeline.thread[row])
        workers = self._threads[Lane.COMPUTE]
        turn, thread = divmod(n, workers)
        each = (end - begin) / -(-len(self._rows[row]) // workers)
        return begin + turn * each, begin + (turn + 1) * each, thread


def zero_copy_tiles(
    graph: MemGraph, inputs: Sequence[Array | None], outputs: Sequence[Array], least_nbytes: int = 0
) -> ZeroCopyTiles:
    """What of a run's arrays is worked on in place, of those that are not too small to gain by it."""
    sources = [None if a is None or a.nbytes < least_nbytes else array_source(a, "") for a in inputs]
    sinks = [array_sink(a, "", a.shape, from_numpy(a.dtype)) for a in outputs]
    return ZeroCopyTiles(graph, sources, sinks, read_only=any(a.nbytes < least_nbytes for a in outputs))


_TRANSFERS = frozenset({OpKind.LOAD, OpKind.STORE})
_NAMELESS = ""  # what fails is run again at length, for its place


def _kernel(call: KernelOperands) -> HostKernel:
    return compile_kernel(call.einsum, call.extents, call.mode)
