"""Jobs of programs with long loops: one plan for each stage, also for all iterations of a loop."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from einturnip.api.held_values import HeldValues
from einturnip.api.inputs import close_all
from einturnip.api.jobs import Missing, open_sinks_of, tiers
from einturnip.api.loop_run import LoopRun, index_of
from einturnip.api.stage_progress import StageProgress, has_bound, heading, iteration_count
from einturnip.api.step_plan import StepPlan
from einturnip.compiler import Options
from einturnip.core.errors import CapacityError
from einturnip.core.resident import reserved
from einturnip.eingraph.build.stage_types import Stage, StagedProgram, ValueSlice
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.planner.feasible import require_iterations_in_time
from einturnip.runtime.scheduler.report import (
    Prediction,
    Progress,
    RunReport,
    WhileReport,
    joined_prediction,
    joined_report,
)
from einturnip.storage.arrays import ArraySource, array_source
from einturnip.storage.outputs.state_storage import StateStorage
from einturnip.storage.slice import SliceSource, slice_source
from einturnip.storage.types import Array, Sink, Source

if TYPE_CHECKING:
    from einturnip.report.analyze import Analysis

MAX_EVENT_REPORTS = 3
"""Iterations of a loop that are searched for the element that became nan or infinite."""


_CountedReport: TypeAlias = tuple[RunReport, int]
"""A report, and the number of runs that it stands for."""


@dataclass(frozen=True)
class _PlannedStage:
    """A stage, its plan, and the inputs that are the same in every iteration."""

    stage: Stage
    plan: StepPlan
    sources: Mapping[str, Source]


class StagedJob:
    """A program in stages, planned for its inputs, options and output targets.

    ``targets``: for each output a file as the user wrote it, an array, or None to discard it.
    """

    def __init__(
        self,
        staged: StagedProgram,
        sources: Mapping[str, Source],
        missing: Missing,
        targets: Mapping[str, str | Array | None],
        options: Options,
    ) -> None:
        """Plan every stage. ``missing``: returns the source of an input without data.

        Raises:
            CapacityError: a stage does not fit.
        """
        self.targets, self.sources = targets, dict(sources)
        self._held = HeldValues(options.spill, lazy=True)
        if staged.in_segments is not None and _values_nbytes(staged) > self._held.available_nbytes(options):
            staged = staged.in_segments()
        self._staged, self._options = staged, options
        self._stages: list[_PlannedStage] = []
        self.sources |= {node.name: missing(node) for node in staged.inputs if node.name not in self.sources}
        self._counts = dict[str, int]()  # the iterations of each ``while`` that has run, by its condition
        self._copies: dict[str, StateStorage] = {}  # in memory, of files that every iteration reads
        self._filled = set[str]()  # the copies that this run has filled
        self._last: list[
            tuple[_PlannedStage, RunReport, int]
        ] = []  # of the last run: its stages, the last report and the number of runs of each
        try:
            replaced = {name for stage in staged.stages if stage.iterations for name in stage.iterations.states}
            values = [(value.name, value.shape, value.dtype) for value in staged.values]
            for _ in self._held.allocate(values, options, replaced):
                pass
            self._copy_inputs()
            try:
                self._plan_all()
            except CapacityError:
                if not self._copies:
                    raise
                self._drop_copies()
                self._plan_all()
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> str:
        """The device that runs the plans, in words."""
        return self._stages[0].plan.planned.device.description

    @property
    def name(self) -> str:
        """The name of the program."""
        return self._staged.stages[0].graph.program

    @property
    def outputs(self) -> EinGraph:
        """The graph whose outputs are those of the program."""
        return self._staged.stages[-1].graph

    @property
    def prediction(self) -> Prediction:
        """The time, memory and bytes that the plans predict, for all iterations or the bound of a ``while``."""
        return joined_prediction([(p.plan.planned.prediction, iteration_count(p.stage)) for p in self._stages])

    def explain(self) -> str:
        """Explain the plan of each stage as text."""
        from einturnip.report.explain import explain

        return "\n\n".join(f"{heading(stage)}\n\n{explain(plan.planned)}" for stage, plan in self.plans)

    def relations(self) -> list[dict[str, Any]]:
        """Describe each tensor of each stage as a relation of tiles."""
        from einturnip.report.relations import relation_json

        return [relation for _, plan in self.plans for relation in relation_json(plan.planned.taskgraph)]

    @property
    def plans(self) -> list[tuple[Stage, StepPlan]]:
        """Each stage with its plan."""
        return [(planned_stage.stage, planned_stage.plan) for planned_stage in self._stages]

    def close(self) -> None:
        """Close the sources and free the values; idempotent.

        A result that outlives the job refers to its plans, but keeps no value alive.
        """
        close_all(self.sources.values())
        for planned_stage in self._stages:
            planned_stage.plan.release()
        self._stages = [replace(planned_stage, sources={}) for planned_stage in self._stages]
        self.sources = {}
        self._drop_copies()
        self._held.close()

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
        began, runs, loops = time.perf_counter(), list[tuple[RunReport, int]](), list[WhileReport]()
        shown = StageProgress(progress, self.plans)
        self._last, self._filled = [], set()
        try:
            for number in range(len(self._stages)):
                is_last = number == len(self._stages) - 1
                for ran, reports in self._run(number, sinks if is_last else {}, stop, shown, loops):
                    if reports:
                        self._last.append((ran, reports[-1][0], sum(times for _, times in reports)))
                    runs += reports
                    ran.plan.release()
        except BaseException:
            for sink in sinks.values():
                sink.abort()
            raise
        return replace(joined_report(runs, time.perf_counter() - began), loops=tuple(loops)), sinks

    def analysis(self, report: RunReport) -> Analysis:
        """Compare the last run, whose report this is, with its plans; an iteration stands for all of its loop."""
        from einturnip.report.analyze import analyse, joined

        return joined([(analyse(planned_stage.plan.planned, last), n) for planned_stage, last, n in self._last], report)

    # -- planning

    def _copy_inputs(self) -> None:
        """Allocate copies in memory of files that each iteration reads, the smallest first, if they fit."""
        stages = [stage for stage in self._staged.stages if stage.iterations is not None]
        names = {n.name for stage in stages for n in stage.graph.nodes if isinstance(n, InputNode)}
        names |= {read.value for stage in stages if stage.iterations for read in stage.iterations.reads.values()}
        files = {name: s for name, s in self.sources.items() if name in names and not isinstance(s, ArraySource)}
        available = self._held.available_nbytes(self._options) - self._held.nbytes()
        for name, source in sorted(files.items(), key=lambda item: _nbytes(item[1])):
            available -= _nbytes(source)
            if available < 0:
                break
            self._copies[name] = StateStorage(name, source.shape, source.dtype, True, None, lazy=True)

    def _drop_copies(self) -> None:
        for storage in self._copies.values():
            storage.close()
        self._copies = {}

    def _plan_all(self) -> None:
        """Plan the stages; a refusal names the minimum of the largest."""
        changes = -1
        while changes != self._held.changes:
            changes, self._stages, refused = self._held.changes, [], list[CapacityError]()
            for stage in self._staged.stages:
                try:
                    self._stages.append(self._plan(stage))
                except CapacityError as error:
                    refused.append(error)
            if refused:
                raise max(refused, key=lambda error: error.needed)

    def _plan(self, stage: Stage) -> _PlannedStage:
        iterations = stage.iterations
        sources = dict(self.sources)
        if iterations is not None:
            sources |= {name: storage.read for name, storage in self._copies.items()}
            if iterations.variable is not None:
                counter = np.array(iterations.values[0], np.int64)
                sources[iterations.variable] = array_source(counter, iterations.variable)
            for name, read in iterations.reads.items():
                sliced = self._source(read.value)
                at = index_of(read, sliced.shape, next(iter(iterations.values), 0))
                sources[name] = slice_source(sliced, at) if isinstance(sliced, ArraySource) else SliceSource(sliced, at)
        is_last = stage is self._staged.stages[-1]
        targets = tiers(self.targets) if is_last else {}
        if iterations is not None:
            targets = {name: name for name in iterations.writes}
        with reserved(sum(storage.nbytes for storage in self._copies.values())):
            planned, options = self._held.plan(stage.graph, sources, self._options, targets)
        if has_bound(stage):  # the bound says little about the iterations
            return _PlannedStage(stage, StepPlan(planned, options), sources)
        statement, seconds = stage.graph.statement(stage.line), planned.prediction.seconds
        require_iterations_in_time(statement, stage.line, iteration_count(stage), seconds, options)
        return _PlannedStage(stage, StepPlan(planned, options, iteration_count(stage)), sources)

    def _source(self, name: str) -> Source:
        """The source of a value, or of an input of the program as loops read it."""
        storage = self._held.storages.get(name) or self._copies.get(name)
        return self.sources[name] if storage is None else storage.read

    # -- running

    def _run(
        self,
        number: int,
        sinks: Mapping[str, Sink],
        stop: threading.Event | None,
        shown: StageProgress,
        loops: list[WhileReport],
    ) -> Iterator[tuple[_PlannedStage, list[_CountedReport]]]:
        """Run a stage with its replay, the stage before it, if it has one; yields the reports of each.

        Appends the number of iterations of a ``while`` to ``loops``.
        """
        planned_stage = self._stages[number]
        iterations = planned_stage.stage.iterations
        if iterations is None:
            yield planned_stage, [self._run_statements(number, sinks, stop, shown)]
        elif not iterations.replays:
            before = self._stages[number - 1] if number else planned_stage
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
                    _release_unless_both_fit(before.plan, planned_stage.plan)
                    reports += self._run_loop(number, segment[::-1], stop, shown, [])
                    _release_unless_both_fit(planned_stage.plan, before.plan)
                yield before, again
            else:
                reports = self._run_loop(number, values, stop, shown, loops)
            yield planned_stage, reports

    def _run_statements(
        self, number: int, sinks: Mapping[str, Sink], stop: threading.Event | None, shown: StageProgress
    ) -> _CountedReport:
        """Run a stage that is not a loop."""
        planned_stage, held = self._stages[number], self._held.storages
        plan, graph = planned_stage.plan, planned_stage.plan.planned.graph
        names = [node.name for node in graph.nodes if isinstance(node, InputNode)]
        sources = {
            name: planned_stage.sources[name] if name in planned_stage.sources else held[name].read for name in names
        }
        written = {name: sinks[name] if name in sinks else held[name].read for name, _ in graph.outputs}
        only = plan.run(sources, written, None, None if plan.runs_inline else stop)
        shown.ended(number)
        return only.report(), 1

    def _fill(self, initial: Mapping[str, str | ValueSlice], values: range) -> None:
        """Copy the initial contents of values for the first of these iterations."""
        held = self._held.storages
        for name, source in initial.items():
            if isinstance(source, str):
                held[name].fill(self._source(source))
            elif values:
                sliced = held[source.value]
                held[name].fill(slice_source(sliced.read, index_of(source, sliced.shape, values[0])))

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
        planned_stage, held = self._stages[number], self._held.storages
        iterations = planned_stage.stage.iterations
        assert iterations is not None
        used = {n.name for n in planned_stage.stage.graph.nodes if isinstance(n, InputNode)}
        used |= {source for source in iterations.initial.values() if isinstance(source, str)}
        used |= {read.value for read in iterations.reads.values()}
        for name in sorted(used & self._copies.keys() - self._filled):
            self._copies[name].fill(self.sources[name])
            self._filled.add(name)
        sliced = {read.value: self._source(read.value) for read in iterations.reads.values()}
        loop = LoopRun(iterations, planned_stage.plan, planned_stage.sources, sliced, held)
        n_run = n_reported = 0
        reports = list[_CountedReport]()
        for value, run in loop.run(values, stop):
            n_run += 1
            shown.ended(number, value)
            if not loop.continues:
                reports.append((run.report(), n_run - n_reported))
            elif run.has_events and n_reported < MAX_EVENT_REPORTS:
                n_reported += 1
                reports.append((run.report(), 1))
        if iterations.condition is not None:
            self._counts[iterations.condition] = n_run
            shown.skipped(number, len(values) - n_run)
            reached, line = n_run == len(values) and loop.holds(), planned_stage.stage.line
            loops.append(WhileReport(line, planned_stage.stage.graph.statement(line), n_run, len(values), reached))
        return reports


def _release_unless_both_fit(plan: StepPlan, other: StepPlan) -> None:
    """Free the arena of a plan unless it and that of another plan fit the budget together."""
    if plan.kept_nbytes + other.kept_nbytes > other.planned.memgraph.capacity:
        plan.release()


def _values_nbytes(staged: StagedProgram) -> int:
    return sum(math.prod(value.shape) * value.dtype.itemsize for value in staged.values)


def _nbytes(source: Source) -> int:
    return math.prod(source.shape) * source.dtype.itemsize
