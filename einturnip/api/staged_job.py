"""Jobs of programs with long loops: a plan for each stage, that of a body for all iterations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from einturnip.api.inline_iterations import index_of
from einturnip.api.jobs import Missing, open_sinks_of
from einturnip.api.loop_run import LoopRun
from einturnip.api.stage_plans import PlannedStage, PlannedStages, StagePlans
from einturnip.api.stage_progress import StageProgress
from einturnip.api.step_plan import StepPlan, StepRun
from einturnip.compiler import Options
from einturnip.eingraph.build.stage_types import StagedProgram, ValueSlice
from einturnip.eingraph.types import InputNode
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.scheduler.report import (
    Progress,
    RunReport,
    WhileReport,
    joined_report,
    log_run,
)
from einturnip.storage.slice import slice_source
from einturnip.storage.types import Array, Sink, Source

if TYPE_CHECKING:
    from einturnip.report.analyze import Analysis
    from einturnip.report.trace import TracedRun

MAX_EVENT_REPORTS = 3
"""Iterations of a loop that are searched for the element that became nan or infinite."""


_CountedReport: TypeAlias = tuple[RunReport, int]
"""A report, and the number of runs that it stands for."""


class StagedJob(PlannedStages):
    """A program in stages that runs; one run at a time."""

    def __init__(
        self,
        staged: StagedProgram,
        sources: Mapping[str, Source],
        missing: Missing,
        targets: Mapping[str, str | Array | None],
        options: Options,
        plans: StagePlans | None = None,
    ) -> None:
        """Plan every stage, or use ``plans``; see ``PlannedStages``."""
        super().__init__(staged, sources, missing, targets, options, plans)
        self._began = 0.0
        self._counts = dict[str, int]()  # the iterations of each ``while`` that has run, by its condition
        self._filled = set[str]()  # the copies in memory that this run has filled
        self._last: list[tuple[PlannedProgram, RunReport, int]] = []  # of the stages that ran last, with their runs
        self._runs: list[TracedRun] | None = None  # of plans, if they are kept

    def keep_runs(self) -> None:
        """Keep when each op of each run of a plan ran, for a trace, from the next run on."""
        self._runs = []

    def traced_runs(self, report: RunReport) -> list[TracedRun]:
        """Every run of a plan in the last run, whose report this is."""
        assert self._runs is not None and report
        return self._runs

    def run(
        self,
        progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        targets: Mapping[str, str | Array | None] | None = None,
    ) -> tuple[RunReport, dict[str, Sink]]:
        """Run all stages. ``targets``: where outputs go, by default as planned.

        Raises:
            StoreError, RunError, Interrupted: no incomplete output remains.
        """
        targets = self.targets if targets is None else targets
        sinks = open_sinks_of(self.outputs, targets, self.sources.values(), self._options)
        try:
            report = self.run_into(sinks, progress, stop)
            log_run(report)
            return report, sinks
        except BaseException:
            for sink in sinks.values():
                sink.abort()
            raise

    def run_into(
        self,
        sinks: Mapping[str, Sink],
        progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> RunReport:
        """Run all stages. ``sinks``: of the outputs; none shares memory with an input.

        Raises:
            StoreError, RunError, Interrupted: the run failed; the caller aborts the sinks.
        """
        began, runs, loops = time.perf_counter(), list[tuple[RunReport, int]](), list[WhileReport]()
        shown = StageProgress(progress, self.plans)
        self._last, self._filled, self._began = [], set(), began
        for placed in self._stages:
            placed.plan.begin_call(placed.plan.planned, placed.plan.options)
        if self._runs is not None:
            self._runs = []
        for number in range(len(self._stages)):
            is_last = number == len(self._stages) - 1
            for ran, reports in self._run(number, sinks if is_last else {}, stop, shown, loops):
                if reports:
                    self._last.append((ran.plan.planned, reports[-1][0], sum(times for _, times in reports)))
                runs += reports
                self.release_after(ran.plan)
        return replace(joined_report(runs, time.perf_counter() - began), loops=tuple(loops))

    def analysis(self, report: RunReport) -> Analysis:
        """Compare the last run, whose report this is, with its plans; an iteration stands for all of its loop."""
        return self.last_analysis(report)()

    def last_analysis(self, report: RunReport) -> Callable[[], Analysis]:
        """The function that compares the last run with its plans, also after further runs."""
        last = self._last

        def analysis() -> Analysis:
            from einturnip.report.analyze import analyse, joined

            return joined([(analyse(planned, report), n) for planned, report, n in last], report)

        return analysis

    # -- running

    def _run(
        self,
        number: int,
        sinks: Mapping[str, Sink],
        stop: threading.Event | None,
        shown: StageProgress,
        loops: list[WhileReport],
    ) -> Iterator[tuple[PlannedStage, list[_CountedReport]]]:
        """Run a stage, and the replay before it; yields the reports of each.

        Adds the end of a ``while`` to ``loops``.
        """
        placed = self._stages[number]
        iterations = placed.stage.iterations
        if iterations is None:
            yield placed, [self._run_statements(number, sinks, stop, shown)]
        elif not iterations.replays:
            before = self._stages[number - 1] if number else placed
            is_replayed = before.stage.iterations is not None and before.stage.iterations.replays
            values = iterations.values
            if iterations.counted is not None:
                skipped = len(values) - self._counts[iterations.counted]
                values = values[skipped:]
                for k in (number - 1, number) if is_replayed else (number,):
                    shown.skipped(k, skipped)
            self._fill(iterations.initial, values)
            reports, again = list[_CountedReport](), list[_CountedReport]()
            if is_replayed:
                length = iterations.segment
                for start in reversed(range(0, len(values), length)):
                    segment = values[::-1][start : start + length]
                    again += self._replay(number - 1, segment, stop, shown)
                    _release_unless_both_fit(before.plan, placed.plan)
                    reports += self._run_loop(number, segment[::-1], stop, shown, [])
                    _release_unless_both_fit(placed.plan, before.plan)
                yield before, again
            else:
                reports = self._run_loop(number, values, stop, shown, loops)
            yield placed, reports

    def _run_statements(
        self, number: int, sinks: Mapping[str, Sink], stop: threading.Event | None, shown: StageProgress
    ) -> _CountedReport:
        """Run a stage that is not a loop."""
        placed, held = self._stages[number], self._held.storages
        plan, graph = placed.plan, placed.plan.planned.graph
        names = [node.name for node in graph.nodes if isinstance(node, InputNode)]
        sources = {name: placed.sources[name] if name in placed.sources else held[name].read for name in names}
        written = {name: sinks[name] if name in sinks else held[name].read for name, _ in graph.outputs}
        only = plan.run(sources, written, None, None if plan.runs_inline else stop)
        self._keep(plan, only)
        shown.ended(number)
        return only.report(), 1

    def _keep(self, plan: StepPlan, run: StepRun) -> None:
        """Keep a run that has just ended, if runs are kept."""
        if self._runs is not None:
            from einturnip.report.trace import TracedRun

            ended, report = time.perf_counter() - self._began, run.report()
            self._runs.append(TracedRun(plan.planned, report, ended - report.wall_seconds))

    def _fill(self, initial: Mapping[str, str | ValueSlice], values: range) -> None:
        """Copy what values begin with in the first of these iterations."""
        held = self._held.storages
        for name, source in initial.items():
            if isinstance(source, str):
                held[name].fill(self._source(source))
            elif values:
                base = held[source.value]
                held[name].fill(slice_source(base.read, index_of(source, base.shape, values[0])))

    def _replay(
        self, number: int, values: range, stop: threading.Event | None, shown: StageProgress
    ) -> list[_CountedReport]:
        """Compute the states of a segment again."""
        iterations = self._stages[number].stage.iterations
        assert iterations is not None
        self._fill(iterations.initial, values)
        return self._run_loop(number, values, stop, shown, [])

    def _run_loop(
        self,
        number: int,
        values: range,
        stop: threading.Event | None,
        shown: StageProgress,
        loops: list[WhileReport],
    ) -> list[_CountedReport]:
        """Run iterations of a loop."""
        placed, held = self._stages[number], self._held.storages
        iterations = placed.stage.iterations
        assert iterations is not None
        used = {n.name for n in placed.stage.graph.nodes if isinstance(n, InputNode)}
        used |= {source for source in iterations.initial.values() if isinstance(source, str)}
        used |= {part.value for part in iterations.reads.values()}
        for name in sorted(used & self._copies.keys() - self._filled):
            self._copies[name].fill(self.sources[name])
            self._filled.add(name)
        bases = {part.value: self._source(part.value) for part in iterations.reads.values()}
        loop = LoopRun(iterations, placed.plan, placed.sources, bases, held)
        n_run = n_reported = 0
        reports = list[_CountedReport]()
        for value, run in loop.run(values, stop, each=self._runs is not None):
            n_run += run.count
            self._keep(placed.plan, run)
            shown.ended(number, value, run.count)
            if not loop.continues:
                reports.append((run.report(), n_run - n_reported))
            elif run.has_events and n_reported < MAX_EVENT_REPORTS:
                n_reported += 1
                reports.append((run.report(), 1))
        if iterations.condition is not None:
            self._counts[iterations.condition] = n_run
            shown.skipped(number, len(values) - n_run)
            reached, line = n_run == len(values) and loop.holds(), placed.stage.line
            loops.append(WhileReport(line, placed.stage.graph.statement(line), n_run, len(values), reached))
        return reports


def _release_unless_both_fit(plan: StepPlan, other: StepPlan) -> None:
    """Free the arena of a plan unless it and that of another plan fit the budget together."""
    if plan.kept_nbytes + other.kept_nbytes > other.planned.memgraph.capacity:
        plan.release()
