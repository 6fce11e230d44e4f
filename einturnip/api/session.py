"""Sessions: a program run step by step, with its states kept in place between the steps."""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.api import checkpoints, plan_cache
from einturnip.api.active_runs import run_in_progress, undisturbed
from einturnip.api.cluster_steps import ClusterSteps
from einturnip.api.held_values import HeldValues
from einturnip.api.inputs import check_names, close_all, open_some
from einturnip.api.jobs import Missing, complete, needs_data, results_nbytes
from einturnip.api.results import Result
from einturnip.api.run_program import analysis
from einturnip.api.session_states import initial_state, with_state_outputs
from einturnip.api.session_step import plan_stages, step_sinks
from einturnip.api.staged_job import StagedJob
from einturnip.api.step_plan import StepPlan
from einturnip.api.use_lock import UseLock
from einturnip.compiler import Options, bind, bind_stages, reading_within
from einturnip.core.errors import BindError, RunError
from einturnip.core.process_resources import callers_nbytes
from einturnip.eingraph.build.stage_types import StagedProgram
from einturnip.eingraph.types import InputNode, Node
from einturnip.lang.program import InputDef, TypedProgram
from einturnip.report.progress import showing
from einturnip.runtime.scheduler.report import Progress
from einturnip.storage.types import Array, Source, whole

if TYPE_CHECKING:
    from einturnip.cluster.transport import Cluster


class Session:
    """A program run step by step. Made by ``Program.session``; close it, or use it in a ``with``.

    ``steps`` counts the completed steps. Threads may share a session: their calls run one after another.
    """

    def __init__(
        self,
        program: TypedProgram,
        folder: Path,
        dims: Mapping[str, int],
        options: Options,
        inputs: Mapping[str, Any],
        missing: Missing = needs_data,
        allowed: int | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """``allowed``: bytes that may be added to the process, unless ``options.memory`` is given.

        ``cluster``: its workers run the steps and keep the states, each within ``options.memory``.
        """
        self._program = with_state_outputs(program, program.updates)
        self._dims, self._options, self._allowed = dict(dims), options, allowed
        self._placeholder = initial_state(program, missing)
        self._folder = folder
        self._held = HeldValues(options.spill)
        self._on_workers: ClusterSteps | None = None
        if cluster is not None:
            self._on_workers = ClusterSteps(cluster, self._program, self._dims, options, self._placeholder)
        self._begun = False  # the states are allocated by the first step
        self._given_sources = self._opened(inputs, program.inputs)
        self._plans: OrderedDict[Hashable, StepPlan | StagedJob] = OrderedDict()
        self._active_plans: list[StepPlan] = []
        self._incomplete_step: str | None = None
        self._damaged: list[Path] = []  # checkpoints that were skipped
        self._closed = False
        self._lock = UseLock("session")
        self.steps = 0

    def step(
        self,
        *,
        progress: Callable[[Progress], None] | bool | None = None,
        stop: threading.Event | None = None,
        data: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Result:
        """Run one step: compute the outputs from the states, then change the states.

        Inputs given here apply to this step only; the others are those of the session. An output that is a state is not
        copied: see ``state``. ``progress``: as of a call of the program.

        Raises:
            BindError: inputs and program disagree. CapacityError: it does not fit. RunError: the step failed, or a
            callback of a step called it.
        """
        given = {**inputs, **(data or {})}
        for name in given:
            if name in {state.name for state in self._program.states}:
                raise BindError(f"'{name}' is a state: give it to the session, or set it by set_state('{name}', ...)")

        # The run begins before the lock is taken: a thread that waits for all runs is never waited for by one of them.
        def step() -> Result:
            with run_in_progress(), self._lock.exclusive, showing(progress) as show:
                self._check()
                step_sources = self._opened(given, ())
                try:
                    return self._step({**self._given_sources, **step_sources}, show, stop)
                finally:
                    close_all(step_sources.values())

        return step() if self._allowed is None else undisturbed(step)

    def state(self, name: str) -> Array:
        """A copy of a state; during a step, as it is after the step."""
        with self._lock.exclusive:
            self._require_open()
            source = self._source(name)
            out = np.empty(source.shape, source.dtype.numpy)
            source.read(whole(source.shape), out)
            return out

    def set_state(self, name: str, value: Any) -> None:
        """Set a state to ``value`` (an array, a number or a file) for the next step."""
        with self._lock.exclusive:
            self._check()
            self._set_state(name, value)

    def _set_state(self, name: str, value: Any) -> None:
        check_names("state", [name], (state.name for state in self._program.states))
        tensor = [state for state in self._program.states if state.name == name]
        source = self._opened({name: value}, tensor)[name]
        states = self._states()
        if name not in states:
            self._given_sources[name] = source
        elif source.shape != states[name].shape:
            given, expected = list(source.shape), list(states[name].shape)
            raise BindError(f"state {name} has the shape {expected}, and {given} is given")
        elif self._on_workers is not None:
            self._on_workers.set(name, source)
        else:
            self._held.storages[name].fill(source)
            source.close()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a checkpoint into ``folder`` atomically: every state and the number of steps."""
        with self._lock.exclusive:
            self._check()
            states = {state.name: self._source(state.name) for state in self._program.states}
            path = checkpoints.save(Path(folder), self.steps, states, self._damaged)
            self._damaged = []
            return path

    def load(self, folder: str | os.PathLike[str]) -> bool:
        """Resume from the latest intact checkpoint in ``folder``; False if there is none.

        Warns of damaged ones that it skips; the next ``save`` to the folder removes them.

        Raises:
            BindError: it is of a program with other states. StoreError: every checkpoint is damaged.
        """
        with self._lock.exclusive:
            self._require_open()
            checkpoint, damaged = checkpoints.newest_intact(Path(folder))
            if checkpoint is None:
                return False
            checkpoints.check(checkpoint, self._program.states)
            for damage in damaged:
                warnings.warn(f"{damage}; resuming from {checkpoint.path.name}", RuntimeWarning, stacklevel=2)
            for state in self._program.states:
                self._set_state(state.name, checkpoint.location(state.name))
            self._damaged = [damage.path for damage in damaged]
            self.steps, self._incomplete_step = checkpoint.steps, None
            return True

    def close(self) -> None:
        """Free states and files after the step in progress; idempotent."""
        with self._lock.exclusive:
            if self._closed:
                return
            self._closed = True
            close_all(self._given_sources.values())
            self._held.close()
            if self._on_workers is not None:
                self._on_workers.close()
            self._activate(None)
            self._forget_plans()

    def __enter__(self) -> Session:
        """Return the session itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the session."""
        self.close()

    def __repr__(self) -> str:
        """Return the program and the number of steps so far."""
        return f"Session({self._program.file}, {self.steps} steps)"

    @property
    def on_cluster(self) -> bool:
        """Whether the workers of a cluster run the steps."""
        return self._on_workers is not None

    def _step(
        self, sources: Mapping[str, Source], progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> Result:
        if self._on_workers is not None:
            result = self._on_workers.run(sources, progress, stop)
            self._close_initial(self._on_workers.states)
            self.steps += 1
            return result
        sources = {**sources, **self._states()}
        key = plan_cache.shapes_key({n: s for n, s in sources.items() if n not in self._held.storages})
        plan = self._plans.get(key)
        if plan is None:
            self._activate(None)
            plan, sources = self._plan_for(sources)
            self._plans[self._key(sources)] = plan
            if len(self._plans) > plan_cache.MAX_SESSION_PLANS:
                _, oldest = self._plans.popitem(last=False)
                _release(oldest)
                self._active_plans = [p for p in self._active_plans if p is not oldest]
        else:
            self._plans.move_to_end(key)
            if isinstance(plan, StepPlan):
                sources = complete(plan.planned.graph, sources, self._placeholder)
        self._activate(plan if isinstance(plan, StepPlan) else None)
        if isinstance(plan, StepPlan):
            result = self._run(plan, sources, progress, stop)
        else:
            result = self._run_stages(plan, sources, progress, stop)
        for storage in self._held.storages.values():
            storage.swap()
        self.steps += 1
        return result

    def _activate(self, plan: StepPlan | None) -> None:
        """Let this plan keep an arena and threads, and others theirs while the common budget allows it."""
        active = [p for p in self._active_plans if p is not plan]
        nbytes = sum(p.kept_nbytes for p in active) + (plan.kept_nbytes if plan is not None else 0)
        while active and (plan is None or nbytes > plan.planned.memgraph.capacity):
            nbytes -= active[0].kept_nbytes
            active.pop(0).release()
        self._active_plans = [*active, plan] if plan is not None else []

    def _key(self, sources: Mapping[str, Source]) -> Hashable:
        storages = self._held.storages
        given = {t.name for t in self._program.inputs if t.name in sources and t.name not in storages}
        return plan_cache.shapes_key({n: s for n, s in sources.items() if n in given})

    def _run(
        self,
        plan: StepPlan,
        sources: Mapping[str, Source],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Result:
        values, sinks = step_sinks(plan.planned.graph, self._held.storages)
        try:
            report = plan.run(sources, sinks, progress, stop).report
        except BaseException as error:
            if not all(storage.is_double for storage in self._held.storages.values()):
                reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{error}"
                self._incomplete_step = f"step {self.steps} ended half done: {reason}"
            raise
        return Result(values, report, analysis(plan.planned, report))

    def _run_stages(
        self,
        job: StagedJob,
        sources: Mapping[str, Source],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Result:
        """Run a step in stages. It reads the first copy of each state and writes the second one."""
        values, sinks = step_sinks(job.outputs, self._held.storages)
        job.read_from({**job.sources, **sources})
        report = job.run_into(sinks, progress, stop)
        return Result(values, lambda: report, job.last_analysis(report))

    # -- planning

    def _limited_options(self) -> Options:
        """The options with the present limit of the process."""
        if self._allowed is None:
            return self._options
        before = callers_nbytes() - self._held.nbytes()
        return replace(self._options, memory=before + self._allowed, base_nbytes=-before)

    def _opened(self, given: Mapping[str, Any], defaults: Iterable[InputDef]) -> dict[str, Source]:
        return open_some(self._program, given, self._folder, defaults, self._reading)

    def _reading(self) -> AbstractContextManager[None]:
        """Context for files, within the limit of this process, if it has one."""
        return nullcontext() if self._on_workers is not None else reading_within(self._limited_options())

    def _plan_for(self, sources: Mapping[str, Source]) -> tuple[StepPlan | StagedJob, dict[str, Source]]:
        """The plan for these inputs; the first one also allocates the states."""
        self._options = self._limited_options()
        staged = bind_stages(self._program, sources, self._dims, self._options)
        if staged is not None:
            return self._plan_stages(staged, sources)
        graph = bind(self._program, sources, self._dims)
        all_sources = complete(graph, sources, self._placeholder)
        if not self._begun:
            self._allocate_states(graph.nodes, all_sources)
        changes = self._held.changes
        results = results_nbytes(graph, (name for name, _ in graph.outputs if name not in self._held.storages))
        planned, options = self._held.plan(graph, all_sources, self._options, results=sum(results.values()))
        if self._held.changes > changes:
            self._forget_plans()  # they may have assumed two copies
        return StepPlan(planned, options), {**all_sources, **self._states()}

    def _plan_stages(self, staged: StagedProgram, sources: Mapping[str, Source]) -> tuple[StagedJob, dict[str, Source]]:
        """The plans of a step in stages."""
        if not self._begun:
            given = {
                n.name: sources.get(n.name) or self._placeholder(n)
                for n in staged.inputs
                if n.name in self._program.updates
            }
            self._allocate_states(staged.inputs, given)
        changes = self._held.changes
        job = plan_stages(staged, {**sources, **self._states()}, self._placeholder, self._held, self._options)
        if self._held.changes > changes:
            self._forget_plans()
        return job, {**sources, **job.sources}

    def _forget_plans(self) -> None:
        while self._plans:
            _release(self._plans.popitem()[1])

    def _states(self) -> dict[str, Source]:
        if self._on_workers is not None:
            return self._on_workers.states
        return {name: storage.read for name, storage in self._held.storages.items()}

    def _allocate_states(self, nodes: Iterable[Node], sources: Mapping[str, Source]) -> None:
        """Allocate each changing state, and initialize it."""
        inputs, updates = [n for n in nodes if isinstance(n, InputNode)], self._program.updates
        states = [(n.name, n.shape, n.dtype) for n in inputs if n.name in updates]
        self._begun = True
        for storage in self._held.allocate(states, self._options, updates):
            storage.fill(sources[storage.name])
        self._close_initial(self._held.storages)

    def _close_initial(self, states: Iterable[str]) -> None:
        """Close the sources from which states have begun."""
        for name in states:
            if name in self._given_sources:
                self._given_sources.pop(name).close()

    def source(self, name: str) -> Source:
        """The storage of a state. The next step may overwrite it."""
        with self._lock.exclusive:
            self._require_open()
            return self._source(name)

    def _source(self, name: str) -> Source:
        states = self._states()
        if name in states:
            return states[name]
        check_names("state", [name], [state.name for state in self._program.states])
        if name in self._given_sources:
            return self._given_sources[name]
        state = next(state for state in self._program.states if state.name == name)
        given = self._program, self._given_sources, self._dims
        staged = bind_stages(*given, self._options)
        nodes: Iterable[Node] = bind(*given).nodes if staged is None else staged.inputs
        node = next((n for n in nodes if isinstance(n, InputNode) and n.name == state.name), None)
        assert node is not None
        return self._placeholder(node)

    def _require_open(self) -> None:
        if self._closed:
            raise RunError("the session is closed")

    def _check(self) -> None:
        self._require_open()
        if self._incomplete_step is not None:
            raise RunError(
                f"the session's states are not those of any step: {self._incomplete_step}. help: load a checkpoint"
            )


def _release(plan: StepPlan | StagedJob) -> None:
    """Free what a plan keeps between steps; the session closes the inputs."""
    if isinstance(plan, StagedJob):
        plan.sources = {}
        plan.close()
    else:
        plan.release()
