"""Programs and plans as Python objects."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einturnip.api import call_cache, plan_cache
from einturnip.api.call_planning import Planned, SizedProgram, plan_call, plan_undisturbed
from einturnip.api.call_settings import Settings, Size, Sizes, Target
from einturnip.api.cluster_call import run_on
from einturnip.api.inputs import check_names, compile_path
from einturnip.api.jobs import Job
from einturnip.api.known_sizes import checked_sites, integer_sizes
from einturnip.api.plan_cache import CachedPlan, CachedStages
from einturnip.api.results import File, Result, open
from einturnip.api.run_program import run_job, run_on_arrays
from einturnip.api.use_lock import UseLock
from einturnip.core.errors import BindError, RunError
from einturnip.devices.kind import of_sites
from einturnip.lang import compile_text
from einturnip.lang import program as lang
from einturnip.report.progress import showing
from einturnip.runtime.scheduler.report import Prediction, Progress
from einturnip.storage.formats.hdf5_external import external_files_allowed

if TYPE_CHECKING:
    from einturnip.api.session import Session
    from einturnip.api.staged_job import StagedJob

__all__ = ["File", "Plan", "Program", "Result", "Size", "Target", "compile", "open"]


def compile(path_or_text: str | os.PathLike[str], dims: Mapping[str, int] | None = None) -> Program:
    """Compile a program from a file or from source text, checked but without sizes.

    A string is a path if it ends in ``.ein`` and has no line break. ``dims`` gives sizes their values.

    Raises:
        SourceError: the program has errors; the message shows every place. BindError: no such file, or no such size.

        >>> import einturnip as et
        >>> et.compile("input x : f64[n]\\ns = sum[i] x[i]\\noutput s")
        Program(inputs: x, outputs: s)
    """
    if not isinstance(path_or_text, str | os.PathLike):
        raise BindError(f"{path_or_text!r} is neither a text nor a path")
    is_text = isinstance(path_or_text, str) and ("\n" in path_or_text or not path_or_text.endswith(".ein"))
    if is_text:
        program, folder = compile_text(str(path_or_text), "<text>"), Path()
    else:
        path = Path(path_or_text)
        program, folder = compile_path(path), path.parent
    check_names("dim", dims or {}, program.dims)
    return Program(program, folder, MappingProxyType(integer_sizes(dims or {})))


def _unpickled(program: lang.TypedProgram, folder: Path, dims: Mapping[str, int]) -> Program:
    return Program(program, folder, MappingProxyType(dims))


@dataclass(frozen=True, repr=False)
class Program:
    """A compiled program: call it, or plan it. It has no data and is immutable, so threads may share it."""

    _program: lang.TypedProgram
    _folder: Path
    _dims: Mapping[str, int] = field(compare=False)
    # Identifies programs that may share plans; plan_cache explains why an id suffices.
    _plan_key: Hashable = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Compute what every call needs to find its plan."""
        object.__setattr__(self, "_plan_key", (id(self._program), *sorted(self._dims.items())))

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
        """The compiler's warnings, each with its place."""
        return tuple(warning.render() for warning in self._program.warnings)

    def __reduce__(self) -> tuple[Callable[..., Program], tuple[Any, ...]]:
        """Pickle the checked program and its sizes; what identifies it within a process is computed anew."""
        return _unpickled, (self._program, self._folder, dict(self._dims))

    def __repr__(self) -> str:
        """Return the names of the inputs and outputs."""
        return f"Program(inputs: {', '.join(self.inputs) or 'none'}, outputs: {', '.join(self.outputs) or 'none'})"

    def __call__(
        self,
        *positional: Any,
        memory: Sizes | None = None,
        arena: Sizes | None = None,
        workers: int | None = None,
        out: Mapping[str, Target] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        exact: bool = True,
        device: str | None = None,
        host_memory: Size | None = None,
        link: str | None = None,
        rates: str | Sequence[float] | None = None,
        reproducible: bool = False,
        force: bool = False,
        progress: Callable[[Progress], None] | bool | None = None,
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        allow_external: bool = False,
        client: Any = None,
        retries: int = 0,
        **inputs: Any,
    ) -> Result:
        """Run the program on NumPy or Dask arrays, DLPack objects, paths or ``et.open`` handles.

        ``memory`` is the maximum that einturnip adds to this process (default: half of the free memory): results and
        arena together; ``arena`` sets the arena alone. ``out`` names files (or arrays) for results, which then are not
        kept in memory. ``exact=False`` permits squared distances as matrix products where those are faster, with a loss
        of digits for distances that are small compared with the points. ``device``: ``cpu``, ``cuda``, ``cuda:1``,
        ``sim``, or ``auto`` for a GPU if one is usable; by default the GPU in whose memory inputs are (CuPy's arrays,
        others by DLPack), else the CPU. Results stay on that GPU. On devices other than the CPU ``memory`` is the
        device's, and ``host_memory`` bounds the process. ``link``: the rate and latency between any two devices or
        workers, such as ``1.25GB/s,50us``; ``rates``: how fast each computes, such as ``[2, 1]``.
        ``reproducible=True``: the same bits for any memory and any number of workers. ``force=True`` runs a program
        although it takes longer than a week, or makes a tensor larger than memory and disk together. ``data`` takes
        inputs whose names are parameters of this call, such as ``memory``; ``dims`` gives sizes that no input has.
        ``allow_external=True``: an HDF5 input may take its data from other files that it names. ``client``: a Dask
        client whose workers run the program, each within ``memory``; the target ``"dask"`` in ``out`` then makes a
        result a ``dask.array`` whose blocks stay on the workers. ``retries``: how often a run that lost a worker is
        planned anew for those that are left.
        ``progress``: True shows a status line, a function receives the progress several times a second.

        Raises:
            BindError: inputs and program disagree. CapacityError: it does not fit. RunError: the run failed.
        """
        if positional:
            names = ", ".join(f"{name}=..." for name in self.inputs)
            raise BindError(f"inputs are given by their names. help: program({names})")
        given = {**inputs, **data} if data else inputs
        plain = progress is None and memory is None and spill is None and not out and not dims
        is_cacheable = (
            plain and client is None and rates is None and not retries and (device is None or isinstance(device, str))
        )
        is_cacheable = is_cacheable and (link is None or isinstance(link, str))
        is_cacheable = is_cacheable and (arena is None or isinstance(arena, str | int))
        budget, arrays = (arena, plan_cache.free_share() if arena is None else 0), tuple(given.values())
        settings_key = self._plan_key, budget, workers, policy, exact, device, link, reproducible, force, *given
        key = call_cache.key_of(settings_key, arrays) if is_cacheable else None
        if (found := call_cache.run(key, arrays, run_on_arrays)) is not None:
            return found
        settings = Settings(
            *(memory, arena, workers, out or {}, spill, spill_limit, policy, exact, device, host_memory),
            *(reproducible, force, link, rates, retries),
        )
        settings.require_client(client)
        with showing(progress) as show:
            if client is not None:
                return run_on(client, self.sized(dims or {}), settings, given, allow_external, show)
            with external_files_allowed(allow_external):
                job, cached = self.planned(settings, given, dims or {})
            try:
                if isinstance(job, Job) and isinstance(cached, CachedPlan):
                    call_cache.remember(key, cached, job, given)
                result = run_job(job, cached, show, None)
            except BaseException:
                job.close()
                raise
            plan_cache.end_call(job, cached)
            return result

    def plan(
        self,
        *,
        memory: Sizes | None = None,
        arena: Sizes | None = None,
        workers: int | None = None,
        out: Mapping[str, Target] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        exact: bool = True,
        device: str | None = None,
        sites: int | None = None,
        link: str | None = None,
        rates: str | Sequence[float] | None = None,
        host_memory: Size | None = None,
        reproducible: bool = False,
        force: bool = False,
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        allow_external: bool = False,
        **inputs: Any,
    ) -> Plan:
        """Plan a call with these arguments. Inputs may be absent if ``dims`` gives their sizes.

        ``sites``: plan for P sites that have the given memory each, instead of for ``device``; ``link``: between any
        two of them; ``rates``: how fast each computes, such as ``[2, 1]``.

        Raises:
            BindError: inputs and program disagree, or a site would compute nothing. CapacityError: it does not fit.
        """
        if sites is not None:
            if device not in (None, "cpu"):
                raise BindError("sites= plans for P sites in their memory; leave out device=")
            device = of_sites(checked_sites(sites))
        settings = Settings(
            *(memory, arena, workers, out or {}, spill, spill_limit, policy, exact, device, host_memory),
            *(reproducible, force, link, rates),
        )
        with external_files_allowed(allow_external):
            job, cached = self.planned(settings, {**inputs, **(data or {})}, dims or {})
        if sites is not None and isinstance(job, Job):
            from einturnip.report.sites import require_work  # loads the search

            require_work([job.planned.memgraph], rates)
        return Plan(job, cached)

    def session(
        self,
        *,
        memory: Sizes | None = None,
        arena: Sizes | None = None,
        workers: int | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        exact: bool = True,
        link: str | None = None,
        rates: str | Sequence[float] | None = None,
        reproducible: bool = False,
        force: bool = False,
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        allow_external: bool = False,
        client: Any = None,
        retries: int = 0,
        **inputs: Any,
    ) -> Session:
        """Create a session, which runs the program step by step and keeps its states in place.

        Inputs and initial states given here apply to every step. ``memory`` is the maximum that the session adds to
        this process: states, results and arena together; states that do not fit are kept in nameless files.
        ``reproducible=True``: every step has the same bits for any memory and any number of workers. ``client``: a Dask
        client whose workers run the steps and keep the states, each within ``memory``; ``link``: between two of them.
        ``retries``: how often a step that lost a worker is planned anew for those that are left, which can repeat it if
        they have all states.
        """
        settings = Settings(
            *(memory, arena, workers, {}, spill, spill_limit, policy, exact),
            reproducible=reproducible,
            force=force,
            link=link,
            rates=rates,
            retries=retries,
        )
        settings.require_client(client)
        from einturnip.api.session import Session

        given = {**inputs, **(data or {})}
        sizes = {**self._dims, **integer_sizes(dims or {})}
        check_names("dim", sizes, self._program.dims)
        with external_files_allowed(allow_external):
            options, allowed = settings.options(), settings.allowed()
            cluster = None
            if client is not None:
                from einturnip.cluster.dask import DaskCluster

                options, allowed = settings.options(on_workers=True), None
                cluster = DaskCluster(client)
            return Session(self._program, self._folder, sizes, options, given, allowed=allowed, cluster=cluster)

    def planned(
        self, settings: Settings, data: Mapping[str, Any], dims: Mapping[str, int] = MappingProxyType({})
    ) -> Planned:
        """Plan a call, or reuse the plan of an equal earlier call (internal: see ``plan``)."""
        settings = settings.on_device_of(data)
        return plan_undisturbed(settings, lambda: self.job(settings, data, dims))

    def job(
        self,
        settings: Settings,
        data: Mapping[str, Any],
        dims: Mapping[str, int] = MappingProxyType({}),
        before: int | None = None,
    ) -> Planned:
        """``planned`` with the present memory of the process.

        ``before``: the settings' resident memory before the call, if that began earlier.
        """
        return plan_call(self.sized(dims), settings, data, before)

    def sized(self, dims: Mapping[str, int] = MappingProxyType({})) -> SizedProgram:
        """The program with its sizes, and those of a call (internal)."""
        return SizedProgram(self._program, self._folder, {**self._dims, **integer_sizes(dims)})


class Plan:
    """A program planned for its inputs and a budget: ``explain`` it, or ``run`` it any number of times.

    It keeps its inputs' files open until it is closed or garbage-collected. Threads may share it: they run it
    concurrently, or one after the other if it has output targets (``out=``).
    """

    def __init__(self, job: Job | StagedJob, cached: CachedPlan | CachedStages) -> None:
        self._job = job
        self._cached = cached
        lock = UseLock("plan")
        self._lock = lock.exclusive
        # Two runs with the same output array or file would mix their tiles, and two runs of a loop its values.
        alone = isinstance(cached, CachedStages) or any(target is not None for target in job.targets.values())
        self._running = lock.exclusive if alone else lock.shared
        self._closing = weakref.finalize(self, job.close)

    def explain(self) -> str:
        """Describe the plan as text: statements, predicted time, memory and bytes moved."""
        return self._job.explain()

    def relations(self) -> list[dict[str, Any]]:
        """Describe each tensor as a relation of tiles; equal to the JSON of ``plan --emit relation``."""
        return self._job.relations()

    @property
    def prediction(self) -> Prediction:
        """Predicted seconds, arena peak and bytes moved, and the I/O lower bound in bytes."""
        return self._job.prediction

    def run(
        self, progress: Callable[[Progress], None] | bool | None = None, stop: threading.Event | None = None
    ) -> Result:
        """Run the plan. ``progress``: as of a call of the program; ``stop`` ends the run once it is set.

        Raises:
            BindError: an input has sizes but no data. RunError: the run failed, without incomplete outputs, or the plan
            is closed.
        """
        with self._running, showing(progress) as show:
            if not self._closing.alive:
                raise RunError("the plan is closed. help: make another with program.plan(...)")
            return run_job(self._job, self._cached, show, stop)

    def close(self) -> None:
        """Close the inputs' files after the runs in progress; the plan cannot run again. Idempotent."""
        with self._lock:
            self._closing()

    def __repr__(self) -> str:
        """Return the text of the program."""
        return f"Plan({self._job.name})"
