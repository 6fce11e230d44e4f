"""The plan of a session's step, and the resources that its runs share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from einturnip.compiler import Options, execute, report_of, run_resources_for
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import FILES
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.host.blas_threads import BlasThreadChoice
from einturnip.runtime.host.compilation import compile_ahead, compile_all, prepare_command_lists
from einturnip.runtime.host.driver_choice import produced_nbytes, step_driver
from einturnip.runtime.host.prepared_run import PreparedRun, Repetition
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.report import Progress, RunReport
from einturnip.storage.arrays import ArraySink, ArraySource
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.types import Array, Sink, Source
from einturnip.tuning.memory import PREPARED_OP_NBYTES, STEP_IN_PLACE_NBYTES


@dataclass(frozen=True, slots=True)
class StepRun:
    """A run of a step, or the last one of several. ``report`` computes its report.

    ``has_events``: a kernel made a nan, or overflowed. ``count``: how many steps have run.
    """

    report: Callable[[], RunReport]
    has_events: bool
    count: int = 1


class StepPlan:
    """A plan that runs step after step, one run at a time.

    It runs inline in the caller's thread if dispatching its ops would take longer than threads save. Otherwise threads
    run it. Arena and threads are kept from run to run. ``runs``: how many there will be, if that is known.
    ``constant``: inputs whose elements do not change from step to step, until ``forget_packed``.
    """

    def __init__(
        self, planned: PlannedProgram, options: Options, runs: int = 1, constant: Collection[str] = ()
    ) -> None:
        self.planned, self.options, self._expected_runs = planned, options, runs
        nodes = enumerate(planned.graph.nodes)
        self._constant = {i for i, node in nodes if isinstance(node, InputNode) and node.name in constant}
        self.runs_inline = (
            planned.device.kind.on_host and step_driver(planned.memgraph, planned.machine.workers) == "inline"
        )
        # Ops run one at a time here, so products may use all workers; their division affects the bits.
        workers = 1 if options.reproducible else planned.machine.workers
        self._blas = BlasThreadChoice(workers, float(planned.memgraph.seconds.sum()))
        self._inline_run: PreparedRun | None = None
        self._n_compiled, self._runs, self._next_check = -1, 0, 0
        # Inputs that steps read in place, and those that were other arrays in another step, which are copied.
        self._zero_copy_inputs: dict[int, Array] = {}
        self._copied_inputs: set[int] = set()
        self._begins_call = True
        self._resources: RunResources | None = None
        self._kept_nbytes = planned.memgraph.capacity + 1  # while it is unknown, nothing else fits in the budget
        self._process = os.getpid()

    def run(
        self,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> StepRun:
        """Run a step.

        A step that runs inline has no progress, and ends before it heeds ``stop``.

        Raises:
            RunError, StoreError, Interrupted: the step failed.
        """
        nodes = self.planned.graph.nodes
        node_sources = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
        arrays = [s.array if isinstance(s, ArraySource) else None for s in node_sources]
        out_arrays = [sink.array for sink in sinks.values() if isinstance(sink, ArraySink)]
        in_memory = len(out_arrays) == len(sinks) and all(
            s is None or a is not None for s, a in zip(node_sources, arrays, strict=True)
        )
        if self.runs_inline and in_memory and progress is None and stop is None:
            run = self.run_inline(node_sources, list(sinks.values()), arrays, out_arrays)
            require_unchanged_inputs(sources.values(), ())
            return run
        report = self._run_on_threads(sources, sinks, progress, stop)
        return StepRun(lambda: report, bool(report.warnings))

    @property
    def kept_nbytes(self) -> int:
        """Maximum of bytes kept between runs, out of the common budget of a session's plans."""
        return self._kept_nbytes

    @property
    def held_nbytes(self) -> int:
        """Bytes between runs of the prepared run and of the arrays that it refers to; 0 if there is none."""
        if self._inline_run is None:
            return 0
        return self._kept_nbytes + sum(map(_memory_nbytes, self._zero_copy_inputs.values()))

    def begin_call(self, planned: PlannedProgram, options: Options) -> None:
        """Announce steps of another call, whose arrays may be others.

        ``planned``: the same plan, perhaps within another memory.
        """
        self.planned, self.options, self._begins_call = planned, options, True

    def release(self) -> None:
        """Free arena, threads and spill file; the next run creates them again."""
        self._inline_run, resources, self._resources = None, self._resources, None
        self._zero_copy_inputs = {}
        if resources is not None and self._process == os.getpid():
            resources.close()

    def run_inline(
        self,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
        repetition: Repetition | None = None,
    ) -> StepRun:
        """Run a step in the caller's thread. ``inputs``: the array of each input by node.

        ``sources`` and ``sinks``: those of any step, from which the first one decides what is used in place.
        ``repetition``: the steps from this one on that may run at once, if ``can_repeat``.
        """
        planned = self.planned
        n_compiled = self._compile()
        changed_inputs = {n for n, array in self._zero_copy_inputs.items() if not _is_same_memory(array, inputs[n])}
        if self._inline_run is None or n_compiled != self._n_compiled or changed_inputs:
            if not self._begins_call:
                self._copied_inputs |= changed_inputs
            if self._inline_run is not None:  # its last report may keep it, with an arena of its own
                self._inline_run.forget_arena()
            zero_copy_sources = [
                s if _is_large(a) and n not in self._copied_inputs else None
                for n, (s, a) in enumerate(zip(sources, inputs, strict=True))
            ]
            in_place = ZeroCopyTiles(planned.memgraph, zero_copy_sources, sinks, read_only=True)
            self._zero_copy_inputs = {
                n: a for n, a in enumerate(map(in_place.array, range(len(inputs)))) if a is not None
            }
            self._inline_run = PreparedRun(planned.memgraph, in_place, fixed=True, constant=self._constant)
            self._n_compiled = n_compiled
            loaded = sum(a.nbytes for n, a in enumerate(inputs) if a is not None and n not in self._zero_copy_inputs)
            self._kept_nbytes = produced_nbytes(planned.memgraph) + loaded + self._inline_run.scratch_nbytes
            self._kept_nbytes += PREPARED_OP_NBYTES * len(planned.memgraph)
        inline_run, self._begins_call = self._inline_run, False
        count = 1
        with self._blas.step() if inline_run.may_call_blas else nullcontext():
            if repetition is not None and self.can_repeat([tier - FILES for tier in repetition.steps]):
                result, count = inline_run.repeat(inputs, outputs, repetition)
            else:
                result = inline_run.run(inputs, outputs)
        self._runs += count

        def report() -> RunReport:
            events, trace = inline_run.report(result)
            moved = planned.memgraph.nbytes_by_link()
            links = {"in": moved["disk->cpu:0"], "out": moved["cpu:0->disk"]}
            return report_of(planned, events, links, trace)

        return StepRun(report, bool(result.events.counts), count)

    def forget_packed(self) -> None:
        """Announce that constant inputs may have changed."""
        if self._inline_run is not None:
            self._inline_run.forget_packed()

    def can_repeat(self, changing: Collection[int]) -> bool:
        """Whether one call can run several steps.

        ``changing``: the inputs, by node, that are other arrays in each step.
        """
        run = self._inline_run
        return run is not None and run.is_one_list and self._zero_copy_inputs.keys().isdisjoint(changing)

    def _compile(self) -> int:
        """The number of compiled kernels; compiles more when the steps would have saved the compile time.

        Checked after 1, 2, 4, 8 ... steps, because a check takes as long as many kernels.
        """
        planned = self.planned
        if not planned.machine.compiled:
            return 0
        if self._runs < self._next_check and self._n_compiled >= 0:
            return self._n_compiled
        self._next_check = max(1, 2 * self._runs)
        if self.options.reproducible:
            return self._n_compiled if self._n_compiled >= 0 else compile_all(planned.taskgraph)
        runs = max(self._expected_runs, self._runs // 2)
        command_lists = self._inline_run.n_recordable if self._inline_run is not None else 0
        memory, expected = planned.budget.memory, self._expected_runs
        compiled = compile_ahead(planned.taskgraph, planned.machine, memory, runs, planned_runs=expected)
        return compiled + prepare_command_lists(command_lists, memory, runs)

    def _run_on_threads(
        self,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> RunReport:
        self._n_compiled = self._compile()
        self._runs += 1
        if self._process != os.getpid():  # after a fork: threads stayed behind, and a spill file would be shared
            self._resources, self._process = None, os.getpid()
        if self._resources is None:
            self._kept_nbytes = self.planned.memgraph.capacity + 1
            self._resources = run_resources_for(self.planned, self.options)
        try:
            return execute(self.planned, sources, sinks, self.options, progress, stop, self._resources)
        except BaseException:
            self.release()  # an interrupt may have left ops running, which end with the threads
            raise


def _memory_nbytes(array: Array) -> int:
    """Bytes that a reference to an array keeps alive; more than any limit if they are not NumPy's own."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.nbytes if array.base is None else 1 << 62


def _is_large(array: Array | None) -> bool:
    return array is not None and array.nbytes >= STEP_IN_PLACE_NBYTES


def _is_same_memory(a: Array, b: Array | None) -> bool:
    """True if two arrays are views of the same bytes with the same layout."""
    if a is b:
        return True
    return b is not None and (a.__array_interface__, a.strides) == (b.__array_interface__, b.strides)
