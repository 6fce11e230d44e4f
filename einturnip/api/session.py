"""Sessions: a program run step after step, its states where they are between the steps."""

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
from einturnip.api.inputs import check_names, close_all, open_inputs
from einturnip.api.jobs import Missing, complete, needs_data, results_nbytes
from einturnip.api.results import File, Result
from einturnip.api.run_program import analysis
from einturnip.api.session_states import initial_state, state_outputs, with_state_outputs
from einturnip.api.step_plan import StepPlan
from einturnip.api.use_lock import UseLock
from einturnip.compiler import Options, bind, make_plan
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

# Plans that a session keeps: one for each shapes of inputs that came last.
MOST_PLANS = 8
# Of the memory allowed, how much states may take; what is beyond stands in files.
STATES_SHARE = 0.5
# From here on a state is large: to copy it takes longer than to see where it may be worked on in place.
LARGE_NBYTES = 1 << 18


class Session:
    """A program run step after step. Made by ``Program.session``; close it, or use it in a ``with``.

    ``steps`` counts the steps done. Threads may share a session: what they ask of it is done one call after the other.
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
        """``allowed``: bytes that may be added to the process, if that is what is stated and not ``options.memory``."""
        self._program = with_state_outputs(program, program.updates)
        self._dims, self._options, self._allowed = dict(dims), options, allowed
        self._beginning = initial_state(program, missing)
        self._fixed = _opened(program, inputs, folder, program.inputs)
        self._folder = folder
        self._homes: dict[str, StateStorage] | None = None
        self._second: list[str] = []  # states with a second copy that no plan needs
        self._plans: OrderedDict[Hashable, StepPlan] = OrderedDict()
        self._awake: list[StepPlan] = []
        self._torn: str | None = None
        self._damaged: list[Path] = []  # checkpoints that were passed over
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
        """One step: the outputs from the states as they are, which then change.

        Inputs given here count for this step alone; the others are those that the session was made with. An output
        that is a state is not copied out: see ``state``.

        Raises:
            BindError: inputs and program disagree. CapacityError: it does not fit. RunError: it failed on the way, or
            was called from within one of the session's own steps.
        """
        given = {**inputs, **(data or {})}
        for name in given:
            if name in {state.name for state in self._program.states}:
                raise BindError(f"'{name}' is a state: give it to the session, or set it by set_state('{name}', ...)")

        # The run begins before the lock is taken: a thread that waits for all runs is never waited for by one of them.
        def step() -> Result:
            with run_in_progress(), self._lock.exclusive:
                self._check()
                fed = _opened(self._program, given, self._folder, ())
                try:
                    return self._step({**self._fixed, **fed}, progress, stop)
                finally:
                    close_all(fed.values())

        return step() if self._allowed is None else undisturbed(step)

    def state(self, name: str) -> Array:
        """A copy of a state as it is now; while a step is going on, as it is after that."""
        with self._lock.exclusive:
            self._require_open()
            source = self._source(name)
            out = np.empty(source.shape, source.dtype.numpy)
            source.read(whole(source.shape), out)
            return out

    def set_state(self, name: str, value: Any) -> None:
        """Let a state be ``value`` (an array, a number or a file) from the next step on."""
        with self._lock.exclusive:
            self._check()
            self._set_state(name, value)

    def _set_state(self, name: str, value: Any) -> None:
        check_names("state", [name], (state.name for state in self._program.states))
        tensor = [state for state in self._program.states if state.name == name]
        source = _opened(self._program, {name: value}, self._folder, tensor)[name]
        if self._homes is None or name not in self._homes:
            self._fixed[name] = source
        elif source.shape != self._homes[name].shape:
            found, wanted = list(source.shape), list(self._homes[name].shape)
            raise BindError(f"state {name} has the shape {wanted}, and {found} is given")
        else:
            self._homes[name].fill(source)
            source.close()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a checkpoint into ``folder``: every state and the number of steps, whole or not at all."""
        with self._lock.exclusive:
            self._check()
            states = {state.name: self._source(state.name) for state in self._program.states}
            path = checkpoints.save(Path(folder), self.steps, states, self._damaged)
            self._damaged = []
            return path

    def load(self, folder: str | os.PathLike[str]) -> bool:
        """Go on from the latest whole checkpoint in ``folder``; False where there is none.

        Warns of damaged ones that it passes over; the next ``save`` to the folder removes them.

        Raises:
            BindError: it is of a program with other states. StoreError: every checkpoint is damaged.
        """
        with self._lock.exclusive:
            self._require_open()
            found, damaged = checkpoints.newest_whole(Path(folder))
            if found is None:
                return False
            checkpoints.check(found, self._program.states)
            for one in damaged:
                warnings.warn(f"{one}; going on from {found.path.name}", RuntimeWarning, stacklevel=2)
            for state in self._program.states:
                self._set_state(state.name, found.location(state.name))
            self._damaged = [one.path for one in damaged]
            self.steps, self._torn = found.steps, None
            return True

    def close(self) -> None:
        """Give up states and files, after the step that is going on; twice is allowed."""
        with self._lock.exclusive:
            if self._closed:
                return
            self._closed = True
            close_all(self._fixed.values())
            for home in (self._homes or {}).values():
                home.close()
            self._wake(None)
            self._plans.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self._program.file}, {self.steps} steps)"

    # -- one step

    def _step(
        self, sources: Mapping[str, Source], progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> Result:
        if self._homes is not None:
            sources = {**sources, **{name: home.read for name, home in self._homes.items()}}
        key = plan_cache.shapes_key({n: s for n, s in sources.items() if n not in (self._homes or {})})
        plan = self._plans.get(key)
        if plan is None:
            self._wake(None)
            plan, sources = self._made(sources)
            self._plans[self._key(sources)] = plan
            if len(self._plans) > MOST_PLANS:
                _, oldest = self._plans.popitem(last=False)
                oldest.rest()
                self._awake = [p for p in self._awake if p is not oldest]
        else:
            self._plans.move_to_end(key)
            sources = complete(plan.planned.graph, sources, self._beginning)
        self._wake(plan)
        result = self._run(plan, sources, progress, stop)
        for home in (self._homes or {}).values():
            home.turn()
        self.steps += 1
        return result

    def _wake(self, plan: StepPlan | None) -> None:
        """Let this plan keep an arena and threads, and others theirs where the budget has room: it is for all."""
        awake = [p for p in self._awake if p is not plan]
        held = sum(p.held_nbytes for p in awake) + (plan.held_nbytes if plan is not None else 0)
        while awake and (plan is None or held > plan.planned.memgraph.capacity):
            held -= awake[0].held_nbytes
            awake.pop(0).rest()
        self._awake = [*awake, plan] if plan is not None else []

    def _key(self, sources: Mapping[str, Source]) -> Hashable:
        homes = self._homes or {}
        given = {t.name for t in self._program.inputs if t.name in sources and t.name not in homes}
        return plan_cache.shapes_key({n: s for n, s in sources.items() if n in given})

    def _run(
        self,
        plan: StepPlan,
        sources: Mapping[str, Source],
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Result:
        planned, homes = plan.planned, self._homes or {}
        values: dict[str, Array] = {}
        sinks: dict[str, Sink] = {}
        for name, number in planned.graph.outputs:
            node = planned.graph.nodes[number]
            if name in homes:
                sinks[name] = homes[name].write
            else:
                values[name] = np.empty(node.shape, node.dtype.numpy)
                sinks[name] = array_sink(values[name], name, node.shape, node.dtype)
        try:
            report = plan.run(sources, sinks, progress, stop)
        except BaseException as error:
            if any(home.write is home.read for home in homes.values()):
                self._torn = f"step {self.steps} ended half done: {error}"
            raise
        return Result(values, report, analysis(planned, report))

    # -- planning

    def _made(self, sources: Mapping[str, Source]) -> tuple[StepPlan, dict[str, Source]]:
        """The plan for these inputs; states find their homes when the first is made."""
        if self._allowed is not None:
            before = callers_nbytes() - self._held_nbytes()
            self._options = replace(self._options, memory=before + self._allowed, beside=-before)
        graph = bind(self._program, sources, self._dims)
        found = complete(graph, sources, self._beginning)
        if self._homes is None:
            self._settle(graph, found)
        homes = self._homes or {}
        found |= {name: home.read for name, home in homes.items()}
        while True:
            try:
                planned, options = self._planned(graph, found)
            except CapacityError as refused:
                if not self._second and not self._moved_out(refused, found):
                    raise
                while self._second:
                    home = homes[self._second.pop()]
                    home.write = home.read
                self._plans.clear()  # they may have counted on two copies
                continue
            memgraph, apart = write_in_place(planned.memgraph, state_outputs(planned.graph, self._program))
            overlapping = [homes[planned.graph.nodes[node].name] for node in sorted(apart)]
            single = [home for home in overlapping if home.write is home.read]
            if not single:
                planned = replace(planned, memgraph=memgraph, sources={}, targets={})
                return StepPlan(planned, options), found
            held = sum(home.nbytes * (1 + (home.write is not home.read)) for home in homes.values())
            for home in single:
                held += home.nbytes
                home.double(held <= self._states_room())

    def _planned(self, graph: EinGraph, sources: Mapping[str, Source]) -> tuple[PlannedProgram, Options]:
        options, homes = self._options, self._homes or {}
        if options.memory is not None:  # homes in memory are resident already, and so counted by the planner
            results = (name for name, _ in graph.outputs if name not in homes)
            held = sum(results_nbytes(graph, results).values())
            if held >= options.memory:
                raise CapacityError(f"the results of a step take {format_size(held)}, all that the session may", held)
            options = replace(options, memory=options.memory - held, beside=options.beside + held)
        targets = {name: name for name in homes}
        return make_plan(graph, sources, targets, options), options

    def _moved_out(self, refused: CapacityError, found: dict[str, Source]) -> bool:
        """Let states stand in files, the largest first, until a plan may fit; False where none is left in memory."""
        standing = [home for home in (self._homes or {}).values() if home.array is not None and home.nbytes]
        if self._options.memory is None or not standing:
            return False
        lacking = refused.needed - (self._options.memory + self._options.beside)
        for home in sorted(standing, key=lambda home: -home.nbytes):
            home.move_out()
            found[home.name] = home.read
            lacking -= home.nbytes
            if lacking <= 0:
                break
        return True

    def _states_room(self) -> int:
        """Bytes that states may take of memory."""
        memory, arena = self._options.memory, self._options.arena
        if memory is None:
            return available_memory() // 4 if arena is None else arena
        return int(STATES_SHARE * max(0, memory - resident_nbytes() + self._held_nbytes()))

    def _held_nbytes(self) -> int:
        """Bytes that states take of memory."""
        return sum(_array_nbytes(home.read, home.write) for home in (self._homes or {}).values())

    def _settle(self, graph: EinGraph, sources: Mapping[str, Source]) -> None:
        """Give each state that changes its home, the smallest ones in memory, and what it begins with.

        Where there is room, a large one has a second copy: a step reads the one and makes the other where they are.
        """
        nodes = [n for n in graph.nodes if isinstance(n, InputNode) and n.name in self._program.updates]
        room, spare, self._homes = self._states_room(), 0, {}
        for node in sorted(nodes, key=lambda n: math.prod(n.shape) * n.dtype.itemsize):
            room -= math.prod(node.shape) * node.dtype.itemsize
            home = StateStorage(node.name, node.shape, node.dtype, room >= 0, self._options.spill)
            self._homes[node.name] = home
            home.fill(sources[node.name])
            spare = spare if room < 0 else room
        spare -= self._states_room() // 2  # the arena is worth more than what copying costs
        for home in self._homes.values():
            if home.array is not None and LARGE_NBYTES <= home.nbytes <= spare:
                home.double(in_memory=True)
                self._second.append(home.name)
                spare -= home.nbytes
        for name in self._homes:
            if name in self._fixed:
                self._fixed.pop(name).close()

    def source(self, name: str) -> Source:
        """Where a state is. The next step may write over it."""
        with self._lock.exclusive:
            self._require_open()
            return self._source(name)

    def _source(self, name: str) -> Source:
        if self._homes is not None and name in self._homes:
            return self._homes[name].read
        check_names("state", [name], [state.name for state in self._program.states])
        if name in self._fixed:
            return self._fixed[name]
        state = next(state for state in self._program.states if state.name == name)
        graph = bind(self._program, self._fixed, self._dims)
        node = next((n for n in graph.nodes if isinstance(n, InputNode) and n.name == state.name), None)
        assert node is not None
        return self._beginning(node)

    def _require_open(self) -> None:
        if self._closed:
            raise RunError("the session is closed")

    def _check(self) -> None:
        self._require_open()
        if self._torn is not None:
            raise RunError(f"the session's states are not those of any step: {self._torn}. help: load a checkpoint")


def _opened(
    program: TypedProgram, given: Mapping[str, Any], folder: Path, defaults: Iterable[InputDef]
) -> dict[str, Source]:
    """The sources of what is given, and of the ``defaults`` that come from files or numbers."""
    check_names("input", given, (tensor.name for tensor in program.inputs))
    ready = {name: value for name, value in given.items() if isinstance(value, Source)}
    plain = {n: v.spec if isinstance(v, File) else v for n, v in given.items() if n not in ready}
    names = {*plain, *(tensor.name for tensor in defaults)} - {*ready}
    kept = tuple(s for s in program.statements if not isinstance(s, InputDef) or s.name in names)
    return open_inputs(replace(program, statements=kept), plain, folder, lenient=False) | ready


def _array_nbytes(*sinks: Sink) -> int:
    return sum(sink.array.nbytes for sink in {id(s): s for s in sinks}.values() if isinstance(sink, ArraySink))
