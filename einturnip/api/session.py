"""Sessions: a program run step by step, with its states kept in place between the steps."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from einturnip.api import checkpoints, plan_cache
from einturnip.api.active_runs import run_in_progress, undisturbed
from einturnip.api.inputs import check_names, close_all, open_some
from einturnip.api.jobs import Missing, complete, needs_data, results_nbytes
from einturnip.api.results import Result
from einturnip.api.run_program import analysis
from einturnip.api.session_states import initial_state, state_outputs, with_state_outputs
from einturnip.api.step_plan import StepPlan
from einturnip.api.use_lock import UseLock
from einturnip.compiler import Options, bind, make_plan, reading_within
from einturnip.core.errors import BindError, CapacityError, RunError
from einturnip.core.process_limits import available_memory
from einturnip.core.resident import callers_nbytes, resident_nbytes
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang.program import InputDef, TypedProgram
from einturnip.memgraph.in_place_states import write_in_place
from einturnip.planner.planned_program import PlannedProgram
from einturnip.runtime.scheduler.report import Progress
from einturnip.storage.arrays import ArraySink, array_sink
from einturnip.storage.outputs.state_storage import StateStorage
from einturnip.storage.types import Array, Sink, Source, whole

# Maximum number of plans that a session keeps: one for each of the last shapes of inputs.
MAX_PLANS = 8
# Share of the memory for states; further states are kept in files.
STATES_SHARE = 0.5
# Minimum size of a large state, for which copying takes longer than checking whether it can be used in place.
LARGE_NBYTES = 1 << 18


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
    ) -> None:
        """``allowed``: bytes that may be added to the process, unless ``options.memory`` is given."""
        self._program = with_state_outputs(program, program.updates)
        self._dims, self._options, self._allowed = dict(dims), options, allowed
        self._placeholder = initial_state(program, missing)
        self._folder = folder
        self._storages: dict[str, StateStorage] | None = None
        self._given_sources = self._opened(inputs, program.inputs)
        self._second_copies: list[str] = []  # states with a second copy that no plan needs
        self._plans: OrderedDict[Hashable, StepPlan] = OrderedDict()
        self._active_plans: list[StepPlan] = []
        self._incomplete_step: str | None = None
        self._damaged: list[Path] = []  # checkpoints that were skipped
        self._closed = False
        self._lock = UseLock("session")
        self.steps = 0

    def step(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        data: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Result:
        """Run one step: compute the outputs from the states, then change the states.

        Inputs given here apply to this step only; the others are those of the session. An output that is a state is not
        copied: see ``state``.

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
            with run_in_progress(), self._lock.exclusive:
                self._check()
                step_sources = self._opened(given, ())
                try:
                    return self._step({**self._given_sources, **step_sources}, progress, stop)
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
        if self._storages is None or name not in self._storages:
            self._given_sources[name] = source
        elif source.shape != self._storages[name].shape:
            given, expected = list(source.shape), list(self._storages[name].shape)
            raise BindError(f"state {name} has the shape {expected}, and {given} is given")
        else:
            self._storages[name].fill(source)
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
            for storage in (self._storages or {}).values():
                storage.close()
            self._activate(None)
            self._plans.clear()

    def __enter__(self) -> Session:
        """Return the session itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the session."""
        self.close()

    def __repr__(self) -> str:
        """Return the program and the number of steps so far."""
        return f"Session({self._program.file}, {self.steps} steps)"

    def _step(
        self, sources: Mapping[str, Source], progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> Result:
        if self._storages is not None:
            sources = {**sources, **{name: storage.read for name, storage in self._storages.items()}}
        key = plan_cache.shapes_key({n: s for n, s in sources.items() if n not in (self._storages or {})})
        plan = self._plans.get(key)
        if plan is None:
            self._activate(None)
            plan, sources = self._plan_for(sources)
            self._plans[self._key(sources)] = plan
            if len(self._plans) > MAX_PLANS:
                _, oldest = self._plans.popitem(last=False)
                oldest.release()
                self._active_plans = [p for p in self._active_plans if p is not oldest]
        else:
            self._plans.move_to_end(key)
            sources = complete(plan.planned.graph, sources, self._placeholder)
        self._activate(plan)
        result = self._run(plan, sources, progress, stop)
        for storage in (self._storages or {}).values():
            storage.turn()
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
        storages = self._storages or {}
        given = {t.name for t in self._program.inputs if t.name in sources and t.name not in storages}
        return plan_cache.shapes_key({n: s for n, s in sources.items() if n in given})

    def _run(
        self,
        plan: StepPlan,
        sources: Mapping[str, Source],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Result:
        planned, storages = plan.planned, self._storages or {}
        values: dict[str, Array] = {}
        sinks: dict[str, Sink] = {}
        for name, number in planned.graph.outputs:
            node = planned.graph.nodes[number]
            if name in storages:
                sinks[name] = storages[name].write
            else:
                values[name] = np.empty(node.shape, node.dtype.numpy)
                sinks[name] = array_sink(values[name], name, node.shape, node.dtype)
        try:
            report = plan.run(sources, sinks, progress, stop)
        except BaseException as error:
            if any(storage.write is storage.read for storage in storages.values()):
                self._incomplete_step = f"step {self.steps} ended half done: {error}"
            raise
        return Result(values, report, analysis(planned, report))

    # -- planning

    def _limited_options(self) -> Options:
        """The options with the present limit of the process."""
        if self._allowed is None:
            return self._options
        before = callers_nbytes() - self._states_nbytes()
        return replace(self._options, memory=before + self._allowed, base_nbytes=-before)

    def _opened(self, given: Mapping[str, Any], defaults: Iterable[InputDef]) -> dict[str, Source]:
        return open_some(self._program, given, self._folder, defaults, lambda: reading_within(self._limited_options()))

    def _plan_for(self, sources: Mapping[str, Source]) -> tuple[StepPlan, dict[str, Source]]:
        """The plan for these inputs; the first one also allocates the states."""
        self._options = self._limited_options()
        graph = bind(self._program, sources, self._dims)
        all_sources = complete(graph, sources, self._placeholder)
        if self._storages is None:
            self._allocate_states(graph, all_sources)
        storages = self._storages or {}
        all_sources |= {name: storage.read for name, storage in storages.items()}
        while True:
            try:
                planned, options = self._planned(graph, all_sources)
            except CapacityError as error:
                if not self._second_copies and not self._moved_to_files(error, all_sources):
                    raise
                while self._second_copies:
                    storage = storages[self._second_copies.pop()]
                    storage.write = storage.read
                self._plans.clear()  # they may have assumed two copies
                continue
            memgraph, separate = write_in_place(planned.memgraph, state_outputs(planned.graph, self._program))
            overlapping = [storages[planned.graph.nodes[node].name] for node in sorted(separate)]
            undoubled = [storage for storage in overlapping if storage.write is storage.read]
            if not undoubled:
                planned = replace(planned, memgraph=memgraph, sources={}, targets={})
                return StepPlan(planned, options), all_sources
            nbytes = sum(storage.nbytes * (1 + (storage.write is not storage.read)) for storage in storages.values())
            for storage in undoubled:
                nbytes += storage.nbytes
                storage.double(nbytes <= self._available_for_states())

    def _planned(self, graph: EinGraph, sources: Mapping[str, Source]) -> tuple[PlannedProgram, Options]:
        options, storages = self._options, self._storages or {}
        if options.memory is not None:  # states in memory are resident already, and so counted by the planner
            results = (name for name, _ in graph.outputs if name not in storages)
            nbytes = sum(results_nbytes(graph, results).values())
            if nbytes >= options.memory:
                raise CapacityError(f"a step's results take {format_size(nbytes)}, all that the session may", nbytes)
            options = replace(options, memory=options.memory - nbytes, base_nbytes=options.base_nbytes + nbytes)
        targets = {name: name for name in storages}
        return make_plan(graph, sources, targets, options), options

    def _moved_to_files(self, error: CapacityError, all_sources: dict[str, Source]) -> bool:
        """Move states to files, the largest first, until a plan may fit; False if none is left in memory."""
        in_memory = [
            storage for storage in (self._storages or {}).values() if storage.array is not None and storage.nbytes
        ]
        if self._options.memory is None or not in_memory:
            return False
        missing_nbytes = error.needed - (self._options.memory + self._options.base_nbytes)
        for storage in sorted(in_memory, key=lambda storage: -storage.nbytes):
            storage.move_out()
            all_sources[storage.name] = storage.read
            missing_nbytes -= storage.nbytes
            if missing_nbytes <= 0:
                break
        return True

    def _available_for_states(self) -> int:
        """Bytes of memory that states may take."""
        memory, arena = self._options.memory, self._options.arena
        if memory is None:
            return available_memory() // 4 if arena is None else arena
        return int(STATES_SHARE * max(0, memory - resident_nbytes() + self._states_nbytes()))

    def _states_nbytes(self) -> int:
        """Bytes of memory that states take."""
        return sum(_array_nbytes(storage.read, storage.write) for storage in (self._storages or {}).values())

    def _allocate_states(self, graph: EinGraph, sources: Mapping[str, Source]) -> None:
        """Allocate each changing state, the smallest ones in memory, and initialize it.

        If there is memory, a large one gets a second copy: a step then reads one and writes the other in place.
        """
        nodes = [n for n in graph.nodes if isinstance(n, InputNode) and n.name in self._program.updates]
        available, spare, self._storages = self._available_for_states(), 0, {}
        for node in sorted(nodes, key=lambda n: math.prod(n.shape) * n.dtype.itemsize):
            available -= math.prod(node.shape) * node.dtype.itemsize
            storage = StateStorage(node.name, node.shape, node.dtype, available >= 0, self._options.spill)
            self._storages[node.name] = storage
            storage.fill(sources[node.name])
            spare = spare if available < 0 else available
        spare -= self._available_for_states() // 2  # more arena is worth more than avoided copies
        for storage in self._storages.values():
            if storage.array is not None and LARGE_NBYTES <= storage.nbytes <= spare:
                storage.double(in_memory=True)
                self._second_copies.append(storage.name)
                spare -= storage.nbytes
        for name in self._storages:
            if name in self._given_sources:
                self._given_sources.pop(name).close()

    def source(self, name: str) -> Source:
        """The storage of a state. The next step may overwrite it."""
        with self._lock.exclusive:
            self._require_open()
            return self._source(name)

    def _source(self, name: str) -> Source:
        if self._storages is not None and name in self._storages:
            return self._storages[name].read
        check_names("state", [name], [state.name for state in self._program.states])
        if name in self._given_sources:
            return self._given_sources[name]
        state = next(state for state in self._program.states if state.name == name)
        graph = bind(self._program, self._given_sources, self._dims)
        node = next((n for n in graph.nodes if isinstance(n, InputNode) and n.name == state.name), None)
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


def _array_nbytes(*sinks: Sink) -> int:
    return sum(sink.array.nbytes for sink in {id(s): s for s in sinks}.values() if isinstance(sink, ArraySink))
