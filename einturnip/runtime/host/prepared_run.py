"""Prepared runs: a plan's kernels and addresses are resolved once, and run repeatedly on arrays.

A run consists of rows; each is one op, a command list, or kernels that all workers divide among them. Two drivers run
the rows: one after the other in the caller's thread, or by worker threads in any order that the dependencies allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from einturnip.core.errors import OutOfRange
from einturnip.devices.host import blas_threads
from einturnip.kernels.blas.contraction import ContractionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CONDITION, kind_of
from einturnip.kernels.llvm.contraction import PackedContraction
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.protocol import CallArguments, HostKernel
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import Lane, MemGraph, Op, OpKind
from einturnip.memgraph.views import Array, NodeTile
from einturnip.runtime.host.command_lists import EXECUTOR, Change, CommandListResult, OpCommandList
from einturnip.runtime.host.driver_choice import produced_nbytes
from einturnip.runtime.host.event_loop import located_error, run_ops
from einturnip.runtime.host.index_origin import locate_index, statement_of
from einturnip.runtime.host.packing_scratch import PackingScratch
from einturnip.runtime.host.parallel_kernels import ParallelOps, available, max_chunks, parallel_groups
from einturnip.runtime.host.prepared_ops import AddressStep, PreparedOps
from einturnip.runtime.host.row_dependencies import (
    RowSchedule,
    dependencies,
    is_sequential,
    merged,
    row_schedule,
    separate_values,
)
from einturnip.runtime.host.run_resources import WorkerPool
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.numeric_events import NumericEvents
from einturnip.runtime.scheduler.policies import critical_path
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.tuning.memory import DIVIDED_FLOPS, INLINE_ARENA_NBYTES, PACKED_FLOPS

_Returned: TypeAlias = int | CommandListResult | Mapping[int, int]
"""The floating-point flags of a row's op; or of each op that raised any, by its position; or times of a list's ops."""
_Call: TypeAlias = Callable[[], _Returned]
_Span: TypeAlias = tuple[float, float, int]
"""Begin and end in seconds since the run began, and the thread."""


class RunResult(NamedTuple):
    """The raw result of a run.

    ``returned``: by each row. ``times``: the trace of the rows; of rows that ran one after the other, the clock before
    the first and after each.
    """

    returned: Sequence[_Returned]
    times: RunTrace | list[float]
    events: NumericEvents


class Repetition(NamedTuple):
    """Iterations of a loop that one call can run.

    ``n``: their maximum. ``steps``: how the addresses of arrays change, by tier. ``changes``: further words that
    change. ``condition``: the address of a byte that must not be 0 when an iteration ends, so that another one begins,
    and how it changes; None if there is no condition. ``inputs``: the array of each input in one of the iterations.
    """

    n: int
    steps: Mapping[int, AddressStep]
    changes: Sequence[Change]
    condition: tuple[int, AddressStep] | None
    inputs: Callable[[int], Sequence[Array | None]]


class PreparedRun:
    """A plan with its own arena and with prepared ops. For one run at a time.

    ``zero_copy``: the tiles of the caller's arrays that are used without a copy. ``fixed``: every run has the same
    arrays; otherwise they have the same shapes, strides and dtypes, and no reference to them is kept. ``threads``: of
    each lane; None if the caller's thread runs all ops, in serial order. ``constant``: the inputs, by node, whose
    elements are the same in every run until ``forget_packed``; products keep packed copies of them.
    """

    def __init__(
        self,
        graph: MemGraph,
        zero_copy: ZeroCopyTiles,
        fixed: bool = False,
        threads: dict[Lane, int] | None = None,
        constant: Collection[int] = (),
    ) -> None:
        self._graph, self._threads = graph, threads
        self._workers = 1 if threads is None else threads[Lane.COMPUTE]

        def is_external(value: int) -> bool:
            return zero_copy.window(value) is not None

        if threads is not None:
            graph = separate_values(graph, is_external)
        ops = [op for op in graph if op.kind not in _TRANSFERS or not zero_copy.needs_no_copy(op)]
        products = list[int]()  # floating-point operations of each product by BLAS
        # Reproducible runs use BLAS for products: their bits must not depend on whether compiled code is there. Runs on
        # fixed arrays use it because it divides a product among all workers.
        kernel = partial(_kernel, graph.taskgraph.ordered, fixed, products)
        # The arena never moves: an op that reads and writes only there can be prepared with its final addresses.
        is_fixed = fixed or (threads is None and zero_copy.empty)
        self._prepared = PreparedOps(graph, zero_copy, is_fixed, kernel, ops)
        self.n_recordable = 0
        """The number of ops that a command list can contain."""
        self.may_call_blas = True
        """Whether an op is a product by BLAS, or a call from Python that may contain one."""
        self._parallel = dict[int, ParallelOps]()  # by row
        self._schedule: RowSchedule | None = None  # of rows that can run at the same time
        self._scratch = PackingScratch()
        if threads is None:
            if fixed:  # other runs may be many, and share the scratch of their thread
                self._scratch = PackingScratch.of(graph, self._prepared, constant, bool(products))
            rows = self._record()
            self.may_call_blas = bool(products) or self.n_recordable < len(ops)
            # Waking BLAS's threads takes longer than they save for small products.
            self._one_blas_thread = not fixed and 0 < max(products, default=0) < DIVIDED_FLOPS
        else:
            waits = dependencies(graph, [op.id for op in ops], is_external)
            parallel = self._divide(ops, waits)
            rows, waits = merged(waits, list(parallel))
            self._parallel = {rows.index(group): divided for group, divided in parallel.items()}
            self._calls: list[_Call] = [self._prepared.calls[members[0]] for members in rows]
            # Workers call BLAS at the same time, so threads of its own would be more threads than cores.
            self._one_blas_thread = len(self._parallel) < len(rows)
        self._rows = [tuple([ops[k].id for k in members]) for members in rows]
        if threads is not None and not is_sequential(waits, self._parallel):
            each = [sum(ops[k].seconds for k in members) for members in rows]
            seconds = [s / (self._workers if row in self._parallel else 1) for row, s in enumerate(each)]
            self._schedule, ranks = row_schedule(graph, self._rows, seconds, waits), critical_path(graph)
            self._ranks = [min(ranks[op] for op in members) for members in self._rows]
        if not fixed:
            zero_copy.forget()
        # Fresh pages cost a small call more than its kernels; the pages of a large arena are better left to the system.
        self._keeps_arena = threads is None or produced_nbytes(graph) <= INLINE_ARENA_NBYTES

    def _record(self) -> list[tuple[int, ...]]:
        """Set the calls: a command list for consecutive ops that can be recorded, one for each other op.

        Returns the ops of each call.
        """
        prepared, rows = self._prepared, list[tuple[int, ...]]()
        recordable = {i for i, call in prepared.kernel_calls.items() if call.scratch < 0 and kind_of(call) is not None}
        self._calls, self.n_recordable = [], len(recordable)
        has_executor = code_cache.find(EXECUTOR) is not None
        for is_recordable, group in groupby(range(len(prepared.calls)), recordable.__contains__):
            members = tuple(group)
            if is_recordable and has_executor and len(members) > 1:
                record = partial(_record_command, prepared, [prepared.ids[i] for i in members])
                commands = OpCommandList([prepared.kernel_calls[i] for i in members], record)
                prepared.relocate(members, commands.memory, commands.begins)
                rows.append(members)
                self._calls.append(commands)
            else:
                rows += [(i,) for i in members]
                self._calls += [prepared.calls[i] for i in members]
        return rows

    def _divide(self, ops: Sequence[Op], waits: Sequence[Sequence[int]]) -> dict[tuple[int, ...], ParallelOps]:
        """Divide into chunks the groups of ops that can run as one."""
        found = dict[tuple[int, ...], ParallelOps]()
        if not available(self._workers):
            return found
        node = self._graph.taskgraph.node
        for group in parallel_groups([op.kind for op in ops], waits, lambda k: int(node[ops[k].task])):
            parts = []
            for k in group:
                call, chunks = self._prepared.kernel_calls.get(k), max_chunks(ops[k].seconds, len(group), self._workers)
                if call is None or call.divide is None:
                    break
                parts.append((call, call.divide(chunks)))
            if len(parts) == len(group) and sum(len(words) for _, words in parts) > 1:
                found[group] = ParallelOps(parts)
                self._prepared.relocate(group, found[group].memory, found[group].begins)
        return found

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> RunResult:
        """Run every op. ``inputs``: the array of each input by node. ``outputs``: the array of each output.

        Raises:
            Exception: a kernel failed; the error does not name the statement.
        """
        self._prepared.begin(inputs, outputs)
        try:
            if self._one_blas_thread:
                with blas_threads(1):
                    result = self._run()
            else:
                result = self._run()
            self._prepared.finish()
            return result
        finally:
            self._prepared.end()

    @property
    def is_one_list(self) -> bool:
        """Whether one command list runs all ops."""
        return len(self._calls) == 1 and isinstance(self._calls[0], OpCommandList)

    def repeat(
        self, inputs: Sequence[Array | None], outputs: Sequence[Array], repetition: Repetition
    ) -> tuple[RunResult, int]:
        """Run iterations of a loop whose ops are one command list.

        Returns the result of the last one, and their number. They end with an iteration in which an op raised a flag.
        ``inputs``, ``outputs``: arrays of the first iteration.

        Raises:
            Exception: a kernel failed; see ``run``.
        """
        (commands,), prepared, result = self._calls, self._prepared, list[CommandListResult]()
        assert isinstance(commands, OpCommandList)
        prepared.begin(inputs, outputs)
        try:
            n, condition, steps = repetition.n, 0, prepared.changes(repetition.steps)
            if steps is None:
                n, changes = 1, list[Change]()
            else:
                changes = [*steps, *repetition.changes]
            if repetition.condition is not None:
                condition, (nbytes, factor) = repetition.condition
                changes.append((commands.address_of(CONDITION), nbytes, factor))

            def call() -> CommandListResult:
                result.append(commands.repeat(n, changes, condition))
                if result[0].runs > 1:
                    prepared.set_inputs(repetition.inputs(result[0].runs - 1))
                return result[0]

            found = self._run_in_order([call])
            prepared.finish()
        finally:
            prepared.end()
        assert isinstance(found.times, list)
        begin, end = found.times
        return found._replace(times=[end - (end - begin) / result[0].runs, end]), result[0].runs

    def _run(self) -> RunResult:
        if self._threads is None:
            return self._run_in_order(self._calls)
        pool, calls = WorkerPool.acquire(self._threads), self._calls.copy()
        for row, divided in self._parallel.items():
            calls[row] = partial(divided.run, pool, self._workers - 1)
        try:
            result = self._run_in_order(calls) if self._schedule is None else self._run_concurrently(pool, calls)
        except BaseException:
            pool.close()
            raise
        pool.release()
        if not self._keeps_arena:
            self._prepared.arena.forget()
        return result

    def _run_concurrently(self, pool: WorkerPool, calls: Sequence[_Call]) -> RunResult:
        """Run each row as soon as its dependencies have ended."""
        rows, threads, returned = self._schedule, self._threads, list[_Returned]([0]) * len(calls)
        assert rows is not None and threads is not None

        def execute(row: int) -> None:
            returned[row] = found = calls[row]()
            if found:
                self._record_flags(row, found)

        state = SchedulerState(rows, self._ranks, threads)
        trace = run_ops(rows, state, execute, lambda _: "", threads, pool=pool, joins=True)
        return RunResult(returned, trace, self._prepared.located_events())

    def _run_in_order(self, calls: Sequence[_Call]) -> RunResult:
        clock = time.perf_counter
        returned, times = list[_Returned](), [clock()]
        try:
            for call in calls:
                found = call()
                if found:
                    self._record_flags(len(returned), found)
                returned.append(found)
                times.append(clock())
        except OutOfRange as error:
            call = self._calls[len(returned)]
            op = self._rows[len(returned)][call.position if isinstance(call, OpCommandList) else 0]
            locate_index(self._graph, op, error)
            raise located_error(error, statement_of(self._graph, op)) from error
        return RunResult(returned, times, self._prepared.located_events())

    def _record_flags(self, row: int, found: _Returned) -> None:
        """Record the flags that the ops of a row raised; a command list has done so."""
        if not isinstance(found, CommandListResult):
            for k, flags in ({0: found} if isinstance(found, int) else found).items():
                self._prepared.record(self._rows[row][k], flags)

    def forget_packed(self) -> None:
        """Pack constant operands anew in the next run."""
        self._scratch.forget()

    @property
    def scratch_nbytes(self) -> int:
        """Bytes in which products pack their operands."""
        return self._scratch.nbytes

    def forget_arena(self) -> None:
        """Return the pages of the arena to the system; between runs they hold nothing that is needed."""
        self._prepared.arena.forget(at_once=True)

    def report(self, result: RunResult) -> tuple[NumericEvents, RunTrace]:
        """Return the numeric events of a run, and its trace.

        A transfer that ``zero_copy`` made needless appears in the trace at the moment when its dependencies had ended.
        """
        trace, graph = RunTrace(len(self._graph)), self._graph
        spans, stalls, trace.seconds = self._spans(result.times)
        by_op = dict[int, _Span]()
        for row, (ops, found) in enumerate(zip(self._rows, result.returned, strict=True)):
            by_op |= zip(ops, self._op_spans(spans[row], len(ops), found), strict=True)
            if row in self._parallel:  # uses all workers, which the trace counts as one
                excess = (self._workers - 1) * (spans[row][1] - spans[row][0])
                for cause in sorted(stalls):
                    used = min(stalls[cause], excess)
                    stalls[cause], excess = stalls[cause] - used, excess - used
        end = np.zeros(len(graph))
        for op in range(len(graph)):
            before = graph.after[graph.after_ptr[op] : graph.after_ptr[op + 1]]
            ended = float(end[before].max(initial=0.0))
            end[op] = by_op.setdefault(op, (ended, ended, 0))[1]
        for op in sorted(by_op, key=lambda op: (by_op[op][1], op)):
            begin, ended, thread = by_op[op]
            trace.ended(op, Lane(OpKind(int(graph.kind[op])).lane), thread, begin, ended)
        trace.stalls = stalls
        return result.events, trace

    def _spans(self, times: RunTrace | list[float]) -> tuple[list[_Span], dict[str, float], float]:
        """Return when each row ran, the idle seconds by cause, and the seconds of the run."""
        if isinstance(times, RunTrace):
            line = times.timeline
            spans = list(zip(line.begin.tolist(), line.end.tolist(), line.thread.tolist(), strict=True))
            return spans, dict(times.stalls), times.seconds
        first, last = times[0], times[-1]
        # No two rows could run at the same time. The trace counts idleness that no transfer explains as "memory".
        idle = (self._workers - 1) * (last - first)
        return (
            [(a - first, b - first, 0) for a, b in pairwise(times)],
            RunTrace(0).stalls | {"memory": idle},
            last - first,
        )

    def _op_spans(self, row: _Span, n: int, found: _Returned) -> list[_Span]:
        """Return when each of the ``n`` ops of a row ran; parallel ones appear as if each had one thread."""
        begin, end, thread = row
        if isinstance(found, int):
            return [row]
        if isinstance(found, CommandListResult):
            return [(a, b, thread) for a, b in pairwise([begin, *found.ends(begin, end)])]
        each = (end - begin) / -(-n // self._workers)
        rounds = (divmod(k, self._workers) for k in range(n))
        return [(begin + number * each, begin + (number + 1) * each, worker) for number, worker in rounds]


_TRANSFERS = frozenset({OpKind.LOAD, OpKind.STORE})


def _record_command(prepared: PreparedOps, ops: Sequence[int], k: int, flags: int) -> None:
    """Record the flags of the ``k``-th op of a command list."""
    prepared.record(ops[k], flags)


def _kernel(by_blas: bool, divided: bool, products: list[int], tile: NodeTile, arguments: CallArguments) -> HostKernel:
    """Choose the kernel of a call; appends the operations of a product by BLAS to ``products``."""
    kernel = compile_kernel(tile.einsum, tile.extents, tile.mode, by_blas or divided)
    if divided and not by_blas and isinstance(kernel, ContractionKernel):
        # BLAS needs several calls for some small products; machine code needs one.
        several = not kernel.is_vector and kernel.prepare(arguments).function is None
        own = compile_kernel(tile.einsum, tile.extents, tile.mode)
        is_nest = isinstance(own, MachineCodeKernel) and kernel.flops < DIVIDED_FLOPS
        is_packed = isinstance(own, PackedContraction) and kernel.flops < PACKED_FLOPS
        kernel = own if several or is_nest or is_packed else kernel
    if isinstance(kernel, ContractionKernel):
        products.append(kernel.flops)
    return kernel
