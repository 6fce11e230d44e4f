"""Prepared plans for repeated runs on arrays: inline in the caller's thread, or on threads if faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from einturnip.compiler import report_of
from einturnip.planner.predict import slots
from einturnip.runtime.host.compilation import compile_ahead, prepare_command_lists
from einturnip.runtime.host.driver_choice import call_driver
from einturnip.runtime.host.prepared_run import PreparedRun, RunResult
from einturnip.runtime.host.zero_copy import ZeroCopyTiles
from einturnip.runtime.scheduler.report import RunReport
from einturnip.storage.types import Array
from einturnip.tuning.memory import CALL_IN_PLACE_NBYTES

if TYPE_CHECKING:
    from einturnip.planner.planner import PlannedProgram


class PreparedPlan:
    """The resources for repeated runs of one plan; threads may share it.

    ``is_inline``: one thread runs it. ``is_reusable``: this class can run it. ``outputs``: name, shape, dtype of each.
    """

    def __init__(self, planned: PlannedProgram) -> None:
        driver = call_driver(planned.memgraph) if planned.device.kind.on_host else "event loop"
        self.is_inline, self.is_reusable = driver == "inline", driver != "event loop"
        outputs = [(name, planned.graph.nodes[number]) for name, number in planned.graph.outputs]
        self.outputs = [(name, node.shape, node.dtype.numpy) for name, node in outputs]
        self._planned = planned
        self._idle_runs: list[PreparedRun] = []
        self._runs = self._n_compiled = self._command_lists = 0
        self._seconds = 0.0

    def run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Callable[[], RunReport] | None:
        """Run the plan and return its report's function.

        Returns None where the full path is needed, also to locate an error.

        ``inputs``: the array of each input by node; ``outputs``: that of each output, in C order. All arrays passed to
        one plan have the same shapes, strides and dtypes.
        """
        for a in inputs:
            if a is not None and not a.flags.aligned:
                return None
        for a in outputs:
            if not a.flags.carray:
                return None
        n_compiled, began = self._compiled(), time.perf_counter()
        try:
            run = self._idle_runs.pop()
        except IndexError:
            run = self._new_run(inputs, outputs)
        try:
            result = run.run(inputs, outputs)
        except Exception:
            return None
        self._seconds += time.perf_counter() - began
        if n_compiled == self._n_compiled:
            self._idle_runs.append(run)
        return _LazyReport(self._planned, run, result)

    def release_idle(self) -> None:
        """Free the arenas of idle runs; their pages stay with the process until the system needs them."""
        if not self.is_inline:
            self._idle_runs.clear()

    def _new_run(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> PreparedRun:
        graph, min_nbytes = self._planned.memgraph, CALL_IN_PLACE_NBYTES if self.is_inline else 0
        threads = None if self.is_inline else slots(self._planned.machine.workers)
        run = PreparedRun(graph, ZeroCopyTiles.of_arrays(graph, inputs, outputs, min_nbytes), threads=threads)
        self._command_lists = run.n_recordable
        return run

    def _compiled(self) -> int:
        """The number of compiled kernels, read after 1, 2, 4, 8 ... runs.

        If it grew, the runs are prepared again.
        """
        self._runs += 1
        if self._planned.machine.compiled and not self._runs & (self._runs - 1):
            planned, seconds, self._seconds = self._planned, self._seconds, 0.0
            memory, runs = planned.budget.memory, max(1, self._runs // 2)
            n_compiled = compile_ahead(planned.taskgraph, planned.machine, memory, runs, seconds)
            n_compiled += prepare_command_lists(self._command_lists, memory, runs)
            if n_compiled != self._n_compiled:
                self._n_compiled = n_compiled
                self._idle_runs.clear()
        return self._n_compiled


class _LazyReport:
    """The report of a run, computed on request."""

    __slots__ = ("_planned", "_report", "_result", "_run")

    def __init__(self, planned: PlannedProgram, run: PreparedRun, result: RunResult) -> None:
        self._planned, self._run, self._result = planned, run, result
        self._report: RunReport | None = None

    def __call__(self) -> RunReport:
        if self._report is None:
            moved = self._planned.memgraph.nbytes_by_link()
            events, trace = self._run.report(self._result)
            links = {"in": moved["disk->cpu:0"], "out": moved["cpu:0->disk"]}
            self._report = report_of(self._planned, events, links, trace)
        return self._report
