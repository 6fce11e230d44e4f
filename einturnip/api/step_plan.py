"""The plan of a session's step, and what its runs keep for each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

from einturnip.compiler import Options, execute, report_of, run_resources_for
from einturnip.eingraph.types import InputNode
from einturnip.planner.planned_program import PlannedProgram
from einturnip.runtime.host.blas_threads import BlasThreadChoice
from einturnip.runtime.host.compilation import compile_ahead, compile_all, prepare_command_lists
from einturnip.runtime.host.inline_plan import InlinePlan, made_nbytes, pays_inline
from einturnip.runtime.host.prepared_ops import STEP_NBYTES
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.report import Progress, RunReport
from einturnip.storage.arrays import ArraySink, ArraySource
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.types import Array, Sink, Source

# Bytes from which on an input is read where it stands: what is smaller is copied as fast as its place is found again.
LARGE_NBYTES = 1 << 16


class StepPlan:
    """A plan that runs step after step: in the caller's thread where handing its ops over would take longer than
    threads save, else by threads and in an arena that stay. For one run at a time.
    """

    def __init__(self, planned: PlannedProgram, options: Options) -> None:
        self.planned, self.options = planned, options
        self._pays_here = options.device == "cpu" and pays_inline(planned.memgraph, planned.machine.workers)
        # No op runs beside another here, so that products may take all workers; how they are divided shows in bits.
        workers = 1 if options.reproducible else planned.machine.workers
        self._blas = BlasThreadChoice(workers, float(planned.memgraph.seconds.sum()))
        self._small: InlinePlan | None = None
        self._codes, self._runs = -1, 0
        # Inputs that steps read where they stand, and those that were other arrays in another step: these are copied.
        self._read_there: dict[int, Array] = {}
        self._copied: set[int] = set()
        self._standing: RunResources | None = None
        self._held = planned.memgraph.capacity + 1  # before it is known, no room is left beside it
        self._process = os.getpid()

    def run(
        self,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Callable[[], RunReport]:
        """Run a step; what is returned tells of it.

        Raises:
            RunError, StoreError, Interrupted: it failed on the way.
        """
        nodes = self.planned.graph.nodes
        here = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
        arrays = [s.array if isinstance(s, ArraySource) else None for s in here]
        outs = [sink.array for sink in sinks.values() if isinstance(sink, ArraySink)]
        in_memory = len(outs) == len(sinks) and all(
            s is None or a is not None for s, a in zip(here, arrays, strict=True)
        )
        if self._pays_here and in_memory and progress is None and stop is None:
            report_of_run = self._run_here(here, list(sinks.values()), arrays, outs)
            require_unchanged_inputs(sources.values(), ())
            return report_of_run
        report = self._run_by_threads(sources, sinks, progress, stop)
        return lambda: report

    @property
    def held_nbytes(self) -> int:
        """What it keeps from run to run at most, of the budget that is for all plans of a session."""
        return self._held

    def rest(self) -> None:
        """Give back arena, threads and spill file; the next run makes them anew."""
        self._small, standing, self._standing = None, self._standing, None
        self._read_there = {}
        if standing is not None and self._process == os.getpid():
            standing.close()

    def _run_here(
        self,
        sources: Sequence[Source | None],
        sinks: Sequence[Sink],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Callable[[], RunReport]:
        planned = self.planned
        codes = self._compile()
        self._runs += 1
        others = {n for n, array in self._read_there.items() if not _same(array, inputs[n])}
        if self._small is None or codes != self._codes or others:
            self._copied |= others
            there = [
                s if _is_large(a) and n not in self._copied else None
                for n, (s, a) in enumerate(zip(sources, inputs, strict=True))
            ]
            in_place = ZeroCopyTiles(planned.memgraph, there, sinks, read_only=True)
            self._read_there = {n: a for n, a in enumerate(map(in_place.array, range(len(inputs)))) if a is not None}
            self._small, self._codes = InlinePlan(planned.memgraph, in_place, fixed=True), codes
            loaded = sum(a.nbytes for n, a in enumerate(inputs) if a is not None and n not in self._read_there)
            self._held = made_nbytes(planned.memgraph) + loaded + STEP_NBYTES * len(planned.memgraph)
        small = self._small
        with self._blas.step():
            ran = small.run(inputs, outputs)
        moved = planned.memgraph.nbytes_by_link()
        ways = {"in": moved["disk->cpu:0"], "out": moved["cpu:0->disk"]}

        def report() -> RunReport:
            flags, trace = small.told(ran)
            return report_of(planned, flags, ways, trace)

        return report

    def _compile(self) -> int:
        """How many kernels are machine code; more as soon as the steps would have saved what compiling takes.

        Asked after 1, 2, 4, 8 ... steps: to ask takes as long as many kernels do.
        """
        planned = self.planned
        if not planned.machine.compiled:
            return 0
        if self._runs & (self._runs - 1) and self._small is not None:
            return self._codes
        if self.options.reproducible:
            return self._codes if self._small is not None else compile_all(planned.taskgraph)
        runs = max(1, self._runs // 2)
        taped = self._small.taped if self._small is not None else 0
        return compile_ahead(planned.taskgraph, planned.machine, runs) + prepare_command_lists(taped, runs)

    def _run_by_threads(
        self,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> RunReport:
        if self._process != os.getpid():  # forked: threads stayed behind, and a spill file would be shared
            self._standing, self._process = None, os.getpid()
        if self._standing is None:
            self._held = self.planned.memgraph.capacity + 1
            self._standing = run_resources_for(self.planned, self.options)
        try:
            return execute(self.planned, sources, sinks, self.options, progress, stop, self._standing)
        except BaseException:
            self.rest()  # an interrupt may have left ops running, which end with the threads
            raise


def _is_large(array: Array | None) -> bool:
    return array is not None and array.nbytes >= LARGE_NBYTES


def _same(a: Array, b: Array | None) -> bool:
    """True where two arrays are the same bytes, seen alike."""
    if a is b:
        return True
    return b is not None and (a.__array_interface__, a.strides) == (b.__array_interface__, b.strides)
