"""Plans a call of a program: opens its inputs, and finds or makes its plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from einturnip.api import plan_cache
from einturnip.api.active_runs import undisturbed
from einturnip.api.call_settings import DASK, Settings, Target
from einturnip.api.inputs import check_names, close_all, file_spec, open_inputs, require_output
from einturnip.api.jobs import Job, Missing, complete, plan_job, results_nbytes, tiers
from einturnip.api.plan_cache import CachedPlan, CachedStages
from einturnip.api.results import File
from einturnip.api.session_states import initial_state, with_state_outputs
from einturnip.api.staged_job import StagedJob
from einturnip.compiler import Options, bind, bind_stages
from einturnip.core.errors import BindError, CapacityError
from einturnip.core.units import format_size
from einturnip.devices.kind import choose, default_memory
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang.program import TypedProgram
from einturnip.planner.budget import Budget
from einturnip.storage.device_arrays import DeviceArray, gpu_of
from einturnip.storage.generated import AbsentSource
from einturnip.storage.types import Array, Source

Planned: TypeAlias = tuple[Job, CachedPlan] | tuple[StagedJob, CachedStages]
"""A job, and its cached plan or plans of stages."""


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """A program with its folder and the sizes that are given for it."""

    program: TypedProgram
    folder: Path
    sizes: Mapping[str, int]

    def targets(self, program: TypedProgram, out: Mapping[str, Target]) -> dict[str, str | Array | None]:
        """The target of each output: the caller's, the program's, or None for a new array."""
        targets: dict[str, str | Array | None] = {}
        for output in program.outputs:
            if (target := out.get(output.name)) is not None:
                targets[output.name] = os.fspath(target) if isinstance(target, str | os.PathLike) else target
            else:
                targets[output.name] = file_spec(output.file, self.folder) if output.file else None
        return targets


def plan_call(sized: SizedProgram, settings: Settings, data: Mapping[str, Any], before: int | None = None) -> Planned:
    """Plan a call with the present memory of the process.

    ``before``: the settings' resident memory before the call, if that began earlier.
    """
    before = settings.before() if before is None else before
    given = {name: value.spec if isinstance(value, File) else value for name, value in data.items()}
    if not isinstance(settings.out, Mapping):
        raise BindError(f'out= is a {type(settings.out).__name__}. help: name each output, out={{"Z": "z.npy"}}')
    for name, target in settings.out.items():
        if isinstance(target, str) and target == DASK:
            raise BindError(f"output {name}: blocks stay on workers, and there are none. help: client=Client(...)")
    typed, sizes = sized.program, sized.sizes
    outputs = [*(output.name for output in typed.outputs), *(state.name for state in typed.states)]
    check_names("output", settings.out, dict.fromkeys(outputs))
    require_output(typed)
    program = with_state_outputs(typed, settings.out)
    missing = initial_state(program, _absent)
    check_names("dim", sizes, typed.dims)
    options, allowed = settings.options(), settings.allowed()
    sources = open_inputs(typed, given, sized.folder, True, lambda: settings.reading(before))
    try:
        targets = sized.targets(program, settings.out)
        stored_outputs = tuple(name for name, target in targets.items() if target is not None)
        arrays = any(isinstance(source, DeviceArray) for source in sources.values())
        results = (n for n, t in targets.items() if (arrays if t is None else gpu_of(t) is not None))
        options = replace(options, on_device=tuple(results))
        shapes = plan_cache.shapes_key(sources)
        machine = plan_cache.machine_key()
        key = (id(typed), tuple(sorted(sizes.items())), shapes, stored_outputs, options, allowed, machine)
        cached = plan_cache.find(key)
        if isinstance(cached, CachedStages):
            outputs_graph = cached.plans.staged.stages[-1].graph
            options = _limited(options, allowed, before, True, outputs_graph, targets)
            plans = cached.plans.within(options)
            idle = cached.take_idle()
            if idle is None:
                return StagedJob(plans.staged, sources, missing, targets, options, plans), cached
            idle.begin_call(sources, missing, targets, plans)
            return idle, cached
        if cached is not None:
            return _job_of_cached_plan(cached, sources, missing, targets, options, allowed, before), cached
        with settings.reading(before):
            staged = bind_stages(program, sources, sizes, options)
            graph = bind(program, sources, sizes) if staged is None else staged.stages[-1].graph
        options = _limited(options, allowed, before, settings.memory is not None, graph, targets)
        options = _beside_results(options, graph, targets)
        if staged is not None:
            stages = StagedJob(staged, sources, missing, targets, options)
            return stages, plan_cache.keep_stages(key, typed, stages.plans_for_reuse())
        job = plan_job(graph, complete(graph, sources, missing), targets, options)
        return job, plan_cache.keep(key, typed, job)
    except BaseException:
        close_all(sources.values())
        raise


def _absent(node: InputNode) -> Source:
    return AbsentSource(node.name, node.shape, node.dtype)


def _beside_results(options: Options, graph: EinGraph, targets: Mapping[str, str | Array | None]) -> Options:
    """The options with a budget that leaves new results on the device their memory."""
    names = [name for name in options.on_device if targets[name] is None]
    if not names or options.arena is not None:
        return options
    allowed = options.memory if options.memory is not None else min(default_memory(choose(options.device)))
    results = results_nbytes(graph, names)
    total = sum(results.values())
    if total >= allowed:
        largest = max(results, key=lambda name: results[name])
        raise CapacityError(
            f"the result {largest} takes {format_size(results[largest])} of the memory of {options.device}, of which a "
            f'run can use {format_size(allowed)}. help: stream it to a file, out={{"{largest}": "{largest}.npy"}}',
            total + 1,
        )
    return replace(options, memory=allowed - total)


def _limited(
    options: Options,
    allowed: int | None,
    before: int,
    is_explicit: bool,
    graph: EinGraph,
    targets: Mapping[str, str | Array | None],
) -> Options:
    """The options with the limit of the process, if the call may add ``allowed`` bytes to it."""
    if allowed is None:
        return options
    memory = before + _available(allowed, is_explicit, graph, targets)
    return replace(options, memory=memory, base_nbytes=allowed - memory)


def _available(allowed: int, is_explicit: bool, graph: EinGraph, targets: Mapping[str, str | Array | None]) -> int:
    """Bytes that may be added to the process besides the results in memory.

    Raises:
        CapacityError: the results alone exceed it; names those that need a file.
    """
    nbytes = results_nbytes(graph, (name for name, target in targets.items() if target is None))
    total = sum(nbytes.values())
    if total >= allowed:
        largest = max(nbytes, key=lambda name: nbytes[name])
        budget = "memory=" if is_explicit else "half of the free memory"
        raise CapacityError(
            f"the result {largest} takes {format_size(nbytes[largest])} which exceeds the {format_size(allowed)} "
            f'of {budget}. help: stream it to a file, out={{"{largest}": "{largest}.npy"}}',
            total + 1,
        )
    return allowed - total


def plan_undisturbed(settings: Settings, plan: Callable[[], Planned]) -> Planned:
    """Plan a call; see ``undisturbed`` for calls with given memory."""
    if settings.allowed() is None:
        return plan()

    def trial() -> None:
        job, cached = plan()
        job.close()
        plan_cache.drop(cached)  # it assumes an idle process

    return undisturbed(plan, trial)


def _job_of_cached_plan(
    cached: CachedPlan,
    sources: Mapping[str, Source],
    missing: Missing,
    targets: Mapping[str, str | Array | None],
    options: Options,
    allowed: int | None,
    before: int,
) -> Job:
    """A cached plan for these inputs and outputs; only the process's share of its budget differs."""
    planned = cached.planned
    if allowed is not None and not cached.prepared.is_inline:
        memory = before + _available(allowed, True, cached.bound, targets)
        options, budget = replace(options, memory=memory), Budget(memory, planned.budget.arena)
        planned = replace(planned, budget=budget)
    found = complete(cached.bound, sources, missing)
    return Job(cached.bound, replace(planned, sources=found, targets=tiers(targets)), found, targets, options)
