"""Plans the stages of a program, or uses the plans of an earlier call with inputs of the same shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from einturnip.api.held_values import HeldPlace, HeldValues
from einturnip.api.inline_iterations import index_of
from einturnip.api.inputs import close_all
from einturnip.api.jobs import Missing, tiers
from einturnip.api.stage_progress import has_bound, heading, iteration_count
from einturnip.api.step_plan import StepPlan
from einturnip.compiler import Options
from einturnip.core.errors import CapacityError
from einturnip.core.process_resources import reserved
from einturnip.eingraph.build.stage_types import Stage, StagedProgram
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.planner.feasible import require_iterations_in_time
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.host.driver_choice import arena_nbytes
from einturnip.runtime.scheduler.report import Prediction, joined_prediction
from einturnip.storage.arrays import ArraySource, array_source
from einturnip.storage.outputs.state_storage import StateStorage
from einturnip.storage.slice import SliceSource, slice_source
from einturnip.storage.types import Array, Source
from einturnip.tuning.memory import KEPT_STAGES_NBYTES


@dataclass(frozen=True, slots=True)
class StagePlans:
    """The plan of each stage, and where the values that stages hand on are kept.

    ``copied``: inputs in files that loops read in each iteration, of which a run makes copies in memory.
    """

    staged: StagedProgram
    planned: tuple[tuple[PlannedProgram, Options], ...]
    places: tuple[HeldPlace, ...]
    copied: tuple[str, ...]

    def within(self, options: Options) -> StagePlans:
        """Return the plans for a process that uses more memory or less by now, of which they may take as much."""
        planned = tuple(
            (
                replace(plan, budget=replace(plan.budget, memory=options.memory)),
                replace(old, memory=options.memory, base_nbytes=options.base_nbytes),
            )
            for plan, old in self.planned
        )
        return replace(self, planned=planned)


@dataclass(frozen=True)
class PlannedStage:
    """A stage, its plan, and its inputs that are the same in every iteration."""

    stage: Stage
    plan: StepPlan
    sources: Mapping[str, Source]


class PlannedStages:
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
        plans: StagePlans | None = None,
    ) -> None:
        """Plan every stage. ``missing``: returns the source of an input without data.

        ``plans``: those of an earlier job for inputs of the same shapes, which this one uses.

        Raises:
            CapacityError: a stage does not fit.
        """
        self.targets, self.sources = targets, dict(sources)
        self._held = HeldValues(options.spill, lazy=True)
        if plans is not None:
            staged = plans.staged
        elif staged.in_segments is not None and _values_nbytes(staged) > self._held.available_nbytes(options):
            staged = staged.in_segments()
        self._staged, self._options = staged, options
        self._stages: list[PlannedStage] = []
        self.sources |= {node.name: missing(node) for node in staged.inputs if node.name not in self.sources}
        self._copies: dict[str, StateStorage] = {}  # copies in memory of inputs that every iteration reads
        try:
            if plans is None:
                self._plan_anew()
            else:
                self._plan_as(plans)
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
        return [(placed.stage, placed.plan) for placed in self._stages]

    def plans_for_reuse(self) -> StagePlans:
        """The plans, for jobs with other inputs of the same shapes."""
        planned = tuple((placed.plan.planned, placed.plan.options) for placed in self._stages)
        return StagePlans(self._staged, planned, self._held.places, tuple(self._copies))

    def begin_call(
        self,
        sources: Mapping[str, Source],
        missing: Missing,
        targets: Mapping[str, str | Array | None],
        plans: StagePlans,
    ) -> None:
        """Serve another call after ``rest``.

        ``sources``: inputs of the same shapes and layouts. ``plans``: the same plans, perhaps within another memory.
        """
        self.targets, self.sources = targets, dict(sources)
        self.sources |= {node.name: missing(node) for node in self._staged.inputs if node.name not in sources}
        self._options = plans.planned[-1][1]
        for placed, (planned, options) in zip(self._stages, plans.planned, strict=True):
            placed.plan.begin_call(planned, options)
        self._stages = [replace(placed, sources=self._sources_of(placed.stage)) for placed in self._stages]

    def rest(self) -> bool:
        """Close the sources, but keep values and prepared runs for another call if they are small.

        Returns whether they are; otherwise closes the job.
        """
        is_small = self._in_memory() and self._held.nbytes() + self._held_nbytes() <= KEPT_STAGES_NBYTES
        if not is_small or not any(placed.plan.held_nbytes for placed in self._stages):
            self.close()
            return False
        close_all(self.sources.values())
        self._stages, self.sources = [replace(placed, sources={}) for placed in self._stages], {}
        return True

    def _in_memory(self) -> bool:
        """True if no value and no copy of an input is in a file."""
        return not self._copies and all(place.in_memory and place.second is not False for place in self._held.places)

    def _held_nbytes(self) -> int:
        return sum(placed.plan.held_nbytes for placed in self._stages)

    def release_after(self, plan: StepPlan) -> None:
        """Free what a plan keeps for its next run, unless it is so small that every stage fits with it."""
        held = self._held_nbytes()
        spare = min(p.plan.planned.budget.arena - arena_nbytes(p.plan.planned.memgraph) for p in self._stages)
        if not plan.runs_inline or held > min(KEPT_STAGES_NBYTES, spare):
            plan.release()

    def read_from(self, sources: Mapping[str, Source]) -> None:
        """Let the next run read other inputs, of the same shapes and layouts; the job does not close them."""
        self.sources = dict(sources)
        self._stages = [replace(placed, sources=self._sources_of(placed.stage)) for placed in self._stages]

    def close(self) -> None:
        """Close the sources and free the values; idempotent.

        A result refers to the plans, and keeps no value by that.
        """
        close_all(self.sources.values())
        for placed in self._stages:
            placed.plan.release()
        self._stages = [replace(placed, sources={}) for placed in self._stages]
        self.sources = {}
        self._drop_copies()
        self._held.close()

    # -- planning

    def _plan_anew(self) -> None:
        """Find places for the values, and plan every stage."""
        staged = self._staged
        replaced = {name for stage in staged.stages if stage.iterations for name in stage.iterations.states}
        values = [(value.name, value.shape, value.dtype) for value in staged.values]
        for _ in self._held.allocate(values, self._options, replaced):
            pass
        self._copy_inputs()
        try:
            self._plan_all()
        except CapacityError:
            if not self._copies:
                raise
            self._drop_copies()
            self._plan_all()

    def _plan_as(self, plans: StagePlans) -> None:
        """Use the plans and places of another job."""
        self._held.place(plans.places)
        for name in plans.copied:
            self._copy_in_memory(name)
        for stage, (planned, options) in zip(plans.staged.stages, plans.planned, strict=True):
            self._stages.append(self._place(stage, planned, options, self._sources_of(stage)))

    def _copy_inputs(self) -> None:
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
            self._copy_in_memory(name)

    def _copy_in_memory(self, name: str) -> None:
        source = self.sources[name]
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

    def _plan(self, stage: Stage) -> PlannedStage:
        iterations, sources = stage.iterations, self._sources_of(stage)
        is_last = stage is self._staged.stages[-1]
        kept = tiers(self.targets) if is_last else {}
        if iterations is not None:
            kept = {name: name for name in iterations.writes}
        with reserved(sum(storage.nbytes for storage in self._copies.values())):
            expected = replace(self._options, runs=_expected_runs(stage))
            planned, options = self._held.plan(stage.graph, sources, expected, kept)
        if not has_bound(stage):  # the bound says little about the iterations
            statement, seconds = stage.graph.statement(stage.line), planned.prediction.seconds
            require_iterations_in_time(statement, stage.line, iteration_count(stage), seconds, options)
        return self._place(stage, planned, options, sources)

    def _place(
        self, stage: Stage, planned: PlannedProgram, options: Options, sources: Mapping[str, Source]
    ) -> PlannedStage:
        return PlannedStage(stage, StepPlan(planned, options, options.runs, _constant_inputs(stage)), sources)

    def _sources_of(self, stage: Stage) -> dict[str, Source]:
        """The inputs of a stage that are the same in every iteration, and the first slices of the others."""
        iterations, sources = stage.iterations, dict(self.sources)
        if iterations is None:
            return sources
        sources |= {name: storage.read for name, storage in self._copies.items()}
        if iterations.variable is not None:
            counter = np.array(iterations.values[0], np.int64)
            sources[iterations.variable] = array_source(counter, iterations.variable)
        for name, read in iterations.reads.items():
            base = self._source(read.value)
            at = index_of(read, base.shape, next(iter(iterations.values), 0))
            sources[name] = slice_source(base, at) if isinstance(base, ArraySource) else SliceSource(base, at)
        return sources

    def _source(self, name: str) -> Source:
        """A value, or an input of the program as loops read it."""
        storage = self._held.storages.get(name) or self._copies.get(name)
        return self.sources[name] if storage is None else storage.read


def _expected_runs(stage: Stage) -> int:
    return 1 if has_bound(stage) else iteration_count(stage)


def _constant_inputs(stage: Stage) -> set[str]:
    """The inputs of a loop's body that are the same in each iteration."""
    iterations = stage.iterations
    if iterations is None:
        return set()
    names = {node.name for node in stage.graph.nodes if isinstance(node, InputNode)}
    written = {name for name, _ in stage.graph.outputs} | {part.value for part in iterations.writes.values()}
    written |= {part.value for part in iterations.saved.values()}
    return names - {*iterations.reads, *iterations.states, iterations.variable} - written


def _values_nbytes(staged: StagedProgram) -> int:
    return sum(math.prod(value.shape) * value.dtype.itemsize for value in staged.values)


def _nbytes(source: Source) -> int:
    return math.prod(source.shape) * source.dtype.itemsize
