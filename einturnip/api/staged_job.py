"""Jobs of programs with long loops: a plan for each stage, that of a body for all iterations."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.api.held_values import HeldValues
from einturnip.api.inputs import close_all
from einturnip.api.jobs import Missing, open_sinks_of, tiers
from einturnip.api.loop_run import LoopRun, index_of
from einturnip.api.step_plan import StepPlan
from einturnip.compiler import Options
from einturnip.core.errors import CapacityError
from einturnip.core.resident import reserved
from einturnip.eingraph.build.stages import Stage, StagedProgram
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

PROGRESS_SECONDS = 0.1
"""[seconds] Between two reports of the iterations that are done."""
MAX_EVENT_REPORTS = 3
"""Iterations of a loop that are searched for the element that became nan or infinite."""


@dataclass(frozen=True)
class _Placed:
    """A stage, its plan, and its inputs that are the same in every iteration."""

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
        self._staged, self._options = staged, options
        self._placed: list[_Placed] = []
        for stage in staged.stages:
            for node in stage.graph.nodes:
                if isinstance(node, InputNode) and "#" not in node.name and node.name not in self.sources:
                    self.sources[node.name] = missing(node)
        self._held = HeldValues(options.spill, lazy=True)
        self._kept: dict[str, StateStorage] = {}  # copies in memory of inputs that every iteration reads
        self._filled = set[str]()  # those that this run has read
        self._last: list[tuple[_Placed, RunReport, int]] = []  # of the stages that ran last, with their runs
        try:
            replaced = {name for stage in staged.stages if stage.iterations for name in stage.iterations.states}
            values = [(value.name, value.shape, value.dtype) for value in staged.values]
            for _ in self._held.allocate(values, options, replaced):
                pass
            self._keep_inputs()
            try:
                self._plan_all()
            except CapacityError:
                if not self._kept:
                    raise
                self._drop_kept()
                self._plan_all()
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> str:
        """The device that runs the plans, in words."""
        return self._placed[0].plan.planned.device.description

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
        return joined_prediction([(p.plan.planned.prediction, _count(p.stage)) for p in self._placed])

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
        return [(placed.stage, placed.plan) for placed in self._placed]

    def close(self) -> None:
        """Close the sources and free the values; idempotent.

        A result refers to the plans, and keeps no value by that.
        """
        close_all(self.sources.values())
        for placed in self._placed:
            placed.plan.release()
        self._placed = [replace(placed, sources={}) for placed in self._placed]
        self.sources = {}
        self._drop_kept()
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
        shown = _Shown(progress, self._placed)
        self._last, self._filled = [], set()
        try:
            for number, placed in enumerate(self._placed):
                is_last = number == len(self._placed) - 1
                reports = list(self._run(number, sinks if is_last else {}, stop, shown, loops))
                if reports:
                    self._last.append((placed, reports[-1][0], sum(times for _, times in reports)))
                runs += reports
                placed.plan.release()
        except BaseException:
            for sink in sinks.values():
                sink.abort()
            raise
        return replace(joined_report(runs, time.perf_counter() - began), loops=tuple(loops)), sinks

    def analysis(self, report: RunReport) -> Analysis:
        """Compare the last run, whose report this is, with its plans; an iteration stands for all of its loop."""
        from einturnip.report.analyze import analyse, joined

        return joined([(analyse(placed.plan.planned, last), n) for placed, last, n in self._last], report)

    # -- planning

    def _keep_inputs(self) -> None:
        """Allocate copies of files that loops read in each iteration, the smallest first, while there is room."""
        stages = [stage for stage in self._staged.stages if stage.iterations is not None]
        names = {n.name for stage in stages for n in stage.graph.nodes if isinstance(n, InputNode)}
        names |= {part.value for stage in stages if stage.iterations for part in stage.iterations.reads.values()}
        files = {name: s for name, s in self.sources.items() if name in names and not isinstance(s, ArraySource)}
        available = self._held.available_nbytes(self._options) - self._held.nbytes()
        for name, source in sorted(files.items(), key=lambda item: _nbytes(item[1])):
            available -= _nbytes(source)
            if available < 0:
                break
            self._kept[name] = StateStorage(name, source.shape, source.dtype, True, None, lazy=True)

    def _drop_kept(self) -> None:
        for storage in self._kept.values():
            storage.close()
        self._kept = {}

    def _plan_all(self) -> None:
        """Plan the stages; a refusal names the minimum of the largest."""
        changes = -1
        while changes != self._held.changes:
            changes, self._placed, refused = self._held.changes, [], list[CapacityError]()
            for stage in self._staged.stages:
                try:
                    self._placed.append(self._plan(stage))
                except CapacityError as error:
                    refused.append(error)
            if refused:
                raise max(refused, key=lambda error: error.needed)

    def _plan(self, stage: Stage) -> _Placed:
        iterations = stage.iterations
        sources = dict(self.sources)
        if iterations is not None:
            sources |= {name: storage.read for name, storage in self._kept.items()}
        if iterations is not None:
            if iterations.variable is not None:
                counter = np.array(iterations.values[0], np.int64)
                sources[iterations.variable] = array_source(counter, iterations.variable)
            for name, read in iterations.reads.items():
                base = self._source(read.value)
                at = index_of(read, base.shape, iterations.values[0])
                sources[name] = slice_source(base, at) if isinstance(base, ArraySource) else SliceSource(base, at)
        is_last = stage is self._staged.stages[-1]
        kept = tiers(self.targets) if is_last else {}
        if iterations is not None:
            kept = {name: name for name in iterations.writes}
        with reserved(sum(storage.nbytes for storage in self._kept.values())):
            planned, options = self._held.plan(stage.graph, sources, self._options, kept)
        if is_while(stage):  # the bound says little about the iterations
            return _Placed(stage, StepPlan(planned, options), sources)
        statement, seconds = stage.graph.statement(stage.line), planned.prediction.seconds
        require_iterations_in_time(statement, stage.line, _count(stage), seconds, options)
        return _Placed(stage, StepPlan(planned, options, _count(stage)), sources)

    def _source(self, name: str) -> Source:
        """A value, or an input of the program as loops read it."""
        storage = self._held.storages.get(name) or self._kept.get(name)
        return self.sources[name] if storage is None else storage.read

    # -- running

    def _run(
        self,
        number: int,
        sinks: Mapping[str, Sink],
        stop: threading.Event | None,
        shown: _Shown,
        loops: list[WhileReport],
    ) -> Iterator[tuple[RunReport, int]]:
        """Run a stage; yields reports, each with the number of runs that it stands for.

        Adds the end of a ``while`` to ``loops``.
        """
        placed = self._placed[number]
        plan, iterations = placed.plan, placed.stage.iterations
        held = self._held.storages
        if iterations is None:
            graph = plan.planned.graph
            names = [node.name for node in graph.nodes if isinstance(node, InputNode)]
            sources = {name: placed.sources[name] if name in placed.sources else held[name].read for name in names}
            written = {name: sinks[name] if name in sinks else held[name].read for name, _ in graph.outputs}
            only = plan.run(sources, written, None, None if plan.runs_inline else stop)
            shown.ended(number)
            yield only.report(), 1
            return
        used = {n.name for n in placed.stage.graph.nodes if isinstance(n, InputNode)} | {*iterations.initial.values()}
        used |= {part.value for part in iterations.reads.values()}
        for name in sorted(used & self._kept.keys() - self._filled):
            self._kept[name].fill(self.sources[name])
            self._filled.add(name)
        for name, source in iterations.initial.items():
            held[name].fill(self._source(source))
        bases = {part.value: self._source(part.value) for part in iterations.reads.values()}
        loop = LoopRun(iterations, plan, placed.sources, bases, held)
        n_run = n_reported = 0
        for value, run in loop.run(stop):
            n_run += 1
            shown.ended(number, value)
            if not loop.goes_on:
                yield run.report(), n_run - n_reported
            elif run.has_events and n_reported < MAX_EVENT_REPORTS:
                n_reported += 1
                yield run.report(), 1
        if is_while(placed.stage):
            bound, line = len(iterations.values), placed.stage.line
            shown.skipped(number, bound - n_run)
            reached = n_run == bound and loop.holds()
            loops.append(WhileReport(line, placed.stage.graph.statement(line), n_run, bound, reached))


def heading(stage: Stage) -> str:
    """A stage in words."""
    if stage.iterations is None:
        return f"from line {stage.line} on"
    at_most = "at most " if is_while(stage) else ""
    return f"the loop on line {stage.line}: one of {at_most}{len(stage.iterations.values):,} iterations"


def is_while(stage: Stage) -> bool:
    """True if a stage is the body of a ``while``."""
    return stage.iterations is not None and stage.iterations.condition is not None


class _Shown:
    """Reports how much of all stages is done."""

    def __init__(self, progress: Callable[[Progress], None] | None, placed: Sequence[_Placed]) -> None:
        self._progress, self._began = progress, time.monotonic()
        self._stages = [p.stage for p in placed]
        self._due = self._began + PROGRESS_SECONDS
        self._work = [_work(p.plan) for p in placed]
        counts = [_count(p.stage) for p in placed]
        self._total = [sum(n * work[k] for n, work in zip(counts, self._work, strict=True)) for k in range(3)]
        self._done = [0, 0, 0]

    def ended(self, number: int, value: int | None = None) -> None:
        """Note that the plan of a stage has run once; of a loop, for a value of its variable."""
        if self._progress is None:
            return
        for k, amount in enumerate(self._work[number]):
            self._done[k] += amount
        now = time.monotonic()
        if now >= self._due or self._done[0] == self._total[0]:
            self._due = now + PROGRESS_SECONDS
            statement = "" if value is None else _iteration(self._stages[number], value)
            (ops, flops, nbytes), (all_ops, all_flops, all_nbytes) = self._done, self._total
            self._progress(Progress(ops, all_ops, flops, all_flops, nbytes, all_nbytes, now - self._began, statement))

    def skipped(self, number: int, runs: int) -> None:
        """Note that the plan of a stage will run that many times less than its bound."""
        for k, amount in enumerate(self._work[number]):
            self._total[k] -= runs * amount


def _iteration(stage: Stage, value: int) -> str:
    """An iteration in words, by the value of the loop's variable."""
    if is_while(stage):
        return f"iteration {value + 1:,} of at most {_count(stage):,} of line {stage.line}"
    return f"iteration {value} of line {stage.line}"


def _nbytes(source: Source) -> int:
    return math.prod(source.shape) * source.dtype.itemsize


def _work(plan: StepPlan) -> tuple[int, int, int]:
    """Ops, operations and bytes of one run."""
    planned = plan.planned
    return len(planned.memgraph), int(planned.prediction.flops), sum(planned.memgraph.nbytes_by_link().values())


def _count(stage: Stage) -> int:
    """How many times the plan of a stage runs, or the bound of a ``while``."""
    return 1 if stage.iterations is None else len(stage.iterations.values)
