"""Programs and plans as Python objects."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.api import call_cache, plan_cache
from einturnip.api.active_runs import undisturbed
from einturnip.api.call_settings import Settings, Size, Target
from einturnip.api.inputs import check_names, close_all, compile_path, file_spec, open_inputs, require_output
from einturnip.api.jobs import Job, Missing, complete, plan_job, results_nbytes, tiers
from einturnip.api.known_sizes import whole_sizes
from einturnip.api.plan_cache import CachedPlan
from einturnip.api.results import File, Result, open
from einturnip.api.run_program import run_job, run_on_arrays
from einturnip.api.session_states import initial_state, with_state_outputs
from einturnip.api.use_lock import UseLock
from einturnip.compiler import Options, bind
from einturnip.core.errors import BindError, CapacityError, RunError
from einturnip.core.units import format_size
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang import compile_text
from einturnip.lang import program as lang
from einturnip.planner.budget import Budget
from einturnip.runtime.scheduler.report import Prediction, Progress
from einturnip.storage.formats.hdf5_external import external_files_allowed
from einturnip.storage.generated import AbsentSource
from einturnip.storage.types import Array, Source

if TYPE_CHECKING:
    from einturnip.api.session import Session

__all__ = ["File", "Plan", "Program", "Result", "Size", "Target", "compile", "open"]


def compile(path_or_text: str | os.PathLike[str], dims: Mapping[str, int] | None = None) -> Program:
    """A program from a file or from source text, checked but without sizes.

    A string is a path where it ends in ``.ein`` and holds no line break. ``dims`` gives sizes their values.

    Raises:
        SourceError: the program is wrong; the message shows every place. BindError: no such file, or no such size.

        >>> import einturnip as et
        >>> et.compile("input x : f64[n]\\ns = sum[i] x[i]\\noutput s")
        Program(inputs: x, outputs: s)
    """
    is_text = isinstance(path_or_text, str) and ("\n" in path_or_text or not path_or_text.endswith(".ein"))
    if is_text:
        program, folder = compile_text(str(path_or_text), "<text>"), Path()
    else:
        path = Path(path_or_text)
        program, folder = compile_path(path), path.parent
    check_names("dim", dims or {}, program.dims)
    return Program(program, folder, MappingProxyType(whole_sizes(dims or {})))


@dataclass(frozen=True, repr=False)
class Program:
    """A compiled program: call it, or plan it. Holds no data and never changes, so threads may share it."""

    _program: lang.TypedProgram
    _folder: Path
    _dims: Mapping[str, int] = field(compare=False)
    # What programs have in common whose plans serve each other; see plan_cache for why an id will do.
    _same: Hashable = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_same", (id(self._program), *sorted(self._dims.items())))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs' names."""
        return tuple(tensor.name for tensor in self._program.inputs)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the inputs that are states: each step changes what the next one reads."""
        return tuple(tensor.name for tensor in self._program.states)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the inputs that have no default: a call must give them."""
        return tuple(tensor.name for tensor in self._program.inputs if tensor.default is None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs' names."""
        return tuple(output.name for output in self._program.outputs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the compiler noticed that may be meant otherwise, each with its place."""
        return tuple(warning.render() for warning in self._program.warnings)

    def __repr__(self) -> str:
        return f"Program(inputs: {', '.join(self.inputs) or 'none'}, outputs: {', '.join(self.outputs) or 'none'})"

    def __call__(
        self,
        *,
        memory: Size | None = None,
        arena: Size | None = None,
        workers: int | None = None,
        out: Mapping[str, Target] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        exact: bool = True,
        device: str = "cpu",
        host_memory: Size | None = None,
        reproducible: bool = False,
        force: bool = False,
        progress: Callable[[Progress], None] | None = None,
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        allow_external: bool = False,
        **inputs: Any,
    ) -> Result:
        """Run the program on NumPy arrays, anything that shares its memory by DLPack, paths or ``et.open`` handles.

        ``memory`` is what einturnip may add to this process (half of what is free, if not given): results and the
        arena together; ``arena`` sets the arena alone. ``out`` names files (or arrays) for results; what stands there
        is not held in memory. ``exact=False`` lets squared distances run as matrix products where those are faster;
        they lose the digits of what is small beside the points themselves. ``device``: ``cpu``, ``cuda``, ``cuda:1``,
        ``sim``, or ``auto`` for a GPU if one can be used; on any but the CPU ``memory`` is the device's, and
        ``host_memory`` bounds the process. ``reproducible=True``: the same bits in any memory and by any number of
        workers. ``force=True`` runs what is refused because it takes longer than a week, or makes a tensor larger than
        memory and disk together. ``data`` takes inputs whose names are not free, such as one called ``memory``;
        ``dims`` gives sizes that no input has. ``allow_external=True``: an HDF5 input may take its data from other
        files that it names.

        Raises:
            BindError: inputs and program disagree. CapacityError: it does not fit. RunError: it failed on the way.
        """
        given = {**inputs, **data} if data else inputs
        plain = progress is None and memory is None and spill is None and not out and not dims
        room = arena, plan_cache.free_share() if arena is None else 0
        same = self._same, room, workers, policy, exact, device, reproducible, force, *given
        arrays = tuple(given.values())
        key = call_cache.key_of(same, arrays) if plain else None
        found = call_cache.run(key, arrays, run_on_arrays)
        if found is not None:
            return found
        settings = Settings(
            *(memory, arena, workers, out or {}, spill, spill_limit, policy, exact, device, host_memory),
            *(reproducible, force),
        )
        with external_files_allowed(allow_external):
            job, kept = self.planned(settings, given, dims or {})
        try:
            call_cache.remember(key, kept, job, given)
            return run_job(job, kept, progress, None)
        finally:
            job.close()

    def plan(
        self,
        *,
        memory: Size | None = None,
        arena: Size | None = None,
        workers: int | None = None,
        out: Mapping[str, Target] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        exact: bool = True,
        device: str = "cpu",
        host_memory: Size | None = None,
        reproducible: bool = False,
        force: bool = False,
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        allow_external: bool = False,
        **inputs: Any,
    ) -> Plan:
        """What a call with these arguments would do. Inputs may be absent where ``dims`` gives their sizes."""
        settings = Settings(
            *(memory, arena, workers, out or {}, spill, spill_limit, policy, exact, device, host_memory),
            *(reproducible, force),
        )
        with external_files_allowed(allow_external):
            return Plan(*self.planned(settings, {**inputs, **(data or {})}, dims or {}))

    def session(
        self,
        *,
        memory: Size | None = None,
        arena: Size | None = None,
        workers: int | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        exact: bool = True,
        reproducible: bool = False,
        force: bool = False,
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        allow_external: bool = False,
        **inputs: Any,
    ) -> Session:
        """The program to be run step after step (``step``), its states staying where they are in between.

        Inputs and first states given here hold for every step. ``memory`` is what the session may add to this process:
        states, results and the arena together; states that do not fit beside the arena stand in nameless files.
        ``reproducible=True``: every step has the same bits in any memory and by any number of workers.
        """
        settings = Settings(
            *(memory, arena, workers, {}, spill, spill_limit, policy, exact), reproducible=reproducible, force=force
        )
        from einturnip.api.session import Session

        given = {**inputs, **(data or {})}
        sizes = {**self._dims, **whole_sizes(dims or {})}
        check_names("dim", sizes, self._program.dims)
        with external_files_allowed(allow_external):
            return Session(self._program, self._folder, sizes, settings.options(), given, allowed=settings.allowed())

    def planned(
        self, settings: Settings, data: Mapping[str, Any], dims: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[Job, CachedPlan]:
        """What a call would do, planned now or for an earlier call that was alike (not for users: see ``plan``)."""
        return planned_undisturbed(settings, lambda: self.job(settings, data, dims))

    def job(
        self,
        settings: Settings,
        data: Mapping[str, Any],
        dims: Mapping[str, int] = MappingProxyType({}),
        before: int | None = None,
    ) -> tuple[Job, CachedPlan]:
        """As ``planned``, with the memory of the process as it happens to be.

        ``before``: what the settings say of the process before the call, where that began earlier.
        """
        before = settings.before() if before is None else before
        given = {name: value.spec if isinstance(value, File) else value for name, value in data.items()}
        if not isinstance(settings.out, Mapping):
            raise BindError(f'out= is a {type(settings.out).__name__}. help: name each output, out={{"Z": "z.npy"}}')
        check_names("output", settings.out, dict.fromkeys((*self.outputs, *self.states)))
        require_output(self._program)
        program = with_state_outputs(self._program, settings.out)
        missing = initial_state(program, _absent)
        sizes = {**self._dims, **whole_sizes(dims)}
        check_names("dim", sizes, self._program.dims)
        options, allowed = settings.options(), settings.allowed()
        sources = open_inputs(self._program, given, self._folder, lenient=True)
        try:
            targets = self._targets(program, settings.out)
            kept_outputs = tuple(name for name, target in targets.items() if target is not None)
            shapes = plan_cache.shapes_key(sources)
            machine = plan_cache.machine_key()
            key = (id(self._program), tuple(sorted(sizes.items())), shapes, kept_outputs, options, allowed, machine)
            kept = plan_cache.find(key)
            if kept is not None:
                return _planned_before(kept, sources, missing, targets, options, allowed, before), kept
            graph = bind(program, sources, sizes)
            if allowed is not None:
                room = _room(allowed, settings.memory is not None, graph, targets)
                memory = before + room
                options = replace(options, memory=memory, beside=allowed - memory)
            job = plan_job(graph, complete(graph, sources, missing), targets, options)
            return job, plan_cache.keep(key, self._program, job)
        except BaseException:
            close_all(sources.values())
            raise

    def _targets(self, program: lang.TypedProgram, out: Mapping[str, Target]) -> dict[str, str | Array | None]:
        """Where each output goes: what the caller says, what the program says, or (None) an array yet to be made."""
        targets: dict[str, str | Array | None] = {}
        for output in program.outputs:
            target = out.get(output.name)
            if target is not None:
                targets[output.name] = target if isinstance(target, np.ndarray) else os.fspath(target)
            else:
                targets[output.name] = file_spec(output.file, self._folder) if output.file else None
        return targets


def _absent(node: InputNode) -> Source:
    return AbsentSource(node.name, node.shape, node.dtype)


def _room(allowed: int, stated: bool, graph: EinGraph, targets: Mapping[str, str | Array | None]) -> int:
    """What may be added to the process beside the results that are held in memory.

    Raises:
        CapacityError: the results alone pass it; names those that must go to a file.
    """
    held = results_nbytes(graph, (name for name, target in targets.items() if target is None))
    total = sum(held.values())
    if total >= allowed:
        largest = max(held, key=lambda name: held[name])
        budget = "memory=" if stated else "half of the free memory"
        raise CapacityError(
            f"the result {largest} takes {format_size(held[largest])} and cannot stand in the {format_size(allowed)} "
            f'of {budget}. help: stream it to a file, out={{"{largest}": "{largest}.npy"}}',
            total + 1,
        )
    return allowed - total


def planned_undisturbed(settings: Settings, plan: Callable[[], tuple[Job, CachedPlan]]) -> tuple[Job, CachedPlan]:
    """The plan of a call; see ``undisturbed`` for what that does where memory is stated."""
    if settings.allowed() is None:
        return plan()

    def trial() -> None:
        job, kept = plan()
        job.close()
        plan_cache.drop(kept)  # it counts on nothing else in the process

    return undisturbed(plan, trial)


def _planned_before(
    kept: CachedPlan,
    sources: Mapping[str, Source],
    missing: Missing,
    targets: Mapping[str, str | Array | None],
    options: Options,
    allowed: int | None,
    before: int,
) -> Job:
    """A plan that was made before, for these inputs and outputs. Only the process's own part of its budget differs."""
    planned = kept.planned
    if allowed is not None and not kept.ready.small:
        memory = before + _room(allowed, True, kept.bound, targets)
        options, budget = replace(options, memory=memory), Budget(memory, planned.budget.arena)
        planned = replace(planned, budget=budget)
    found = complete(kept.bound, sources, missing)
    return Job(kept.bound, replace(planned, sources=found, targets=tiers(targets)), found, targets, options)


class Plan:
    """A program planned for its inputs and a budget: ``explain`` it, ``run`` it (as often as wanted).

    It holds its inputs' files open until it is closed or forgotten. Threads may share it: they run it at the same time,
    or one after the other where its outputs have places of their own (``out=``).
    """

    def __init__(self, job: Job, kept: CachedPlan) -> None:
        self._job = job
        self._kept = kept
        lock = UseLock("plan")
        self._lock = lock.exclusive
        # Two runs that write to one array or file would mix their tiles.
        self._running = lock.shared if all(target is None for target in job.targets.values()) else lock.exclusive
        self._closing = weakref.finalize(self, job.close)

    def explain(self) -> str:
        """What will run, its predicted time, memory and bytes moved, as text."""
        from einturnip.report.explain import explain

        return explain(self._job.planned)

    @property
    def prediction(self) -> Prediction:
        """Seconds, the arena's peak and bytes moved as predicted, and what no plan could move less of (bytes)."""
        return self._job.planned.prediction

    def run(self, progress: Callable[[Progress], None] | None = None, stop: threading.Event | None = None) -> Result:
        """Run the plan.

        Raises:
            BindError: an input has sizes but no data. RunError: it failed on the way; nothing half-written is left.
            Or the plan is closed.
        """
        with self._running:
            if not self._closing.alive:
                raise RunError("the plan is closed. help: make another with program.plan(...)")
            return run_job(self._job, self._kept, progress, stop)

    def close(self) -> None:
        """Close the inputs' files, after the runs that are going on; the plan cannot run again. Twice is allowed."""
        with self._lock:
            self._closing()

    def __repr__(self) -> str:
        return f"Plan({self._job.planned.graph.program})"
